"""What is to be written down in one transaction: how rows ended, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from streams.table.store import Failure, Insertion, Row

__all__ = ["Batch", "Result", "insertions"]


class Result:
    """A value for a table, which came of `rows` and is written together with their end.

    `done` is called once: with None when the value is written, or is void because its rows are;
    with the error where the database refused it, and then tells whether its rows have failed
    for good. `ahead` is for whoever made it: whether more was asked for in its place already.
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
        """It is written or void, or was refused. True: its rows have failed for good."""
        if self.settled:
            return False
        self.settled = True
        return self._done(self, error)


@dataclass(slots=True)
class Batch:
    """Rows by how they ended. Those that were dropped on purpose are processed too."""

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
        failed = (failure.row for failure in self.failed if failure.delay is not None)
        return {row.key for row in (*failed, *self.abandoned) if row.key is not None}

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
    """What came of `rows` and is not written yet, by where it goes; each value once.

    A value that came of several rows goes with the first of them that ends.
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
