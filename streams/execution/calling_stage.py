"""The base of the stages that call a handler: the loop of their slots, failures, and the end.

An event is in flight from the moment when it is assigned to a slot until its call has ended and has
been flushed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from penstock.streams.base.errors import CALL_ERRORS, add_note, own_error
from penstock.streams.base.validation import is_coroutine_function
from penstock.streams.diagnostics.loop_lag import BlockingWatch
from penstock.streams.execution.call import closing_event
from penstock.streams.execution.flushing_stage import FlushingStage
from penstock.streams.execution.handler import check_result, is_own, opened
from penstock.streams.execution.iterators import is_iterator
from penstock.streams.execution.options import CallOptions
from penstock.streams.execution.slots import IDLE, CallSlot, Slots
from penstock.streams.execution.timeouts import Timeouts
from penstock.streams.protocol.acknowledgement import Family, Withdrawn, may_begin
from penstock.streams.protocol.blame import blame
from penstock.streams.protocol.event import BaseEvent, Event, give_back_all, take_turns
from penstock.streams.protocol.stage import CANCELLED, CLOSED, FAILED, Subscriber, Subscription
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.observing import CallLimits
from penstock.streams.runtime.slot import Slot
from penstock.streams.stages.time_slice import PAUSE, TimeSlice

__all__ = ["CallingStage"]


class CallingStage(FlushingStage):
    """Completes when nothing is in flight, waiting or undelivered.

    After an error nothing new begins; calls in flight finish, and then the first error is passed
    on. On cancel it returns all its events and cancels its tasks.
    """

    __slots__ = (
        "_awaitables",
        "_checked",
        "_due",
        "_gathers",
        "_handler",
        "_is_awaited",
        "_is_driving",
        "_is_own",
        "_kept",
        "_name",
        "_now",
        "_returned",
        "_slice",
        "_slots",
        "_traced",
        "_watch",
        "_watched",
        "flush_is_due",
        "in_flight",
        "peak_in_flight",
        "who",
    )

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        options: CallOptions,
    ) -> None:
        super().__init__(downstream, run, info, options)
        self.in_flight: int = 0
        self.peak_in_flight: int = 0
        self._name = name = options.name
        self._now = run.now
        # The advice for a handler of the library's own is different: a user cannot change it.
        self._is_own = is_own(options.handler)
        self.who = str(info) if self._is_own else f"'{name}' ({info})"
        # Takes an event whose call has returned, with the result as its value.
        self._returned: Callable[[Event[Any]], object] = self._ended.append
        self._handler: Callable[[Any], Any] = opened(options.handler, run)
        # Whether a call makes a coroutine.
        self._is_awaited = is_coroutine_function(options.handler)
        # Assigned to a slot that has not taken them; of a plain handler, each with the awaitable or
        # the iterator that it returned.
        self._due: deque[Event[Any]] = deque()
        self._awaitables: deque[Any] = deque()
        self.flush_is_due = False
        # Whether what has come until the next flush is to begin with that.
        self._gathers = False
        # Results of calls that may have several, which wait for the next flush.
        self._kept: Mapping[Any, Any] = {}
        # Whether slots go on now, in a callback of the loop.
        self._is_driving = False
        # Types of results that need no check.
        self._checked: set[type[Any]] = set()
        self._slice = TimeSlice(run, self._drain)
        self._slots = Slots(self, name)
        self._watched: CallLimits | None = None
        if options.timeout is not None:
            self._watched = Timeouts(run, options.timeout, name, self._slots.by_task.values())
        self._traced = None
        if run.tracing is not None:
            self._watched = self._traced = run.tracing.calls(info, name, self._watched)
        self._watch = BlockingWatch(run, self.who, self._progress, is_own=self._is_own)
        run.calling.append(self._cancel_calls)

    def on_subscribe(self, subscription: Subscription, /) -> None:
        super().on_subscribe(subscription)
        self._drain()

    # Slots.

    async def work(self, slot: CallSlot) -> None:
        """One slot: make the calls that are due, and be idle while there are none."""
        handler, now, slice_, timeouts = self._handler, self._now, self._slice, self._watched
        checked, lessors, is_awaited = self._checked, self.run.lessors, self._is_awaited
        due, awaitables, ended = self._due, self._awaitables, self._ended
        returned = self._returned
        event: BaseEvent
        while True:
            started = now()
            while due:
                if started >= slice_.end and slice_.is_over(started):
                    # Events that are due may be withdrawn meanwhile.
                    slot.event = None
                    await PAUSE
                    started = now()
                    continue
                event = due.popleft()
                event.started = started
                try:
                    if lessors and not may_begin(event, lessors):
                        raise Withdrawn
                    slot.event = event
                    if timeouts is not None:
                        timeouts.begin(slot, started)
                    if is_awaited:
                        result = await handler(event.value)
                    else:
                        result = awaitables.popleft() if awaitables else handler(event.value)
                        if not is_iterator(type(result)):  # pyright: ignore[reportUnknownArgumentType]
                            result = await result
                    if type(result) not in checked:
                        if is_iterator(type(result)):  # pyright: ignore[reportUnknownArgumentType]
                            result = await self._read(event, slot, result)
                            if type(result) is Family:
                                self._has_families = True
                        else:
                            self._check(result)
                    if slot.is_withdrawn:
                        raise Withdrawn
                    if timeouts is not None:
                        timeouts.end(slot)
                except BaseException as error:
                    if timeouts is not None:
                        error = timeouts.error(slot, error)
                    if slot.is_withdrawn:
                        error = slot.withdrawn(error)
                    event.ended = now()
                    self._raised(event, error)
                    # In its task: whether that was cancelled says what a cancellation means.
                    self._drain()
                    if slot.has_changed():
                        return
                    started = now()
                    continue
                # The end of one call is the start of the next.
                event.ended = started = now()
                event.value = result
                returned(event)
                if self.state and self.state >= CLOSED:
                    self._settle()
                    return
                if slot.has_changed():
                    return
                if ended and not due and len(ended) == self.in_flight:
                    # No other call is in flight.
                    self._drain()
                    started = now()
            if self.state and self.state >= CLOSED:
                return
            slot.event = None
            await IDLE

    def _drive(self, slots: list[CallSlot]) -> None:
        """A callback of the loop: go on with these slots, flush, and begin what is due."""
        self._is_driving = True
        slots.reverse()
        try:
            while slots:
                self._slots.step(slots.pop())
            self._begin_due()
        finally:
            self._is_driving = False
            self._drive_later(slots)

    def resumed(self, slot: CallSlot, future: Any) -> None:
        """A callback of the loop: go on with a slot, because what it waited for is done."""
        slot.future = None
        self._is_driving = True
        try:
            self._slots.step(slot)
            if self._ended and len(self._ended) < self.in_flight:
                # With other calls that end in this loop iteration.
                self.flush_soon()
            else:
                self._begin_due()
        finally:
            self._is_driving = False
            if self._due or self._slots.yielded:
                self._drive_later([])

    def _begin_due(self) -> None:
        """Flush what has ended, and let idle slots begin what is due, until that takes too long."""
        slots, due = self._slots, self._due
        while True:
            if self._ended:
                self._drain()
            left = len(due)
            if not (left and slots.idle):
                break
            slot, _ = slots.idle.popitem()
            slots.step(slot)
            if len(due) == left:
                # The slot has taken nothing, because the time slice is over.
                self.flush_soon()
                break

    def _drive_later(self, left: list[CallSlot]) -> None:
        """Go on with the slots that have yielded, after all that they have scheduled."""
        if self._due:
            self._slots.make(len(self._due), self._most_slots)
        yielded = self._slots.yielded
        if left or yielded:
            self._slots.yielded = []
            self.run.call_soon(self.info, self._drive, [*reversed(left), *yielded])

    def begin_soon(self) -> None:
        """Events are due: let slots take them."""
        if self._due and not self._is_driving:
            self._slots.make(len(self._due), self._most_slots)
            self.flush_soon()

    @property
    def _most_slots(self) -> int:
        """How many slots there may be."""
        raise NotImplementedError

    def flush_soon(self) -> None:
        """Flush in the next loop iteration."""
        if not self.flush_is_due:
            self.flush_is_due = True
            self.run.call_soon(self.info, self._flush_now)

    def _flush_now(self) -> None:
        self.flush_is_due = False
        self._is_driving = True
        try:
            if self._kept:
                self._send_kept()
            if self._gathers or not self._due:
                self._gathers = False
                self._drain()
            self._begin_due()
        finally:
            self._is_driving = False
            if self._due or self._slots.yielded:
                self._drive_later([])

    def _send_kept(self) -> None:
        """Send on the results that are kept."""
        raise NotImplementedError

    def _check(self, result: object) -> None:
        """Check a result of a type that is new to this stage. Raises UnfinishedResult."""
        kind = type(result)
        if kind not in self._checked and check_result(result, self._name):
            self._checked.add(kind)

    def _raised(self, event: Event[Any], error: BaseException) -> None:
        """The call of an event has raised `error`."""
        self._failed(event, error)

    def _read(self, event: Event[Any], slot: Slot, results: Any) -> Awaitable[Any]:
        """Send the results of an iterator or a stream on; see `Iterators.read`."""
        raise NotImplementedError

    def event_in(self, task: asyncio.Task[Any]) -> Event[Any] | None:
        """The event of the call that this task of the stage makes."""
        slot = self._slots.by_task.get(task)
        return None if slot is None else slot.event

    def _cancel_calls(self, is_gone: Callable[[Event[Any]], bool]) -> None:
        """Cancel the calls in progress whose events are gone."""
        for slot in [*self._slots.by_task.values()]:
            if slot.event is not None and all(map(is_gone, self._called_with(slot.event))):
                slot.withdraw()

    def _called_with(self, event: Event[Any]) -> Collection[Event[Any]]:
        """The events of the call that a slot makes for this one."""
        return (event,)

    def slot_ended(self) -> None:
        """The task of a slot has ended: another may have to take the next event."""
        if self.state < CLOSED:
            self._drain()

    def _progress(self) -> tuple[int, ...] | None:
        """Numbers that change while the stage makes progress; None when nothing is in flight."""
        if not (self.in_flight or self._inbox):
            return None
        return self.in_flight, self._results.demand, self._results.waiting

    # The ends of calls.

    def _judge(self, event: Event[Any], error: BaseException) -> None:
        if isinstance(error, Withdrawn):
            # Its source has lost it: this says nothing about the handler.
            self._no_more_attempts(event)
            turns = take_turns((event,))
            self._return([closing_event(event)])
            if turns:
                self._end_turns(turns)
        elif (failure := self._error_of([event], error)) is not None:
            self._over([event], failure)
            self._settle_error(event, failure)

    def _over(self, events: list[Event[Any]], error: BaseException | None = None) -> None:
        """The calls of these events have ended, with this error."""
        self.in_flight -= len(events)

    def _error_of(self, events: list[Event[Any]], error: BaseException) -> BaseException | None:
        """The error with which a call has failed; see `ErrorPolicy.error_of_call`."""
        stop = self.stop if self.state < CLOSED else None
        return self._faults.error_of_call(events, error, self._name, self._return, stop)

    def _return(self, events: list[Event[Any]]) -> None:
        """Return events in flight whose calls have no result."""
        self.in_flight -= len(events)
        give_back_all(events)

    def _try_again(self, event: Event[Any], asked: float) -> None:
        """Let the next attempt at `event` begin when the seconds `asked` for are over, or later."""
        raise NotImplementedError

    def _settle_error(self, event: Event[Any], error: BaseException) -> None:
        """Try an event that has failed again, return it to its source, or give it up."""
        retries = self._retries
        if retries is None or not retries.allows(event, error):
            self._give_up(event, error)
            return
        asked = 0.0
        if self.state < FAILED:
            try:
                asked = retries.asked(error)
            except CALL_ERRORS as raised:
                what = "function given as wait="
                self._broke(own_error(raised, f"the {what}"), what)
        if self.state < FAILED:
            self._try_again(event, asked)
            return
        # Nothing begins any more: an event with attempts left returns to its source.
        blame(error, self.info, event)
        self.run.late_error(error)
        self._no_more_attempts(event)
        closing_event(event).give_back()

    def _broke(self, error: Exception, what: str) -> None:
        """A function of the user's other than the handler raised: no event is to blame."""
        add_note(error, f"in the {what} of {self.info}")
        self.stop(error)

    def _recall(self) -> None:
        """Return events that are due and have not begun to the inbox."""
        self._inbox.extendleft(reversed(self._due))
        self.in_flight -= len(self._due)
        self._due.clear()

    # The end.

    def _take_unstarted(self) -> list[Event[Any]]:
        self._recall()
        if self.state is CANCELLED:
            self.in_flight -= len(self._ended)
        return super()._take_unstarted()

    def is_busy(self) -> bool:
        return bool(self.in_flight) or super().is_busy()

    def release(self) -> None:
        super().release()
        self._watch.end()
        self._slots.cancel()
        if self._watched is not None:
            self._watched.close()

    # Numbers.

    def statistics(self) -> dict[str, Any]:
        """Events `waiting`, `in_flight`, `undelivered` (results) and `retrying`, and `stuck` calls.

        A stuck call is past its timeout and has not ended. `retries` are the attempts after the
        first, those that wait included.
        """
        retries = self._retries
        return {
            "waiting": len(self._waiting),
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak_in_flight,
            "undelivered": self._results.waiting,
            "retrying": 0 if retries is None else retries.waiting,
            "retries": 0 if retries is None else retries.retries,
            "stuck": 0 if self._watched is None else self._watched.stuck,
            **self._faults.statistics(),
        }
