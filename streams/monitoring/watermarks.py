"""The stage that lets the `Watermark` items of a stream move its time, and nothing else."""

from __future__ import annotations

from math import inf
from typing import Any

from penstock.streams.base.ahead import Ahead, MaxAhead
from penstock.streams.base.errors import CALL_ERRORS, own_error
from penstock.streams.event_time.above import Timed
from penstock.streams.event_time.line import LateTime
from penstock.streams.event_time.source_time import SourceTime
from penstock.streams.event_time.stage import WholeTimeStage
from penstock.streams.execution.call import NO_RESULTS
from penstock.streams.failures.policy import OnError, routed_by
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.protocol.event import Event, drop_all
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.temporal.periods.intervals import Axis, Watermark
from penstock.streams.temporal.periods.seconds import seconds_at

__all__ = ["timed_by_watermarks"]


def timed_by_watermarks(source: Any, max_ahead: MaxAhead, on_error: OnError) -> Any:
    """The stream without its `Watermark` items, behind which the events are late that are before
    them."""
    timed = Timed()

    def make(downstream: Subscriber[Any], run: Run, info: StageInfo) -> _WatermarkStage:
        line = SourceTime(run, "watermarks", 0.0, inf)
        timed.add(run, line)
        faults = KeyFaults(on_error, run, info, None)
        return _WatermarkStage(
            downstream, run, info, _never, line, Ahead(max_ahead, run.wall), faults
        )

    info = StageInfo(
        "watermarks",
        "of the stream",
        0,
        "records of what is on its way",
        routed=routed_by(on_error),
        placement=Placement(untouched=True),
        timed=timed,
    )
    return source.then(make, info, passes=True)


def _never(_: object) -> float:
    """The time of everything but a watermark: before all of these, so that only these decide."""
    return -inf


class _WatermarkStage(WholeTimeStage):
    """Gives each event the watermark before it, as if that was late."""

    _ignored = 0

    def _times(self, events: list[Event[Any]]) -> tuple[list[float], Exception | None]:
        times: list[float] = []
        for event in events:
            time = -inf
            if isinstance(event.value, Watermark):
                try:
                    point = Axis().point(event.value.time)
                    time = seconds_at(point)
                    self._ahead.check(time, point)
                except CALL_ERRORS as raised:
                    return times, own_error(raised)
            times.append(time)
        return times, None

    def _emitted(self, events: list[Event[Any]], times: list[float]) -> list[Event[Any]]:
        marks = [event for event in events if isinstance(event.value, Watermark)]
        passed = super()._emitted(events, times)
        if marks:
            self._ignored += sum(isinstance(event.time, LateTime) for event in marks)
            passed = [event for event in events if not isinstance(event.value, Watermark)]
            drop_all(marks, NO_RESULTS)
        return passed

    def statistics(self) -> dict[str, Any]:
        """Items that were `skipped` or `routed` because their time cannot be read, and
        `ignored_watermarks`, which were below an earlier one."""
        return {**self._faults.statistics(), "ignored_watermarks": self._ignored}
