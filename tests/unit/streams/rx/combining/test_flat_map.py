"""flat_map over streams, and over Observables, which cannot be asked for less than they emit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import reactivex as rx
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops

from penstock import (
    Fixed,
    Flowable,
    adaptive_flat_map,
    chunk,
    collect,
    from_async_iterable,
    from_iterable,
    group_by,
    latest,
    read_jsonl,
    route,
    spread,
)
from penstock import ops as _ours
from penstock.streams.base.errors import BufferFull, BuildError, PenstockError
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run as PipelineRun
from penstock.streams.rx.lift import HOLD
from penstock.streams.testing import (
    CountedSource,
    ManualPublisher,
    MemorySink,
    MemorySource,
    Probe,
    run_virtual,
)
from penstock.streams.testing.plugin import Run

# What reactivex says of its type does not fit a lambda.
flat_map: Any = ops.flat_map
concat_map: Any = ops.concat_map


# What reactivex says of its types does not fit a lambda.
ours: Any = _ours


class Counted:
    """An endless iterable that counts what was taken of it."""

    taken = 0

    def __iter__(self) -> Iterator[int]:
        for self.taken in count(1):
            yield self.taken - 1


def read(source: Any, *operators: Any, **options: Any) -> Probe[Any]:
    probe = Probe[Any](**{"request": 10_000, **options})
    source.pipe(*operators).connect(probe)
    return probe


def test_no_more_of_an_observable_is_kept_than_a_stage_may_hold() -> None:
    values = [Counted(), Counted()]
    probe = read(MemorySource([0, 1]), flat_map(lambda i: rx.from_iterable(values[i])), ops.take(3))
    assert probe.values == [0, 1, 2]
    assert probe.completed
    assert (values[0].taken, values[1].taken) == (
        HOLD + 2,
        0,
    )  # One is requested, and one was too many.


def test_an_observable_that_emits_more_than_may_be_held_is_an_error_when_more_is_asked_for() -> (
    None
):
    source = MemorySource(["many"])
    probe = read(source, flat_map(lambda _: rx.range(0, HOLD + 2)), request=HOLD)
    assert probe.values == list(range(HOLD))
    assert probe.error is None
    probe.request(2)
    assert isinstance(probe.error, BufferFull)
    assert "stage 2 'flat_map'" in str(probe.error.__notes__)
    assert source.failed == ["many"]


@given(st.lists(st.sampled_from([0, 1, 7, HOLD - 1, HOLD]), max_size=3))
def test_an_observable_that_fits_is_emitted_whole(sizes: list[int]) -> None:
    probe = read(from_iterable(sizes), flat_map(lambda n: rx.range(0, n)))
    assert probe.values == [value for n in sizes for value in range(n)]
    assert probe.completed


# Streams.


def ticking(value: Any, times: int, closed: list[Any] | None = None) -> Flowable[Any]:
    """A stream of (value, n), each a second after the one before."""

    async def ticks() -> AsyncIterator[Any]:
        try:
            for n in range(times):
                await asyncio.sleep(1)
                yield (value, n)
        finally:
            # As whoever closes a connection has to wait for it.
            await asyncio.sleep(0)
            if closed is not None:
                closed.append(value)

    return from_async_iterable(ticks)


def test_a_stream_is_asked_for_no_more_than_is_wanted() -> None:
    inner = [CountedSource(range(3)), CountedSource(range(10 * HOLD))]
    probe = read(MemorySource([0, 1]), flat_map(lambda i: inner[i]), request=5)
    assert probe.values == [0, 1, 2, 0, 1]
    assert [source.emitted for source in inner] == [3, 2]
    probe.request(10 * HOLD)
    assert probe.values[3:] == list(range(10 * HOLD))
    assert probe.completed


def test_a_stream_need_not_have_its_values_at_once(run: Run) -> None:
    sink = MemorySink()
    run(from_iterable("ab").pipe(concat_map(lambda v: ticking(v, 2))).to(sink).run())
    assert sink.accepted == [(1, ("a", 0)), (2, ("a", 1)), (3, ("b", 0)), (4, ("b", 1))]


def test_an_observable_that_goes_on_later_can_be_made_a_stream(run: Run) -> None:
    sink = MemorySink()
    later = concat_map(lambda v: Flowable.of(rx.timer(1).pipe(ops.map(lambda _: v)), latest()))
    run(from_iterable("ab").pipe(later).to(sink).run())
    assert sink.accepted == [(1, "a"), (2, "b")]


def test_an_event_of_a_stream_ends_as_what_came_of_it() -> None:
    outer, inner = MemorySource(["all"]), MemorySource([1, 2, 3])
    probe = read(outer, flat_map(lambda _: inner), hold=True)
    first, second, third = probe.events
    first.finish()
    assert (inner.acked, outer.unsettled) == ([1], ["all"])
    second.fail(ValueError(), acknowledged=True)
    third.give_back()
    assert (inner.acked, inner.returned) == ([1, 2], [3])
    assert outer.returned == ["all"]


def test_a_stream_that_is_not_read_to_its_end_gives_back_what_it_has(run: Run) -> None:
    async def story() -> None:
        outer, inner, closed = MemorySource(["a", "b"]), MemorySource(range(9)), list[Any]()
        sink = MemorySink(hold=True)
        both = lambda _: inner.pipe(concat_map(lambda _: ticking("t", 9, closed)))  # noqa: E731
        async with outer.pipe(concat_map(both)).to(sink).start() as running:
            await asyncio.sleep(1.5)
            assert sink.waiting == [("t", 0)]
            running.cancel()
        assert closed == ["t"]
        # Two more wait until a stream has ended.
        assert (inner.returned, inner.unsettled) == ([0, 1, 2], [])
        assert (outer.returned, outer.unsettled) == (["a", "b"], [])

    run(story())


def test_what_a_stream_has_opened_is_closed_before_the_next_but_one(run: Run) -> None:
    async def story() -> None:
        closed = list[int]()
        sink = MemorySink()
        stage = concat_map(lambda n: ticking(n, 1, closed))
        async with from_iterable(range(50)).pipe(stage).to(sink).start() as running:
            for second in range(2, 50):
                await asyncio.sleep(second + 0.5 - asyncio.get_running_loop().time())
                # Nothing is left of those that are over.
                assert closed == list(range(second))
                assert len(running._run.nesting.inner) == 1
        assert not running._run.nesting.inner

    run(story())


def test_the_error_of_a_stream_names_the_event_that_it_is_about(run: Run) -> None:
    def fails(value: Any) -> Any:
        raise ValueError(value)

    inner = from_iterable([1]).pipe(ops.map(fails))
    source = MemorySource(["a"])
    with pytest.raises(ValueError, match="1") as told:
        run(source.pipe(flat_map(lambda _: inner)).to(MemorySink()).run())
    notes = str(told.value.__notes__)
    assert "in stage 2 'map', on the event 1" in notes
    assert "in stage 2 'flat_map', on the event 'a'" in notes
    assert source.failed == ["a"]


def test_a_stream_that_cannot_begin_fails_its_event() -> None:
    def attach(*_: Any) -> Any:
        raise ValueError("no")

    source = MemorySource(["a"])
    broken = from_iterable([1])
    broken._attach = attach
    probe = read(source, flat_map(lambda _: broken))
    assert isinstance(probe.error, ValueError)
    assert source.failed == ["a"]


def test_a_drain_waits_for_a_stream_to_end(run: Run) -> None:
    async def story() -> None:
        sink = MemorySink()
        async with (
            from_iterable("abcdef")
            .pipe(concat_map(lambda v: ticking(v, 1)))
            .to(sink)
            .start() as running
        ):
            await asyncio.sleep(1.5)
            await running.drain()
        # One was open, and two more had been taken in.
        assert sink.values == [("a", 0), ("b", 0), ("c", 0), ("d", 0)]

    run(story())


def test_a_pause_holds_streams_inside_as_well(run: Run) -> None:
    async def story() -> None:
        sink = MemorySink()
        stage = concat_map(
            lambda n: CountedSource(range(3)).pipe(adaptive_flat_map(later, Fixed(1)))
        )
        async with from_iterable(range(2)).pipe(stage).to(sink).start() as running:
            await asyncio.sleep(1.5)
            running.pause()
            await asyncio.sleep(100)
            assert len(sink.values) == 2
            running.resume()
        assert sink.values == [0, 1, 2, 0, 1, 2]

    async def later(value: Any) -> Any:
        await asyncio.sleep(1)
        return value

    run(story())


def test_files_that_are_read_inside_report_their_bad_lines(run: Run, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(f'{{"in": "{name}"}}\ngarbage\n')
    dead, done = MemorySink(), list[Any]()
    inner = lambda name: read_jsonl(tmp_path / name, on_bad_line=route(dead))  # noqa: E731
    report = run(from_iterable("ab").pipe(flat_map(inner)).to(collect(done)).run())
    assert done == [{"in": "a"}, {"in": "b"}]
    assert [letter.value for letter in dead.values] == ["garbage"] * 2
    assert dead.closed == 1
    assert (report.statistics["bad_lines"], report.exit_status) == (2, 3)


def test_files_that_are_read_inside_a_group_report_their_bad_lines(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text('{"in": "a"}\ngarbage\n')
    inner = lambda name: read_jsonl(tmp_path / name)  # noqa: E731
    grouped = group_by(str, each=lambda group: group.pipe(flat_map(inner)), idle=1), spread()
    done = list[Any]()
    report = run(from_iterable(["a"]).pipe(*grouped).to(collect(done)).run())
    assert done == [{"in": "a"}]
    assert (report.statistics["bad_lines"], report.exit_status) == (1, 3)


def test_a_flood_of_letters_holds_the_sources_inside() -> None:
    def fails(value: Any) -> Any:
        raise ValueError(value)

    async def story() -> None:
        dead, inner = MemorySink(hold=True), CountedSource(range(9000))
        stage = inner.pipe(adaptive_flat_map(fails, Fixed(1), on_error=route(dead)))
        async with MemorySource([1]).pipe(flat_map(lambda _: stage)).to(MemorySink()).start():
            await asyncio.sleep(1)
            assert 1024 <= inner.emitted < 1500
            dead.accept(9000)
        assert inner.emitted == 9000

    run_virtual(story())


def test_what_comes_of_a_groups_event_keeps_its_turn(run: Run) -> None:
    at_work: set[str] = set()

    async def work(pair: tuple[str, int]) -> tuple[str, int]:
        assert pair[0] not in at_work
        at_work.add(pair[0])
        await asyncio.sleep(1)
        at_work.discard(pair[0])
        return pair

    sink = MemorySink()
    flow = MemorySource(["a", "b", "a"]).pipe(
        group_by(0),
        spread(),
        flat_map(lambda key: from_iterable([(key, n) for n in range(3)])),
        adaptive_flat_map(work, Fixed(9)),
    )
    run(flow.to(sink).run())
    assert [pair for pair in sink.values if pair[0] == "a"] == [("a", n) for n in (0, 1, 2)] * 2
    # Both groups at once, three events after three.
    assert sink.accepted[-1][0] == 6


def test_streams_are_read_without_a_loop() -> None:
    probe, run = Probe[Any](request=9), PipelineRun()
    stage = flat_map(lambda n: from_iterable(range(n)).pipe(chunk(2)))
    from_iterable([3, 0, 1]).pipe(stage).attach(probe, run)
    assert probe.values == [[0, 1], [2], [0]]
    assert probe.completed
    assert not run.nesting.inner


@given(st.lists(st.integers(0, 5), max_size=5), st.integers(1, 5), st.integers(0, 30))
def test_whatever_is_read_and_returned_every_event_of_both_streams_ends(
    sizes: list[int], wanted: int, cancel_after: int
) -> None:
    inner = [MemorySource(range(size)) for size in sizes]
    outer = MemorySource(range(len(sizes)))
    seen = 0

    def look(probe: Probe[Any], _: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == cancel_after:
            probe.cancel()
        else:
            probe.request(1)

    probe = read(outer, flat_map(lambda n: inner[n]), request=wanted, on_event=look)
    everything = [value for size in sizes for value in range(size)]
    if probe.completed:
        assert probe.values == everything
    assert probe.values == everything[: len(probe.values)]
    assert all(not source.unsettled for source in [outer, *inner])


def test_a_stream_that_begins_in_a_pause_waits_for_its_end(run: Run) -> None:
    async def later(value: Any) -> Any:
        await asyncio.sleep(1)
        return value

    async def story() -> None:
        sink = MemorySink()
        stages = adaptive_flat_map(later, Fixed(1)), flat_map(lambda n: from_iterable([n]))
        async with MemorySource([7]).pipe(*stages).to(sink).start() as running:
            await asyncio.sleep(0.5)
            running.pause()
            await asyncio.sleep(100)
            assert sink.values == []
            running.resume()
        assert sink.values == [7]

    run(story())


def test_what_goes_wrong_beside_a_stream_is_its_error(run: Run) -> None:
    def items() -> Iterator[int]:
        try:
            yield from count()
        finally:
            raise ValueError("cannot be closed")

    stage = flat_map(lambda _: from_iterable(items).pipe(ops.take(2)))
    with pytest.raises(ValueError, match="cannot be closed"):
        run(MemorySource([1]).pipe(stage).to(MemorySink()).run())


def test_what_a_stream_has_opened_stays_open_until_its_events_have_ended(run: Run) -> None:
    async def story() -> None:
        inner, closed = MemorySource([1]), list[bool]()

        async def close() -> None:
            closed.append(True)

        def attach(downstream: Subscriber[Any], run: PipelineRun) -> None:
            run.on_close(close)
            inner.attach(downstream, run)

        opened: Flowable[Any] = Flowable(attach, StageInfo("opened"))
        forever = ManualPublisher[Any]()
        probe = read(forever, flat_map(lambda _: opened), hold=True)
        forever.send("a")
        await asyncio.sleep(1)
        assert (len(probe.events), closed) == (1, [])
        probe.events[0].finish()
        await asyncio.sleep(1)
        assert closed
        probe.cancel()

    run(story())


def test_as_many_events_are_open_as_are_shown_before_it_begins(run: Run) -> None:
    async def story() -> None:
        subjects: list[rx.Subject[int]] = []

        def open_one(_: int) -> rx.Subject[int]:
            subjects.append(rx.Subject())
            return subjects[-1]

        stream = from_iterable(range(100)).pipe(ops.flat_map(open_one))
        running = stream.to(collect([])).start()
        await asyncio.sleep(1)
        statistics = running.statistics()
        unfinished = statistics["in"] - statistics["finished"]
        assert len(subjects) == unfinished == 32
        # Each has an event that waits here besides.
        assert stream.info.bound == 2 * 32
        running.cancel()
        await running.wait()

    run(story())


async def fetched(value: int) -> Any:
    return from_iterable([value])


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("switch_map", "asyncio.ensure_future(fetched(value))"),
        ("flat_map_latest", "asyncio.ensure_future(fetched(value))"),
        ("exhaust_map", "asyncio.ensure_future(fetched(value))"),
        ("concat_map", "adaptive_flat_map(handler)"),
        ("flat_map", "adaptive_flat_map(handler)"),
    ],
)
def test_an_async_function_is_refused_by_the_name_of_the_operator_with_what_to_use(
    name: str, instead: str
) -> None:
    with pytest.raises(BuildError) as caught:
        from_iterable([1]).pipe(getattr(ours, name)(fetched))
    assert str(caught.value).startswith(f"{name} is given an async function")
    assert instead in str(caught.value)


@pytest.mark.parametrize("name", ["switch_map", "switch_map_indexed", "concat_map"])
@pytest.mark.parametrize("fluent", [False, True])
def test_a_composition_of_reactivex_has_the_name_that_was_written(name: str, fluent: bool) -> None:
    def through(function: Callable[..., Any]) -> Any:
        source = from_iterable([1])
        if fluent:
            return getattr(source, name)(function)
        return source.pipe(getattr(ops, name)(function))

    def nothing(value: int, index: int = 0) -> Any:
        return from_iterable([])

    pipeline = through(nothing).to(collect([]))
    report = run_virtual(pipeline.run())
    assert report.statistics["stages"][1]["name"] == name
    assert report.statistics["dropped"] == {name: 1}
    with pytest.raises(BuildError, match=f"{name} is given an async function"):
        through(fetched)


@pytest.mark.parametrize("name", ["switch_map", "switch_map_indexed"])
@pytest.mark.parametrize("operators", [ops, _ours])
def test_without_a_function_the_values_are_the_streams(name: str, operators: Any) -> None:
    async def story() -> list[int]:
        source = from_iterable([from_iterable([1, 2])])
        into: list[int] = await source.pipe(getattr(operators, name)()).to_list()
        return into

    assert run_virtual(story()) == [1, 2]


async def pages(value: int) -> AsyncIterator[int]:
    yield value
    yield value + 1


@pytest.mark.parametrize("name", ["switch_map", "flat_map_latest", "exhaust_map", "concat_map"])
def test_an_async_generator_function_is_refused_with_what_reads_its_generators(name: str) -> None:
    instead = f"{name}(lambda value: from_async_iterable(pages(value)))"
    with pytest.raises(BuildError, match=re.escape(instead)):
        from_iterable([1]).pipe(getattr(ours, name)(pages))

    async def story() -> list[int]:
        names = {"pages": pages, "from_async_iterable": from_async_iterable}
        stream: Any = from_iterable([1]).pipe(eval(instead, names, {name: getattr(ours, name)}))
        into: list[int] = await stream.to_list()
        return into

    assert run_virtual(story()) == [1, 2]


@pytest.mark.parametrize(
    "name", ["switch_map", "flat_map_latest", "exhaust_map", "concat_map", "flat_map"]
)
def test_a_plain_function_that_returns_a_coroutine_fails_by_the_name_of_the_operator(
    name: str,
) -> None:
    async def story() -> None:
        stream: Any = from_iterable([1]).pipe(getattr(ours, name)(lambda value: fetched(value)))
        await stream.to_list()

    with pytest.raises(PenstockError, match=f"{name} awaits no coroutines: use adaptive_flat_map"):
        run_virtual(story())


def test_a_future_of_an_async_function_is_cancelled_when_the_next_value_comes() -> None:
    ended = list[str]()

    async def answer(text: str) -> str:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            ended.append(text)
            raise
        return text.upper()

    async def story() -> list[str]:
        source = from_iterable(["p", "pe", "pen"])
        switched = ours.switch_map(lambda text: asyncio.ensure_future(answer(text)))
        into: list[str] = await source.pipe(switched).to_list()
        return into

    assert run_virtual(story()) == ["PEN"]
    assert ended in (["p", "pe"], [])
