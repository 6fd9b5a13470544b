"""Traces of a run: a span for each sampled event, with a child for each call of a handler.

A span begins when its event was created and ends when the event does. Its child is the current span
of the call, so that what the handler itself traces hangs below it. The context of the trace comes
with the event and goes with its results as W3C Trace Context (https://www.w3.org/TR/trace-context/),
through the propagators of OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from math import inf
from typing import TYPE_CHECKING, Any, cast

from penstock.streams.base import clock
from penstock.streams.base.errors import BuildError, message_of
from penstock.streams.base.extras import missing_extra
from penstock.streams.base.validation import is_at_least
from penstock.streams.protocol.acknowledgement import AckHook, parents
from penstock.streams.protocol.event import FAILED, FORGIVEN, Ending, Event
from penstock.streams.protocol.identity import identities, shown
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.recording.arrows import GOLDEN
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.observing import CallLimits, Observer, Statistics
from penstock.streams.stages.shown_arrow import ShownArrow
from penstock.streams.telemetry.traced_calls import Exit, Trace, TracedCalls, TracedStage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

__all__ = ["Tracing"]

_OUTCOMES = ("dropped", "finished", "failed", "returned", "failed")


class Tracing(AckHook):
    """Traces one run, from before it has begun.

    Memory: a span for each traced event that is unfinished. Raises MissingExtra, and BuildError for
    a wrong share.
    """

    counts = False

    __slots__ = (
        *("_begins", "_came", "_chosen", "_elsewhere", "_exit", "_field", "_last", "_next"),
        *("_run", "_sample", "_show_values", "_start", "_start_ns", "_tracer", "_w3c"),
    )

    def __init__(
        self,
        run: Run,
        chain: Iterable[StageInfo],
        last: int,
        provider: TracerProvider | None,
        sample: float,
        field: str | None,
        *,
        show_values: bool,
        elsewhere: Set[int] = frozenset(),
        begins: bool = True,
    ) -> None:
        """`chain` are the stages of the pipeline that run here, `last` is the number of the one
        above the sinks. The calls of the stages with the numbers `elsewhere` are traced in another
        process; `begins`: the spans of events are begun here, and not there.
        """
        if not is_at_least(sample, 0) or sample > 1:
            raise BuildError(f"trace(sample={sample!r}): give a share from 0 to 1")
        try:
            from opentelemetry import trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            raise missing_extra("Traces need opentelemetry-api", "otel") from error
        self._begins = begins
        self._tracer = trace.get_tracer("penstock", tracer_provider=provider)
        self._w3c = TraceContextTextMapPropagator()
        self._run = run
        self._field = field
        self._sample = sample
        # Of events without a trace of their own: how many have come, how many were chosen, and
        # which is the next; the first one is.
        self._came = self._chosen = 0
        self._next: float = 0 if sample else inf
        self._show_values = show_values
        self._start, self._start_ns = run.now(), int(clock.wall() * 1e9)
        # Descriptions are told apart by identity: stages of other streams have the same numbers.
        stages = {info.number: info for info in chain}
        self._last = last, stages.get(last)
        self._elsewhere = [stages[number] for number in elsewhere if number in stages]
        # Where events leave the stage that was attached last; what it reads is attached next.
        self._exit = Exit()
        run.observers.append(self)
        run.tracing = self

    def now(self) -> float:
        """The time by the clock of the running."""
        return self._run.now()

    def _ns(self, now: float) -> int:
        return self._start_ns + round((now - self._start) * 1e9)

    # Events.

    def arrow(
        self, info: StageInfo, below: Subscriber[Any], reader: StageInfo | None, *, is_own: bool
    ) -> Subscriber[Any]:
        """A subscriber that begins traces below the source, has results carry theirs above the
        sinks, and traces the calls of a stage below."""
        if info is self._last[1]:
            below = ShownArrow(below, self._carry)
        below = self.between(below, reader)
        if info.is_source and info.within is None and self._begins:
            below = ShownArrow(below, lambda events: self._begin(events, info))
        return below

    def between(self, below: Subscriber[Any], reader: StageInfo | None) -> Subscriber[Any]:
        """A subscriber that traces the calls of the stage `below`, which `reader` describes, as an
        event comes, and ends the calls of the stage above as one leaves."""
        if (
            reader is not None
            and reader.picture.calls
            and not any(reader is stage for stage in self._elsewhere)
        ):
            below = self._exit.calls = TracedStage(below, reader, self._run, self)
        self._exit = leaving = Exit()
        return ShownArrow(below, leaving.look)

    def counted_statistics(
        self, info: StageInfo, statistics: Statistics, *, is_own: bool
    ) -> Statistics:
        """The statistics, unchanged."""
        return statistics

    def _begin(self, events: list[Event[Any]], source: StageInfo) -> None:
        from opentelemetry.trace import SpanKind, set_span_in_context

        for event in events:
            parent = self._parent_of(event)
            if parent is None and not self._is_chosen():
                continue
            span = self._tracer.start_span(
                f"event of {source.name}",
                context=parent,
                kind=SpanKind.CONSUMER,
                start_time=self._ns(event.created),
                attributes={"penstock.source": source.name},
            )
            if event.token is not None:
                span.set_attribute("penstock.token", str(event.token))
            if parent is None and not span.is_recording():
                continue
            if identity := shown(identities(event)):
                span.set_attribute("penstock.identity", identity)
            trace = Trace(span, set_span_in_context(span, parent), event.created)
            event.outer = (event.origin, event.outer, trace)
            event.origin = self

    def _parent_of(self, event: Event[Any]) -> Context | None:
        """The context that came with an event."""
        from opentelemetry.trace import get_current_span

        headers = getattr(event.token, "headers", None)
        carrier: dict[str, str] = {}
        if isinstance(headers, Mapping):
            carrier.update(cast("Mapping[str, str]", headers))
        value = event.value
        if self._field is not None and isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value)
            given = fields.get(self._field)
            if isinstance(given, str):
                # The two of one context: a state of another one does not belong to it.
                carrier = {"traceparent": given}
                state = fields.get("tracestate")
                if isinstance(state, str):
                    carrier["tracestate"] = state
        if "traceparent" not in carrier:
            return None
        context = self._w3c.extract(carrier)
        return context if get_current_span(context).get_span_context().is_valid else None

    def _is_chosen(self) -> bool:
        """Whether to trace the event that has come: one of each 1 / sample of them, whose place
        among these has no period, which keys that take turns could share."""
        if self._sample == 1:
            return True
        at, self._came = self._came, self._came + 1
        if at < self._next:
            return False
        self._chosen += 1
        self._next = (self._chosen + self._chosen * GOLDEN % 1.0) // self._sample
        return True

    def _carry(self, events: list[Event[Any]]) -> None:
        """Put the context of its trace into each result that is a dict."""
        if self._field is None:
            return
        for event in events:
            trace, result = self.of(event), event.value
            if trace is None or type(result) is not dict:
                continue
            carrier: dict[str, str] = {}
            self._w3c.inject(carrier, trace.context)
            if "traceparent" in carrier:
                # A copy: the handler may keep what it returned.
                value = {**cast("dict[str, Any]", result)}
                value[self._field] = carrier["traceparent"]
                if state := carrier.get("tracestate"):
                    value["tracestate"] = state
                event.value = value

    def headers_of(self, event: Event[Any]) -> dict[str, str]:
        """The context of an event's trace as headers of a message; empty without one."""
        carrier: dict[str, str] = {}
        if (trace := self.of(event)) is not None:
            self._w3c.inject(carrier, trace.context)
        return carrier

    @property
    def options(self) -> tuple[int, str | None, bool]:
        """The arguments of a tracer of the same running in another process."""
        return self._last[0], self._field, self._show_values

    def join(self, events: list[Event[Any]], contexts: list[dict[str, str]], /) -> None:
        """Continue the traces of events that another process has sent, with these headers."""
        from opentelemetry.trace import get_current_span

        for event, headers in zip(events, contexts, strict=True):
            if headers:
                context = self._w3c.extract(headers)
                # It ends where it was begun: here it only has the context.
                trace = Trace(get_current_span(context), context, event.created)
                event.outer = (event.origin, event.outer, trace)
                event.origin = self

    def within(self, event: Event[Any]) -> Observer | None:
        """The tracer of a stream that is read for `event`, below its span; None without a span."""
        trace = self.of(event)
        return None if trace is None else _Within(self, trace)

    def adopt(self, events: list[Event[Any]], trace: Trace) -> None:
        """The calls with these events are a part of another event's trace."""
        from opentelemetry.trace import NonRecordingSpan

        # It ends with that event: here it only has the context.
        span = NonRecordingSpan(trace.span.get_span_context())
        for event in events:
            event.outer = event.origin, event.outer, Trace(span, trace.context, event.created)
            event.origin = self

    def of(self, event: Event[Any]) -> Trace | None:
        """The trace of an event, or of the one that it was made from."""
        origin, outer = event.origin, event.outer
        while isinstance(origin, AckHook):
            if origin is self:
                trace: Trace = outer[2]
                return trace
            origin, outer = origin.behind(outer)
        return next(filter(None, map(self.of, parents(event))), None)

    def ended(
        self, events: list[Event[Any]], ending: Ending, error: BaseException | None, /
    ) -> None:
        now = self._ns(self._run.now())
        for event in events:
            trace: Trace = event.outer[2]
            span = trace.span
            span.set_attribute("penstock.outcome", _OUTCOMES[ending])
            if ending in (FORGIVEN, FAILED) and error is not None:
                self._failed(span, error, now)
                if trace.call is not None:
                    self._failed(trace.call, error, now)
            span.end(now)

    def _failed(self, span: Span, error: BaseException, now: int) -> None:
        from opentelemetry.trace import Status, StatusCode

        kind = type(error).__name__
        attributes = {"exception.type": kind}
        if self._show_values:
            attributes["exception.message"] = message_of(error, 2_000)
        span.add_event("exception", attributes, timestamp=now)
        span.set_status(Status(StatusCode.ERROR, kind))

    # Calls.

    def calls(self, info: StageInfo, name: str, limits: CallLimits | None) -> TracedCalls:
        """The observer of a stage's calls, in place of its `limits` in time, if it has some."""
        return TracedCalls(self, info, name, limits)

    def start(self, trace: Trace, info: StageInfo, name: str, started: float) -> Span:
        """Begin the span of a call."""
        queued = max(0.0, started - trace.since)
        span = self._tracer.start_span(
            f"{info.name} {name}",
            context=trace.context,
            start_time=self._ns(started),
            attributes={"penstock.stage": info.number, "penstock.queue_time": queued},
        )
        if info.within is not None:
            # The number is that within the group.
            span.set_attribute("penstock.group_by", info.within.number)
        return span

    def stop(self, trace: Trace, span: Span, error: BaseException | None) -> None:
        """End the span of a call, after which its event waits for the next one."""
        trace.since = self._run.now()
        self.close(span, error)

    def close(self, span: Span, error: BaseException | None) -> None:
        """End the span of a call."""
        now = self._ns(self._run.now())
        if error is not None:
            self._failed(span, error, now)
        span.end(now)


class _Within:
    """Traces a stream that a stage reads for one of its events, as a part of that one's trace."""

    counts = False

    __slots__ = ("_trace", "_tracing")

    def __init__(self, tracing: Tracing, trace: Trace) -> None:
        self._tracing = tracing
        self._trace = trace

    def arrow(
        self, info: StageInfo, below: Subscriber[Any], reader: StageInfo | None, *, is_own: bool
    ) -> Subscriber[Any]:
        below = self._tracing.between(below, reader)
        if info.is_source and info.within is None:
            below = ShownArrow(below, lambda events: self._tracing.adopt(events, self._trace))
        return below

    def counted_statistics(
        self, info: StageInfo, statistics: Statistics, *, is_own: bool
    ) -> Statistics:
        return statistics
