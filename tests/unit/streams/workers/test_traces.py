"""Traces of a pipeline with workers, on virtual time: one trace over both processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from penstock import (
    Fixed,
    Flowable,
    Sink,
    adaptive_flat_map,
    collect,
    for_each,
    from_iterable,
    group_by,
    ops,
    spread,
    write_jsonl,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.testing.loop import run_virtual
from tests.helpers.local_workers import LocalCrew, random_delay
from tests.helpers.spans import Spans, attributes, identity, parent


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """Those of the global provider."""
    spans = Spans()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: spans.provider)
    return spans


async def work(value: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0.1)
    if value["n"] == 3:
        raise ValueError("the secret")
    return {"n": value["n"]}


def doubled(value: dict[str, Any]) -> dict[str, Any]:
    return {"n": 2 * value["n"]}


def number_of(value: dict[str, Any]) -> int:
    return int(value["n"])


def same(value: dict[str, Any]) -> dict[str, Any]:
    return value


def stream_of(count: int) -> Flowable[Any]:
    return from_iterable([{"n": n} for n in range(count)]).pipe(
        ops.map(same),
        group_by(number_of),
        spread(),
        adaptive_flat_map(work, Fixed(4), on_error="skip"),
        ops.map(doubled),
    )


def traced(stream: Flowable[Any], *into: Sink[Any], **options: Any) -> None:
    async def main() -> None:
        crew = LocalCrew(2, random_delay(1, 0.02))
        running = stream.to(*into).start(workers=crew)
        running.trace(**options)
        async with running:
            pass

    run_virtual(main())


def test_calls_in_workers_are_below_the_spans_of_their_events(
    spans: Spans,
) -> None:
    results: list[Any] = []
    traced(stream_of(6), collect(results))
    events = {identity(span): span for span in spans.named("event of")}
    assert len(events) == 6
    outcomes = sorted(attributes(span)["penstock.outcome"] for span in events.values())
    assert outcomes == ["failed", *["finished"] * 5]
    counts = {"map same": 6, "group_by number_of": 6, "adaptive_flat_map work": 6, "map doubled": 5}
    for name, count in counts.items():
        calls = spans.named(name)
        assert len(calls) == count
        above = {parent(span) for span in calls}
        assert len(above) == count
        assert above <= set(events)
    (failed,) = [span for span in spans.named("adaptive") if not span.status.is_ok]
    assert failed.status.description == "ValueError"
    assert sorted(value["n"] for value in results) == [0, 2, 4, 8, 10]
    assert {value["traceparent"].split("-")[2] for value in results} < set(events)


def test_only_the_events_that_the_parent_has_chosen_are_traced_in_workers(
    spans: Spans,
) -> None:
    traced(stream_of(6), collect([]), sample=0.5)
    assert len(spans.named("event of")) == len(spans.named("adaptive")) == 3


def test_an_event_that_brings_its_context_has_one_span_in_all_processes(spans: Spans) -> None:
    context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    values = [{"n": n, "traceparent": context} for n in range(2)]
    traced(from_iterable(values).pipe(adaptive_flat_map(work, Fixed(2))), collect([]))
    assert [parent(span) for span in spans.named("event of")] == ["b7ad6b7169203331"] * 2
    above = {parent(span) for span in spans.named("adaptive")}
    assert above == {identity(span) for span in spans.named("event of")}


def test_lines_that_are_encoded_in_workers_carry_the_context(spans: Spans, tmp_path: Any) -> None:
    target = tmp_path / "out.jsonl"
    traced(stream_of(2), write_jsonl(target))
    lines = target.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    assert all('"traceparent"' in line for line in lines)


@pytest.mark.parametrize("with_parent", [True, False])
def test_calls_of_sinks_in_workers_are_below_the_spans_of_their_events(
    spans: Spans, with_parent: bool
) -> None:
    there: list[Any] = []
    others = [collect([])] if with_parent else []
    traced(stream_of(6), for_each(there.append, in_workers=True), *others)
    events = {identity(span) for span in spans.named("event of")}
    calls = spans.named("for_each")
    assert len(events) == 6
    assert len(calls) == len({parent(span) for span in calls}) == 5
    assert {parent(span) for span in calls} < events
    assert {value["traceparent"].split("-")[2] for value in there} < events


def test_a_provider_of_this_process_cannot_trace_workers() -> None:
    async def main() -> None:
        crew = LocalCrew(1, random_delay(1, 0.02))
        async with stream_of(1).to(collect([])).start(workers=crew) as running:
            with pytest.raises(BuildError, match="set the global one"):
                running.trace(TracerProvider(shutdown_on_exit=False))

    run_virtual(main())
