"""The working stage of an async handler: long-lived workers that take, call and settle.

They park when there is nothing to do or the limit shrank. No task, future or lock is made for
an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from streams.calls import is_iterator
from streams.event import Event
from streams.handler import is_coroutine_function
from streams.limits import Limiter
from streams.origins import Family
from streams.run import Run
from streams.settings import Settings
from streams.slices import Slice
from streams.stage import StageInfo, Subscriber
from streams.working import Working

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
        self._slice = Slice(run)
        self._sleepers: list[asyncio.Future[None]] = []
        # Types of results that are a single one.
        self._single: set[type] = set()

    def _dispatch(self) -> None:
        if self._shared is not None:
            self._shared.settle(self)
        begin = min(len(self._inbox), self.slots - self.in_flight)
        if begin <= 0:
            return
        self._watch.begin()
        while begin and self._sleepers:
            sleeper = self._sleepers.pop()
            if not sleeper.done():
                sleeper.set_result(None)
                begin -= 1
        for _ in range(min(begin, self.slots - len(self._tasks))):
            self._spawn(self._work_directly() if self._direct else self._work())

    async def _sleep(self) -> None:
        sleeper = self._run.loop.create_future()
        self._sleepers.append(sleeper)
        await sleeper

    async def _work(self) -> None:
        """One worker: take, call, settle, and sleep when there is nothing to do."""
        inbox, now, slice_ = self._inbox, self._now, self._slice
        while not self._cancelled:
            while inbox and self.in_flight < self.slots:
                event = inbox.popleft()
                self._results.begin(event)
                event.started = started = now()
                self.in_flight = in_flight = self.in_flight + 1
                if in_flight > self.peak_in_flight:
                    self.peak_in_flight = in_flight
                if self._shared is not None:
                    in_flight = self._shared.in_flight
                try:
                    if started >= slice_.end and slice_.is_over(started):
                        started = await self._give_way(event)
                    result = await self._calls.attempt(event, self._handler)
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
        """The same for a coroutine function without timeout or order, with no call to spare."""
        inbox, handler, now, results = self._inbox, self._handler, self._now, self._results
        slice_ = self._slice
        pass_on, single = self.downstream.on_next, self._single
        take: Callable[[], Event[Any] | None] | None = getattr(self.upstream, "take", None)
        event: Event[Any] | None = None
        while not self._cancelled:
            while event is not None or (inbox and self.in_flight < self.slots):
                if event is None:
                    event = inbox.popleft()
                    self.in_flight = in_flight = self.in_flight + 1
                    if in_flight > self.peak_in_flight:
                        self.peak_in_flight = in_flight
                in_flight = self.in_flight
                if self._shared is not None:
                    in_flight = self._shared.in_flight
                event.started = started = now()
                try:
                    if started >= slice_.end and slice_.is_over(started):
                        started = await self._give_way(event)
                    result = await handler(event.value)
                    if type(result) not in single and not self._is_single(result):
                        result = await self._calls.iterate(event, result)
                except BaseException as error:
                    self._busy = True
                    self._failed(event, error, started, in_flight)
                    self._busy = False
                    event = None
                    continue
                self._busy = True
                if self._special or not results.demand or results.ready or type(result) is Family:
                    self._succeeded(event, result, started, in_flight)
                    event = None
                else:
                    event.ended = now()
                    results.demand -= 1
                    turn = event.turn
                    event.turn = None
                    event.value = result
                    pass_on(event)
                    if turn is not None:
                        turn.end()
                    event = None
                    # The place that is free is asked for anew, and the event that comes for it
                    # is this worker's next. Until then it counts, or the stage might end.
                    if self._special or self._open > self.slots:
                        self.in_flight -= 1
                        self._open -= 1
                        self._ask()
                    elif take is None or inbox:
                        self.in_flight -= 1
                        self.upstream.request(1)
                    else:
                        event = take()
                        if event is None:
                            self.in_flight -= 1
                            if self._closing:
                                self._end_if_idle()
                        elif self._error is not None or self._cancelled:
                            self._not_begun(event)
                            event = None
                self._busy = False
            if not self._cancelled:
                await self._sleep()

    async def _give_way(self, event: Event[Any]) -> float:
        """Let the loop have its turn, which handlers that never wait would not; then begin."""
        await asyncio.sleep(0)
        event.started = started = self._now()
        # A slice begins when it is asked for: that of whoever is the first to go on.
        self._slice.is_over(started)
        return started

    def _not_begun(self, event: Event[Any]) -> None:
        self.in_flight -= 1
        event.give_back()
        self._end_if_idle()

    def _is_single(self, result: object) -> bool:
        kind = type(result)
        single = not is_iterator(result)
        if single:
            self._single.add(kind)
        return single
