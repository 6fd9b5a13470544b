"""The stage of a master: events go in, are processed by workers, and come out as results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.streams.base.errors import PenstockError
from penstock.streams.execution.call import call_of
from penstock.streams.execution.flushing_stage import FlushingStage
from penstock.streams.execution.options import HandlerOptions
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import CLOSED, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.wait import Wait
from penstock.streams.work_pulling.utilisation import Use, Utilisation

__all__ = ["Dispatcher", "Offering"]


class Dispatcher(Protocol):
    """Hands out the jobs of one master; its `Offering` notifies it of demand for results.

    It calls `look` when there may be more room, and `succeeded`, `failed` or `withdrawn` once for
    each job, by its number; `stop` when it cannot go on.
    """

    @property
    def room(self) -> int:
        """How many jobs workers have requested beyond those that are handed out."""
        ...

    @property
    def workers(self) -> int:
        """How many workers there are."""
        ...

    @property
    def waits_for(self) -> str:
        """Without what no job can be handed out, in words that follow "waits for"; "" if nothing
        is missing."""
        ...

    def open(self, offering: Offering) -> None:
        """Start handing out."""

    def hand_out(self, number: int, event: Event[Any]) -> None:
        """Give a job to a worker."""

    def over(self, number: int) -> None:
        """A job is done, or has failed for good."""

    def close(self) -> None:
        """The epic is over; results of jobs that are still out are ignored."""


class Offering(FlushingStage):
    """Requests only as many events as workers have room for, and as there is room for results.

    `_jobs` are the events whose jobs are out, by number. The result of a job travels in its event,
    so that its source is acknowledged when the sinks are done with the result.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        dispatcher: Dispatcher,
        options: HandlerOptions,
    ) -> None:
        super().__init__(downstream, run, info, options)
        self._dispatcher = dispatcher
        self._jobs: dict[int, Event[Any]] = {}
        self._count = self._peak = 0
        self._opened = False
        self._utilisation = Utilisation()
        # Lasts while no job can be handed out.
        self._wait = Wait(run, info, self._waits)

    # Demand.

    def request(self, n: int, /) -> None:
        if not self._opened and self.state < CLOSED:
            self._opened = True
            try:
                self._dispatcher.open(self)
            except PenstockError as error:
                self.stop(error)
            else:
                self._watch()
        super().request(n)

    def look(self) -> None:
        """Request as many events as workers have room for, within the room for results."""
        if self.state < CLOSED:
            self._watch()
        self._drain()

    def _proceed(self) -> None:
        self._settle()
        while self._inbox:
            self._hand_out(self._inbox.popleft())
        if self.state:
            return
        self._observe()
        room = self._dispatcher.room - self.asked
        room += min(0, self._results.room)
        if room > 0:
            self.ask(room)

    def _observe(self) -> None:
        dispatcher, out = self._dispatcher, len(self._jobs)
        self._utilisation.observe(
            self.run.now(), dispatcher.workers, out, out + dispatcher.room, self._count - out
        )

    def _watch(self) -> None:
        """Measure how long no job can be handed out, and say it once each time."""
        if self._dispatcher.waits_for:
            self._wait.begin()
        else:
            self._wait.end()

    def _waits(self) -> str:
        what = self._dispatcher.waits_for
        return what and f"{self.info} waits for {what}"

    @property
    def use(self) -> Use:
        """How busy the workers are, and how many of them pay."""
        if self._opened and self.state < CLOSED:
            self._observe()
        return self._utilisation.use()

    # Jobs.

    def _hand_out(self, event: Event[Any]) -> None:
        self._count += 1
        number = self._count
        self._jobs[number] = event
        self._peak = max(self._peak, len(self._jobs))
        self._results.begin((event,))
        event.started = self.run.now()
        self._dispatcher.hand_out(number, event)

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
        if (event := self._take_back(number)) is not None:
            event.value = value
            self._ended.append(event)
            self._drain()

    def failed(self, number: int, error: Exception, attempts: int) -> None:
        """A job failed for good."""
        if (event := self._take_back(number)) is not None:
            # Before the last one.
            call_of(event).attempts = attempts - 1
            self._failed(event, error)
            self._drain()

    def _take_back(self, number: int) -> Event[Any] | None:
        """The event of a job that was out and is over now."""
        event = self._jobs.pop(number, None)
        if event is not None:
            self._dispatcher.over(number)
            event.ended = self.run.now()
        return event

    # The end.

    def stop(self, error: BaseException) -> None:
        """Hand out nothing more; jobs that are out may finish before the error passes on."""
        super().stop(error)
        self._drain()

    def is_busy(self) -> bool:
        return bool(self._jobs) or super().is_busy()

    def release(self) -> None:
        self._wait.end()
        if self._opened:
            self._dispatcher.close()
        out = [*self._jobs.values()]
        self._jobs.clear()
        super().release()
        self._give_back(out)

    def statistics(self) -> dict[str, Any]:
        """Jobs that are out (`in_flight`) and the most that were; results `undelivered`; those
        that were `skipped`, `reverted` and `routed`; what workers have `room` for; the seconds that
        it has `waited` for workers; and the fields of `Use`."""
        use = self.use
        return {
            "in_flight": len(self._jobs),
            "peak_in_flight": self._peak,
            "undelivered": self._results.waiting,
            **self._faults.statistics(),
            "room": self._dispatcher.room if self._opened and self.state < CLOSED else 0,
            "waited": self._wait.seconds,
            "workers": use.workers,
            "busy": use.busy,
            "gain": use.gain,
            "pays": use.pays,
        }
