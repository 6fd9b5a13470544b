"""The times of events that were made of others."""

from __future__ import annotations

from typing import Any

from penstock.streams.base.errors import WrongType
from penstock.streams.protocol.acknowledgement import parents
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo

__all__ = ["time_of"]


def time_of(event: Event[Any], info: StageInfo) -> float:
    """The time of an event: its own, or the least one of those that it was made of.

    Raises WrongType if it has none.
    """
    # In a compiled class it is None before it is set.
    time: float | None = getattr(event, "time", None)
    if time is not None:
        return time
    times = [time_of(one, info) for one in parents(event)]
    if not times:
        raise WrongType(
            f"{info}: the event has no time, because it does not come from event_time(...): put "
            "that directly behind the source of each stream"
        )
    return min(times)
