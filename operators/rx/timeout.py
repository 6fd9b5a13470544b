"""Fail, or go on with another stream, when no event comes in time.

Items:   those of the source, and after the time those of the other stream; unchanged, in order.
Time:    one timer, which begins anew with each event. It runs only while events are requested, so
         a slow reader does not count as a slow source.
Memory:  none of its own. A plain Observable in place of the other stream has a buffer of 1,024.
Demand:  requests what is requested of it; what the source has not answered goes to the other one.
Ends:    with the source, or with the other stream. When the time is over the source is cancelled:
         what it holds is returned. A drain begins no other stream. Each event is finished with the
         source that it came from.
Errors:  the source's passes through. Without another stream, TimeoutError when the time is over.

    source             --1--2----------3--|
    timeout(5, other)  --1--2----a--b|
    other                        a--b|
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from reactivex import Observable
from reactivex.abc import SchedulerBase

from penstock.streams.base.recorded import recorded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.loop_scheduler import LoopScheduler
from penstock.streams.rx.combining.inputs import as_stream
from penstock.streams.rx.combining.succession import Timed, succession
from penstock.streams.rx.lift import on_stream
from penstock.streams.stages.stream import Stream

__all__ = ["timeout"]

T = TypeVar("T")


@recorded
def timeout(
    duetime: float | timedelta | datetime,
    other: Observable[T] | None = None,
    scheduler: SchedulerBase | None = None,
) -> Callable[[Flowable[T]], Flowable[T]]:
    """Fail, or go on with `other`, when no event comes in `duetime` seconds, or until a time.

    The time counts from the first request to the first event, and from each event to the next. It
    is the loop's, unless there is a `scheduler`, which must run on the stream's thread.
    """
    following = None if other is None else as_stream("timeout", other)

    @on_stream
    def operator(source: Flowable[T]) -> Flowable[T]:
        detail = f"{duetime:g} s" if isinstance(duetime, int | float) else str(duetime)
        make = partial(_Timing, duetime=duetime, other=following, scheduler=scheduler)
        others = [] if following is None else [following]
        return succession(source, make, StageInfo("timeout", detail), others)

    return operator


class _Timing(Timed):
    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        source: Flowable[Any],
        duetime: float | timedelta | datetime,
        other: Stream[Any] | None,
        scheduler: SchedulerBase | None,
    ) -> None:
        super().__init__(downstream, run, info, source, other)
        self._duetime = duetime
        self._scheduler = scheduler or LoopScheduler(run, info)

    def request(self, n: int, /) -> None:
        self.demand += n
        # Before the source is requested, which may answer at once.
        self._wait()
        self._drain()

    def passing(self, events: list[Event[Any]]) -> None:
        self.stop_timer()
        self._wait()

    def _wait(self) -> None:
        if self.timer is not None or self.is_late or self.state or not self.demand:
            return
        if isinstance(self._duetime, datetime):
            self.timer = self._scheduler.schedule_absolute(self._duetime, self._late)
        else:
            self.timer = self._scheduler.schedule_relative(self._duetime, self._late)

    def _late(self, *_: object) -> None:
        if not (self.state or self.is_late):
            self.expire()
