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
from reactivex.abc import DisposableBase, SchedulerBase

from penstock.streams.flowable import Flowable
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import StageInfo, State, Subscriber
from penstock.streams.runtime.context import Run
from penstock.streams.rx.inputs import as_stream
from penstock.streams.rx.scheduler import LoopScheduler
from penstock.streams.rx.succession import Succession, succession

__all__ = ["timeout"]

T = TypeVar("T")


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

    def operator(source: Flowable[T]) -> Flowable[T]:
        detail = f"{duetime:g} s" if isinstance(duetime, int | float) else str(duetime)
        make = partial(_Timing, duetime=duetime, other=following, scheduler=scheduler)
        others = [] if following is None else [following]
        return succession(source, make, StageInfo("timeout", detail), others)

    return operator


class _Timing(Succession):
    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        source: Flowable[Any],
        duetime: float | timedelta | datetime,
        other: Flowable[Any] | None,
        scheduler: SchedulerBase | None,
    ) -> None:
        super().__init__(downstream, run, info, source)
        self._duetime = duetime
        self._other = other
        self._scheduler = scheduler or LoopScheduler(run, info)
        self._timer: DisposableBase | None = None
        self._is_late = False

    def request(self, n: int, /) -> None:
        self.demand += n
        # Before the source is requested, which may answer at once.
        self._wait()
        self._drain()

    def passing(self, events: list[Event[Any]]) -> None:
        self._stop()
        self._wait()

    def _wait(self) -> None:
        if self._timer is not None or self._is_late or self.state or not self.demand:
            return
        if isinstance(self._duetime, datetime):
            self._timer = self._scheduler.schedule_absolute(self._duetime, self._late)
        else:
            self._timer = self._scheduler.schedule_relative(self._duetime, self._late)

    def _stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.dispose()

    def _late(self, *_: object) -> None:
        self._timer = None
        if self.state or self._is_late:
            return
        self._is_late = True
        if self._other is None or self.run.drains:
            error = TimeoutError("Timeout")
            error.add_note(f"in {self.info}: no event came in time")
            self.close(error)
        else:
            self.read(self._other)

    def follow(self, error: BaseException | None) -> None:
        self.close(error)

    def _close(self, state: State) -> None:
        self._stop()
        super()._close(state)

    def release(self) -> None:
        self._stop()
