"""Traces, with the SDK of OpenTelemetry, which keeps its spans in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import reactivex
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from penstock import (
    Fixed,
    Pipeline,
    adaptive_flat_map,
    batch,
    collect,
    count_over_time,
    distinct_within,
    for_each,
    from_iterable,
    group_by,
    monitor,
    ops,
    rate_limit,
    retry,
    spread,
)
from penstock.operators.rx.flat_map import flat_map
from penstock.streams.base.errors import BuildError
from penstock.streams.pipelines.running import Running
from penstock.streams.testing.plugin import Run
from tests.helpers.spans import Spans, attributes, identity, parent

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans() -> Spans:
    return Spans()


async def in_a_tenth(value: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0.1)
    if value.get("bad"):
        raise ValueError("the secret")
    return {"n": value["n"]}


def seconds(span: ReadableSpan) -> float:
    assert span.end_time is not None
    assert span.start_time is not None
    return round((span.end_time - span.start_time) / 1e9, 6)


def traced(
    run: Run,
    spans: Spans,
    pipeline: Pipeline,
    look: Callable[[Running], None] | None = None,
    **options: Any,
) -> None:
    async def story() -> None:
        running = pipeline.start()
        running.trace(spans.provider, **options)
        async with running:
            await asyncio.sleep(0.25)
            if look is not None:
                look(running)

    run(story())


def values(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"n": n, **more} for n in range(count)]


def test_each_event_is_a_span_with_a_child_for_the_call_and_its_time_in_the_queue(
    run: Run, spans: Spans
) -> None:
    results: list[Any] = []
    stream = from_iterable(values(2)).pipe(
        group_by(lambda _: "all"), spread(), adaptive_flat_map(in_a_tenth, Fixed(1))
    )
    traced(run, spans, stream.to(collect(results)))
    events, calls = spans.named("event of from_iterable"), spans.named("adaptive_flat_map")
    assert [seconds(span) for span in events] == [0.1, 0.2]
    assert [seconds(span) for span in calls] == [0.1, 0.1]
    assert [attributes(span)["penstock.queue_time"] for span in calls] == [0.0, 0.1]
    assert [parent(span) for span in calls] == [identity(span) for span in events]
    assert [attributes(span)["penstock.outcome"] for span in events] == ["finished"] * 2
    assert calls[0].name == "adaptive_flat_map in_a_tenth"


def test_a_second_call_waits_from_the_end_of_the_first(run: Run, spans: Spans) -> None:
    stream = from_iterable(values(1)).pipe(
        adaptive_flat_map(in_a_tenth, Fixed(1)), adaptive_flat_map(in_a_tenth, Fixed(1))
    )
    traced(run, spans, stream.to(collect([])))
    calls = spans.named("adaptive_flat_map")
    assert [attributes(span)["penstock.queue_time"] for span in calls] == [0.0, 0.0]


def test_a_call_that_is_not_traced_has_no_span_of_the_call_before_it(
    run: Run, spans: Spans
) -> None:
    seen: list[bool] = []

    async def work(value: Any) -> Any:
        seen.append(trace.get_current_span().get_span_context().is_valid)
        await asyncio.sleep(0.01)

    stream = from_iterable(values(4)).pipe(adaptive_flat_map(work, Fixed(1)))
    traced(run, spans, stream.to(collect([])), sample=0.5)
    assert seen == [True, False, False, True]


def test_what_a_handler_traces_itself_is_below_its_call(run: Run, spans: Spans) -> None:
    async def work(value: Any) -> Any:
        await asyncio.sleep(0.01)
        with trace.get_tracer("app", tracer_provider=spans.provider).start_as_current_span("query"):
            await asyncio.sleep(0.01)
        return value

    stream = from_iterable(values(5)).pipe(adaptive_flat_map(work, Fixed(3)))
    traced(run, spans, stream.to(collect([])))
    calls = {identity(span) for span in spans.named("adaptive_flat_map")}
    assert {parent(span) for span in spans.named("query")} == calls
    assert len(calls) == 5
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_plain_handler_and_one_that_returns_an_awaitable_have_one_span_a_call(
    run: Run, spans: Spans
) -> None:
    def plain(value: Any) -> Any:
        assert trace.get_current_span().get_span_context().is_valid
        return value

    def later(value: Any) -> Any:
        return in_a_tenth(value)

    stream = from_iterable(values(3)).pipe(adaptive_flat_map(plain), adaptive_flat_map(later))
    traced(run, spans, stream.to(collect([])))
    assert len(spans.named("adaptive_flat_map plain")) == 3
    calls = spans.named("adaptive_flat_map later")
    assert [seconds(span) for span in calls] == [0.1] * 3


def test_each_attempt_is_a_span_and_only_the_failed_ones_have_an_error(
    run: Run, spans: Spans
) -> None:
    attempts: list[int] = []

    async def work(value: Any) -> Any:
        attempts.append(1)
        if len(attempts) < 3:
            raise ValueError("the secret")
        return value

    stream = from_iterable(values(1)).pipe(adaptive_flat_map(work, on_error=retry(3)))
    traced(run, spans, stream.to(collect([])))
    calls = spans.named("adaptive_flat_map")
    assert [span.status.is_ok for span in calls] == [False, False, True]
    (event,) = spans.named("event")
    assert event.status.is_ok


def test_a_failed_event_says_the_type_of_its_error_and_its_text_if_asked_for(
    run: Run, spans: Spans
) -> None:
    stream = from_iterable(values(1, bad=True)).pipe(adaptive_flat_map(in_a_tenth, on_error="skip"))
    traced(run, spans, stream.to(collect([])))
    traced(run, spans, stream.to(collect([])), show_values=True)
    hidden, shown = spans.named("event")
    assert attributes(hidden)["penstock.outcome"] == "failed"
    assert hidden.status.description == "ValueError"
    assert dict(hidden.events[0].attributes or {}) == {"exception.type": "ValueError"}
    assert (shown.events[0].attributes or {})["exception.message"] == "the secret"


def test_dropped_and_returned_events_end_their_spans_too(run: Run, spans: Spans) -> None:
    events = [{"n": 0}, *values(3)]
    stream = from_iterable(events).pipe(
        distinct_within(10, by="n"), adaptive_flat_map(in_a_tenth, Fixed(1))
    )

    traced(run, spans, stream.to(collect([])), lambda running: running.cancel())
    outcomes = sorted(attributes(span)["penstock.outcome"] for span in spans.named("event"))
    assert outcomes == ["dropped", "finished", "finished", "returned"]


def test_the_context_of_a_trace_comes_with_a_value_and_goes_with_its_result(
    run: Run, spans: Spans
) -> None:
    results: list[Any] = []
    given = values(1, traceparent=PARENT, tracestate="a=1")
    stream = from_iterable(given).pipe(adaptive_flat_map(in_a_tenth))
    traced(run, spans, stream.to(collect(results)), sample=0)
    (event,) = spans.named("event")
    assert parent(event) == "b7ad6b7169203331"
    (result,) = results
    version, trace_id, span_id, flags = result["traceparent"].split("-")
    assert (version, trace_id, flags) == ("00", "0af7651916cd43dd8448eb211c80319c", "01")
    assert span_id == identity(event)
    assert result["tracestate"] == "a=1"


def test_results_made_from_one_event_carry_its_trace_and_values_that_are_no_dict_none(
    run: Run, spans: Spans
) -> None:
    results: list[Any] = []
    stream = from_iterable(values(1)).pipe(
        adaptive_flat_map(in_a_tenth), ops.flat_map(lambda v: [v, "text", v])
    )
    traced(run, spans, stream.to(collect(results)))
    (event,) = spans.named("event")
    first, text, last = results
    assert first["traceparent"].split("-")[2] == identity(event)
    assert last == first
    assert text == "text"


def test_a_longer_stream_that_is_merged_is_not_taken_for_the_pipeline(
    run: Run, spans: Spans
) -> None:
    # The stage above the sinks has the number 3, as the second one of the other stream.
    inside: list[Any] = []
    longer = from_iterable(values(1)).pipe(
        ops.take(5), ops.take(5), ops.do_action(inside.append), ops.take(5)
    )
    results: list[Any] = []
    stream = from_iterable(values(1)).pipe(ops.map(doubled), ops.merge(longer))
    traced(run, spans, stream.to(collect(results)))
    assert [sorted(value) for value in inside] == [["n"]]
    assert [sorted(value) for value in results] == [["n", "traceparent"]] * 2
    assert len(spans.named("map")) == 1


def test_what_a_handler_keeps_is_not_changed_and_a_field_may_be_left_out(
    run: Run, spans: Spans
) -> None:
    kept: list[Any] = []

    async def work(value: Any) -> Any:
        kept.append(value)
        return value

    results: list[Any] = []
    stream = from_iterable(values(1)).pipe(adaptive_flat_map(work))
    traced(run, spans, stream.to(collect(results)))
    assert kept == [{"n": 0}]
    assert "traceparent" in results[0]
    results.clear()
    traced(run, spans, stream.to(collect(results)), field=None)
    assert results == [{"n": 0}]


def test_a_share_of_the_events_is_traced_evenly(run: Run, spans: Spans) -> None:
    stream = from_iterable(values(100)).pipe(adaptive_flat_map(in_a_tenth, Fixed(100)))
    results: list[Any] = []
    traced(run, spans, stream.to(collect(results)), sample=0.1)
    tokens = [value["n"] for value in results if "traceparent" in value]
    assert len(tokens) == len(spans.named("event")) == 10
    # One of each ten.
    assert [token // 10 for token in tokens] == list(range(10))


def test_of_the_smallest_share_the_first_event_is_traced(run: Run, spans: Spans) -> None:
    results: list[Any] = []
    stream = from_iterable([{"n": n} for n in range(3)])
    traced(run, spans, stream.to(collect(results)), sample=5e-324)
    assert ["traceparent" in value for value in results] == [True, False, False]


@pytest.mark.parametrize("clients", [2, 4, 5, 10])
def test_of_clients_that_take_turns_each_is_traced_as_often(
    clients: int, run: Run, spans: Spans
) -> None:
    events = [{"n": n, "client": n % clients} for n in range(4000)]
    results: list[Any] = []
    traced(run, spans, from_iterable(events).to(collect(results)), sample=0.1)
    counts = Counter(value["client"] for value in results if "traceparent" in value)
    assert sum(counts.values()) == 400
    assert all(abs(counts[client] - 400 / clients) <= 5 for client in range(clients))


def test_the_sampler_of_the_sdk_may_refuse(run: Run) -> None:
    spans = Spans()
    spans.provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    spans.provider.add_span_processor(SimpleSpanProcessor(spans.exporter))
    results: list[Any] = []
    stream = from_iterable(values(2)).pipe(adaptive_flat_map(in_a_tenth))
    traced(run, spans, stream.to(collect(results)))
    assert spans.named("") == []
    assert results == values(2)


def test_a_batch_is_a_child_of_the_span_of_each_of_its_events(run: Run, spans: Spans) -> None:
    async def work(values: list[Any]) -> list[Any]:
        await asyncio.sleep(0.1)
        return values

    stream = from_iterable(values(4)).pipe(batch(work, max_size=4, parallel=1))
    traced(run, spans, stream.to(collect([])))
    calls = spans.named("batch work")
    assert {parent(span) for span in calls} == {identity(span) for span in spans.named("event")}
    assert len(calls) == 4
    assert sum(1 / attributes(span)["penstock.batch_size"] for span in calls) == pytest.approx(
        len({span.start_time for span in calls})
    )


def test_a_timeout_is_the_error_of_its_call(run: Run, spans: Spans) -> None:
    async def slow(value: Any) -> Any:
        await asyncio.sleep(9)

    stream = from_iterable(values(1)).pipe(adaptive_flat_map(slow, timeout=0.5, on_error="skip"))
    traced(run, spans, stream.to(collect([])))
    (call,) = spans.named("adaptive_flat_map")
    assert seconds(call) == 0.5
    assert call.status.description == "HandlerTimeout"


def test_traces_begin_with_the_first_event_or_not_at_all(run: Run, spans: Spans) -> None:
    async def late() -> None:
        async with from_iterable(values(1)).to(collect([])).start() as running:
            await asyncio.sleep(0)
            with pytest.raises(BuildError, match="right after start"):
                running.trace(spans.provider)

    run(late())

    async def wrong() -> None:
        running = from_iterable(values(1)).to(collect([])).start()
        with pytest.raises(BuildError, match="share from 0 to 1"):
            running.trace(spans.provider, sample=2)
        async with running:
            pass

    run(wrong())


def client_of(value: dict[str, Any]) -> str:
    return f"client {value['n'] % 2}"


def doubled(value: dict[str, Any]) -> dict[str, Any]:
    return {"n": 2 * value["n"]}


def is_small(value: dict[str, Any]) -> bool:
    return bool(value["n"] < 4)


def test_each_stage_that_calls_a_function_has_a_span_below_that_of_the_event(
    run: Run, spans: Spans
) -> None:
    stream = from_iterable(values(3)).pipe(
        ops.map(doubled),
        ops.filter(is_small),
        ops.scan(lambda _, value: value, {}),
        group_by(client_of),
        spread(),
        adaptive_flat_map(in_a_tenth, Fixed(1)),
    )
    traced(run, spans, stream.to(for_each(print)))
    names = ["map doubled", "filter is_small", "scan <lambda>", "group_by client_of"]
    names += ["adaptive_flat_map in_a_tenth", "for_each print"]
    events = spans.named("event of from_iterable")
    below: dict[str, list[list[str]]] = {"finished": [], "dropped": []}
    for event in events:
        children = [one for one in spans.named("") if parent(one) == identity(event)]
        outcome = attributes(event)["penstock.outcome"]
        below[outcome].append(sorted(child.name for child in children))
    assert below == {
        "finished": [sorted(names), sorted(names)],
        "dropped": [["filter is_small", "map doubled"]],
    }


def test_the_functions_of_a_rate_limit_and_of_a_monitor_have_a_span_each_event(
    run: Run, spans: Spans
) -> None:
    def cost_of(value: dict[str, Any]) -> int:
        return int(value["n"])

    stream = from_iterable(values(2)).pipe(
        rate_limit(10, cost=cost_of),
        monitor("G small", on_violation=print, small=is_small),
        monitor("G (one -> X !one)", by=client_of, one={"n": 1}),
        rate_limit(10),
        monitor("G one", by="n", one={"n": 1}),
    )
    traced(run, spans, stream.to(collect([])))
    events = [identity(span) for span in spans.named("event of from_iterable")]
    for name in ("rate_limit cost_of", "monitor is_small", "monitor client_of"):
        assert [parent(span) for span in spans.named(name)] == events, name
        assert [seconds(span) for span in spans.named(name)] == [0, 0], name
    assert len(spans.named("")) == 4 * len(events)


def test_the_span_of_a_call_ends_before_the_event_goes_on(run: Run, spans: Spans) -> None:
    seen: dict[str, str] = {}

    def looked(name: str) -> Callable[[Any], Any]:
        def look(value: Any) -> Any:
            context = trace.get_current_span().get_span_context()
            seen[name] = f"{context.span_id:016x}"
            return value

        return look

    stream = from_iterable(values(1)).pipe(ops.map(looked("first")), ops.map(looked("second")))
    traced(run, spans, stream.to(for_each(looked("third"))))
    calls = [*spans.named("map"), *spans.named("for_each")]
    assert [identity(span) for span in calls] == [seen["first"], seen["second"], seen["third"]]
    (event,) = spans.named("event of")
    assert {parent(span) for span in calls} == {identity(event)}


def test_a_function_that_fails_is_the_error_of_its_call_and_of_the_event(
    run: Run, spans: Spans
) -> None:
    def fail(value: Any) -> Any:
        raise ValueError("the secret")

    stream = from_iterable(values(1)).pipe(group_by(fail, on_error="skip"), spread())
    traced(run, spans, stream.to(for_each(print)))
    for name in ("group_by fail", "event of"):
        (span,) = spans.named(name)
        assert not span.status.is_ok
        assert span.status.description == "ValueError"


def test_nothing_more_is_called_after_a_function_that_stops_the_stream(
    run: Run, spans: Spans
) -> None:
    called: list[int] = []
    results: list[Any] = []

    def fail_at_one(value: dict[str, Any]) -> dict[str, Any]:
        called.append(value["n"])
        if value["n"] == 1:
            raise ValueError("the secret")
        return value

    async def story() -> None:
        running = from_iterable(values(4)).pipe(ops.map(fail_at_one)).to(collect(results)).start()
        running.trace(spans.provider, field=None)
        with pytest.raises(ValueError, match="the secret"):
            await running.wait()

    run(story())
    assert (called, results) == ([0, 1], [{"n": 0}])
    outcomes = {attributes(span)["penstock.outcome"] for span in spans.named("event of")}
    assert outcomes == {"failed", "finished", "returned"}


def test_an_async_function_of_a_sink_is_the_current_span_until_it_has_ended(
    run: Run, spans: Spans
) -> None:
    async def send(value: Any) -> None:
        await asyncio.sleep(0.1)
        if value["n"] == 1:
            raise ConnectionError("no answer")

    stream = from_iterable(values(2))
    traced(run, spans, stream.to(for_each(send, on_error="skip")))
    calls = spans.named("for_each send")
    assert [seconds(span) for span in calls] == [0.1, 0.1]
    assert [span.status.description for span in calls] == [None, "ConnectionError"]
    assert [attributes(span)["penstock.queue_time"] for span in calls] == [0.0, 0.0]


def test_events_that_are_not_traced_pass_between_those_that_are(run: Run, spans: Spans) -> None:
    results: list[Any] = []
    stream = from_iterable(values(6)).pipe(ops.map(doubled), ops.take_while(is_small))
    traced(run, spans, stream.to(collect(results)), sample=0.5, field=None)
    assert results == [{"n": 0}, {"n": 2}]
    assert len(spans.named("map doubled")) == len(spans.named("event of"))


def children(spans: Spans, event: ReadableSpan) -> list[str]:
    """The names of the spans below one, in alphabetical order."""
    return sorted(one.name for one in spans.named("") if parent(one) == identity(event))


def test_the_stages_inside_a_group_have_spans_below_those_of_the_events(
    run: Run, spans: Spans
) -> None:
    grouping = group_by(
        client_of,
        each=lambda group: group.pipe(
            ops.map(doubled), ops.scan(lambda _, value: value, {}), ops.filter(is_small)
        ),
        idle=1,
    )
    stream = from_iterable(values(3)).pipe(grouping, spread(), ops.map(doubled))
    traced(run, spans, stream.to(collect([])))
    inside = ["filter is_small", "map doubled", "scan <lambda>"]
    below = [children(spans, event) for event in spans.named("event of from_iterable")]
    # The one that is left out has no call after the group.
    assert below.count(sorted(["group_by client_of", "map doubled", *inside])) == 2
    assert below.count(sorted(["group_by client_of", *inside])) == 1
    groups = [attributes(span).get("penstock.group_by") for span in spans.named("map doubled")]
    assert sorted(groups, key=str) == [2, 2, 2, None, None]


@pytest.mark.parametrize(
    "reads", [ops.flat_map, ops.concat_map, ops.switch_map, lambda f: flat_map(f, 3)]
)
def test_what_is_called_in_the_stream_of_an_event_is_below_its_span(
    run: Run, spans: Spans, reads: Callable[[Any], Any]
) -> None:
    def twice(value: dict[str, Any]) -> Any:
        inner = from_iterable([value, value])
        return inner.pipe(ops.map(doubled), adaptive_flat_map(in_a_tenth, Fixed(1)))

    traced(run, spans, from_iterable(values(1)).pipe(reads(twice)).to(collect([])))
    (event,) = spans.named("event of")
    (own,) = [name for name in children(spans, event) if name.endswith("twice")]
    assert children(spans, event) == sorted(
        [own, "map doubled", "map doubled", *["adaptive_flat_map in_a_tenth"] * 2]
    )
    assert [attributes(one)["penstock.queue_time"] for one in spans.named("adaptive")] == [0, 0]
    # It ends when all that came of it has ended.
    assert seconds(event) == 0.2
    assert attributes(event)["penstock.outcome"] == "finished"


def test_the_call_of_an_event_that_waits_for_the_stream_before_begins_when_it_is_made(
    run: Run, spans: Spans
) -> None:
    def once(value: dict[str, Any]) -> Any:
        return from_iterable([value]).pipe(adaptive_flat_map(in_a_tenth, Fixed(1)))

    traced(run, spans, from_iterable(values(2)).pipe(ops.concat_map(once)).to(collect([])))
    calls = spans.named("concat_map once")
    assert [seconds(span) for span in calls] == [0, 0]
    assert [attributes(span)["penstock.queue_time"] for span in calls] == [0, 0.1]


def test_a_stream_that_is_read_for_an_event_without_a_trace_has_none(
    run: Run, spans: Spans
) -> None:
    def inner(value: dict[str, Any]) -> Any:
        return from_iterable([value]).pipe(ops.map(doubled))

    stream = from_iterable(values(4)).pipe(ops.concat_map(inner))
    traced(run, spans, stream.to(collect([])), sample=0.5)
    assert len(spans.named("event of")) == len(spans.named("map doubled")) == 2


def test_the_stages_of_a_stream_that_is_merged_have_spans_below_its_own_events(
    run: Run, spans: Spans
) -> None:
    other = from_iterable(values(2)).pipe(ops.map(doubled))
    stream = from_iterable(values(1)).pipe(ops.filter(is_small), ops.merge(other))
    traced(run, spans, stream.to(collect([])))
    below = [children(spans, event) for event in spans.named("event of from_iterable")]
    assert sorted(below) == [["filter is_small"], ["map doubled"], ["map doubled"]]


def test_the_functions_that_read_a_row_for_counts_are_a_call(run: Run, spans: Spans) -> None:
    def begin_of(row: dict[str, Any]) -> int:
        return int(row["n"])

    stream = from_iterable(values(2)).pipe(count_over_time(begin=begin_of, end=lambda _: 5))
    traced(run, spans, stream.to(collect([])))
    events = [identity(span) for span in spans.named("event of from_iterable")]
    assert [parent(span) for span in spans.named("count_over_time begin_of")] == events


def test_what_a_monitor_calls_for_a_violation_has_a_span_below_that_of_the_event(
    run: Run, spans: Spans
) -> None:
    seen: list[Any] = []

    def on_violation(violation: Any) -> None:
        seen.append(violation)

    stream = from_iterable(values(2)).pipe(
        monitor("G one", by="n", on_violation=on_violation, one={"n": 1})
    )
    traced(run, spans, stream.to(collect([])))
    first, _ = spans.named("event of from_iterable")
    assert [parent(span) for span in spans.named("monitor on_violation")] == [identity(first)]
    assert len(seen) == 1
    assert len(spans.named("")) == 3


def test_a_call_about_two_events_has_a_span_below_that_of_each(run: Run, spans: Spans) -> None:
    def alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
        return bool(one["n"] == other["n"])

    found: list[bool] = []
    stream = from_iterable(values(2)).pipe(ops.sequence_equal(from_iterable(values(2)), alike))
    traced(run, spans, stream.to(collect(found)))
    events = {identity(span) for span in spans.named("event of from_iterable")}
    calls = spans.named("sequence_equal alike")
    assert len(events) == len(calls) == 4
    assert {parent(span) for span in calls} == events
    assert found == [True]


def never_after(value: dict[str, Any]) -> reactivex.Observable[Any]:
    return reactivex.never()


def test_the_call_about_the_time_after_an_event_is_below_its_span_though_that_has_ended(
    run: Run, spans: Spans
) -> None:
    stream = from_iterable(values(2)).pipe(ops.timeout_with_mapper(None, never_after))
    traced(run, spans, stream.to(collect([])))
    events = spans.named("event of from_iterable")
    calls = spans.named("timeout_with_mapper never_after")
    assert [parent(span) for span in calls] == [identity(span) for span in events]
    for call, event in zip(calls, events, strict=True):
        assert event.end_time is not None
        assert call.start_time is not None
        assert call.end_time is not None
        assert event.end_time <= call.start_time <= call.end_time
        assert attributes(event)["penstock.outcome"] == "finished"


def test_the_call_about_the_time_after_an_event_delays_nothing_that_the_event_waits_for(
    run: Run, spans: Spans
) -> None:
    stream = from_iterable(values(2)).pipe(
        rate_limit(5),
        ops.timeout_with_mapper(None, never_after),
        adaptive_flat_map(in_a_tenth, Fixed(1)),
    )
    traced(run, spans, stream.to(collect([])))
    calls = spans.named("adaptive_flat_map")
    assert [attributes(span)["penstock.queue_time"] for span in calls] == [0.0, 0.1]
    assert [seconds(span) for span in spans.named("timeout_with_mapper")] == [0, 0]


def test_a_call_about_the_time_after_an_event_that_raises_has_the_error(
    run: Run, spans: Spans
) -> None:
    current: list[str] = []

    def fail(value: dict[str, Any]) -> reactivex.Observable[Any]:
        context = trace.get_current_span().get_span_context()
        current.append(f"{context.span_id:016x}")
        raise ValueError("the secret")

    stream = from_iterable(values(1)).pipe(ops.timeout_with_mapper(None, fail))
    with pytest.raises(ValueError, match="the secret"):
        traced(run, spans, stream.to(collect([])))
    (call,) = spans.named("timeout_with_mapper fail")
    assert not call.status.is_ok
    assert call.status.description == "ValueError"
    assert current == [identity(call)]
    (event,) = spans.named("event of")
    assert attributes(event)["penstock.outcome"] == "finished"
