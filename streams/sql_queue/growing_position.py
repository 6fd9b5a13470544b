"""How far a growing table has been read: the last id, and the ids before it that may still come.

    ids       1 2 3 . 5 6 . . 9      "." no row: rolled back, or committed later
    front     9
    gaps      (3, 5) (6, 9)

A row gets its id before its transaction commits, so one with a lower id may become visible after
one with a higher id. It is in a gap. A gap is settled when all transactions that had begun to write
when it was seen have ended, and it was looked at after that: PostgreSQL's snapshots say so
(`pg_snapshot_xmin`, `pg_snapshot_xmax`). Where one transaction writes at a time there are no gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Gap", "Place"]

_LEAST = -(2**63)


@dataclass(slots=True)
class Gap:
    """The ids between two, both excluded. `seen` is when it was (seconds of the loop's clock), and
    `until` the transaction before which all have to end until it is settled, once known."""

    after: int
    before: int
    seen: float
    until: int | None = None


class Place:
    """The front and the gaps of a reader. Memory: some numbers for each gap."""

    def __init__(self, *, has_gaps: bool) -> None:
        self.front: int | None = None
        self.gaps: list[Gap] = []
        self._has_gaps = has_gaps

    def begin(self, front: int, ranges: Iterable[tuple[int, int]], now: float) -> None:
        """Go on where an earlier reader was: rows may be in these ranges, and behind the front."""
        self.front = front
        self.gaps = [Gap(after, before, now) for after, before in ranges]

    def read(self, ids: Sequence[int], now: float) -> None:
        """These rows were read behind the front, all that were visible, in order."""
        last = _LEAST if self.front is None else self.front
        for id in ids:
            if self._has_gaps and id > last + 1:
                self.gaps.append(Gap(last, id, now))
            last = id
        if ids:
            self.front = last

    def found(self, ids: Iterable[int]) -> None:
        """These rows were found in the gaps."""
        for id in ids:
            place = next(i for i, gap in enumerate(self.gaps) if gap.after < id < gap.before)
            gap = self.gaps[place]
            parts = ((gap.after, id), (id, gap.before))
            self.gaps[place : place + 1] = [
                Gap(after, before, gap.seen, gap.until)
                for after, before in parts
                if before > after + 1
            ]

    def settle(self, oldest: int, next_one: int, before: float, looked: Sequence[Gap]) -> None:
        """Those `looked` at are all that were visible, after a snapshot in which `oldest` was the
        first transaction that had not ended and `next_one` the first that had not begun.

        A gap that was seen `before` this time gets its `until`: a row may have its id a moment
        before its transaction counts as one that writes.
        """
        whole = set(map(id, looked))
        kept: list[Gap] = []
        for gap in self.gaps:
            if id(gap) in whole and gap.until is not None and gap.until <= oldest:
                continue
            if gap.until is None and gap.seen <= before:
                gap.until = next_one
            kept.append(gap)
        self.gaps = kept

    def forget(self, looked: Sequence[Gap]) -> None:
        """As `settle`, where one transaction writes at a time."""
        whole = set(map(id, looked))
        self.gaps = [gap for gap in self.gaps if id(gap) not in whole]

    def ranges(self, unfinished: Iterable[int]) -> list[tuple[int, int]]:
        """Where the next reader finds what is not finished, before the front."""
        ranges = [(gap.after, gap.before) for gap in self.gaps]
        ranges += [(one - 1, one + 1) for one in unfinished]
        found: list[tuple[int, int]] = []
        for after, before in sorted(ranges):
            if found and after < found[-1][1] - 1:
                found[-1] = (found[-1][0], max(found[-1][1], before))
            else:
                found.append((after, before))
        return found
