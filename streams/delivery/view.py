"""A snapshot of a pipeline whose processes share the partitions of a broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["View"]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """`stored` events or messages, as `unit` says, are on the broker; `lag` is how many of each
    partition are not finished. `workers` has the name of each worker by its id, and its counts as
    far as they are known; `owners` the id of the worker of each partition that has one."""

    name: str
    stored: int
    letters: int
    lag: dict[int, int]
    owners: dict[int, str]
    workers: dict[str, dict[str, Any]]
    unit: str = "event"
    """`event`, or `message` where each holds several."""

    @property
    def unfinished(self) -> int:
        return sum(self.lag.values())
