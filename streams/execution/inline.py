"""The working stage of a plain handler: called inline, with nothing between two events."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.streams.diagnostics.loop_lag import BLOCKED
from penstock.streams.execution.plain import Plain
from penstock.streams.execution.settings import Settings
from penstock.streams.keyed.queues import release
from penstock.streams.limits import Limiter
from penstock.streams.protocol.acknowledgement import Withdrawn, may_begin
from penstock.streams.protocol.event import Event, Turn
from penstock.streams.protocol.stage import StageInfo, Subscriber
from penstock.streams.protocol.time_slice import SLICE, fitting
from penstock.streams.runtime.context import Run

__all__ = ["Inline"]

# Results that are finished wait at most about this long (seconds) for others of their chunk.
_DELIVER_AFTER = 0.001


class Inline(Plain):
    """Asks for a stride of events at a time, with the demand for their results set aside.

    An inline call ends before the next event comes, so however many are asked for, one is in
    work. A result that is an awaitable, a failure or a shared turn gives up the stride: what
    is left of it goes the way of all working stages. Events for which the slice of time did
    not suffice are `_late`, and wait for the loop's next turn.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        settings: Settings,
        limiter: Limiter,
    ) -> None:
        super().__init__(downstream, run, info, settings, limiter)
        self._stride = 0
        self._next_stride = 1
        self._stride_began = self._slice_end = 0.0
        self._late: deque[Event[Any]] = deque()
        self._at_work = self._slice_is_due = self._waits_for_slice = False
        self._completed = False
        if run.slices is not None:
            run.slices.append(self)

    # Strides.

    def on_events(self, events: list[Event[Any]], /) -> None:
        if len(events) > self._stride:
            super().on_events(events)
            return
        self._stride -= len(events)
        if self._at_work or self._late:
            self._late.extend(events)
        else:
            self._begin_with(events)

    def _begin_with(self, events: list[Event[Any]]) -> None:
        """Work on events that hold their turns."""
        turns = [event.turn for event in events]
        if any(turn is not None and turn.holders > 1 for turn in turns):
            self._give_up_stride(events)
            return
        for event in events:
            event.turn = None
        self._work_on(events, turns)

    def _work_on(self, events: list[Event[Any]], turns: Sequence[Turn | None]) -> None:
        """The way of a plain call: nothing but the call between two events."""
        now, handler, lessors = self._now, self._handler, self._run.lessors
        ended = now()
        if self._slice_is_over(ended):
            _hold(events, turns)
            self._late.extend(events)
            return
        self._at_work = True
        self.in_flight = 1
        kind: Any = None
        is_plain = True
        deliver_at = ended + _DELIVER_AFTER
        first = 0
        for i, event in enumerate(events):
            event.started = ended
            try:
                if lessors and not may_begin(event, lessors):
                    raise Withdrawn
                result = handler(event.value)
                if type(result) is not kind:
                    is_plain = self._is_plain(result)
                    kind = result.__class__
            except BaseException as error:
                _hold(events[i:], turns[i:])
                self._deliver(events[first:i], turns[first:i])
                self._give_up_stride(events[i + 1 :], event, error=error)
                return
            # The end of one call is the start of the next.
            event.ended = ended = now()
            if not is_plain:
                _hold(events[i:], turns[i:])
                self._deliver(events[first:i], turns[first:i])
                self._give_up_stride(events[i + 1 :], event, call=result)
                return
            event.value = result
            if ended >= deliver_at:
                if ended - event.started > BLOCKED:
                    self._blocked(ended - event.started)
                self._deliver(events[first : i + 1], turns[first : i + 1])
                first = i + 1
                ended = now()
                deliver_at = ended + _DELIVER_AFTER
                if self._closing or self._cancelled or self._slice_is_over(ended):
                    break
                self.in_flight = 1
        else:
            self._deliver(events[first:], turns[first:])
            first = len(events)
        if first < len(events):
            _hold(events[first:], turns[first:])
            self._late.extendleft(reversed(events[first:]))
        self._end_of_work()

    def _deliver(self, done: list[Event[Any]], turns: Sequence[Turn | None]) -> None:
        """Pass results on, then end the turns that their events had."""
        self.in_flight = 0
        if done:
            self.downstream.on_events(done)
        release(turns)

    def _give_up_stride(
        self,
        rest: list[Event[Any]],
        event: Event[Any] | None = None,
        *,
        error: BaseException | None = None,
        call: Any = None,
    ) -> None:
        """Settle `event`, and let `rest` go the slow way."""
        self._return_reserve(len(rest) + len(self._late) + (event is not None))
        rest += self._late
        self._late.clear()
        for late in rest:
            if self._closing or self._cancelled:
                late.give_back()
            else:
                self._admit(late)
        try:
            if event is not None:
                self.in_flight += 1
                self._results.begin(event)
                if error is None:
                    self._begun(event, call)
                else:
                    assert event.started is not None
                    self._failed(event, error, event.started, 1)
        finally:
            self._at_work = False
        self._dispatch()
        self._end_of_work()

    def _return_reserve(self, unworked: int) -> None:
        """Return the demand that was set aside for what is still to come, and for `unworked`."""
        self._open += self._stride + unworked
        self._results.demand += self._stride + unworked
        self._stride = 0

    def _ask(self) -> None:
        if self._at_work or self._late:
            return
        # What is asked for in a hold-back waits in the inbox.
        slow = self._asynchronous or self._parking or self._hold_timer is not None
        if slow or self._closing or self._cancelled:
            self._return_reserve(0)
            super()._ask()
        elif not (self._stride or self._open or self._results.ready):
            results = self._results
            stride = min(self._next_stride, results.demand)
            if stride:
                self._stride_began = self._now()
                results.demand -= stride
                self._stride = stride
                self.upstream.request(stride)

    # Slices of time.

    def _slice_is_over(self, now: float) -> bool:
        """Whether the loop must have its turn first. Work that follows one begins a slice."""
        if self._slice_is_due:
            return now >= self._slice_end
        if self._run.has_loop:
            self._slice_is_due = True
            self._slice_end = now + SLICE
            self._run.call_soon(self._info, self._next_slice)
        return False

    @property
    def is_left(self) -> bool:
        return self._slice_is_due and bool(self._late or self._waits_for_slice or self._may_begin())

    def _next_slice(self) -> None:
        """The loop has had its turn."""
        self._slice_is_due = False
        if self._late:
            late = list(self._late)
            self._late.clear()
            self._begin_with(late)
        elif self._may_begin():
            self._dispatch()
        elif self._waits_for_slice:
            self._go_on()

    def _end_of_work(self) -> None:
        """Go on at once, or when the loop has had its turn."""
        self._at_work = False
        ending = self._completed or self._closing or self._cancelled
        if self._stride and not (self._late or self._inbox or ending):
            return
        now = self._now()
        if not (self._stride or self._late):
            self._next_stride = fitting(self._next_stride, now - self._stride_began)
        if self._error is not None or self._cancelled:
            self._give_back_unstarted()
            self._ask()
        elif self._slice_is_due and (self._late or self._may_begin() or now >= self._slice_end):
            self._waits_for_slice = True
        else:
            self._go_on()

    def _go_on(self) -> None:
        self._waits_for_slice = False
        if self._completed and not self._closing:
            self._return_reserve(0)
            super().on_completed()
        else:
            self._ask()

    # The slow way.

    def _dispatch(self) -> None:
        if self._shared is not None:
            self._shared.settle(self)
        if self._at_work or not self._may_begin() or self._slice_is_over(self._now()):
            return
        self._at_work = True
        inbox, now = self._inbox, self._now
        try:
            while not self._cancelled and self._may_begin():
                self._call(inbox.popleft())
                if self._slice_is_over(now()):
                    break
        finally:
            self._at_work = False
        self._end_of_work()

    # The end.

    def on_completed(self) -> None:
        self._completed = True
        if not (self._at_work or self._late):
            self._go_on()

    def _give_back_unstarted(self) -> None:
        self._results.demand += len(self._late)
        self._inbox.extend(self._late)
        self._late.clear()
        super()._give_back_unstarted()

    def cancel(self) -> None:
        self._return_reserve(0)
        super().cancel()

    def statistics(self) -> dict[str, Any]:
        numbers = super().statistics()
        numbers["waiting"] += len(self._late)
        return numbers


def _hold(events: Iterable[Event[Any]], turns: Iterable[Turn | None]) -> None:
    """Let events have their turns again."""
    for event, turn in zip(events, turns, strict=True):
        event.turn = turn
