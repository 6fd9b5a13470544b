"""A stream whose events have the times that are read from them, by `event_time` or in its place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.streams.base.ahead import Ahead, MaxAhead, check_max_ahead
from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By, Key, key_name
from penstock.streams.event_time.above import Timed
from penstock.streams.event_time.source_time import SourceTime
from penstock.streams.event_time.stage import EventTimeStage, WholeTimeStage
from penstock.streams.execution.handler import called_name
from penstock.streams.failures.policy import OnError, check_policy, routed_by
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Picture, Placement, StageInfo
from penstock.streams.runtime.context import Run

__all__ = ["IDLE", "require_one_stream", "timed_by"]

IDLE = 30.0
"""The default of `idle`."""


def timed_by(
    field: By[Any],
    lateness: float,
    idle: float,
    max_ahead: MaxAhead,
    on_error: OnError,
    *,
    whole: bool = False,
    option: str = "time",
) -> Callable[[Any], Any]:
    """A function that gives the events of a stream the times in their `field`: see `event_time`.

    `whole`: all events have one watermark, whatever partitions they are of.
    `option` is what the field is given as.
    Raises BuildError for a wrong field, `max_ahead` or policy.
    """
    Key(field, option)
    check_max_ahead("event_time", max_ahead)
    check_policy(on_error, "event_time")
    timed = Timed()

    def make(downstream: Subscriber[Any], run: Run, info: StageInfo) -> EventTimeStage:
        time = SourceTime(run, f"event_time {key_name(field)}", lateness, idle)
        timed.add(run, time)
        if run is not run.root or info.within is not None:
            time.may_leave = True
            time.on_gone(partial(timed.remove, run, time))
        faults = KeyFaults(on_error, run, info, None, field)
        kind = WholeTimeStage if whole else EventTimeStage
        return kind(downstream, run, info, field, time, Ahead(max_ahead, run.wall), faults)

    info = StageInfo(
        "event_time",
        f"{key_name(field)}, lateness {lateness:g} s",
        0,
        "records of what is on its way",
        routed=routed_by(on_error),
        placement=Placement(reads=(field,), untouched=not callable(field)),
        picture=Picture(calls=called_name(field)),
        timed=timed,
    )
    return lambda source: source.then(make, info, passes=True)


def require_one_stream(operator: str, source: Any) -> None:
    """Raises BuildError if a stage above makes one stream of several, whose events would be late by
    each other. The results of a stage that are not late by each other are one stream."""
    for stream in reversed(source.chain()):
        if stream.info.untimed or stream.info.timed is not None:
            return
        if stream.info.inputs:
            raise BuildError(
                f"{operator} reads several streams behind {stream.info}: give each of them an "
                "event_time of its own, as the time of each goes its own way"
            )
