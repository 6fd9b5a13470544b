"""The outcomes of rows, to be written in one transaction."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from penstock.streams.sql_queue.store import Failure, Row

__all__ = ["Batch"]


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
