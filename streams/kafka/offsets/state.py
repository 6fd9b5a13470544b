"""The counts of a member of a group, in the metadata of its commits.

Kafka knows the members of a group and their partitions, and nothing of what they do. So a member of
a pipeline that runs on many machines, or whose states move with its partitions, writes its counts
once a second beside the offset of one of its partitions, where `penstock status` and the live page
of any other member find them. What was killed leaves them behind: they have the name of their
writer, and count only while that one holds the partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from zlib import crc32

__all__ = ["COUNTS", "Progress", "State", "state_in", "state_of"]

COUNTS = "~"
"""The marker with which the counts begin, after all else in the metadata."""


_COUNTS = ("in_flight", "waiting", "finished", "failed")

_MOST = 20
"""Partitions whose restoring is told: the others have no room."""


class Progress(NamedTuple):
    """How many of the records with the states of a partition are restored, and how fast."""

    partition: int
    done: int
    total: int
    per_second: int

    def about(self) -> dict[str, Any]:
        """The numbers by their names, with the `seconds` that it has taken."""
        seconds = self.done / self.per_second if self.per_second else 0.0
        numbers = {"partition": self.partition, "done": self.done, "total": self.total}
        return {**numbers, "seconds": seconds}


class State(NamedTuple):
    """The counts of a member, whose name has the checksum `who`; `standby_lag` is None if it keeps
    no standby copies."""

    who: int
    in_flight: int
    waiting: int
    finished: int
    failed: int
    standby_lag: int | None = None
    restoring: tuple[Progress, ...] = ()

    def __str__(self) -> str:
        text = COUNTS + ",".join(map(str, self[:5]))
        if self.standby_lag is not None or self.restoring:
            text += f";{'' if self.standby_lag is None else self.standby_lag}"
        return text + "".join(f";{','.join(map(str, one))}" for one in self.restoring)

    @property
    def counts(self) -> dict[str, Any]:
        """The counts by their names in the statistics; `restoring` with the `seconds` so far."""
        found = {name: getattr(self, name) for name in (*_COUNTS, "standby_lag")}
        return {**found, "restoring": [one.about() for one in self.restoring]}

    def is_of(self, name: str) -> bool:
        """Whether the member with this name has written these counts."""
        return self.who == _checksum(name)


def state_of(
    name: str,
    numbers: dict[str, Any],
    restoring: Iterable[Mapping[str, Any]] = (),
    standby_lag: int | None = None,
) -> State:
    """The state of the member with this name, from its statistics."""
    in_flight, waiting, finished, failed = (numbers[one] for one in _COUNTS)
    told = [
        Progress(one["partition"], one["done"], one["total"], round(one["per_second"]))
        for one in restoring
    ]
    who, most = _checksum(name), tuple(told[:_MOST])
    return State(who, in_flight, waiting, finished, failed, standby_lag, most)


def state_in(counts: str) -> State | None:
    """The state in a text, without what it begins with; None if there is none."""
    if not counts:
        return None
    first, *rest = counts.split(";")
    who, in_flight, waiting, finished, failed = map(int, first.split(","))
    lag = int(rest[0]) if rest and rest[0] else None
    told = tuple(Progress(*map(int, one.split(","))) for one in rest[1:])
    return State(who, in_flight, waiting, finished, failed, lag, told)


def _checksum(name: str) -> int:
    return crc32(name.encode())
