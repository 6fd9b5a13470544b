from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    DeadLetter,
    Event,
    Fixed,
    Sink,
    SinkStage,
    adaptive_flat_map,
    from_iterable,
    group_by,
    monitor,
    read_jsonl,
    route,
    spread,
)
from penstock.streams.protocol.event import Ending
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.stages.sink_stage import Closed
from penstock.streams.testing import MemorySink, MemorySource, VirtualTimeLoop
from penstock.streams.testing.plugin import Run
from tests.helpers.accepting_later import AcceptingLater


def fails(value: Any) -> Any:
    raise ValueError(value)


def test_a_letter_has_all_there_is_to_know(run: Run) -> None:
    async def fails_later(value: int) -> None:
        await asyncio.sleep(2)
        raise ValueError(value)

    dead = MemorySink()
    operator = adaptive_flat_map(fails_later, Fixed(1), on_error=route(dead))
    run(MemorySource([7]).pipe(operator).to(MemorySink()).run())
    (letter,) = dead.values
    assert isinstance(letter, DeadLetter)
    assert (letter.value, letter.stage) == (7, "stage 2 'adaptive_flat_map'")
    assert (letter.attempts, letter.created, letter.failed) == (1, 0, 2)
    assert letter.token is None


def test_a_routed_event_ends_its_turn_at_once(run: Run) -> None:
    async def story() -> None:
        dead, sink = MemorySink(hold=True), MemorySink()
        handler = lambda n: fails(n) if n == 1 else n  # noqa: E731
        flow = MemorySource([1, 2]).pipe(
            group_by(lambda _: 0), spread(), adaptive_flat_map(handler, on_error=route(dead))
        )
        async with flow.to(sink).start():
            await asyncio.sleep(1)
            assert sink.values == [2]
            dead.accept()

    run(story())


def test_letters_that_wait_are_all_sent_before_the_sink_is_closed(run: Run) -> None:
    dead = MemorySink(seconds=1)
    operator = adaptive_flat_map(fails, on_error=route(dead))
    report = run(MemorySource(range(5)).pipe(operator).to(MemorySink()).run())
    assert [letter.value for letter in dead.values] == [0, 1, 2, 3, 4]
    assert report.statistics["failed"] == 5
    assert report.statistics["seconds"] == 5


def test_a_letter_that_is_dropped_counts_as_written(run: Run) -> None:
    async def story() -> None:
        source, dead = MemorySource([1]), MemorySink(hold=True)
        operator = adaptive_flat_map(fails, on_error=route(dead))
        async with source.pipe(operator).to(MemorySink()).start():
            await asyncio.sleep(1)
            assert source.acked == []
            dead.accept()
        assert source.ledger.endings == [(1, Ending.FORGIVEN)]

    run(story())


def test_the_source_pauses_while_too_many_letters_wait(run: Run) -> None:
    async def story() -> None:
        source, dead = MemorySource(range(5000)), MemorySink(hold=True)
        operator = adaptive_flat_map(fails, on_error=route(dead))
        async with source.pipe(operator).to(MemorySink()).start() as running:
            await asyncio.sleep(1)
            emitted = running.statistics()["in"]
            assert 1024 <= emitted < 3000
            await asyncio.sleep(1000)
            assert running.statistics()["in"] == emitted
            dead.accept(600)
            await asyncio.sleep(1)
            assert running.statistics()["in"] > emitted
            dead.accept(5000)
        assert [letter.value for letter in dead.values] == list(range(5000))
        assert source.unsettled == []

    run(story())


def test_async_handlers_that_fail_together_end_nothing(run: Run) -> None:
    async def fails_later(value: int) -> None:
        await asyncio.sleep(1)
        raise ValueError(value)

    dead = MemorySink(seconds=0.001)
    operator = adaptive_flat_map(fails_later, Fixed(3000), on_error=route(dead))
    report = run(MemorySource(range(20_000)).pipe(operator).to(MemorySink()).run())
    assert report.statistics["failed"] == len(dead.values) == 20_000


def test_a_flood_of_bad_lines_waits_for_a_slow_sink_of_letters(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text("garbage\n" * 9_999 + '{"good": 1}\n')
    dead, sink = MemorySink(seconds=0.001), MemorySink()
    run(read_jsonl(file, on_bad_line=route(dead)).to(sink).run())
    assert len(dead.values) == 9_999
    assert sink.values == [{"good": 1}]


@pytest.mark.parametrize(("bound", "held"), [(0, 1024), (500, 1524), (None, 9000)])
def test_a_sink_that_takes_letters_before_it_accepts_them_gets_no_more_than_it_says(
    bound: int | None, held: int, run: Run
) -> None:
    async def story() -> None:
        source = MemorySource(range(9000))
        operator = adaptive_flat_map(
            fails, Fixed(1), on_error=route(AcceptingLater(10, bound)), window=1
        )
        async with source.pipe(operator).to(MemorySink()).start():
            await asyncio.sleep(5)
            # With its call, and the one result that may wait.
            assert held <= len(source.unsettled) <= held + 2
        assert source.unsettled == []

    run(story())


def test_a_slow_sink_of_violations_is_not_taken_for_one_that_hangs(run: Run) -> None:
    told = MemorySink(seconds=1)
    watch = monitor("G p", on_violation=told, restart=True, p=lambda _: False)
    report = run(MemorySource(range(50)).pipe(watch).to(MemorySink()).run(drain_deadline=5))
    assert len(told.values) == report.statistics["finished"] == 50


def test_a_user_who_paused_a_pipeline_resumes_it_not_the_letters(run: Run) -> None:
    async def story() -> None:
        source, dead = MemorySource(range(5000)), MemorySink(hold=True)
        operator = adaptive_flat_map(fails, on_error=route(dead))
        async with source.pipe(operator).to(MemorySink()).start() as running:
            await asyncio.sleep(1)
            running.pause()
            emitted = running.statistics()["in"]
            dead.accept(5000)
            await asyncio.sleep(1)
            assert len(dead.values) == running.statistics()["in"] == emitted
            running.resume()
        assert len(dead.values) == 5000

    run(story())


def test_resuming_a_pipeline_does_not_hurry_its_letters(run: Run) -> None:
    async def story() -> None:
        source, dead = MemorySource(range(5000)), MemorySink(hold=True)
        operator = adaptive_flat_map(fails, on_error=route(dead))
        async with source.pipe(operator).to(MemorySink()).start() as running:
            await asyncio.sleep(1)
            emitted = running.statistics()["in"]
            running.pause()
            running.resume()
            await asyncio.sleep(1)
            assert running.statistics()["in"] == emitted
            dead.accept(5000)

    run(story())


@given(
    st.lists(st.sampled_from(["bad", "good"]), max_size=300),
    st.integers(1, 40),
    st.sampled_from([0.0, 0.01, 0.1]),
)
def test_however_many_fail_each_event_ends_once(kinds: list[str], limit: int, slow: float) -> None:
    """Fewer letters may wait here, so that a short list fills them."""

    async def handle(kind: str) -> str:
        await asyncio.sleep(0.05)
        return kind if kind == "good" else fails(kind)

    def story() -> None:
        source, dead, sink = MemorySource(kinds), MemorySink(seconds=slow), MemorySink()
        operator = adaptive_flat_map(handle, Fixed(limit), on_error=route(dead))
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(source.pipe(operator).to(sink).run())
        assert (len(dead.values), len(sink.values)) == (kinds.count("bad"), kinds.count("good"))
        assert source.unsettled == []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.streams.protocol.stage_info.MOST_LETTERS", 8)
        patch.setattr("penstock.streams.failures.dead_letters.MOST_LETTERS", 8)
        story()


def test_a_sink_is_opened_once_for_all_stages_that_route_to_it(run: Run) -> None:
    dead = MemorySink()
    policy = route(dead)
    flow = from_iterable([{"k": 1}, {}, {"k": 2}]).pipe(
        group_by("k", on_error=policy), spread(), adaptive_flat_map(fails, on_error=policy)
    )
    report = run(flow.to(MemorySink()).run())
    assert sorted(letter.stage for letter in dead.values) == [
        "stage 2 'group_by'",
        "stage 4 'adaptive_flat_map'",
        "stage 4 'adaptive_flat_map'",
    ]
    assert dead.closed == 1
    assert report.statistics["failed"] == 3


def test_an_event_counts_as_routed_when_its_letter_is_written(run: Run) -> None:
    async def story() -> None:
        dead = MemorySink(hold=True)
        operator = adaptive_flat_map(fails, on_error=route(dead))
        flow = MemorySource(range(3)).pipe(operator).to(MemorySink())
        async with flow.start() as running:
            routed = lambda: running.statistics()["stages"][1]["routed"]  # noqa: E731
            await asyncio.sleep(1)
            assert routed() == 0
            dead.accept(2)
            await asyncio.sleep(1)
            assert routed() == 2
            dead.accept()
        assert routed() == 3

    run(story())


def test_an_error_of_the_sink_of_letters_names_that_sink(run: Run) -> None:
    class Letters(Sink[Any]):
        info = StageInfo("letters")

        def open(self, run: object, closed: Closed) -> SinkStage[Any]:
            return Refusing(closed)

    class Refusing(SinkStage[Any]):
        def accept(self, event: Event[Any]) -> None:
            raise TypeError("not this one")

    operator = adaptive_flat_map(fails, on_error=route(Letters()))
    pipeline = from_iterable([{1, 2}]).pipe(operator).to(MemorySink())
    with pytest.raises(TypeError) as caught:
        run(pipeline.run())
    (note,) = caught.value.__notes__
    assert note.startswith("in 'letters', on the event DeadLetter(value={1, 2}, ")
