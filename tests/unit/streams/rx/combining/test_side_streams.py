"""The streams that a lifted operator reads besides the one above it: demand, drains, threads."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import chain, count
from typing import Any

import pytest
import reactivex
from reactivex.subject import Subject

from penstock import (
    Fixed,
    Inbox,
    Running,
    adaptive_flat_map,
    collect,
    from_async_iterable,
    from_iterable,
    inbox,
    lift,
)
from penstock import ops as _ops
from penstock.streams.base.errors import BuildError, HoldExceeded, NoLoop, WrongType
from penstock.streams.boundary.inner_stream import Input
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.rx.table import READING
from penstock.streams.testing import (
    CountedSource,
    ManualPublisher,
    MemorySource,
    Probe,
    run_virtual,
)

# What reactivex says of its types does not fit a lambda.
ops: Any = _ops


def never(_: object) -> Any:
    return reactivex.never()


def given(other: Any) -> Callable[..., Any]:
    """A function that returns it."""
    return lambda *_: other


# Each operator with a stream besides, which it reads from the beginning on.
BESIDE: dict[str, Callable[[Any], list[Any]]] = {
    "buffer": lambda other: [ops.buffer(other)],
    "buffer_when": lambda other: [ops.buffer_when(given(other))],
    "buffer_toggle openings": lambda other: [ops.buffer_toggle(other, never)],
    "window": lambda other: [ops.window(other), ops.merge_all()],
    "window_when": lambda other: [ops.window_when(given(other)), ops.merge_all()],
    "window_toggle openings": lambda other: [
        ops.window_toggle(other, never),
        ops.merge_all(),
    ],
    "delay_with_mapper": lambda other: [ops.delay_with_mapper(other, never)],
    "zip_latest": lambda other: [ops.zip_latest(other)],
    "fork_join": lambda other: [ops.fork_join(other)],
    "in lift": lambda other: [lift(ops.buffer(other), hold=7)],
    "in lift that holds": lambda other: [lift(ops.buffer(other), holds=True)],
}
# Those whose stream is made for each event, or each part.
FOR_EACH: dict[str, Callable[[Any], list[Any]]] = {
    "buffer_toggle closings": lambda other: [ops.buffer_toggle(reactivex.of(0), given(other))],
    "window_toggle closings": lambda other: [
        ops.window_toggle(reactivex.of(0), given(other)),
        ops.merge_all(),
    ],
    "delay_with_mapper durations": lambda other: [ops.delay_with_mapper(given(other))],
    "throttle_with_mapper": lambda other: [ops.throttle_with_mapper(given(other))],
}


async def slowly(value: int) -> int:
    await asyncio.sleep(0.1)
    return value


def read(stream: Any, request: int = 1) -> Probe[Any]:
    probe = Probe[Any](request)
    stream.connect(probe)
    return probe


@pytest.mark.parametrize("name", [*BESIDE, *FOR_EACH])
def test_one_event_of_it_is_requested_at_a_time(name: str) -> None:
    other = ManualPublisher[str]()
    source = ManualPublisher[int]()
    probe = read(source.pipe(*{**BESIDE, **FOR_EACH}[name](other)), 100)
    if name in FOR_EACH:
        source.send(1)
    assert probe.error is None
    assert other.requests == [1]


def test_each_operator_that_reads_other_streams_is_tried_here() -> None:
    assert {name.split()[0] for name in [*BESIDE, *FOR_EACH]} - {"in"} == set(READING)


@pytest.mark.parametrize("name", ["buffer", "in lift", "in lift that holds"])
def test_the_next_is_requested_when_one_has_come_and_no_result_waits(name: str) -> None:
    other = CountedSource(count())
    probe = read(ManualPublisher[int]().pipe(*BESIDE[name](other)), 3)
    # One of a list that waits.
    assert (probe.values, other.emitted) == ([[], [], []], 4)
    probe.request(2)
    assert (probe.values, other.emitted) == ([[]] * 5, 6)
    probe.cancel()
    assert other.ledger.unsettled == []


def test_what_is_there_at_once_counts_before_the_first_event_of_the_source() -> None:
    other = MemorySource(["a", "b"])
    probe = read(
        from_iterable([1, 2]).pipe(ops.buffer(other.pipe(ops.concat(reactivex.never())))), 9
    )
    assert (probe.values, probe.completed, other.unsettled) == ([[], [], [1, 2]], True, [])


def test_an_event_of_it_counts_in_the_pipeline_and_is_dropped() -> None:
    async def story() -> dict[str, Any]:
        stream: Any = from_iterable(range(3)).pipe(ops.buffer(from_iterable("ab")))
        return dict((await stream.to(collect(list[Any]())).run()).statistics)

    numbers = run_virtual(story())
    # The other stream has ended at once, and with it the lists.
    assert numbers["dropped"]["buffer"] == 2
    assert numbers["in"] == numbers["finished"] + 2 + numbers["returned"]


def test_the_events_of_windows_are_dropped_by_the_name_of_the_operator_that_makes_them() -> None:
    async def story() -> dict[str, Any]:
        parts = ops.window_toggle(from_iterable("ab"), given(from_iterable("c")))
        stream: Any = from_iterable(range(3)).pipe(parts, ops.merge_all())
        return dict((await stream.to(collect(list[Any]())).run()).statistics)

    assert run_virtual(story())["dropped"] == {"window_toggle": 4}


def test_draw_shows_it_as_an_input() -> None:
    stream: Any = from_iterable(range(3)).pipe(
        ops.window(from_iterable("ab").pipe(ops.map(str))), ops.merge_all()
    )
    stages = [
        (stage.number, stage.name) for stage in all_stages(each.info for each in stream.chain())
    ]
    assert stages == [
        (1, "from_iterable"),
        (2, "from_iterable"),
        (3, "map"),
        (4, "window > merge_all"),
    ]


@pytest.mark.parametrize("name", [name for name in BESIDE if name.startswith(("buf", "win"))])
def test_a_drain_stops_it_and_finishes_what_has_come(name: str) -> None:
    async def story() -> tuple[list[Any], Any]:
        entry: Inbox[int] = inbox(100)
        ticks: Inbox[int] = inbox(100)
        into = list[Any]()
        stream: Any = entry.pipe(adaptive_flat_map(slowly, limit=Fixed(2)), *BESIDE[name](ticks))
        running: Running = stream.to(collect(into)).start()
        await asyncio.sleep(0)
        await ticks.put(0)
        for n in range(20):
            await entry.put(n)
        report = await running.drain(30)
        return into, report

    into, report = run_virtual(story())
    got = list(chain.from_iterable(into) if name.startswith("buffer") else into)
    assert got == list(range(20))
    assert (report.exit_status, report.statistics["returned"]) == (0, 0)


@pytest.mark.parametrize("says", ["a value", "an error", "the end"])
def test_it_may_signal_on_any_thread(says: str) -> None:
    async def story() -> Probe[Any]:
        other, source = Subject[int](), ManualPublisher[int]()
        probe = read(source.pipe(ops.buffer(other)), 9)
        source.send(1)
        act = {
            "a value": lambda: other.on_next(0),
            "an error": lambda: other.on_error(ValueError("gone")),
            "the end": other.on_completed,
        }[says]
        thread = threading.Thread(target=act)
        thread.start()
        thread.join()
        assert probe.values == []
        await asyncio.sleep(0)
        return probe

    probe = asyncio.run(story())
    assert probe.values == ([] if says == "an error" else [[1]])
    assert str(probe.error or "") == ("gone" if says == "an error" else "")
    assert probe.completed is (says == "the end")


@pytest.mark.parametrize("name", [*BESIDE, "flat_map"])
def test_without_a_loop_a_value_from_another_thread_is_refused_by_the_name_of_the_operator(
    name: str,
) -> None:
    other, source = Subject[int](), ManualPublisher[int]()
    operators = BESIDE[name](other) if name in BESIDE else [ops.flat_map(given(other))]
    probe = read(source.pipe(*operators), 9)
    if name == "flat_map":
        source.send(1)
    thread = threading.Thread(target=lambda: other.on_next(0))
    thread.start()
    thread.join()
    assert isinstance(probe.error, NoLoop)
    spelled = "buffer" if name.startswith("in ") else name.split()[0]
    assert str(probe.error).startswith(
        f"{spelled} reads an Observable that emits on another thread, and there is no running event"
        " loop"
    )
    assert "run the pipeline" in str(probe.error)


def test_what_its_end_makes_of_the_operator_is_what_it_makes_in_rx() -> None:
    probe = read(from_iterable(range(3)).pipe(ops.buffer(reactivex.empty())), 9)
    assert (probe.values, probe.completed) == ([[]], True)


@pytest.mark.parametrize("name", ["buffer_toggle", "window_toggle"])
def test_parts_that_another_stream_begins_end_with_that_and_not_with_the_source(name: str) -> None:
    openings = ManualPublisher[int]()
    closings = ManualPublisher[int]()
    parts = [getattr(ops, name)(openings, given(closings))]
    probe = read(from_iterable([1, 2]).pipe(*parts, *[ops.merge_all()][: name[0] == "w"]), 9)
    openings.send(0)
    openings.complete()
    assert not probe.completed
    closings.complete()
    assert probe.completed


def test_an_error_of_it_passes_on_and_so_does_one_of_the_function_that_makes_it() -> None:
    def broken() -> Any:
        raise LookupError("no")

    assert (
        str(read(from_iterable([1]).pipe(ops.buffer(reactivex.throw(OSError("gone"))))).error)
        == "gone"
    )
    assert isinstance(read(from_iterable([1]).pipe(ops.buffer_when(broken))).error, LookupError)
    assert isinstance(read(from_iterable([1]).pipe(ops.buffer_when(lambda: 5))).error, WrongType)


def test_what_is_no_stream_is_refused_when_the_pipeline_is_built() -> None:
    with pytest.raises(WrongType, match="buffer reads a stream or an Observable, not 5"):
        from_iterable([1]).pipe(ops.buffer(5))
    with pytest.raises(BuildError, match="put spread"):
        from_iterable([1]).pipe(ops.buffer(from_iterable([1]).pipe(ops.group_by(abs))))


def test_parts_that_come_and_go_leave_nothing_behind() -> None:
    alive = list[int]()

    async def story() -> list[int]:
        entry: Inbox[int] = inbox(10)
        ticks = [Subject[int]()]

        def closing() -> Any:
            ticks[0] = Subject[int]()
            return ticks[0]

        stream: Any = entry.pipe(ops.buffer_when(closing))
        running: Running = stream.to(collect(list[Any]())).start()
        await asyncio.sleep(0)
        parts = list[int]()
        for n in range(40):
            await entry.put(n)
            await asyncio.sleep(0)
            ticks[0].on_next(n)
            await asyncio.sleep(0)
            runs = running._run.nesting  # pyright: ignore[reportPrivateUsage]
            parts.append(len(runs.inner) + len(runs.sources) + len(runs.stages))
            if n in (5, 39):
                gc.collect()
                alive.append(sum(isinstance(each, Input) for each in gc.get_objects()))
        await running.drain(3)
        return parts

    parts = run_virtual(story())
    assert max(parts[2:]) <= parts[2]
    assert alive[0] == alive[1]


_LISTS = [name for name in BESIDE if name.startswith("buffer") and "openings" not in name]


@pytest.mark.parametrize("name", [*_LISTS, "buffer_toggle closings"])
def test_a_full_list_pauses_the_source_until_the_other_stream_ends_it(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    source, ticks = CountedSource(range(10_000)), ManualPublisher[int]()
    operator = BESIDE.get(name, lambda other: [ops.buffer_toggle(reactivex.of(0), given(other))])
    probe = read(source.pipe(*operator(ticks)), 9)
    assert (source.emitted, probe.values, probe.error) == (1024, [], None)
    assert "holds 1,024 events, as many as it may, and reads no more until it emits" in caplog.text
    ticks.send(0)
    assert [len(values) for values in probe.values] == [1024]
    # The other operators have begun another list; this one has none open.
    assert source.emitted == (1024 if "toggle" in name else 2048)


def test_a_full_window_pauses_the_source_until_the_other_stream_ends_it() -> None:
    source, ticks = CountedSource(range(10_000)), ManualPublisher[int]()
    to_lists = ops.flat_map(lambda window: window.pipe(ops.to_list()))
    probe = read(source.pipe(ops.window(ticks), to_lists), 9)
    assert (source.emitted, probe.values, probe.error) == (1024, [], None)
    ticks.send(0)
    assert [len(values) for values in probe.values] == [1024]


def test_a_full_list_whose_end_comes_of_a_shared_stream_is_an_error() -> None:
    # What would end it may be behind the events that it does not request.
    shared: Any = from_iterable(range(10_000)).pipe(ops.share())
    ends = shared.pipe(ops.filter(lambda n: n == 5_000))
    probe = read(shared.pipe(ops.buffer(ends)), 9)
    assert isinstance(probe.error, HoldExceeded)


@pytest.mark.parametrize("kind", ["buffer_when", "window_when"])
@pytest.mark.parametrize("at_once", [from_iterable([1]), reactivex.of(1), reactivex.empty()])
def test_parts_that_end_at_once_again_and_again_are_an_error_that_says_so(
    kind: str, at_once: Any
) -> None:
    cut = [ops.window_when(given(at_once)), ops.merge_all()]
    parts = cut if kind == "window_when" else [ops.buffer_when(given(at_once))]
    probe = read(from_iterable([1, 2]).pipe(*parts), 100)
    assert str(probe.error).startswith(f"{kind} keeps beginning streams that emit or end at once")


def test_no_stream_that_ends_a_list_begins_while_a_list_waits() -> None:
    begun = list[int]()

    def at_once() -> Any:
        def nothing() -> Iterator[int]:
            begun.append(1)
            yield from ()

        return from_iterable(nothing)

    probe = read(ManualPublisher[int]().pipe(ops.buffer_when(at_once)), 3)
    assert (probe.values, len(begun)) == ([[]] * 3, 4)
    probe.request(1)
    assert (probe.values, len(begun)) == ([[]] * 4, 5)


@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("kind", ["buffer_when", "window_when"])
def test_a_drain_that_the_function_begins_ends_the_last_part(kind: str, at: int) -> None:
    async def story() -> tuple[list[Any], str]:
        entry: Inbox[int] = inbox(100)
        into = list[Any]()
        calls = count()

        def ends() -> Any:
            if next(calls) == at:
                running.begin_drain(5)
            return reactivex.timer(1.0)

        cut = [ops.window_when(ends), ops.merge_all()]
        parts = cut if kind == "window_when" else [ops.buffer_when(ends)]
        running: Running = entry.pipe(*parts).to(collect(into)).start()
        if at:
            await asyncio.sleep(0)
            for n in range(5):
                await entry.put(n)
        report = await running.wait()
        # The function is called for one part more at most.
        assert next(calls) <= at + 2
        return into, report.outcome

    into, outcome = run_virtual(story())
    assert outcome == "completed"
    got = list(chain.from_iterable(into) if kind == "buffer_when" else into)
    assert got == list(range(5 if at else 0))


@pytest.mark.parametrize("kind", ["buffer_toggle", "window_toggle"])
def test_an_event_in_no_part_is_dropped_as_it_comes(kind: str) -> None:
    async def source() -> AsyncIterator[int]:
        for n in range(5_000):
            await asyncio.sleep(0.001)
            yield n

    async def openings() -> AsyncIterator[int]:
        for n in range(2):
            await asyncio.sleep(2)
            yield n

    async def story() -> tuple[list[int], dict[str, Any]]:
        parts = [getattr(ops, kind)(from_async_iterable(openings), lambda _: reactivex.timer(0.5))]
        lengths = ops.map(len) if kind == "buffer_toggle" else ops.flat_map(_count_of)
        into = list[int]()
        stream: Any = from_async_iterable(source).pipe(*parts, lengths)
        return into, (await stream.to(collect(into)).run()).statistics

    into, numbers = run_virtual(story())
    # The gaps are longer than the stage may hold.
    assert into == [500, 500]
    assert (numbers["finished"], sum(numbers["dropped"].values())) == (1_000, 3_500 + 2 + 2)


def _count_of(window: Any) -> Any:
    return window.pipe(ops.count())


@pytest.mark.parametrize("kind", ["buffer_toggle", "window_toggle"])
def test_a_drain_ends_a_part_that_begins_after_the_end_of_the_source(kind: str) -> None:
    async def story() -> tuple[list[Any], str]:
        openings: Any = from_iterable([1]).pipe(ops.delay(1))
        toggle = getattr(ops, kind)(openings, never)
        into = list[Any]()
        parts = [toggle] if kind == "buffer_toggle" else [toggle, ops.merge_all()]
        running: Running = from_iterable([1]).pipe(*parts).to(collect(into)).start()
        await asyncio.sleep(0.1)
        return into, (await running.drain(3)).outcome

    assert run_virtual(story()) == ([[]] if kind == "buffer_toggle" else [], "completed")
