"""The spans of calls: children of an event's span, each current while its call runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from penstock.streams.execution.iterators import is_beginning
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.observing import CallLimits
from penstock.streams.runtime.slot import Slot
from penstock.streams.stages.user_stage import UserStage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

__all__ = ["Exit", "Trace", "TracedCalls", "TracedStage"]


class Trace:
    """The trace of one event: its span, since when it waits for its next call, and the span of a
    call that ends before anything else goes on."""

    __slots__ = ("call", "context", "since", "span")

    def __init__(self, span: Span, context: Context, since: float) -> None:
        self.span = span
        self.context = context
        self.since = since
        self.call: Span | None = None


_Current = tuple[Trace, "Span", Any]
"""A call's trace, its span, and the token by which that is detached."""


class Spans(Protocol):
    """Begins and ends the spans of calls."""

    def now(self) -> float: ...
    def of(self, event: Event[Any], /) -> Trace | None:
        """The trace of an event, or of the one that it was made from."""

    def start(self, trace: Trace, info: StageInfo, name: str, started: float, /) -> Span: ...
    def stop(self, trace: Trace, span: Span, error: BaseException | None, /) -> None: ...
    def close(self, span: Span, error: BaseException | None, /) -> None: ...


class TracedCalls:
    """Observes the calls of one stage: begins the span of each in the task that makes the call."""

    def __init__(
        self, tracing: Spans, info: StageInfo, name: str, limits: CallLimits | None
    ) -> None:
        self._tracing = tracing
        self._info = info
        self._name = name
        self._limits = limits

    @property
    def stuck(self) -> int:
        return 0 if self._limits is None else self._limits.stuck

    def begin(self, slot: Slot, now: float) -> None:
        """A call begins in this slot."""
        if self._limits is not None:
            self._limits.begin(slot, now)
        slot.span = None if slot.event is None else self._start(slot.event, now)

    def end(self, slot: Slot) -> None:
        """The call has returned. Raises what the limits do."""
        if self._limits is not None:
            self._limits.end(slot)
        self._stop(slot.span, None)
        slot.span = None

    def error(self, slot: Slot, error: BaseException) -> BaseException:
        """The call has raised `error`. Returns the error with which it failed."""
        if self._limits is not None:
            error = self._limits.error(slot, error)
        self._stop(slot.span, error)
        slot.span = None
        return error

    def _start(self, event: Event[Any], now: float) -> _Current | None:
        """Begin the span of a call, which is current from now on."""
        trace = self._tracing.of(event)
        if trace is None:
            return None
        span = self._tracing.start(trace, self._info, self._name, now)
        return trace, span, _attached(span, trace.context)

    def _stop(self, current: _Current | None, error: BaseException | None) -> None:
        if current is not None:
            trace, span, token = current
            _detach(token)
            self._tracing.stop(trace, span, error)

    def suspend(self, slot: Slot) -> float:
        """The call begins to wait for room."""
        return inf if self._limits is None else self._limits.suspend(slot)

    def resume(self, slot: Slot, left: float) -> None:
        """The call continues."""
        if self._limits is not None:
            self._limits.resume(slot, left)

    def close(self) -> None:
        """No more calls are limited."""
        if self._limits is not None:
            self._limits.close()

    def call(self, function: Callable[..., Any], event: Event[Any], *more: Any) -> Any:
        """Call a function with the value of an event, and `more`."""
        current = self._start(event, self._tracing.now())
        failure: BaseException | None = None
        try:
            return function(event.value, *more)
        except BaseException as error:
            failure = error
            raise
        finally:
            self._stop(current, failure)
            failure = None

    def later(self, function: Callable[[Any], Any], event: Event[Any]) -> Callable[[Any], Any]:
        """The function, to be called with the value of an event that has gone on by then.

        The trace is looked up now, because an event that has ended has none. What the event waits
        for next does not depend on this call.
        """
        trace = self._tracing.of(event)
        if trace is None:
            return function

        def call(value: Any) -> Any:
            span = self._tracing.start(trace, self._info, self._name, self._tracing.now())
            token = _attached(span, trace.context)
            failure: BaseException | None = None
            try:
                return function(value)
            except BaseException as error:
                failure = error
                raise
            finally:
                _detach(token)
                self._tracing.close(span, failure)

        return call

    def plain(
        self, handler: Callable[[Any], Any], events: list[Event[Any]]
    ) -> Callable[[Any], Any]:
        """The plain handler, to be called for these events in their order."""
        following = iter(events)

        def call(value: Any) -> Any:
            event = next(following)
            current = self._start(event, event.started or 0.0)
            try:
                result = handler(value)
            except BaseException as error:
                self._stop(current, error)
                raise
            if current is not None and is_beginning(result):
                # The slot that goes on with it begins a span of its own; this one is never ended.
                _detach(current[2])
            else:
                self._stop(current, None)
            return result

        return call

    def batch(
        self, handler: Callable[[list[Any]], Awaitable[Sequence[Any]]], events: list[Event[Any]]
    ) -> Callable[[list[Any]], Awaitable[Sequence[Any]]]:
        """The handler of a batch, to be called for these events in the first one's span."""

        async def call(values: list[Any]) -> Sequence[Any]:
            with self._all(events):
                return await handler(values)

        return call

    @contextmanager
    def _all(self, events: list[Event[Any]]) -> Generator[None]:
        traces = filter(None, map(self._tracing.of, events))
        now = events[0].started or 0.0
        spans = [(one, self._tracing.start(one, self._info, self._name, now)) for one in traces]
        token = _attached(spans[0][1], spans[0][0].context) if spans else None
        failure: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failure = error
            raise
        finally:
            _detach(token)
            for trace, span in spans:
                span.set_attribute("penstock.batch_size", len(events))
                self._tracing.stop(trace, span, failure)


class TracedStage(UserStage):
    """Gives events one by one to a stage that calls a function with each, and traces the calls.

    A call has ended when its event goes on, or when the stage has returned.
    """

    def __init__(self, stage: Subscriber[Any], info: StageInfo, run: Run, tracing: Spans) -> None:
        super().__init__(stage, info, run)
        self._now = run.now
        self._tracing = tracing
        # The calls under way, one inside the other, and what makes their spans current.
        self._open: list[tuple[Trace, Span, Any]] = []

    def on_events(self, events: list[Event[Any]], /) -> None:
        traces = list(map(self._tracing.of, events))
        if not any(traces):
            self._stage.on_events(events)
            return
        for place, (event, trace) in enumerate(zip(events, traces, strict=True)):
            if self._ended:
                give_back_all(events[place:])
                return
            if trace is None:
                self._stage.on_events([event])
                continue
            depth = len(self._open)
            self._begin(trace)
            try:
                self._stage.on_events([event])
            finally:
                while len(self._open) > depth:
                    self.end()

    def _begin(self, trace: Trace) -> None:
        span = self._tracing.start(trace, self._info, self._info.picture.calls, self._now())
        trace.call = span
        self._open.append((trace, span, _attached(span, trace.context)))

    def end(self) -> None:
        """The innermost call has ended, if one is under way."""
        if self._open:
            trace, span, token = self._open.pop()
            trace.call = None
            _detach(token)
            self._tracing.stop(trace, span, None)


class Exit:
    """Where events leave a stage: then its call has ended."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls: TracedStage | None = None

    def look(self, _: list[Event[Any]]) -> None:
        if self.calls is not None:
            self.calls.end()


def _attached(span: Span, context: Context) -> Any:
    """Make a span the current one; returns what ends that."""
    from opentelemetry.context import attach
    from opentelemetry.trace import set_span_in_context

    return attach(set_span_in_context(span, context))


def _detach(token: Any) -> None:
    from opentelemetry.context import detach

    if token is not None:
        detach(token)
