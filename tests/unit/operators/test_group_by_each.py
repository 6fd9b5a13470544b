from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops

from penstock import Fixed, adaptive_flat_map, collect, from_iterable, group_by, spread
from penstock.streams.base.errors import BuildError, HoldExceeded
from penstock.streams.testing import (
    CountedSource,
    ManualPublisher,
    MemorySource,
    Probe,
    run_virtual,
)
from tests.helpers.in_groups import each, read

# A state for each group.


def test_pairwise_pairs_events_of_the_same_group() -> None:
    source = MemorySource(["a1", "b1", "a2", "b2", "a3"])
    probe = read(source, each(ops.pairwise()))
    assert sorted(probe.values) == [("a1", "a2"), ("a2", "a3"), ("b1", "b2")]
    assert probe.completed
    assert source.unsettled == []


def test_scan_counts_for_each_group() -> None:
    probe = read(from_iterable("abacab"), each(ops.scan(lambda n, key: (key, n[1] + 1), ("", 0))))
    assert sorted(probe.values) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1)]


def test_buffer_gathers_events_of_the_same_group_and_they_share_their_outcome() -> None:
    source = MemorySource(["a1", "b1", "a2", "b2", "a3"])
    probe = read(source, each(ops.buffer_with_count(2)), hold=True)
    assert probe.values == [["a1", "a2"], ["b1", "b2"]]
    assert source.acked == []
    probe.events[0].finish()
    assert source.acked == ["a1", "a2"]
    # The rest of a group leaves when the stream ends and its turn is free.
    assert probe.values[2:] == [["a3"]]
    probe.events[2].finish()
    probe.events[1].fail(ValueError("b"))
    assert (source.acked, source.failed) == (["a1", "a2", "a3"], ["b1", "b2"])
    assert probe.completed


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers())),
    st.integers(1, 20),
    st.integers(1, 4),
)
def test_each_group_gets_what_its_operators_make_of_its_own_events(
    events: list[tuple[str, int]], buffer: int, limit: int
) -> None:
    done: list[Any] = []

    async def work(pair: Any) -> Any:
        await asyncio.sleep(pair[1][1] % 3)
        return pair

    stream = from_iterable(events).pipe(
        each(ops.pairwise(), buffer=buffer), adaptive_flat_map(work, Fixed(limit))
    )

    async def story() -> dict[str, Any]:
        return (await stream.to(collect(done)).run()).statistics

    statistics = run_virtual(story())
    of_key = defaultdict(list)
    for event in events:
        of_key[event[0]].append(event)
    for key, own in of_key.items():
        assert [pair for pair in done if pair[0][0] == key] == list(pairwise(own))
    assert statistics["unfinished"] == 0
    assert statistics["returned"] == 0


@given(
    st.lists(st.sampled_from("abcdefgh"), max_size=40),
    st.integers(1, 8),
    st.sampled_from(["map", "filter", "buffer", "flat_map"]),
    st.data(),
)
def test_no_more_is_read_than_the_buffer_and_what_the_operators_hold(
    keys: list[str], buffer: int, name: str, data: st.DataObject
) -> None:
    operators: dict[str, Callable[[Any], Any]] = {
        "map": ops.map(lambda event: event),
        "filter": ops.filter(lambda event: event[1] % 2 == 0),
        "buffer": ops.buffer_with_count(2),
        "flat_map": ops.flat_map(lambda event: [event, event]),
    }
    source = CountedSource([(key, n) for n, key in enumerate(keys)])
    probe = read(source, each(operators[name], buffer=buffer), request=1, hold=True)
    held: list[Any] = []
    for _ in keys:
        held += probe.events
        probe.events.clear()
        if held and data.draw(st.booleans()):
            held.pop(data.draw(st.integers(0, len(held) - 1))).finish()
        probe.request(1)
        # One for each event that is being taken apart, or that a group's list waits with.
        inside = len(set(keys[: source.emitted]))
        in_hand = len(probe.events) + len(held)
        assert len(source.ledger.unsettled) <= buffer + inside + 2 * in_hand
    probe.cancel()
    for event in [*held, *probe.events]:
        event.finish()
    assert source.ledger.unsettled == []


def test_many_keys_do_not_pass_the_buffer_because_they_have_operators() -> None:
    source = CountedSource([(n, 0) for n in range(5_000)])
    probe = read(source, each(ops.map(lambda event: event), buffer=16), request=1, hold=True)
    assert source.emitted <= 17
    probe.cancel()
    probe.events[0].finish()


def test_events_of_a_group_keep_their_order_when_more_is_asked_for_in_the_middle() -> None:
    events = [("a", n) for n in range(300)]
    probe = read(from_iterable(events), each(ops.filter(lambda e: e[1] % 7 == 0), buffer=5))
    assert probe.values == [event for event in events if event[1] % 7 == 0]


# Errors.


def test_an_error_inside_a_group_stops_the_pipeline() -> None:
    source = MemorySource(["a1", "bx", "a2"])
    probe = read(source, each(ops.map(lambda value: int(value[1]))))
    assert isinstance(probe.error, ValueError)
    assert source.failed == ["bx"]
    assert source.unsettled == []


def test_an_error_names_the_operator_of_its_own_group_where_groups_have_different_ones() -> None:
    def by_key(group: Any) -> Any:
        if group.key == "s":
            return group.pipe(ops.scan(lambda total, value: total + int(value[1]), 0))
        return group.pipe(ops.map(lambda value: int(value[1])), ops.filter(lambda n: n < 5))

    for wrong, name in (("sx", "scan"), ("mx", "map")):
        source, probe = MemorySource(["s1", "m2", "s3", "m7", wrong]), Probe[Any](request=9)
        source.pipe(group_by(lambda value: value[0], each=by_key, idle=1), spread()).connect(probe)
        assert probe.values == [1, 2, 4]
        assert isinstance(probe.error, ValueError)
        (note,) = probe.error.__notes__
        assert note.startswith(f"in '{name}' in stage 2 'group_by', on the event '{wrong}'")
        assert source.unsettled == []


def test_a_function_that_makes_no_stream_is_named() -> None:
    source, probe = MemorySource(["a1", "a2"]), Probe[Any](request=9)
    wrong: Any = lambda group: [group]  # noqa: E731
    source.pipe(group_by(0, each=wrong, idle=1), spread()).connect(probe)
    assert isinstance(probe.error, BuildError)
    assert "must return a Flowable" in str(probe.error)
    assert source.unsettled == []


def test_a_function_that_raises_for_a_group_stops_the_pipeline_with_its_error() -> None:
    source, probe = MemorySource(["a1", "b1"]), Probe[Any](request=9)

    def choosy(group: Any) -> Any:
        if group.key == "b":
            raise LookupError("no such group")
        return group

    source.pipe(group_by(0, each=choosy, idle=1), spread()).connect(probe)
    assert isinstance(probe.error, LookupError)
    assert source.failed == ["b1"]
    assert source.unsettled == []


def test_each_without_an_idle_time_is_refused_because_its_state_would_never_end() -> None:
    missing: Any = group_by
    with pytest.raises(BuildError, match="needs idle="):
        missing(0, each=lambda group: group)


# When each is called.


def test_each_is_called_no_more_when_the_groups_are_only_counted_whatever_their_keys() -> None:
    calls: list[Any] = []

    def counted(group: Any) -> Any:
        calls.append(group)
        return group.pipe(ops.count())

    source = MemorySource([(n % 50, n) for n in range(120)])
    probe = Probe[Any](request=1000)
    stream = source.pipe(group_by(0, each=counted, idle=60), spread())
    # Once to see its operators.
    calls.clear()
    stream.connect(probe)
    assert sorted(probe.values) == [2] * 30 + [3] * 20
    assert len(calls) == 2
    assert source.unsettled == []


def test_each_is_called_for_every_group_where_it_looks_at_the_key() -> None:
    def counted(group: Any) -> Any:
        return group.pipe(ops.count() if group.key != "c" else ops.to_list())

    probe = Probe[Any](request=1000)
    from_iterable("abcabcab").pipe(group_by(str, each=counted, idle=60), spread()).connect(probe)
    assert [value for value in probe.values if isinstance(value, int)] == [3, 3]
    assert [value for value in probe.values if isinstance(value, list)] == [["c", "c"]]


@pytest.mark.parametrize("limits", [{"buffer": 20}, {"max_groups": 3}])
@pytest.mark.parametrize("whole", [ops.count(), ops.to_list(), ops.to_iterable()])
def test_what_is_made_of_a_whole_group_is_what_stages_would_make_of_it(
    whole: Any, limits: dict[str, int]
) -> None:
    async def story(*operators: Any) -> list[Any]:
        source = MemorySource([(n * n % 7, n) for n in range(60)])
        done: list[Any] = []
        options: Any = {"each": lambda group: group.pipe(*operators), "idle": 60, **limits}
        flow = source.pipe(group_by(0, **options), spread(), adaptive_flat_map(same, Fixed(2)))
        report = await flow.to(collect(done)).run()
        assert source.unsettled == []
        return [done, report.statistics["closed_early"], report.statistics["finished"]]

    assert run_virtual(story(whole)) == run_virtual(story(whole, ops.map(same)))


def same(value: Any) -> Any:
    return value


def test_the_outcome_of_a_count_is_that_of_all_events_that_were_counted() -> None:
    source = MemorySource(["a1", "b1", "a2", "c1"])
    probe = read(source, each(ops.count()), hold=True)
    assert sorted(probe.values) == [1, 1, 2]
    counts = {event.value: event for event in probe.events}
    counts[2].fail(ValueError("a"))
    assert source.failed == ["a1", "a2"]
    for event in probe.events:
        event.finish()
    assert len(source.acked) == 2
    assert source.unsettled == []


def test_a_turn_that_counted_events_held_before_ends_with_the_turn_of_their_count() -> None:
    source = MemorySource([("a", 1), ("a", 1), ("a", 2)])
    counted = group_by(1, each=lambda group: group.pipe(ops.count()), idle=1)
    done: list[int] = []
    stages = (group_by(0), spread(), counted, spread(), adaptive_flat_map(same, Fixed(2)))
    report = run_virtual(source.pipe(*stages).to(collect(done)).run())
    assert (done, report.statistics["seconds"]) == ([1, 1, 1], 2)
    assert source.unsettled == []


def test_a_group_that_is_only_counted_holds_no_more_than_any_operator() -> None:
    for operators in ([ops.count()], [ops.count(), ops.map(same)]):
        source = MemorySource([("a", n) for n in range(1025)])
        probe = read(source, each(*operators, buffer=4096))
        assert isinstance(probe.error, HoldExceeded)
        assert source.unsettled == []


def test_events_that_come_while_a_count_is_on_its_way_are_counted_separately() -> None:
    async def story() -> list[Any]:
        source = ManualPublisher[str]()
        probe = read(source, each(ops.count(), idle=1), request=1, hold=True)
        source.send("a1", "a2")
        await asyncio.sleep(2)
        source.send("a3")
        await asyncio.sleep(2)
        assert probe.values == [2]
        probe.request(9)
        assert probe.values == [2]
        probe.events[0].finish()
        # It was empty when its turn had ended, and not before.
        await asyncio.sleep(2)
        assert probe.values == [2, 1]
        probe.events[1].finish()
        probe.cancel()
        return source.unsettled

    assert run_virtual(story()) == []
