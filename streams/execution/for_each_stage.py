"""The running stage of `for_each`, which calls a function with each value."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, cast

from penstock.streams.base.errors import UnfinishedResult, not_awaited
from penstock.streams.base.take_front import taken
from penstock.streams.base.validation import is_async
from penstock.streams.execution.handler import check_result, handler_name
from penstock.streams.execution.iterators import is_iterator
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.failures.policy import OnError
from penstock.streams.protocol.acknowledgement import Withdrawn, may_begin
from penstock.streams.protocol.event import BaseEvent, Event, finish_all, give_back_all
from penstock.streams.protocol.stage import CLOSED, Subscription
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.slot import Slot
from penstock.streams.runtime.tasks import has_changed
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed

if TYPE_CHECKING:
    from penstock.streams.runtime.observing import TracedCalls

__all__ = ["STRIDE", "ForEachStage"]

# Demand is sent in batches of so many events: a plain call ends before the next event comes.
STRIDE = 256


class ForEachStage(BaseSinkStage):
    """`_waiting` events come after `_begun`, the call whose awaitable is not awaited yet."""

    def __init__(
        self,
        run: Run,
        closed: Closed,
        function: Callable[[Any], object],
        on_error: OnError,
    ) -> None:
        super().__init__(closed)
        self._run = run
        self._function = function
        self._faults = ErrorPolicy(on_error, run, self)
        self._async = is_async(function)
        self.asks_first = 1 if self._async else STRIDE
        self._waiting: deque[Event[Any]] = deque()
        self._begun: Awaitable[object] | None = None
        self._slot: Slot | None = None
        self._wanted = asyncio.Event()
        self._in_flight = 0
        self._traced: TracedCalls | None = None
        # While the function is called at once: what follows the event that it is called for.
        self.calling: Iterator[Event[Any]] | None = None
        # Types of results whose calls are over when they return.
        self._over: set[type] = set()
        run.calling.append(self._cancel_call)

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._traced = self._run.traced(self.info, handler_name(self._function))
        super().on_subscribe(subscription)

    def on_events(self, events: list[Event[Any]], /) -> None:
        done: list[Event[Any]] = []
        event: BaseEvent
        tried = survived = 0
        lessors = self._run.lessors
        at_once = not self._async and self._traced is None
        if at_once and not self._waiting and not self._in_flight:
            function, current = self._function, self._current
            self.calling = calling = iter(events)
            outer, current.stage = current.stage, self
            try:
                for event in calling:
                    if self.state >= CLOSED:
                        break
                    try:
                        if lessors and not may_begin(event, lessors):
                            raise Withdrawn
                        result = function(event.value)
                        self._begun = None if result is None else self._to_await(result)
                    except BaseException as error:
                        tried += 1
                        survived += self._survives(event, error)
                    else:
                        if self._begun is not None:
                            break
                        tried += 1
                        done.append(event)
            finally:
                current.stage, self.calling = outer, None
                # Also before an exit: what is done stays done.
                finish_all(done)
        rest = events[tried:]
        if self.state >= CLOSED:
            self.give_back()
            give_back_all(rest)
            return
        if rest:
            self._waiting.extend(rest)
            self._wake()
        self._ask(len(done) + survived)

    def _to_await(self, result: object) -> Awaitable[object] | None:
        """The rest of a call, None if it has done all its work.

        Raises UnfinishedResult if the rest would never be done.
        """
        kind = type(result)
        if kind in self._over:
            return None
        if hasattr(kind, "__await__") and not is_iterator(kind):
            return cast(Awaitable[object], result)
        if self._check(result):
            self._over.add(kind)
        return None

    def _check(self, result: object) -> bool:
        name = handler_name(self._function)
        if is_iterator(type(result)):
            raise UnfinishedResult(
                f"'{name}' returned an async generator or a stream, which is never read: for_each "
                "has no results; take the `yield` out of it, or give it to adaptive_flat_map"
            )
        return check_result(result, name)

    def _ask(self, done: int) -> None:
        if done and not self.state:
            self.upstream.request(done)

    def _survives(self, event: Event[Any], error: BaseException) -> bool:
        """Settle an event whose call raised. Returns False if it ends the pipeline, or if `error`
        does."""
        if isinstance(error, Withdrawn):
            event.give_back()
            return True
        stop = self.break_off if self.state < CLOSED else None
        name = handler_name(self._function)
        failure = self._faults.error_of_call([event], error, name, give_back_all, stop)
        if failure is None:
            return False
        if self._faults.survives(event, failure):
            return True
        self.break_off(failure)
        return False

    # Awaitables are awaited by one worker, one after the other.

    def _wake(self) -> None:
        if self._slot is None:
            self._slot = self._new_slot()
        self._wanted.set()

    def _new_slot(self) -> Slot:
        return Slot(self._run.spawn(self._work(), "for_each", stage=self))

    def event_in(self, task: asyncio.Task[Any]) -> Event[Any] | None:
        """The event of the call that this task of the stage makes."""
        return None if self._slot is None else self._slot.event

    def _cancel_call(self, is_gone: Callable[[Event[Any]], bool]) -> None:
        """Cancel the call in progress if its event is gone."""
        slot = self._slot
        if slot is not None and slot.event is not None and is_gone(slot.event):
            slot.withdraw()

    async def _work(self) -> None:
        context = copy_context()
        while not self.state or self._waiting:
            while self._waiting:
                await self._call(self._waiting.popleft())
                if self.state >= CLOSED:
                    return
                if has_changed(context):
                    # The next call must not see what this one has set.
                    self._slot = self._new_slot()
                    return
            if not self.state:
                self._wanted.clear()
                await self._wanted.wait()
        self.end_if_idle()

    async def _call(self, event: Event[Any]) -> None:
        begun, self._begun = self._begun, None
        slot = self._slot
        assert slot is not None
        self._in_flight = 1
        slot.event = event
        try:
            if begun is None:
                lessors = self._run.lessors
                if lessors and not may_begin(event, lessors):
                    raise Withdrawn
                if self._traced is not None:
                    self._traced.begin(slot, self._run.now())
                begun = self._to_await(self._function(event.value))
            if begun is not None and (result := await begun) is not None:
                self._check(result)
            if slot.is_withdrawn:
                raise Withdrawn
        except BaseException as error:
            self._in_flight = 0
            if slot.is_withdrawn:
                error = slot.withdrawn(error)
            if self._traced is not None:
                self._traced.error(slot, error)
            slot.event = None
            if not self._survives(event, error):
                return
        else:
            self._in_flight = 0
            if self._traced is not None:
                self._traced.end(slot)
            slot.event = None
            event.finish()
        self._ask(1)

    # The end.

    @property
    def is_idle(self) -> bool:
        return not (self._waiting or self._in_flight)

    def end(self, error: BaseException | None) -> None:
        super().end(error)
        self._wanted.set()

    def cancel(self) -> None:
        super().cancel()
        if self._slot is not None and self._slot.task is not asyncio.current_task():
            self._run.tasks.cancel(self._slot.task)

    def give_back(self) -> None:
        begun, self._begun = self._begun, None
        not_awaited(begun)
        while self._waiting:
            give_back_all(taken(self._waiting, len(self._waiting)))

    def statistics(self) -> dict[str, Any]:
        """Events `waiting` for their call, and calls `in_flight` that are awaited."""
        return {
            "waiting": len(self._waiting),
            "in_flight": self._in_flight,
            **self._faults.statistics(),
        }
