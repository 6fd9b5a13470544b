"""The worker stage of a plain handler, which is called in the loop of `on_events`.

A call that returns an awaitable or an iterator goes on in a slot, and so do all after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.streams.base.errors import not_awaited
from penstock.streams.base.take_front import taken
from penstock.streams.diagnostics.loop_lag import BLOCKED
from penstock.streams.execution.iterators import is_beginning
from penstock.streams.execution.options import CallOptions
from penstock.streams.execution.worker_stage import WorkerStage
from penstock.streams.limits import Limiter
from penstock.streams.protocol.acknowledgement import Withdrawn, may_begin
from penstock.streams.protocol.event import BaseEvent, Event
from penstock.streams.protocol.stage import CANCELLED, CLOSED, FAILED, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.time_slice import fitting

__all__ = ["PlainStage", "working_stage"]

# Seconds, read between two calls, after which the results so far do not wait for the rest.
_FLUSH_AFTER = 0.001


class PlainStage(WorkerStage):
    """Has one call in flight at a time, as long as no call returns an awaitable or an iterator.

    It requests as many events as take about a time slice, and no more than there is demand for.
    One slot of a shared limit serves them all, unless another stage waits for it.
    """

    __slots__ = ("_stride", "_stride_began", "calling")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # Events that were requested last, and when.
        self._stride, self._stride_began = 0, 0.0
        # While the handler is called: what follows the event that it is called for.
        self.calling: Iterator[Event[Any]] | None = None

    def _request_more(self) -> None:
        if self.is_concurrent:
            super()._request_more()
            return
        if self.admitted or self._results.ready or self._hold_timer.is_set:
            return
        now, gate = self._now(), self._gate
        if self._slice.is_over(now):
            return
        is_first = not self._stride or gate.is_wanted
        self._stride = 1 if is_first else fitting(self._stride, now - self._stride_began)
        self._stride_began = now
        room = min(self._stride, self._results.demand)
        if self._is_ordered:
            # Results may wait for an event that is tried again, however much is requested.
            room = min(room, gate.limit + self._results.room)
        if room > 0 and self._waiting.has_room(gate.limit):
            self.admitted += room
            self.upstream.request(room)

    def _room_to_begin(self) -> int:
        if self.is_concurrent:
            return super()._room_to_begin()
        if self.allowed <= self.in_flight:
            return 0
        return 1 if self._gate.is_wanted else len(self._inbox)

    @property
    def runnable(self) -> int:
        return super().runnable if self.is_concurrent else bool(self._inbox)

    def _recall(self) -> None:
        """Events that are due have begun, unless no slot is to go on with them."""
        if self.state is CANCELLED:
            for call in self._awaitables:
                not_awaited(call)
            self._awaitables.clear()
            super()._recall()

    def _begin(self) -> None:
        """Call for as many events as may begin within the time slice, one after the other."""
        now, handler, checked = self._now, self._handler, self._checked
        lessors = self.run.lessors
        n, ended = self._room_to_begin(), now()
        if n <= 0 or self._slice.is_over(ended):
            return
        flush_at, state = ended + _FLUSH_AFTER, self.state
        is_concurrent, gate = self.is_concurrent, self._gate
        limit = gate.limit
        events = taken(self._inbox, n)
        if self._traced is not None:
            handler = self._traced.plain(handler, events)
        self.in_flight += 1
        level = gate.concurrency if gate.learns else 0
        done, is_later = 0, False
        result: Any = None
        error: BaseException | None = None
        event: BaseEvent
        self.calling = calling = iter(events)
        for event in calling:
            # The end of one call is the start of the next.
            event.started = ended
            try:
                if lessors and not may_begin(event, lessors):
                    raise Withdrawn
                result = handler(event.value)
                if type(result) not in checked:
                    is_later = is_beginning(result)
                    if is_later:
                        break
                    self._check(result)
            except BaseException as raised:
                error = raised
                break
            event.ended = ended = now()
            event.value = result
            done += 1
            # A call may change the limit, which counts where others are in flight.
            is_over = self.state is not state or (is_concurrent and self._gate.limit != limit)
            if ended >= flush_at or is_over:
                self._look_at(event)
                break
        self.calling = None
        begun = done + (is_later or error is not None)
        rest = events[begun:]
        self._noted = True
        if self._is_ordered:
            self._results.begin(events[:begun] if rest else events)
        self.in_flight += begun - 1
        # A call may have retuned the stage.
        gate = self._gate
        if not is_concurrent:
            # They have one slot after the other.
            gate.grant(begun - 1)
        if gate.learns:
            for event in events[:begun]:
                event.level = level
        self._ended += events if done == len(events) else events[:done]
        self._inbox.extendleft(reversed(rest))
        if rest and self.state >= FAILED:
            self.give_back_unstarted()
        if error is not None:
            failed = events[done]
            failed.ended = now()
            self._failed(failed, error)
            # After a failure few at first: the sink of letters may take only a few.
            self._stride = 0
            # Its traceback leads to this frame: they would keep each other, and what the handler
            # has in its variables, until the garbage collector comes.
            error = None
        elif is_later:
            self._go_on_later(events[done], result)

    def _look_at(self, event: Event[Any]) -> None:
        """Warn of a call that has blocked the loop."""
        assert event.started is not None
        seconds = event.ended - event.started
        if seconds > BLOCKED and self.run.has_loop:
            self.run.blocks.called(self.who, seconds, is_own=self._is_own)

    def _go_on_later(self, event: Event[Any], call: Any) -> None:
        """The handler returned an awaitable or an iterator, which a slot continues."""
        if self.state >= CLOSED:
            not_awaited(call)
            self._return([event])
            return
        if not self.is_concurrent:
            # From now on as if the handler had been declared so.
            self.is_concurrent = True
            self._gate.teach()
        event.level = self._gate.concurrency
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        self._watch.begin()
        self._awaitables.append(call)
        self._due.append(event)


def working_stage(
    downstream: Subscriber[Any], run: Run, info: StageInfo, options: CallOptions, limiter: Limiter
) -> WorkerStage:
    """The stage that calls the handler of `options`, whose limit may be changed in the run."""
    kind = PlainStage if options.is_plain else WorkerStage
    stage = kind(downstream, run, info, options, limiter)
    run.add_tunable(info, stage.retune)
    return stage
