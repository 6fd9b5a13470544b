"""The counts of a member of a group, in the metadata of its commits.

Kafka knows the members of a group and their partitions, and nothing of what they do. So a member of
a pipeline that runs on many machines writes its counts once a second beside the offset of one of
its partitions, where the live page of any other member finds them. What was killed leaves them
behind: they have the name of their writer, and count only while that one holds the partition.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from zlib import crc32

__all__ = ["COUNTS", "State", "state_in", "state_of"]

COUNTS = "~"
"""The marker with which the counts begin, after all else in the metadata."""


_COUNTS = ("in_flight", "waiting", "finished", "failed")


class State(NamedTuple):
    """The counts of a member, whose name has the checksum `who`."""

    who: int
    in_flight: int
    waiting: int
    finished: int
    failed: int

    def __str__(self) -> str:
        return COUNTS + ",".join(map(str, self))

    @property
    def counts(self) -> dict[str, int]:
        """The counts by their names in the statistics."""
        return {name: getattr(self, name) for name in _COUNTS}

    def is_of(self, name: str) -> bool:
        """Whether the member with this name has written these counts."""
        return self.who == _checksum(name)


def state_of(name: str, numbers: dict[str, Any]) -> State:
    """The state of the member with this name, from its statistics."""
    counts = (numbers[one] for one in _COUNTS)
    return State(_checksum(name), *counts)


def state_in(counts: str) -> State | None:
    """The state in a text, without what it begins with; None if there is none."""
    if not counts:
        return None
    who, in_flight, waiting, finished, failed = map(int, counts.split(","))
    return State(who, in_flight, waiting, finished, failed)


def _checksum(name: str) -> int:
    return crc32(name.encode())
