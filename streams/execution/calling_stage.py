"""The base of the stages that call a handler: their slots, what waits to begin, and the end.

A slot is a long-lived task that awaits one call at a time. Events that may begin are `due`, and
count as in flight from then on, until their calls have ended and been flushed.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, cast

from penstock.streams.diagnostics.loop_lag import BlockingWatch
from penstock.streams.errors import HandlerCancelled, cancelled_inside
from penstock.streams.execution.handler import is_being_cancelled, is_own
from penstock.streams.execution.results import Results
from penstock.streams.execution.waiting import Waiting
from penstock.streams.failures.policy import ErrorPolicy, OnError
from penstock.streams.protocol.blame import blame
from penstock.streams.protocol.event import Event, Turn
from penstock.streams.protocol.stage import Stage, StageInfo, State, Subscriber
from penstock.streams.runtime.context import Run

__all__ = ["PAUSE", "CallingStage"]


class _Pause:
    """Awaited, it lets the loop go round once, with no Python function called for it."""

    __await__ = (None,).__iter__


PAUSE = cast("Awaitable[None]", _Pause())


class CallingStage(Stage[Any, Any], ABC):
    """Completes when nothing is in flight, waiting or undelivered any more.

    On an error it begins nothing new, lets the calls in flight finish, and then passes the
    first error on. On cancel it returns all it has, and cancels its tasks.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        handler: Callable[..., Any],
        name: str,
        on_error: OnError,
        waiting: Waiting,
        results: Results,
    ) -> None:
        super().__init__(downstream)
        self.in_flight: int = 0
        self.peak_in_flight: int = 0
        self._run = run
        self._info = info
        self._name = name
        self._now = run.now
        # A handler of the library's own is not what a user can mend.
        self._is_own = is_own(handler)
        self._who = str(info) if self._is_own else f"'{name}' ({info})"
        self._waiting = waiting
        self._inbox = waiting.inbox
        self._parking = waiting.parking
        self._results = results
        self._faults = ErrorPolicy(on_error, run, info)
        self._watch = BlockingWatch(run, self._who, self._progress, is_own=self._is_own)
        self._error: BaseException | None = None
        # A dict for its order: the same run always ends in the same way.
        self._tasks: dict[asyncio.Task[None], None] = {}
        # Slots with nothing to do, and how many others will look at once for what is due.
        self._sleepers: list[asyncio.Future[None]] = []
        self._looking: int = 0

    # Slots.

    @abstractmethod
    async def _work(self) -> None:
        """A slot: call, settle, and sleep when nothing is due."""

    def _wake(self, n: int, most: int) -> None:
        """See to it that `n` slots look for what is due; there are at most `most` of them."""
        n -= self._looking
        while n > 0 and self._sleepers:
            sleeper = self._sleepers.pop()
            if not sleeper.done():
                sleeper.set_result(None)
                self._looking += 1
                n -= 1
        for _ in range(min(n, most - len(self._tasks))):
            self._looking += 1
            task = self._run.spawn(self._work(), f"{self._info.name} {self._name}")
            self._tasks[task] = None
            task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        # A handler may have cancelled its own task, which would have taken the next event.
        if self.state < State.CLOSED:
            self._drain()

    async def _sleep(self) -> None:
        """Until there is something to do."""
        sleeper = self._run.loop.create_future()
        self._sleepers.append(sleeper)
        try:
            await sleeper
        finally:
            if not sleeper.cancelled():
                self._looking -= 1

    def _progress(self) -> tuple[int, ...] | None:
        """What changes as this stage gets on; None when nothing is in flight."""
        if not (self.in_flight or self._inbox):
            return None
        return self.in_flight, self._results.demand, self._results.waiting

    # Events.

    def request(self, n: int, /) -> None:
        if self.state < State.CLOSED:
            self._results.request(n)
            self._drain()

    def _turn_over(self, turn: Turn | None) -> None:
        """One event of a turn is settled: another one of that turn may begin."""

    def _is_tried_again(self, event: Event[Any], error: BaseException) -> bool:
        """Whether there is another attempt at this event, here or where it came from."""
        parking = self._parking
        if parking is None or not parking.allows(error, parking.count(event)):
            return False
        if self._error is None:
            return True
        # Nothing begins any more: an event with attempts left is not given up on.
        blame(error, self._info, event)
        self._run.late_error(error)
        self._settled(event)
        event.give_back()
        return True

    def _settled(self, event: Event[Any]) -> None:
        """There will be no more attempts at this event."""
        if self._parking is not None:
            self._parking.forget(event)

    def _give_up(self, event: Event[Any], error: BaseException) -> None:
        """An event has failed for good: what becomes of it says the policy."""
        attempts = 1 if self._parking is None else self._parking.count(event)
        turn = event.turn
        self._settled(event)
        if not self._faults.survives(event, error, attempts):
            self._stop(error)
        self._turn_over(turn)

    def _cancelled_inside(
        self, events: list[Event[Any]], error: asyncio.CancelledError
    ) -> HandlerCancelled:
        """What calls failed with that raised `error`; raises it if the task is to end."""
        inside = cancelled_inside(f"'{self._name}'", error)
        if is_being_cancelled(self._run):
            # Obey, lose nothing, and leave no stage behind that nobody works in.
            blame(inside, self._info, events[0])
            for event in events:
                event.give_back()
            self._stop(inside)
            raise error
        return inside

    # The end.

    def on_completed(self) -> None:
        self.state = max(self.state, State.COMPLETING)
        self._drain()

    def on_error(self, error: BaseException, /) -> None:
        self._stop(error, upstream_ended=True)
        self._drain()

    def _stop(self, error: BaseException, *, upstream_ended: bool = False) -> None:
        """Begin nothing new; what is in flight may finish before the error passes on."""
        if self._error is not None or self.state is State.CANCELLED:
            if error is not self._error:
                self._run.late_error(error)
            return
        self._error = error
        upstream_ended = upstream_ended or self.state is not State.OPEN
        self.state = max(self.state, State.FAILED)
        if not upstream_ended:
            self.upstream.cancel()
        self._run.stopping(error)
        self._give_back_unstarted()

    def _take_unstarted(self) -> list[Event[Any]]:
        """Take out all that has not begun."""
        waiting, in_slot = self._waiting.clear()
        self.in_flight -= in_slot
        return waiting

    def _give_back_unstarted(self) -> None:
        for event in self._take_unstarted():
            # Those that were tried before have a place in the order.
            self._results.end(event)
            event.give_back()

    def _end_if_idle(self) -> None:
        results = self._results
        if self.state >= State.CLOSED or self.in_flight or self._waiting:
            return
        if results.waiting or results.delivering:
            return
        self.state = State.CLOSED
        self._end_work()
        if self._error is None:
            self.downstream.on_completed()
        else:
            self.downstream.on_error(self._error)

    def cancel(self) -> None:
        state, self.state = self.state, State.CANCELLED
        if state >= State.CLOSED:
            return
        if state is State.OPEN:
            self.upstream.cancel()
        self._results.give_back()
        self._give_back_unstarted()
        self._end_work()

    def _end_work(self) -> None:
        self._watch.end()
        for task in self._tasks:
            # The one that brings the end itself sees that it is over.
            if task is not asyncio.current_task(self._run.loop):
                task.cancel()
