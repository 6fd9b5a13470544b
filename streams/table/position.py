"""How far the claims of a store have come, so that they need not walk past the same rows."""

from __future__ import annotations

from typing import Any

from streams.table.store import Claim, Settlement

__all__ = ["Position"]


class Position:
    """The id of the last row claimed, behind which the next claim may begin; None at first.

    What is given back or failed is before it, and a claim that brought nothing has come to the
    end: then it is None again.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: Any = None

    def behind(self, reclaim: bool) -> Any:
        """The id behind which a claim begins; None if it is for all rows that are due."""
        return None if reclaim else self._last

    def claimed(self, claim: Claim) -> None:
        """Hear what a claim brought."""
        self._last = claim.rows[-1].id if claim.rows else None

    def settles(self, settlement: Settlement) -> None:
        """Hear what becomes of rows, before it is written down."""
        if settlement.failed or settlement.returned:
            self._last = None
