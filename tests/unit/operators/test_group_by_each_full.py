"""What operators inside groups hold counts against the buffer; what happens when it is full."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops

from penstock import (
    Fixed,
    Report,
    adaptive_flat_map,
    batch,
    chunk,
    collect,
    distinct_within,
    for_each,
    from_iterable,
    group_by,
    rate_limit,
    route,
    spread,
)
from penstock.streams.base.errors import BuildError, HoldExceeded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.stages.own import Stage
from penstock.streams.testing import (
    CountedSource,
    ManualPublisher,
    MemorySink,
    MemorySource,
    Probe,
    run_virtual,
)
from tests.helpers.in_groups import each, read

COUNT = ops.count()


def run_to_end(source: Any, *operators: Any) -> tuple[list[Any], Report]:
    done: list[Any] = []
    report = run_virtual(source.pipe(*operators).to(collect(done)).run())
    return done, report


class Peak:
    """The most events of a source that were unfinished at once, as its readers saw it."""

    def __init__(self, source: MemorySource[Any]) -> None:
        self.peak = 0
        self._source = source

    def look(self, value: Any) -> Any:
        self.peak = max(self.peak, len(self._source.unsettled))
        return value


@pytest.mark.parametrize("keys", [3, 40, 2_000])
def test_no_more_is_held_inside_groups_than_the_buffer(keys: int) -> None:
    source = MemorySource([(n % keys, n) for n in range(2_000)])
    peak = Peak(source)
    count = (COUNT, ops.map(peak.look))
    done, report = run_to_end(source.pipe(ops.map(peak.look)), each(*count, buffer=16))
    # One more is on its way out.
    assert peak.peak <= 17
    assert sum(done) == 2_000
    assert report.statistics["finished"] == 2_000
    assert 0 < len(done) - report.statistics["closed_early"]["buffer"] <= min(keys, 16)


def test_the_group_that_was_idle_for_longest_is_closed_when_the_buffer_is_full() -> None:
    source = ManualPublisher[str]()
    probe = read(source, each(ops.to_list(), buffer=4))
    source.send("a1", "b1", "a2")
    assert probe.values == []
    source.send("c1")
    assert probe.values == [["b1"]]
    source.send("b2")
    assert probe.values == [["b1"], ["a1", "a2"]]
    source.complete()
    assert sorted(probe.values[2:]) == [["b2"], ["c1"]]


@pytest.mark.parametrize("operators", [[ops.to_list()], [ops.to_list(), ops.map(list)]])
@pytest.mark.parametrize(("wanted", "closed"), [(100, 4), (3, 3)])
def test_groups_that_hold_a_sixteenth_of_a_full_buffer_are_closed_at_a_time_as_far_as_requested(
    operators: list[Any], wanted: int, closed: int
) -> None:
    source = ManualPublisher[tuple[int, int]]()
    probe = read(source, each(*operators, buffer=64), request=wanted)
    source.send(*[(n, 0) for n in range(63)])
    assert probe.values == []
    source.send((63, 0))
    assert probe.values == [[(n, 0)] for n in range(closed)]
    # The next group is open still.
    source.send((closed, 1))
    source.complete()
    probe.request(100)
    assert [(closed, 0), (closed, 1)] in probe.values


def test_a_group_that_holds_a_sixteenth_of_a_full_buffer_is_closed_alone() -> None:
    source = ManualPublisher[tuple[int, int]]()
    probe = read(source, each(COUNT, buffer=64))
    source.send(*[(max(0, n - 3), n) for n in range(64)])
    assert probe.values == [4]
    probe.cancel()


def test_groups_that_hold_nothing_are_not_closed_for_others() -> None:
    def inside(group: Any) -> Any:
        total = ops.scan(lambda total, _: total + 1, 0)
        return group.pipe(total if group.key == "a" else ops.to_list())

    source = ManualPublisher[str]()
    probe = read(source, lambda s: s.pipe(group_by(0, 2, each=inside, idle=60), spread()))
    source.send("a1", "b1", "c1", "d1", "e1", "a2")
    assert [value for value in probe.values if isinstance(value, int)] == [1, 2]
    assert [value for value in probe.values if isinstance(value, list)] == [["b1"], ["c1"], ["d1"]]
    probe.cancel()


def test_nothing_is_closed_while_nobody_wants_what_would_come_of_it() -> None:
    source = MemorySource([(n, 0) for n in range(50)])
    probe = read(source, each(ops.to_list(), buffer=4), request=1)
    assert len(probe.values) == 1
    assert len(source.unsettled) == 4
    probe.request(2)
    assert len(probe.values) == 3
    probe.cancel()
    assert source.unsettled == []


def test_early_closings_are_counted_by_cause_and_reported() -> None:
    warnings: list[str] = []

    async def story(**options: Any) -> Report:
        done: list[Any] = []
        stream = from_iterable(range(10)).pipe(
            group_by(lambda n: n, each=lambda g: g.pipe(COUNT), idle=30, **options), spread()
        )
        running = stream.to(collect(done)).start()
        errors = running._run.errors  # pyright: ignore[reportPrivateUsage]
        errors.on_warning = lambda text, *_: warnings.append(text)
        return await running.wait()

    report = run_virtual(story(buffer=4))
    assert report.statistics["closed_early"] == {"buffer": 7}
    assert report.statistics["stages"][1]["closed_early"] == {"buffer": 7}
    (warning,) = warnings
    assert "stage 2 'group_by'" in warning
    assert "a part of its events" in warning
    assert "buffer=" in warning
    assert "7 groups closed early (buffer): their results may be made of only a" in str(report)
    report = run_virtual(story(max_groups=8))
    assert report.statistics["closed_early"] == {"max_groups": 2}
    assert "max_groups=" in warnings[1]
    report = run_virtual(story())
    assert report.statistics["closed_early"] == {}
    assert "early" not in str(report)
    assert len(warnings) == 2


class _Keeps(Stage[Any, Any]):
    """Keeps its events and never lets them go."""

    def on_events(self, events: list[Event[Any]], /) -> None:
        self.upstream.request(len(events))


def keeps(source: Flowable[Any]) -> Flowable[Any]:
    def attach(downstream: Any, run: Any) -> None:
        source.attach(_Keeps(downstream), run)

    return Flowable(attach, StageInfo("keeps"), source)


def test_where_closing_a_group_brings_nothing_the_full_buffer_is_an_error() -> None:
    probe = read(from_iterable(["a", "b", "c", "d", "e"]), each(keeps, buffer=4))
    assert isinstance(probe.error, HoldExceeded)
    assert "stage 2 'group_by'" in str(probe.error)
    assert "buffer=" in str(probe.error)


def test_what_waits_for_its_time_inside_groups_is_waited_for() -> None:
    """A group that was closed gives its events in their time too; the others are left open."""
    source = MemorySource([(n, 0) for n in range(40)])
    done, report = run_to_end(source, each(ops.delay(5), buffer=8))
    assert len(done) == 40
    assert report.statistics["seconds"] == 30
    assert report.statistics["closed_early"]["buffer"] <= 5
    values = [("a", n) for n in range(100)]
    done, report = run_to_end(MemorySource(values), each(rate_limit(1), buffer=8))
    assert done == values
    assert report.statistics["closed_early"] == {}


INSIDE: dict[str, Callable[[], tuple[Any, ...]]] = {
    "count": lambda: (COUNT,),
    "lists": lambda: (ops.buffer_with_count(3),),
    "chunks": lambda: (chunk(3),),
    "chunks in time": lambda: (chunk(4, 0.5),),
    "parts": lambda: (ops.flat_map(lambda v: [v] * (v[1] % 3)),),
    "parts of lists": lambda: (ops.buffer_with_count(2), ops.flat_map(lambda vs: vs)),
    "lists of parts": lambda: (ops.flat_map(lambda v: [v, v]), chunk(3)),
    "parts later": lambda: (ops.flat_map(lambda v: [v] * 3), ops.delay(1)),
    "distinct": lambda: (distinct_within(9, by=lambda v: v[1] % 2), ops.delay(0.1)),
    "take": lambda: (ops.take(2),),
    "nested": lambda: (
        group_by(lambda v: v[1] % 2, 3, each=lambda g: g.pipe(chunk(2)), idle=1),
        spread(),
    ),
    "nested, all": lambda: (group_by(lambda v: v[1] % 2), spread(), ops.map(lambda v: v)),
}


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=60),
    st.sampled_from(sorted(INSIDE)),
    st.integers(1, 8),
    st.integers(1, 3),
    st.booleans(),
)
def test_whatever_the_operators_do_the_buffer_is_kept_and_everything_ends(
    values: list[tuple[int, int]], inside: str, buffer: int, limit: int, one_sink: bool
) -> None:
    source = MemorySource(values)
    peak = Peak(source)

    async def work(value: Any) -> Any:
        peak.look(value)
        await asyncio.sleep(0.1)
        peak.look(value)
        return value

    stages = (ops.map(peak.look), each(*INSIDE[inside](), buffer=buffer, idle=2))
    slow = for_each(lambda value: asyncio.sleep(0.3, peak.look(value)))
    sinks = (slow,) if one_sink else (slow, for_each(peak.look))
    pipeline = source.pipe(*stages, adaptive_flat_map(work, Fixed(limit), window=1)).to(*sinks)
    report = run_virtual(pipeline.run())
    assert report.statistics["unfinished"] == 0
    assert report.statistics["returned"] == 0
    assert source.unsettled == []
    bounds = [stage.bound or 0 for stage in pipeline.describe()]
    # `penstock draw` counts the events of which outputs are made.
    most = buffer
    assert peak.peak <= buffer + 1 + most * sum(bounds[3:])


@pytest.mark.parametrize("operator", [adaptive_flat_map(str), batch(list)])
def test_a_working_stage_inside_a_group_is_refused(operator: Any) -> None:
    source = MemorySource(["a1", "b1"])
    probe = Probe[Any](request=9)
    inside: Any = lambda group: group.pipe(operator)  # noqa: E731
    source.pipe(group_by(0, each=inside, idle=1), spread()).connect(probe)
    assert isinstance(probe.error, BuildError)
    assert "after spread()" in str(probe.error)
    assert source.unsettled == []


def _no_key(value: Any) -> Any:
    raise ValueError(value)


@pytest.mark.parametrize(
    "inside",
    [
        lambda stage: (stage,),
        # Of events made from several, and of those in a group inside the group.
        lambda stage: (chunk(2), stage),
        lambda stage: (group_by(1), spread(), stage),
        lambda stage: (chunk(2), group_by(0), spread(), stage),
    ],
)
def test_an_event_that_is_given_up_on_inside_a_group_keeps_its_place_until_its_letter_is_out(
    inside: Any,
) -> None:
    async def story() -> None:
        source, dead = MemorySource([(n % 3, n) for n in range(60)]), MemorySink(hold=True)
        refused = distinct_within(1, _no_key, on_error=route(dead))
        flow = source.pipe(each(*inside(refused), buffer=12))
        async with flow.to(MemorySink()).start() as running:
            await asyncio.sleep(1)
            assert len(source.unsettled) == 12
            dead.accept()
            await asyncio.sleep(1)
            assert len(source.unsettled) == 12
            dead.accept(60)
        assert source.unsettled == []
        assert running.report().statistics["failed"] == 60

    run_virtual(story())


def test_no_group_is_closed_early_for_letters_that_will_be_out() -> None:
    async def story() -> None:
        # Events with odd numbers fail; of the others each group's operators hold one.
        source = MemorySource([(n % 3, n) for n in [0, 2, 4, *range(1, 31, 2)]])
        dead, done = MemorySink(hold=True), MemorySink()
        refused = distinct_within(1, lambda pair: 1 / (1 - pair[1] % 2), on_error=route(dead))
        flow = source.pipe(each(refused, chunk(5), buffer=6, idle=100))
        async with flow.to(done).start() as running:
            await asyncio.sleep(1)
            assert len(source.unsettled) == 6
            assert not running.statistics()["closed_early"]
            dead.accept(60)
        assert not running.report().statistics["closed_early"]
        assert source.unsettled == []

    run_virtual(story())


def test_a_group_is_closed_early_when_the_letters_are_out_and_the_buffer_is_still_full() -> None:
    # One half of each event is held by the operators, and the other fails.
    source, dead, done = MemorySource([("a", n) for n in range(4)]), MemorySink(seconds=5), []
    halves = ops.flat_map(lambda pair: [pair, None])
    refused = distinct_within(1, lambda pair: pair[1], on_error=route(dead))
    flow = source.pipe(each(halves, refused, chunk(5), buffer=2, idle=1_000))
    report = run_virtual(flow.to(collect(done)).run())
    assert done == [[("a", 0), ("a", 1)], [("a", 2), ("a", 3)]]
    assert report.statistics["closed_early"] == {"buffer": 2}
    assert report.statistics["seconds"] == 20


def test_events_that_operators_drop_later_make_room_for_others_at_once() -> None:
    none = ops.buffer_with_time(1), ops.filter(lambda values: False)

    def by_key(group: Any) -> Any:
        return group if group.key == "b" else group.pipe(*none)

    async def story() -> tuple[int, int]:
        # The result of the first event is all that is requested: no group is closed to make room.
        grouped = group_by(0, 8, each=by_key, idle=1_000, overflow="wait")
        source.pipe(grouped, spread()).connect(Probe[Any](request=1))
        before = source.emitted
        await asyncio.sleep(1.01)
        return before, source.emitted

    source = CountedSource("b" + "a" * 30)
    before, after = run_virtual(story())
    assert before <= 9
    assert after == before + 8
