"""A claim cursor: the place in a table up to which rows have been claimed."""

from __future__ import annotations

from typing import Any

from penstock.streams.sql_queue.store import Claim, Settlement

__all__ = ["Position"]


class Position:
    """The id of the last row claimed, behind which the next claim may begin; None at first.

    Returned and failed rows lie before it, and so may a lost key's; a claim without rows has
    reached the end. All reset it to None.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: Any = None

    def behind(self, reclaim: bool) -> Any:
        """The id after which a claim begins; None if it covers all rows that are due."""
        return None if reclaim else self._last

    def claimed(self, claim: Claim) -> None:
        """Take note of the rows of a claim."""
        self._last = claim.rows[-1].id if claim.rows else None

    def reached(self, last: Any) -> None:
        """All rows that a claim may take up to this id have been claimed; None if unknown."""
        self._last = last

    def settles(self, settlement: Settlement) -> None:
        """Take note of a settlement before it is written."""
        if settlement.failed or settlement.returned or settlement.abandoned:
            self._last = None
