from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reactivex import operators as ops

from penstock import (
    Fixed,
    adaptive_flat_map,
    collect,
    distinct_within,
    from_iterable,
    group_by,
    spread,
)
from penstock.streams.testing import (
    CountedSource,
    ManualPublisher,
    MemorySource,
    Probe,
    run_virtual,
)

Event = tuple[str, int]

KEYS = st.lists(st.sampled_from("abcd"), max_size=40)


def numbered(keys: list[str]) -> list[Event]:
    return [(key, n) for n, key in enumerate(keys)]


def grouped(source: Any, **options: Any) -> Any:
    return source.pipe(group_by(0, **options), spread())


class Work:
    """A handler with random durations that records starts, ends and what ran together."""

    def __init__(self, seed: int, slowest: float = 1.0) -> None:
        self.started: list[Any] = []
        self.ended: list[Any] = []
        self.overlaps = 0
        self.most_at_once = 0
        self._rng = random.Random(seed)
        self._slowest = slowest
        self._running: Counter[Any] = Counter()

    async def __call__(self, event: Any) -> Any:
        key = event[0]
        self.started.append(event)
        self.overlaps += self._running[key]
        self._running[key] += 1
        self.most_at_once = max(self.most_at_once, self._running.total())
        # Some work ends at once, some in the same instant as other work.
        await asyncio.sleep(self._rng.choice([0, 0, 0.5, self._rng.random()]) * self._slowest)
        self._running[key] -= 1
        self.ended.append(event)
        return event


def run(stream: Any) -> dict[str, Any]:
    async def story() -> dict[str, Any]:
        return (await stream.to(collect([])).run()).statistics

    return run_virtual(story())


def of_stage(statistics: dict[str, Any], name: str) -> dict[str, Any]:
    (numbers,) = (stage for stage in statistics["stages"] if stage["name"] == name)
    return dict(numbers)


# Order and turns.


@given(KEYS, st.integers(1, 6), st.integers(1, 50), st.integers(0, 2**16))
def test_events_of_a_key_are_in_order_and_one_at_a_time_whatever_takes_how_long(
    keys: list[str], limit: int, buffer: int, seed: int
) -> None:
    events, work = numbered(keys), Work(seed)
    stream = grouped(from_iterable(events), buffer=buffer)
    statistics = run(stream.pipe(adaptive_flat_map(work, Fixed(limit))))
    assert work.overlaps == 0
    for order in (work.started, work.ended):
        for key in "abcd":
            assert [e for e in order if e[0] == key] == [e for e in events if e[0] == key]
    assert statistics["finished"] == len(events)
    assert of_stage(statistics, "group_by")["groups"] == 0


@given(KEYS, st.integers(1, 20), st.data())
def test_after_an_event_of_a_group_every_other_waiting_group_gets_one_before_its_next(
    keys: list[str], demand: int, data: st.DataObject
) -> None:
    source, probe = CountedSource(numbered(keys)), Probe[Event](hold=True)
    grouped(source).connect(probe)
    waiting = Counter(keys)
    free = dict.fromkeys(keys)  # Keys whose turn is free, in the order in which it became so.
    held: list[Any] = []
    while waiting.total() or held:
        if waiting.total() and (not held or data.draw(st.booleans())):
            probe.request(demand)
        else:
            event = held.pop(data.draw(st.integers(0, len(held) - 1)))
            # The group goes to the end of the line, behind all that have waited longer.
            if waiting[event.value[0]]:
                free[event.value[0]] = None
            event.finish()
        for event in probe.events:
            key = event.value[0]
            assert key == next(iter(free))
            del free[key]
            waiting[key] -= 1
            held.append(event)
        probe.events.clear()
    assert sorted(probe.values, key=lambda e: e[1]) == numbered(keys)


def test_the_line_of_groups_is_first_come_first_served() -> None:
    probe = Probe[str](hold=True)
    grouped(from_iterable(["a1", "a2", "a3", "b1", "b2", "c1"])).connect(probe)
    probe.request(100)
    assert probe.values == ["a1", "b1", "c1"]
    probe.events[1].finish()
    probe.events[0].finish()
    probe.events[3].finish()
    assert probe.values == ["a1", "b1", "c1", "b2", "a2"]
    probe.events[4].finish()
    assert probe.values[5:] == ["a3"]
    for event in probe.events:
        event.finish()
    assert probe.completed


def test_five_hundred_events_of_one_client_do_not_hold_up_ninety_nine_others() -> None:
    events = [(0, n) for n in range(500)] + [(client, 0) for client in range(1, 100)]
    work = Work(seed=1)
    run(grouped(from_iterable(events)).pipe(adaptive_flat_map(work, Fixed(4))))
    last_other = max(i for i, (client, _) in enumerate(work.started) if client)
    assert sum(1 for client, _ in work.started[:last_other] if not client) <= 4


def test_ten_thousand_groups_go_through_four_workers() -> None:
    work = Work(seed=1, slowest=0.01)
    stream = grouped(from_iterable([(n, 0) for n in range(10_000)]))
    statistics = run(stream.pipe(adaptive_flat_map(work, Fixed(4))))
    assert statistics["finished"] == 10_000
    assert work.most_at_once == 4


def test_a_hundred_thousand_keys_leave_no_group_behind() -> None:
    stream = grouped(from_iterable((n, 0) for n in range(100_000)), buffer=64)
    numbers = of_stage(run(stream.pipe(adaptive_flat_map(lambda e: e, Fixed(1)))), "group_by")
    assert numbers["groups"] == 0
    assert numbers["peak_groups"] <= 64 + 256


# The bound.


@given(KEYS, st.integers(1, 8), st.data())
def test_what_waits_and_what_is_asked_for_never_exceed_the_buffer(
    keys: list[str], buffer: int, data: st.DataObject
) -> None:
    source, probe = CountedSource(numbered(keys)), Probe[Event](hold=True)
    grouped(source, buffer=buffer, overflow="wait").connect(probe)
    held: list[Any] = []
    for _ in range(len(keys)):
        assert source.emitted - len(probe.values) <= buffer
        if data.draw(st.booleans()):
            probe.request(data.draw(st.integers(1, 3)))
        held += probe.events
        probe.events.clear()
        if held and data.draw(st.booleans()):
            held.pop(data.draw(st.integers(0, len(held) - 1))).finish()
    probe.cancel()
    for event in [*held, *probe.events]:
        event.finish()
    assert source.ledger.unsettled == []


def test_a_hot_key_may_fill_the_buffer_and_the_statistics_name_it() -> None:
    async def story() -> dict[str, Any]:
        stopped = asyncio.Event()

        async def work(event: Event) -> None:
            await stopped.wait()

        events = [("cold", 0), *(("hot", n) for n in range(100)), ("late", 0)]
        stream = grouped(from_iterable(events), buffer=10, overflow="wait")
        pipeline = stream.pipe(adaptive_flat_map(work, Fixed(8))).to(collect([]))
        async with pipeline.start() as running:
            await asyncio.sleep(1)
            numbers = of_stage(running.statistics(), "group_by")
            stopped.set()
        return numbers

    numbers = run_virtual(story())
    assert (numbers["hottest"], numbers["hottest_waiting"]) == ("hot", 10)
    assert numbers["waiting"] == numbers["bound"] == numbers["peak"] == 10


def test_an_event_leaves_its_group_only_for_a_unit_of_demand() -> None:
    probe = Probe[Event]()
    grouped(from_iterable(numbered(["a", "b", "c"]))).connect(probe)
    assert probe.values == []
    probe.request(2)
    assert probe.values == [("a", 0), ("b", 1)]


# The end.


def test_it_completes_when_the_last_waiting_event_has_left() -> None:
    source, probe = ManualPublisher[str](), Probe[str](request=1, hold=True)
    grouped(source).connect(probe)
    source.send("a1", "a2")
    source.complete()
    assert not probe.completed
    probe.request(1)
    assert not probe.completed
    probe.events[0].finish()
    assert probe.values == ["a1", "a2"]
    assert probe.completed
    probe.events[1].finish()


def test_cancel_gives_back_what_waits_and_leaves_what_is_held_to_its_holder() -> None:
    source, probe = MemorySource(["a1", "a2", "b1"]), Probe[str](request=1, hold=True)
    grouped(source).connect(probe)
    probe.cancel()
    assert source.returned == ["a2", "b1"]
    probe.events[0].finish()
    assert source.acked == ["a1"]
    assert source.unsettled == []


def test_an_error_from_above_passes_on_and_what_waits_is_given_back() -> None:
    source, probe = ManualPublisher[str](), Probe[str](request=1, hold=True)
    grouped(source).connect(probe)
    source.send("a1", "a2")
    source.fail(ValueError("from above"))
    assert str(probe.error) == "from above"
    assert source.returned == ["a2"]
    probe.events[0].finish()
    assert source.unsettled == []


def test_nothing_follows_an_error_that_comes_when_more_is_asked_for() -> None:
    def fail(n: int) -> None:
        if source.requests != [4]:
            source.fail(ValueError("on request"))

    source, probe = ManualPublisher[str](on_request=fail), Probe[str](hold=True)
    grouped(source, buffer=4).connect(probe)
    source.send("a1", "b1", "c1")
    probe.request(5)
    names = probe.names()
    assert names.index("error") == len(names) - 1
    assert len(source.returned) == 3 - len(probe.values)
    for event in probe.events:
        event.finish()
    assert source.unsettled == []


def test_a_pipeline_ends_when_its_source_does_while_the_limit_is_changed() -> None:
    async def story() -> int:
        async def work(event: Event) -> Event:
            await asyncio.sleep(1)
            return event

        stream = grouped(from_iterable(numbered([*"aabbcc"])))
        pipeline = stream.pipe(adaptive_flat_map(work, Fixed(1))).to(collect([]))
        async with pipeline.start() as running:
            for n in (1, 2, 1, 3, 1, 1):
                await asyncio.sleep(1)
                running.retune(Fixed(n))
        return int(running.report().statistics["finished"])

    assert run_virtual(story()) == 6


# Errors.


@pytest.mark.parametrize("value", [{}, {"id": []}], ids=["missing", "unhashable"])
def test_a_value_without_a_key_stops_the_pipeline_or_is_skipped(value: Any) -> None:
    for on_error in ("stop", "skip"):
        source, probe = MemorySource[Any]([{"id": 1}, value, {"id": 2}]), Probe[Any](request=9)
        source.pipe(group_by("id", on_error=on_error), spread()).connect(probe)
        assert source.unsettled == []
        if on_error == "stop":
            assert "stage 2 'group_by'" in getattr(probe.error, "__notes__", [""])[0]
            assert source.failed == [value]
        else:
            assert probe.values == [{"id": 1}, {"id": 2}]
            assert source.acked.count(value) == 1


# Turns.


def test_children_of_a_fan_out_share_a_turn_and_run_one_after_another() -> None:
    work = Work(seed=3)
    stream = grouped(from_iterable(numbered([*"abab"]))).pipe(
        ops.flat_map(lambda event: [(*event, part) for part in range(3)]),
        adaptive_flat_map(work, Fixed(6)),
    )
    statistics = run(stream)
    assert work.overlaps == 0
    assert [e for e in work.started if e[0] == "a"] == [
        ("a", n, part) for n in (0, 2) for part in range(3)
    ]
    assert statistics["finished"] == 4


@given(KEYS, st.integers(1, 5), st.integers(0, 3), st.integers(0, 2**16))
def test_a_turn_ends_with_the_last_child_however_many_there_are(
    keys: list[str], limit: int, children: int, seed: int
) -> None:
    work = Work(seed)
    events = numbered(keys)
    stream = grouped(from_iterable(events)).pipe(
        ops.flat_map(lambda event: [(*event, part) for part in range(event[1] % 4 - children)]),
        adaptive_flat_map(work, Fixed(limit)),
    )
    statistics = run(stream)
    assert work.overlaps == 0
    for key in "abcd":
        assert [e for e in work.ended if e[0] == key] == [
            (*e, part) for e in events if e[0] == key for part in range(e[1] % 4 - children)
        ]
    assert statistics["finished"] + sum(statistics["dropped"].values()) == len(events)


def test_an_event_dropped_between_spread_and_the_work_gives_up_its_turn() -> None:
    probe = Probe[Event](request=9)
    grouped(from_iterable(numbered([*"aaab"]))).pipe(
        ops.filter(lambda event: event[1] == 2)
    ).connect(probe)
    assert probe.values == [("a", 2)]
    assert probe.completed


def test_a_duplicate_dropped_between_spread_and_the_work_gives_up_its_turn() -> None:
    source, probe = MemorySource(["a", "a", "b"]), Probe[str](request=9, hold=True)
    grouped(source).pipe(distinct_within(10, by=lambda value: value)).connect(probe)
    assert probe.values == ["a", "b"]
    probe.events[0].finish()
    probe.events[1].finish()
    assert source.acked.count("a") == 2
    assert probe.completed


def test_take_between_spread_and_the_work_gives_the_others_back() -> None:
    source, probe = MemorySource(["a1", "a2", "b1", "c1"]), Probe[str](request=9)
    grouped(source).pipe(ops.take(2)).connect(probe)
    assert len(probe.values) == 2
    assert probe.completed
    assert len(source.acked) == 2
    assert source.unsettled == []


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers())),
    st.integers(1, 4),
    st.integers(0, 2**16),
)
@settings(max_examples=50)
def test_turns_nest(events: list[tuple[str, str, int]], limit: int, seed: int) -> None:
    """One at a time for each first key and for each second key, all at once."""
    by_first, by_second = Counter[str](), Counter[str]()
    rng = random.Random(seed)
    worst = 0

    async def work(event: tuple[str, str, int]) -> Any:
        nonlocal worst
        by_first[event[0]] += 1
        by_second[event[1]] += 1
        worst = max(worst, *by_first.values(), *by_second.values())
        await asyncio.sleep(rng.choice([0, rng.random()]))
        by_first[event[0]] -= 1
        by_second[event[1]] -= 1
        return event

    stream = from_iterable(events).pipe(
        group_by(0), spread(), group_by(1), spread(), adaptive_flat_map(work, Fixed(limit))
    )
    assert run(stream)["finished"] == len(events)
    assert worst <= 1


def test_a_buffer_behind_the_work_shares_its_outcome_with_all_that_went_in() -> None:
    source, probe = MemorySource(["a1", "b1", "a2", "b2"]), Probe[Any](request=9, hold=True)

    async def story() -> None:
        async def work(value: str) -> str:
            return value

        grouped(source).pipe(adaptive_flat_map(work, Fixed(2)), ops.buffer_with_count(2)).connect(
            probe
        )
        await asyncio.sleep(1)
        assert [sorted(batch) for batch in probe.values] == [["a1", "b1"], ["a2", "b2"]]
        assert source.acked == []
        probe.events[0].finish()
        assert sorted(source.acked) == ["a1", "b1"]
        probe.events[1].fail(ValueError("batch"))
        assert sorted(source.failed) == ["a2", "b2"]

    run_virtual(story())
