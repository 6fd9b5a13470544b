"""The numbers of sources that a running pipeline no longer has."""

from __future__ import annotations

from typing import Any

__all__ = ["TOTALS", "PastSources", "unfinished"]

TOTALS = ("in", "finished", "failed", "returned")
"""The counts that every source has."""


def unfinished(numbers: dict[str, Any]) -> int:
    """How many events of a source have not ended, by its statistics."""
    ended = numbers["finished"] + numbers["failed"] + numbers["returned"]
    count: int = numbers["in"] - ended - sum(numbers["dropped"].values())
    return count


class PastSources:
    """The sum of the statistics of sources that were read to their end, and whose events ended."""

    def __init__(self) -> None:
        self.totals = dict.fromkeys(TOTALS, 0)
        self.dropped: dict[str, int] = {}

    def add(self, numbers: dict[str, Any]) -> None:
        """Add the last statistics of a source."""
        for name in TOTALS:
            self.totals[name] += numbers[name]
        for cause, count in numbers["dropped"].items():
            self.dropped[cause] = self.dropped.get(cause, 0) + count
