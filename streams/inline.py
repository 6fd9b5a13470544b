"""The working stage of a plain handler: called inline, with nothing between two events."""

from __future__ import annotations

from typing import Any

from streams.event import Event
from streams.limits import Limiter
from streams.run import Run
from streams.stage import StageInfo, Subscriber, in_chunks
from streams.working import Settings, Working

__all__ = ["Inline"]

_LARGEST_STRIDE = 256
# The loop gets a turn at least this often (seconds), unless a single call takes longer.
_SLICE = 0.005
# Results that are finished wait at most about this long (seconds) for others of their chunk.
_DELIVER_AFTER = 0.001


class Inline(Working):
    """Asks for a stride of events at a time, with the demand for their results set aside.

    An inline call ends before the next event comes, so however many are asked for, one is in
    work. A result that is an awaitable, a failure or a shared turn gives up the rest of the
    stride and goes the way of all working stages.
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
        self._chunky = in_chunks(downstream)
        self.chunks = self._chunky is not None
        self._stride = 0
        self._next_stride = 1
        self._slice_end = self._stride_began = 0.0
        self._asynchronous = False

    def on_next(self, event: Event[Any], /) -> None:
        self.on_chunk([event])

    def on_chunk(self, events: list[Event[Any]], /) -> None:
        if len(events) > self._stride:
            for event in events:
                super().on_next(event)
            return
        self._stride -= len(events)
        now, handler, plain = self._now, self._handler, self._plain
        done: list[Event[Any]] = []
        ended = now()
        deliver_at = ended + _DELIVER_AFTER
        for i, event in enumerate(events):
            if event.turn is not None and event.turn.holders > 1:
                self._give_up_stride(done, events[i:])
                return
            event.started = ended
            self.in_flight = 1
            try:
                result = handler(event.value)
                is_plain = type(result) in plain or self._is_plain(result)
            except BaseException as error:
                self._give_up_stride(done, events[i + 1 :], error, event)
                return
            # The end of one call is the start of the next.
            event.ended = ended = now()
            if not is_plain:
                self._asynchronous = True
                self._begun(event, result)
                self._give_up_stride(done, events[i + 1 :], None, event)
                return
            event.value = result
            done.append(event)
            if ended >= deliver_at:
                self._deliver(done)
                if self._cancelled:
                    for rest in events[i + 1 :]:
                        rest.give_back()
                    return
                done = []
                ended = now()
                deliver_at = ended + _DELIVER_AFTER
        self._deliver(done)
        if not self._stride:
            self._end_of_stride()

    def _end_of_stride(self) -> None:
        now = self._now()
        took = now - self._stride_began
        if took < _SLICE / 4:
            self._next_stride = min(self._next_stride * 2, _LARGEST_STRIDE)
        elif took > _SLICE:
            self._next_stride = max(1, self._next_stride // 4)
        if now < self._slice_end or not self._run.has_loop:
            self._ask()
        else:
            # Nothing is asked for until the loop has had its turn.
            self._run.loop.call_soon(self._begin_slice)

    def _begin_slice(self) -> None:
        self._slice_end = self._now() + _SLICE
        self._ask()

    def _deliver(self, done: list[Event[Any]]) -> None:
        self.in_flight = 0
        turns = [event.turn for event in done]
        for event in done:
            event.turn = None
        if self._chunky is None:
            for event in done:
                self.downstream.on_next(event)
        elif done:
            self._chunky.on_chunk(done)
        for turn in turns:
            if turn is not None:
                turn.end()

    def _give_up_stride(
        self,
        done: list[Event[Any]],
        rest: list[Event[Any]],
        error: BaseException | None = None,
        event: Event[Any] | None = None,
    ) -> None:
        """Deliver what is done, settle `event`, and let `rest` go the slow way."""
        in_flight = self.in_flight if error is None else 0
        self._deliver(done)
        self.in_flight = in_flight
        self._end_stride(len(rest) + (event is not None))
        if error is not None:
            assert event is not None and event.started is not None
            self.in_flight += 1
            self._failed(event, error, event.started, 1)
        for late in rest:
            super().on_next(late)

    def _end_stride(self, unworked: int = 0) -> None:
        self._open += self._stride + unworked
        self._results.demand += self._stride + unworked
        self._stride = 0

    def _ask(self) -> None:
        if self._asynchronous or self._closing or self._cancelled:
            self._end_stride()
            super()._ask()
        elif not (self._stride or self._open or self._retrying or self._results.ready):
            results = self._results
            stride = min(self._next_stride, results.demand)
            if stride:
                self._stride_began = self._now()
                results.demand -= stride
                self._stride = stride
                self.upstream.request(stride)

    def on_completed(self) -> None:
        self._end_stride()
        super().on_completed()

    def cancel(self) -> None:
        self._end_stride()
        super().cancel()
