"""The stage of a master: events go in, are processed by workers, and come out as results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.streams.errors import PenstockError
from penstock.streams.execution.results import InOrder, Results
from penstock.streams.execution.siblings import Siblings
from penstock.streams.failures.policy import ErrorPolicy, OnError
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import Stage, StageInfo, Subscriber, Subscription, is_second
from penstock.streams.runtime.context import Run
from penstock.streams.work_pulling.office import Office

__all__ = ["Offering"]


class Offering(Stage[Any, Any]):
    """Reads the epic only as far as workers request, and as there is room for results.

    `_jobs` are the events that are out, by number; the event of a job stays here, so that its
    source is acknowledged when the sinks have accepted the result.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        office: Office,
        *,
        ordered: bool,
        window: int,
        on_error: OnError,
    ) -> None:
        super().__init__(downstream)
        self.run = run
        self.info = info
        self._office = office
        self._window = window
        self._results = (InOrder if ordered else Results)(downstream, window)
        self._faults = ErrorPolicy(on_error, run, info)
        self._jobs: dict[int, Event[Any]] = {}
        self._siblings = Siblings()
        self._asked = self._count = self._peak = 0
        self._opened = self._closing = self._over = False
        self._error: BaseException | None = None

    # Demand.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if is_second(self, subscription):
            return
        self.upstream = subscription
        self.downstream.on_subscribe(self)

    def request(self, n: int, /) -> None:
        if self._over:
            return
        self._results.request(n)
        if not self._opened:
            self._opened = True
            try:
                self._office.open(self)
            except PenstockError as error:
                self.stop(error)
        self.look()

    def look(self) -> None:
        """Request as many events as workers have room for, within the room for results."""
        if self._closing or self._over:
            self._end_if_idle()
            return
        room = self._office.room - self._asked
        room += min(0, self._window - self._results.waiting)
        if room > 0:
            self._asked += room
            self.upstream.request(room)

    # Jobs.

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._asked -= len(events)
        for place, event in enumerate(events):
            if self._closing or self._over:
                give_back_all(events[place:])
                return
            turn = event.turn
            if turn is None or turn.holders < 2 or self._siblings.may_begin(turn, event):
                self._hand_out(event)
            else:
                self.look()

    def _hand_out(self, event: Event[Any]) -> None:
        self._count += 1
        number = self._count
        self._jobs[number] = event
        self._peak = max(self._peak, len(self._jobs))
        self._results.begin((event,))
        event.started = self.run.now()
        self._office.hand_out(number, event)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Schedule a call of the stage in the next loop iteration."""
        self.run.call_soon(self.info, callback, *args)

    @property
    def out(self) -> int:
        """How many jobs are out."""
        return len(self._jobs)

    def job(self, number: int) -> Event[Any] | None:
        """The event of a job that is out."""
        return self._jobs.get(number)

    def succeeded(self, number: int, value: Any) -> None:
        """A worker's result. A repeated one changes nothing."""
        event = self._jobs.pop(number, None)
        if event is None:
            return
        self._office.over(number)
        event.ended = self.run.now()
        event.value = value
        turn, event.turn = event.turn, None
        self._results.put(event, event)
        self._results.end(event)
        if turn is not None:
            turn.end()
            following = self._siblings.next(turn)
            if following is not None:
                self._hand_out(following)
        self.look()

    def failed(self, number: int, error: Exception, attempts: int) -> None:
        """A job failed for good."""
        event = self._jobs.pop(number, None)
        if event is None:
            return
        self._office.over(number)
        event.ended = self.run.now()
        turn = event.turn
        survives = self._faults.survives(event, error, attempts)
        self._results.end(event)
        if not survives:
            self.stop(error)
        elif turn is not None and (following := self._siblings.next(turn)) is not None:
            self._hand_out(following)
        self.look()

    # The end.

    def on_completed(self) -> None:
        self._closing = True
        self._end_if_idle()

    def on_error(self, error: BaseException, /) -> None:
        self.stop(error, upstream_ended=True)

    def stop(self, error: BaseException, *, upstream_ended: bool = False) -> None:
        """Hand out nothing more; jobs that are out may finish before the error passes on."""
        if self._error is not None or self._over:
            if error is not self._error:
                self.run.late_error(error)
            return
        self._error = error
        if not self._closing and not upstream_ended:
            self.upstream.cancel()
        self._closing = True
        if self._jobs:
            self.run.stopping(error)
        give_back_all(self._siblings.clear())
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._over or not self._closing:
            return
        if self._jobs or self._siblings.waiting or self._results.waiting:
            return
        self._over = True
        self._office.close()
        if self._error is None:
            self.downstream.on_completed()
        else:
            self.downstream.on_error(self._error)

    def cancel(self) -> None:
        if self._over:
            return
        self._over = True
        if not self._closing:
            self.upstream.cancel()
        if self._opened:
            self._office.close()
        jobs = [*self._jobs.values(), *self._siblings.clear()]
        self._jobs.clear()
        self._results.give_back()
        give_back_all(jobs)

    def statistics(self) -> dict[str, Any]:
        """Jobs that are out (`in_flight`) and the most that were; results `undelivered`; those
        that were `skipped`, `reverted` and `routed`; what workers have `room` for."""
        return {
            "in_flight": len(self._jobs),
            "peak_in_flight": self._peak,
            "undelivered": self._results.waiting,
            **self._faults.statistics(),
            "room": self._office.room if self._opened and not self._over else 0,
        }
