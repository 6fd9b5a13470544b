"""The contents of one transaction: the outcomes of rows, and their results."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from penstock.streams.sql_queue.store import Failure, Insertion, Row

__all__ = ["Batch", "Result", "insertions"]


class Result:
    """A value for a table: a result of `rows`, written in the same transaction as their outcomes.

    `done` is called once: with None when the value is written, or is void because its rows are;
    with the error if the database refused it, and then returns whether its rows have failed for
    good. `ahead` belongs to the creator: whether its successor has been requested already.
    """

    __slots__ = ("_done", "ahead", "into", "rows", "settled", "value")

    def __init__(
        self,
        into: Insertion,
        value: Any,
        rows: list[Row],
        done: Callable[[Result, Exception | None], bool],
    ) -> None:
        self.into = into
        self.value = value
        self.rows = rows
        self.settled = self.ahead = False
        self._done = done
        for row in rows:
            if row.results is None:
                row.results = []
            row.results.append(self)

    def settle(self, error: Exception | None = None) -> bool:
        """The result is written or void, or was refused. Returns whether its rows have failed for
        good."""
        if self.settled:
            return False
        self.settled = True
        return self._done(self, error)


@dataclass(slots=True)
class Batch:
    """Rows by outcome. Rows that were dropped on purpose count as processed."""

    finished: list[Row] = field(default_factory=list[Row])
    dropped: list[Row] = field(default_factory=list[Row])
    failed: list[Failure] = field(default_factory=list[Failure])
    returned: list[Row] = field(default_factory=list[Row])
    abandoned: list[Row] = field(default_factory=list[Row])

    def __len__(self) -> int:
        return len(self.rows())

    def rows(self) -> list[Row]:
        failed = (failure.row for failure in self.failed)
        return [*self.finished, *self.dropped, *self.returned, *self.abandoned, *failed]

    @property
    def held_back(self) -> set[str]:
        """The keys of rows that are to be tried again before any later ones."""
        failed = (failure.row for failure in self.failed if failure.parks)
        return {row.key for row in (*failed, *self.abandoned) if row.key is not None}

    def halves(self) -> tuple[Batch, Batch]:
        """Two parts of it; what finished comes before what holds a key back."""
        rows = self.rows()
        middle = len(rows) // 2
        return self.without(set(rows[middle:])), self.without(set(rows[:middle]))

    def cut(self, most: int) -> Batch:
        """Keep the first `most` of those that finished; gives the others."""
        rest = Batch(self.finished[most:])
        del self.finished[most:]
        return rest

    def without(self, rows: Collection[Row]) -> Batch:
        return Batch(
            [row for row in self.finished if row not in rows],
            [row for row in self.dropped if row not in rows],
            [failure for failure in self.failed if failure.row not in rows],
            [row for row in self.returned if row not in rows],
            [row for row in self.abandoned if row not in rows],
        )


def insertions(rows: list[Row]) -> list[Insertion]:
    """The unwritten results of `rows` by target table; each value once.

    A result of several rows goes with the first of them that ends.
    """
    inserts: dict[int, Insertion] = {}
    seen: set[Result] = set()
    for row in rows:
        for result in row.results or ():
            if not result.settled and result not in seen:
                seen.add(result)
                into = result.into
                target = inserts.setdefault(id(into), Insertion(into.layout, into.fields))
                target.values.append(result.value)
    return list(inserts.values())
