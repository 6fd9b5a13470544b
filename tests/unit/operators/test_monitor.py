from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import dead_letters, from_iterable, monitor
from penstock.streams.base.errors import BuildError
from penstock.streams.temporal import Violated, Violation
from penstock.streams.testing import COMPLETED, MemorySink, MemorySource, Probe, VirtualClock
from penstock.streams.testing.plugin import Run

REPLIED = "G(a -> X b)"
TESTS: dict[str, Any] = {"a": lambda event: event == "a", "b": lambda event: event == "b"}


def test_events_pass_unchanged_at_their_time(clock: VirtualClock) -> None:
    told: list[Violation[Any]] = []
    operator = monitor(REPLIED, on_violation=told.append, **TESTS)
    assert clock.play("--a-b--a-c|", operator) == [
        (2, "a"), (4, "b"), (7, "a"), (9, "c"), (10, COMPLETED)
    ]  # fmt: skip
    assert [(one.index, one.at_end) for one in told] == [(4, False)]


def test_what_is_owed_at_the_end_is_reported_before_the_end() -> None:
    told: list[Violation[Any]] = []
    operator = monitor(REPLIED, on_violation=told.append, **TESTS)
    probe = Probe[Any](request=9)
    from_iterable(["b", "a"]).pipe(operator).connect(probe)
    assert probe.values == ["b", "a"]
    assert probe.completed
    assert [(one.index, one.at_end) for one in told] == [(2, True)]


def test_a_report_counts_all_violations_and_warns_of_the_first_ten(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    events = [(key, what) for key in range(15) for what in "ac"]
    tests: dict[str, Any] = {"a": lambda event: event[1] == "a", "b": lambda event: False}
    operator = monitor(REPLIED, by=0, **tests)
    report = run(MemorySource(events).pipe(operator).to(MemorySink()).run())
    assert report.statistics["stages"][1]["violations"] == 15
    warned = [text for text in caplog.messages if "is violated by event 2 of" in text]
    assert len(warned) == 10
    assert report.exit_status == 0


def test_stop_ends_the_pipeline_at_the_event_that_decides(run: Run) -> None:
    sink, source = MemorySink(), MemorySource(["b", "a", "c", "b"])
    pipeline = source.pipe(monitor(REPLIED, on_violation="stop", **TESTS)).to(sink)
    with pytest.raises(Violated, match="is violated by event 3") as raised:
        run(pipeline.run())
    assert raised.value.violation.evidence == ("b", "a", "c")
    assert "in stage 2 'monitor', on the event 'c'" in raised.value.__notes__
    assert sink.values == ["b", "a"]


def test_stop_at_the_end_fails_the_pipeline_after_its_last_event(run: Run) -> None:
    sink = MemorySink()
    pipeline = MemorySource(["a"]).pipe(monitor(REPLIED, on_violation="stop", **TESTS)).to(sink)
    with pytest.raises(Violated, match="at the end of the stream"):
        run(pipeline.run())
    assert sink.values == ["a"]


def test_what_a_function_for_violations_raises_ends_the_pipeline(run: Run) -> None:
    def alarm(violation: Violation[Any]) -> None:
        raise OSError("no siren")

    pipeline = MemorySource("ac").pipe(monitor(REPLIED, on_violation=alarm, **TESTS))
    with pytest.raises(OSError, match="no siren") as raised:
        run(pipeline.to(MemorySink()).run())
    assert "in stage 2 'monitor', on the event 'c'" in raised.value.__notes__


def test_an_event_is_finished_when_its_violation_was_accepted_as_well(run: Run) -> None:
    async def story() -> None:
        alarms, sink, source = MemorySink(hold=True), MemorySink(), MemorySource("acb")
        flow = source.pipe(monitor(REPLIED, on_violation=alarms, **TESTS))
        async with flow.to(sink).start() as running:
            await asyncio.sleep(1)
            assert sink.values == ["a", "c", "b"]
            assert running.statistics()["finished"] == 2
            alarms.accept()
            await asyncio.sleep(1)
            assert running.statistics()["finished"] == 3

    run(story())


def test_a_sink_gets_any_number_of_violations_of_the_end_one_when_it_asks(run: Run) -> None:
    alarms = MemorySink(seconds=0.001)
    operator = monitor("F b", by=lambda event: event, on_violation=alarms, **TESTS)
    run(MemorySource(range(3_000)).pipe(operator).to(MemorySink()).run())
    assert [one.key for one in alarms.values] == list(range(3_000))


def test_a_sink_that_is_too_far_behind_pauses_the_source(run: Run) -> None:
    async def story() -> None:
        source, alarms = MemorySource(range(5_000)), MemorySink(hold=True)
        operator = monitor("G b", by=lambda event: event, on_violation=alarms, **TESTS)
        async with source.pipe(operator).to(MemorySink()).start() as running:
            await asyncio.sleep(1)
            emitted = running.statistics()["in"]
            assert 1024 <= emitted < 3_000
            await asyncio.sleep(1000)
            assert running.statistics()["in"] == emitted
            alarms.accept(5_000)
        assert len(alarms.values) == 5_000

    run(story())


def test_two_monitors_may_share_a_sink(run: Run) -> None:
    alarms = MemorySink()
    pipeline = MemorySource("ac").pipe(
        monitor("F b", on_violation=alarms, **TESTS), monitor("F c", on_violation=alarms, c=len)
    )
    run(pipeline.pipe(monitor("G !a", on_violation=alarms, **TESTS)).to(MemorySink()).run())
    assert [one.formula for one in alarms.values] == ["G !a", "F b"]


@pytest.mark.parametrize("wrong", ["warn", 7, None])
def test_anything_else_to_do_with_violations_is_refused(wrong: Any) -> None:
    with pytest.raises(BuildError, match="on_violation"):
        monitor("G a", on_violation=wrong, a=len)


def test_an_async_function_for_violations_is_refused_and_the_sink_for_it_named() -> None:
    async def alarm(violation: Violation[Any]) -> None: ...

    with pytest.raises(BuildError, match="for_each"):
        monitor("G a", on_violation=alarm, a=len)


def test_a_sink_for_dead_letters_is_refused() -> None:
    with pytest.raises(BuildError, match="write_jsonl"):
        monitor("G a", on_violation=dead_letters("dead.jsonl"), a=len)
