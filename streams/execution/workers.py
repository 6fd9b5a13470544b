"""The working stage of an async handler: long-lived workers that take, call and settle.

They park when there is nothing to do or the limit shrank. No task, future or lock is made for
an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.streams.execution.call import is_iterator
from penstock.streams.execution.handler import check_result, is_coroutine_function
from penstock.streams.execution.settings import Settings
from penstock.streams.execution.worker_stage import Working
from penstock.streams.limits import Limiter, Outcome
from penstock.streams.protocol.acknowledgement import Withdrawn, may_begin
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import StageInfo, Subscriber
from penstock.streams.protocol.time_slice import TimeSlice
from penstock.streams.runtime.context import Run

__all__ = ["Workers"]


class Workers(Working):
    """As many workers as the limit at most, each of them a task that awaits the handler."""

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        settings: Settings,
        limiter: Limiter,
    ) -> None:
        super().__init__(downstream, run, info, settings, limiter)
        self._direct = (
            is_coroutine_function(settings.handler)
            and settings.timeout is None
            and not settings.ordered
        )
        # One for all workers: each has its step in a turn, and one of them more.
        self._slice = TimeSlice(run)
        self._sleepers: list[asyncio.Future[None]] = []
        # Types of results that are a single one.
        self._single: set[type] = set()

    def _dispatch(self) -> None:
        if self._shared is not None:
            self._shared.settle(self)
        if not self._may_begin():
            return
        begin = max(1, min(len(self._inbox), self.slots - self.in_flight))
        self._watch.begin()
        while begin and self._sleepers:
            sleeper = self._sleepers.pop()
            if not sleeper.done():
                sleeper.set_result(None)
                begin -= 1
        for _ in range(min(begin, max(self.slots, self.in_flight + 1) - len(self._tasks))):
            self._spawn(self._work_directly() if self._direct else self._work())

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        super()._task_ended(task)
        # A handler may have cancelled its own task, to which events were just given.
        if self._inbox and not self._cancelled:
            self._dispatch()

    async def _sleep(self) -> None:
        sleeper = self._run.loop.create_future()
        self._sleepers.append(sleeper)
        await sleeper

    async def _work(self) -> None:
        """One worker: take, call, settle, and sleep when there is nothing to do."""
        handler, now, slice_ = self._handler, self._now, self._slice
        direct, single, lessors = self._direct, self._single, self._run.lessors
        while not self._cancelled:
            while self._may_begin():
                event = self._begin_next()
                in_flight = self._among
                event.started = started = now()
                try:
                    if started >= slice_.end and slice_.is_over(started):
                        started = await self._give_way(event)
                    if lessors and not may_begin(event, lessors):
                        raise Withdrawn
                    if not direct:
                        result = await self._calls.attempt(event, handler)
                    else:
                        result = await handler(event.value)
                        if type(result) not in single and not self._is_single(result):
                            result = await self._calls.iterate(event, result)
                except BaseException as error:
                    self._busy = True
                    self._failed(event, error, started, in_flight)
                else:
                    self._busy = True
                    self._succeeded(event, result, started, in_flight)
                self._busy = False
            if not self._cancelled:
                await self._sleep()

    async def _work_directly(self) -> None:
        """The same with no call to spare, until a success needs more than the shortest way."""
        inbox, handler, now, slice_ = self._inbox, self._handler, self._now, self._slice
        results, ready, window = self._results, self._results.ready, self._results.window
        single, lessors = self._single, self._run.lessors
        exchange: Callable[[Any], Event[Any] | None] | None
        exchange = getattr(self.upstream, "exchange", None)
        while not self._special:
            event = self._begin_next() if inbox and self.in_flight < self.slots else None
            started = now()
            is_due = False
            while event is not None:
                event.started = started
                in_flight = self.in_flight
                try:
                    if started >= slice_.end and slice_.is_over(started):
                        started = await self._give_way(event)
                    if lessors and not may_begin(event, lessors):
                        raise Withdrawn
                    result = await handler(event.value)
                    is_single = type(result) in single or self._is_single(result)
                    if not is_single:
                        result = await self._calls.iterate(event, result)
                except BaseException as error:
                    self._busy = True
                    self._failed(event, error, started, in_flight)
                    break
                waiting = len(ready)
                if self._special or not is_single or waiting >= results.demand:
                    self._busy = True
                    self._succeeded(event, result, started, in_flight)
                    break
                # The end of one call is the start of the next.
                event.ended = ended = now()
                if self._learns:
                    self._ends.append((ended, started, in_flight, Outcome.SUCCESS))
                started = ended
                event.value = result
                turn = event.turn
                event.turn = None
                is_due = not waiting
                if waiting >= window:
                    results.deliver()
                ready.append(event)
                if exchange is None or inbox or self._learns:
                    self._call_ended()
                    if turn is not None and self._learns:
                        self._turns.append(turn)
                    elif turn is not None:
                        # Before others are exchanged, or their groups would get ahead.
                        turn.end()
                    break
                event = exchange(turn)
                if event is None or self._special:
                    self._stand_back(event)
                    break
                if is_due:
                    is_due = False
                    self._run.call_soon(self._info, self._pass_on)
            if ready and not (self.in_flight or inbox or self._special):
                # Nobody else ends in this iteration of the loop.
                self._busy = True
                self._pass_on()
            elif is_due:
                self._run.call_soon(self._info, self._pass_on)
            self._busy = False
            if ready and not inbox:
                # What is asked for when they go on may be this worker's next.
                await asyncio.sleep(0)
            if not (self._special or (inbox and self.in_flight < self.slots)):
                await self._sleep()
        await self._work()

    def _begin_next(self) -> Event[Any]:
        event = self._inbox.popleft()
        self._results.begin(event)
        self.in_flight = in_flight = self.in_flight + 1
        if in_flight > self.peak_in_flight:
            self.peak_in_flight = in_flight
        return event

    def _pass_on(self) -> None:
        """Once an iteration of the loop: the limiter hears of what has ended, results go on
        together, and more is asked for."""
        self._flush()
        self._calls.look_for_room()
        self._ask()

    async def _give_way(self, event: Event[Any]) -> float:
        """Let the loop have its turn, which handlers that never wait would not; then begin."""
        while True:
            await asyncio.sleep(0)
            event.started = started = self._now()
            # It may be over again: others went on before.
            if not self._slice.is_over(started):
                return started

    def _stand_back(self, event: Event[Any] | None) -> None:
        """The place that is free has got no event, or one that must not begin by itself."""
        self.in_flight -= 1
        if event is not None:
            if self._error is not None or self._cancelled:
                event.give_back()
            else:
                self._inbox.appendleft(event)
        if self._closing:
            self._end_if_idle()

    def _is_single(self, result: object) -> bool:
        kind = type(result)
        single = not is_iterator(result)
        if single and check_result(result, self._settings.name):
            self._single.add(kind)
        return single
