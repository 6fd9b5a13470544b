"""The working stage of a plain handler: one call, which may only begin its work."""

from __future__ import annotations

from typing import Any

from penstock.streams.diagnostics.loop_lag import BLOCKED
from penstock.streams.execution.call import is_iterator
from penstock.streams.execution.handler import check_result, not_awaited
from penstock.streams.execution.settings import Settings
from penstock.streams.execution.worker_stage import Working
from penstock.streams.limits import Limiter, Shared
from penstock.streams.protocol.acknowledgement import Withdrawn, may_begin
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import StageInfo, Subscriber
from penstock.streams.runtime.context import Run

__all__ = ["Plain"]


class Plain(Working):
    """A call whose result is an awaitable or an iterator goes on in a task of its own.

    `_asynchronous` once there was one: the stage is then that of an async handler.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        settings: Settings,
        limiter: Limiter,
    ) -> None:
        # Under a shared limit every call takes a slot and gives it back.
        self._asynchronous = isinstance(limiter, Shared)
        super().__init__(downstream, run, info, settings, limiter)
        # Types of results that are neither awaitable nor iterators.
        self._plain: set[type] = set()
        # Calls whose task has not had its first step; a task that is cancelled never has one.
        self._unawaited: dict[Event[Any], Any] = {}

    def _call(self, event: Event[Any]) -> None:
        self._results.begin(event)
        event.started = started = self._now()
        self.in_flight += 1
        in_flight = self._among
        lessors = self._run.lessors
        try:
            if lessors and not may_begin(event, lessors):
                raise Withdrawn
            result = self._handler(event.value)
            is_plain = self._is_plain(result)
        except BaseException as error:
            self._failed(event, error, started, in_flight)
            return
        took = self._now() - started
        if took > BLOCKED:
            self._blocked(took)
        if is_plain:
            self._succeeded(event, result, started, in_flight)
        else:
            self._begun(event, result)

    def _is_plain(self, result: object) -> bool:
        kind = type(result)
        if kind in self._plain:
            return True
        plain = not (is_iterator(result) or hasattr(kind, "__await__"))
        if plain and check_result(result, self._settings.name):
            self._plain.add(kind)
        return plain

    def _begun(self, event: Event[Any], call: Any) -> None:
        """The handler returned an awaitable or an iterator: its work has only begun."""
        if self._cancelled:
            self._not_awaited(event, call)
            return
        if not self._asynchronous:
            # From now on as if the handler had been declared so.
            self._asynchronous = True
            self._set_limiter(self._limiter)
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        self._results.begin(event)
        self._watch.begin()
        self._unawaited[event] = call
        self._spawn(self._finish(event, call, self._among))

    def _not_awaited(self, event: Event[Any], call: Any) -> None:
        not_awaited(call)
        self.in_flight -= 1
        self._open -= 1
        event.give_back()
        self._leave()

    async def _finish(self, event: Event[Any], call: Any, in_flight: int) -> None:
        del self._unawaited[event]
        started = event.started
        assert started is not None
        try:
            result = await self._calls.outcome(event, call)
        except BaseException as error:
            self._failed(event, error, started, in_flight)
        else:
            self._succeeded(event, result, started, in_flight)
        self._dispatch()

    def retune(self, limiter: Limiter) -> None:
        self._asynchronous = self._asynchronous or isinstance(limiter, Shared)
        super().retune(limiter)

    @property
    def _may_learn(self) -> bool:
        return self._asynchronous

    def _blocked(self, seconds: float) -> None:
        if self._run.has_loop:
            self._run.blocks.called(self._who, seconds, is_own=self._is_own)

    def _end_work(self) -> None:
        super()._end_work()
        for event, call in self._unawaited.items():
            self._not_awaited(event, call)
        self._unawaited.clear()
