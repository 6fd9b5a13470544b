"""A claim cursor: the place in the order of claims up to which rows have been claimed."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.streams.sql_queue.claimed import Claim, Settlement

__all__ = ["Place", "Position"]


class Place(NamedTuple):
    """The place of a row in the order of claims."""

    priority: int
    id: Any


class Position:
    """The place of the last row claimed, behind which the next claim may begin; None at first.

    Returned and failed rows lie before it, and so may a lost key's; a claim without rows has
    reached the end. All reset it to None.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: Place | None = None

    def behind(self, reclaim: bool) -> Place | None:
        """The place after which a claim begins, except that it looks at rows of lower priorities
        as well; None if it covers all rows that are due."""
        return None if reclaim else self._last

    def claimed(self, claim: Claim) -> None:
        """Take note of the rows of a claim."""
        last = claim.rows[-1] if claim.rows else None
        self._last = None if last is None else Place(last.priority, last.id)

    def reached(self, last: Any) -> None:
        """All rows that a claim by keys may take up to this id have been claimed; None if
        unknown."""
        self._last = None if last is None else Place(0, last)

    def settles(self, settlement: Settlement) -> None:
        """Take note of a settlement before it is written."""
        if settlement.failed or settlement.returned or settlement.abandoned:
            self._last = None
