from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops

import penstock
from penstock import (
    Fixed,
    Flowable,
    adaptive_flat_map,
    chunk,
    collect,
    distinct_within,
    from_iterable,
    group_by,
    spread,
)
from penstock.streams.base.errors import BuildError, HoldExceeded
from penstock.streams.boundary.strict_subscriber import connect
from penstock.streams.protocol.event import Ending, end_all, finish_all
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.own import SourceStage
from penstock.streams.testing import (
    COMPLETED,
    CountedSource,
    ManualPublisher,
    MemorySink,
    MemorySource,
    Probe,
    VirtualClock,
    run_virtual,
)

Timed = tuple[float, Any]

# Times on a grid, so that an event often comes exactly at the end of a window.
TIMES = st.integers(0, 12).map(lambda n: n / 2)
FAR_EAST = timezone(timedelta(hours=9))
TIMED = st.lists(st.tuples(TIMES, st.sampled_from("abc")), max_size=30)


def by_itself(value: Any) -> Any:
    return value


def model(
    events: list[Timed],
    seconds: float,
    max_keys: int | None = None,
    *,
    by_event_time: bool = False,
) -> list[Timed]:
    """What should pass: what is at least `seconds` from the first of its key that passed.

    By event time a late event finds no key that the watermark, which is the greatest time before
    it, has left `seconds` behind; its own key is seen at the watermark.
    """
    passed: list[Timed] = []
    first_seen: dict[Any, tuple[float, float]] = {}
    greatest = -inf
    for at, key in events:
        watermark = greatest if by_event_time and at < greatest else -inf
        greatest = max(greatest, at)
        if key == []:
            # It has a time, and no key.
            continue
        if key in first_seen:
            first, since = first_seen[key]
            if abs(at - first) < seconds and since > watermark - seconds:
                continue
        first_seen.pop(key, None)
        first_seen[key] = at, max(at, watermark)
        passed.append((at, key))
        if max_keys is not None and len(first_seen) > max_keys:
            # The oldest key is forgotten first.
            del first_seen[next(iter(first_seen))]
    return passed


def values_of(source: Any) -> list[Any]:
    probe: Probe[Any] = Probe(request=2**63 - 1)
    source.connect(probe)
    assert probe.completed
    return probe.values


# The story.


def test_a_duplicate_is_dropped_and_does_not_renew_the_window(clock: VirtualClock) -> None:
    seen = clock.play("--a--b--a--b--------a--|", distinct_within(10, by=by_itself))
    assert seen == [(2, "a"), (5, "b"), (20, "a"), (23, COMPLETED)]


def test_the_diagram_of_the_documentation_plays(clock: VirtualClock) -> None:
    seen = clock.play("--a--b--a--b------a--|", distinct_within(10, by=by_itself))
    assert seen == [(2, "a"), (5, "b"), (18, "a"), (21, COMPLETED)]


def test_at_exactly_the_given_seconds_a_key_is_new_again(clock: VirtualClock) -> None:
    seen = clock.play("a--a", distinct_within(3, by=by_itself))
    assert seen == [(0, "a"), (3, "a")]


@pytest.mark.parametrize("begin", [0.1, 1e9 + 0.1])
def test_the_end_of_the_window_is_exact_for_times_that_floats_cannot_hold(begin: float) -> None:
    end = round(begin + 0.2, 6)
    for at, passes in ((end, True), (end - 1e-6, False)):
        events = [(begin, "a"), (at, "a")]
        passed = values_of(from_iterable(events).pipe(distinct_within(0.2, by=1, time=0)))
        assert passed == (events if passes else events[:1])


def test_just_before_the_given_seconds_a_key_is_not_new_again(clock: VirtualClock) -> None:
    seen = clock.play("a--a", distinct_within(3.000001, by=by_itself))
    assert seen == [(0, "a")]


def test_an_event_leaves_at_the_time_it_came(clock: VirtualClock) -> None:
    assert clock.play("-a-b|", distinct_within(10, by=by_itself)) == [
        (1, "a"),
        (3, "b"),
        (4, COMPLETED),
    ]


def test_an_error_passes_through_at_once(clock: VirtualClock) -> None:
    error = ValueError("from above")
    seen = clock.play("-a-#", distinct_within(10, by=by_itself), error=error)
    assert seen == [(1, "a"), (3, error)]


@pytest.mark.parametrize("by", ["id", lambda value: value["id"]])
def test_the_key_is_a_field_or_a_function(by: Any) -> None:
    events = [{"id": 1, "n": 1}, {"id": 1, "n": 2}, {"id": 2, "n": 3}]
    passed = values_of(from_iterable(events).pipe(distinct_within(10, by=by)))
    assert [event["n"] for event in passed] == [1, 3]


def test_the_key_may_be_an_index() -> None:
    events = [(1, "a"), (1, "b"), (2, "c")]
    assert values_of(from_iterable(events).pipe(distinct_within(10, by=0))) == [(1, "a"), (2, "c")]


def test_keys_of_different_types_that_are_equal_are_the_same_key() -> None:
    assert values_of(from_iterable([1, 1.0, True, 2]).pipe(distinct_within(1, by=by_itself))) == [
        1,
        2,
    ]


# The law.


@given(TIMED, st.sampled_from([0.5, 1.0, 2.5, 100.0]))
def test_an_event_passes_if_its_key_was_first_seen_that_long_ago(
    events: list[Timed], seconds: float
) -> None:
    events = sorted(events, key=lambda event: event[0])

    async def story() -> list[tuple[float, Any]]:
        loop = asyncio.get_running_loop()
        source: ManualPublisher[Any] = ManualPublisher()
        probe: Probe[Any] = Probe(request=1000)
        source.pipe(distinct_within(seconds, by=by_itself)).connect(probe)
        for at, key in events:
            await asyncio.sleep(at - loop.time())
            source.send(key)
        source.complete()
        assert source.unsettled == []
        return probe.timed

    assert run_virtual(story()) == model(events, seconds)


@given(TIMED, st.sampled_from([0.5, 1.0, 2.5]), st.none() | st.integers(1, 3))
def test_with_a_time_a_replay_is_exact_even_out_of_order(
    events: list[Timed], seconds: float, max_keys: int | None
) -> None:
    operator = distinct_within(seconds, by=1, time=0, max_keys=max_keys)
    assert values_of(from_iterable(events).pipe(operator)) == model(
        events, seconds, max_keys, by_event_time=True
    )


@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 60)), max_size=3000))
def test_a_window_that_moves_on_forgets_exactly_what_is_too_old(
    events: list[tuple[int, int]],
) -> None:
    events.sort(key=lambda event: event[0])
    operator = distinct_within(100, by=1, time=0)
    assert values_of(from_iterable(events).pipe(operator)) == model(list(events), 100)


class Stamped(SourceStage[Timed]):
    """Sends the events at once, with the times at which they were created."""

    coming: Iterator[Timed]

    def produce(self) -> None:
        while self.demand:
            event = next(self.coming, None)
            if event is None:
                self.complete()
            else:
                self.emit(event, event[0])


def created_at(events: list[Timed]) -> list[Timed]:
    """What passes of events that come at once and were created at these times."""
    return created_and_numbers(events)[0]


def created_and_numbers(events: list[Timed]) -> tuple[list[Timed], dict[str, Any]]:
    """The same, with the statistics of the stage."""
    info = StageInfo("stamped")

    def attach(downstream: Subscriber[Timed], run: Run) -> None:
        stage = Stamped(downstream, run, info)
        stage.coming = iter(events)
        stage.start()

    async def story() -> tuple[list[Timed], dict[str, Any]]:
        found: list[Timed] = []
        report = (
            await Flowable(attach, info).pipe(distinct_within(10, by=1)).to(collect(found)).run()
        )
        return found, dict(report.statistics["stages"][1])

    return run_virtual(story())


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from("ab")), max_size=30))
def test_the_times_at_which_events_were_created_decide_whenever_they_come(
    events: list[Timed],
) -> None:
    assert created_at(events) == model(events, 10)


def test_a_duplicate_that_waits_behind_slow_events_is_dropped_all_the_same() -> None:
    async def works(value: Any) -> Any:
        await asyncio.sleep(30)
        return value

    async def story() -> list[Any]:
        inlet, passed = penstock.inbox(9), list[Any]()
        stages = adaptive_flat_map(works, Fixed(1)), distinct_within(10, by=by_itself)
        running = inlet.pipe(*stages).to(collect(passed)).start()
        for at, key in ((0, "a"), (9, "a"), (10, "a"), (11, "a")):
            await asyncio.sleep(at - asyncio.get_running_loop().time())
            await inlet.put(key)
        running.begin_drain()
        await running.wait()
        return passed

    # The events reach the stage 30 seconds apart.
    assert run_virtual(story()) == ["a", "a"]


def test_two_sources_an_hour_apart_do_not_disturb_each_other() -> None:
    old = [(n, n % 3) for n in range(5_000)]
    new = [(n + 3600, n % 3 + 9) for n in range(5_000)]
    events = [event for pair in zip(old, new, strict=True) for event in pair]
    assert created_at(events) == model(list(events), 10)


@pytest.mark.parametrize("back", [60, 3600, 7200])
def test_clocks_that_are_set_back_cost_no_event_and_no_memory(back: int) -> None:
    events = [(10_000 + n, n % 15) for n in range(2_000)]
    events += [(12_000 - back + n, n % 15) for n in range(3_000)]
    events += [(12_000 + 3_000 - back + n, n) for n in range(20, 10_000)]
    found, numbers = created_and_numbers(events)
    assert found == model(list(events), 10)
    assert numbers["peak"] < 2_000


def test_one_event_of_a_slow_source_does_not_make_the_others_new() -> None:
    events = [(0, "a"), (9, "b"), (5, "c"), (10, "a"), (14, "c"), (15, "c"), (12, "a")]
    passed = values_of(from_iterable(events).pipe(distinct_within(10, by=1, time=0)))
    assert passed == [(0, "a"), (9, "b"), (5, "c"), (10, "a"), (15, "c")]


@given(TIMED, st.data())
def test_a_time_in_words_or_as_a_datetime_counts_as_its_seconds_since_1970(
    events: list[Timed], data: st.DataObject
) -> None:
    def spelt(seconds: float) -> Any:
        moment = datetime.fromtimestamp(seconds, data.draw(st.sampled_from([UTC, FAR_EAST])))
        return data.draw(st.sampled_from([seconds, moment, moment.isoformat()]))

    spellings = [(spelt(at), key, at) for at, key in events]
    passed = values_of(from_iterable(spellings).pipe(distinct_within(2.5, by=1, time=0)))
    assert [(at, key) for _, key, at in passed] == model(events, 2.5, by_event_time=True)


# The bound.


@given(st.lists(st.integers(0, 5)), st.integers(1, 4))
def test_one_more_is_asked_for_each_event_dropped_and_nothing_else(
    items: list[int], n: int
) -> None:
    source, probe = CountedSource(items), Probe[int](request=n)
    source.pipe(distinct_within(10, by=by_itself)).connect(probe)
    different = list(dict.fromkeys(items))
    assert probe.values == different[:n]
    if len(different) >= n:
        # It stops right behind the event that met the demand.
        assert source.emitted == items.index(different[n - 1]) + 1


def statistics_after(events: list[Timed], operator: Callable[[Any], Any]) -> dict[str, Any]:
    async def story() -> dict[str, Any]:
        report = await from_iterable(events).pipe(operator).to(collect([])).run()
        stages = report.statistics["stages"]
        (numbers,) = (one for one in stages if one["name"] == "distinct_within")
        return dict(numbers)

    return run_virtual(story())


def test_only_the_keys_of_the_window_are_remembered() -> None:
    events = [(n / 1000, n) for n in range(50_000)]
    numbers = statistics_after(events, distinct_within(10, by=1, time=0))
    assert numbers["keys"] == 10_000
    # Keys that have left the window go when they are a quarter of all.
    assert 10_000 < numbers["peak"] <= 10_000 * 4 / 3 + 2 * 256


def test_after_a_burst_only_the_keys_of_the_window_are_remembered() -> None:
    burst = [(0.0, n) for n in range(50_000)]
    later = [(20.0 + n, -n) for n in range(1, 100)]
    numbers = statistics_after(burst + later, distinct_within(10, by=1, time=0))
    # A chunk is processed when it has come.
    assert 50_000 <= numbers["peak"] <= 50_000 + 256
    assert numbers["keys"] == 10


def test_the_oldest_key_is_forgotten_early_beyond_max_keys() -> None:
    events = [(0, "a"), (1, "b"), (2, "c"), (3, "b"), (4, "a")]
    operator = distinct_within(100, by=1, time=0, max_keys=2)
    assert values_of(from_iterable(events).pipe(operator)) == [*events[:3], (4, "a")]
    numbers = statistics_after(events, operator)
    assert numbers["keys"] == numbers["peak"] == 2
    assert numbers["forgotten_early"] == 2


def test_a_key_that_has_expired_is_not_forgotten_early() -> None:
    events = [(0, "a"), (1, "b"), (11, "c")]
    numbers = statistics_after(events, distinct_within(10, by=1, time=0, max_keys=2))
    assert numbers["forgotten_early"] == 0


# How events end.


def held(items: list[Any], operator: Callable[[Any], Any]) -> tuple[MemorySource[Any], Probe[Any]]:
    source, probe = MemorySource(items), Probe[Any](request=100, hold=True)
    source.pipe(operator).connect(probe)
    return source, probe


def test_the_key_of_a_failed_event_is_forgotten() -> None:
    source, probe = held(["a"], distinct_within(10, by=by_itself))
    probe.events[0].fail(ValueError("handler"))
    source.redeliver()
    again = Probe[Any](request=100)
    source.pipe(distinct_within(10, by=by_itself)).connect(again)
    assert again.values == ["a"]


def test_events_that_other_operators_made_end_as_those_of_the_source_do() -> None:
    source, probe = MemorySource([["a", "b"], ["b", "c"], ["d"]]), Probe[str](request=9, hold=True)
    windows = [distinct_within(10, by=by_itself, hold=9) for _ in range(2)]
    source.pipe(spread(feeders=1), *windows).connect(probe)
    assert probe.values == ["a", "b", "c", "d"]
    a, b, c, d = probe.events
    finish_all([a, b])
    assert source.acked == [["a", "b"]]
    end_all([c, d], Ending.FAILED, ValueError("handler"))
    assert source.failed == [["b", "c"], ["d"]]
    assert source.unsettled == []


@pytest.mark.parametrize("ending", ["fail", "skip", "give_back"])
def test_a_redelivery_passes_after_any_end_but_success(ending: str) -> None:
    source: ManualPublisher[str] = ManualPublisher()
    probe = Probe[str](request=100, hold=True)
    source.pipe(distinct_within(10, by=by_itself)).connect(probe)
    source.send("a")
    (event,) = probe.events
    if ending == "give_back":
        event.give_back()
    else:
        event.fail(ValueError("handler"), acknowledged=ending == "skip")
    source.send("a")
    assert probe.values == ["a", "a"]


@pytest.mark.parametrize("ending", ["finish", "drop"])
def test_a_key_is_remembered_after_success(ending: str) -> None:
    source: ManualPublisher[str] = ManualPublisher()
    probe = Probe[str](request=100, hold=True)
    source.pipe(distinct_within(10, by=by_itself)).connect(probe)
    source.send("a")
    (event,) = probe.events
    event.finish() if ending == "finish" else event.drop("filter")
    source.send("a")
    assert probe.values == ["a"]
    assert source.unsettled == []


def test_a_failure_erases_its_own_entry_and_no_later_one() -> None:
    async def story() -> list[str]:
        source: ManualPublisher[str] = ManualPublisher()
        probe = Probe[str](request=100, hold=True)
        source.pipe(distinct_within(10, by=by_itself)).connect(probe)
        source.send("a")
        await asyncio.sleep(10)
        source.send("a")
        probe.events[0].fail(ValueError("late"))
        source.send("a")
        for event in probe.events:
            event.finish()
        return probe.values

    assert run_virtual(story()) == ["a", "a"]


@pytest.mark.parametrize("ending", ["finish", "drop", "fail", "give_back", "skip"])
def test_a_duplicate_of_an_unfinished_event_shares_its_outcome(ending: str) -> None:
    source, probe = held(["a", "a", "a"], distinct_within(10, by=by_itself))
    assert probe.values == ["a"]
    assert source.unsettled == ["a", "a", "a"]
    (event,) = probe.events
    match ending:
        case "finish":
            event.finish()
        case "drop":
            event.drop("filter")
        case "skip":
            event.fail(ValueError("handler"), acknowledged=True)
        case "fail":
            event.fail(ValueError("handler"))
        case _:
            event.give_back()
    assert source.unsettled == []
    forgotten = ending in ("finish", "drop", "skip")
    assert len(source.acked) == (3 if forgotten else 0)
    assert len(source.failed) == (3 if ending == "fail" else 0)
    assert len(source.returned) == (3 if ending == "give_back" else 0)
    # Returned events are offered again: also the two that were dropped from the stream.
    assert source.redeliver() == (0 if forgotten else 3)


def test_a_duplicate_of_a_skipped_event_is_skipped() -> None:
    async def fails(event: dict[str, int]) -> None:
        await asyncio.sleep(1)
        raise ValueError("never")

    source = from_iterable([{"id": 1}, {"id": 1}, {"id": 1}])
    work = source.pipe(
        distinct_within(10, by="id"), adaptive_flat_map(fails, Fixed(5), on_error="skip")
    )
    report = run_virtual(work.to(collect([])).run())
    assert report.statistics["failed"] == 3
    assert [stage.get("skipped") for stage in report.statistics["stages"][:3]] == [None, 2, 1]


def test_a_duplicate_of_a_finished_event_is_acknowledged_at_once() -> None:
    source, probe = held(["a", "b", "a"], distinct_within(10, by=by_itself))
    assert source.acked == []
    probe.events[0].finish()
    assert source.acked == ["a", "a"]
    probe.events[1].finish()


@given(st.lists(st.sampled_from("abc"), max_size=20), st.data())
def test_every_event_ends_once_whatever_becomes_of_the_first_of_its_key(
    keys: list[str], data: st.DataObject
) -> None:
    source: ManualPublisher[str] = ManualPublisher()
    probe = Probe[str](request=100, hold=True)
    source.pipe(distinct_within(10, by=by_itself)).connect(probe)
    for key in keys:
        source.send(key)
        if probe.events and data.draw(st.booleans()):
            event = probe.events.pop(data.draw(st.integers(0, len(probe.events) - 1)))
            data.draw(st.sampled_from([event.finish, event.give_back]))()
    for event in probe.events:
        event.finish()
    assert source.unsettled == []
    assert len(source.ledger.endings) == len(keys)


def test_a_handler_that_fails_and_a_redelivery_lose_nothing_to_the_window() -> None:
    source = MemorySource(["a", "b", "c"])
    done: list[str] = []

    async def story(handler: Any) -> None:
        await (
            source.pipe(
                distinct_within(10, by=by_itself),
                group_by(by_itself),
                spread(),
                adaptive_flat_map(handler, Fixed(1)),
            )
            .to(collect(done))
            .run()
        )

    async def broken(value: str) -> str:
        if value == "b":
            raise ValueError(value)
        return value

    async def mended(value: str) -> str:
        return value

    with pytest.raises(ValueError, match="b"):
        run_virtual(story(broken))
    source.redeliver()
    run_virtual(story(mended))
    assert done == ["a", "b", "c"]


def test_a_dropped_event_is_counted_as_a_duplicate() -> None:
    async def story() -> dict[str, Any]:
        stream = from_iterable("aab").pipe(distinct_within(10, by=by_itself))
        return (await stream.to(MemorySink()).run()).statistics

    assert run_virtual(story())["dropped"] == {"duplicate": 1}


# Errors.


@pytest.mark.parametrize(
    "value", [{"no": "id"}, {"id": ["unhashable"]}], ids=["missing", "unhashable"]
)
def test_a_value_without_a_key_stops_the_pipeline_and_is_named(value: Any) -> None:
    source: MemorySource[Any] = MemorySource([{"id": 1}, value, {"id": 2}])
    probe = Probe[Any](request=100)
    source.pipe(distinct_within(10, by="id")).connect(probe)
    assert probe.values == [{"id": 1}]
    assert isinstance(probe.error, KeyError | TypeError)
    assert "stage 2 'distinct_within'" in probe.error.__notes__[0]
    assert source.failed == [value]
    assert source.unsettled == []


@pytest.mark.parametrize("time", [float("nan"), float("inf"), "noon", "12.5", None, True])
def test_a_time_that_is_not_a_point_in_time_stops_the_pipeline(time: Any) -> None:
    probe = Probe[Any](request=100)
    from_iterable([(time, "a")]).pipe(distinct_within(10, by=1, time=0)).connect(probe)
    assert str(probe.error).startswith(f"{time!r} is not a time")


def test_a_value_without_a_key_can_be_skipped() -> None:
    source: MemorySource[Any] = MemorySource([{"id": 1}, {}, {"id": 2}])
    probe = Probe[Any](request=100)
    source.pipe(distinct_within(10, by="id", on_error="skip")).connect(probe)
    assert probe.values == [{"id": 1}, {"id": 2}]
    assert source.acked == [{"id": 1}, {}, {"id": 2}]


@given(st.lists(st.tuples(st.none() | TIMES, st.sampled_from(["a", "b", []])), max_size=60))
def test_a_bad_event_harms_no_other_of_its_chunk(events: list[Any]) -> None:
    async def story() -> list[Any]:
        passed: list[Any] = []
        skipping = distinct_within(2.5, by=1, time=0, on_error="skip")
        await from_iterable(events).pipe(skipping).to(collect(passed)).run()
        return passed

    good: list[Any] = [event for event in events if event[0] is not None]
    assert run_virtual(story()) == model(good, 2.5, by_event_time=True)


def test_after_an_error_of_the_reader_nothing_more_is_asked_or_said() -> None:
    source: ManualPublisher[Any] = ManualPublisher()
    probe = Probe[Any](request=1, on_event=lambda probe, _: probe.cancel())
    door = connect(source.pipe(distinct_within(10, by="id")), probe, Run())
    source.send({"id": 1})
    assert source.cancels == 1
    assert source.requests == [1]
    assert door.run.errors.failed_events == 0


@pytest.mark.parametrize(
    "options",
    [
        {"seconds": 0},
        {"seconds": -1},
        {"seconds": float("nan")},
        {"max_keys": 0},
        {"hold": 0},
        {"on_error": penstock.retry(3)},
    ],
    ids=str,
)
def test_nonsense_is_refused_when_the_operator_is_built(options: dict[str, Any]) -> None:
    with pytest.raises(BuildError, match="distinct_within"):
        distinct_within(**{"seconds": 10, "by": "id", **options})


def distinct_and_held(operator: Any, **options: Any) -> list[Any]:
    """The output for 3,000 events of three keys, of which `operator` holds the first."""
    kept: list[Any] = []
    stream = from_iterable([*[1] * 1_500, *[2] * 1_500, 3])
    distinct = stream.pipe(distinct_within(60, by=lambda n: n, **options), operator)
    run_virtual(distinct.to(collect(kept)).run(), stall=0.1)
    return kept


@pytest.mark.parametrize("operator", [chunk(4), ops.buffer_with_count(4), ops.count()])
def test_duplicates_of_events_that_are_held_until_others_come_have_an_error(operator: Any) -> None:
    with pytest.raises(HoldExceeded, match=r"1,024 duplicates .* stage 3 .* hold="):
        distinct_and_held(operator)


@pytest.mark.parametrize("operator", [chunk(4), ops.buffer_with_count(4)])
def test_as_many_duplicates_may_wait_as_hold_says(operator: Any) -> None:
    assert distinct_and_held(operator, hold=3_000) == [[1, 2, 3]]


def test_all_that_is_owed_for_duplicates_is_asked_for_where_hardly_any_may_be_held() -> None:
    kept: list[Any] = []
    stream = from_iterable([1, 1, 1, 1, 1, *range(2, 50)]).pipe(
        distinct_within(60, by=lambda n: n, hold=1), chunk(8, wait=1)
    )
    run_virtual(stream.to(collect(kept)).run(), stall=0.1)
    assert [n for values in kept for n in values] == list(range(1, 50))


@pytest.mark.parametrize("operator", [chunk(4, wait=1), ops.buffer_with_time(1), ops.delay(1)])
def test_duplicates_wait_for_what_is_held_for_a_time(operator: Any) -> None:
    assert distinct_and_held(operator) in ([[1], [2], [3]], [[1], [2, 3]], [1, 2, 3])


def test_no_more_is_asked_for_while_a_thousand_duplicates_wait() -> None:
    source = MemorySource([1] * 5_000 + [2])
    probe = Probe[int](request=10, hold=True)
    source.pipe(distinct_within(60, by=lambda n: n)).connect(probe)
    assert probe.values == [1]
    # Those that wait, the one that they wait for, and those that had been requested.
    assert len(source.unsettled) <= 1024 + 10
    probe.events[0].finish()
    assert probe.values == [1, 2]
    probe.events[-1].finish()
    assert source.unsettled == []


def test_that_nothing_is_read_while_a_thousand_duplicates_wait_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def slow(number: int) -> None:
        await asyncio.sleep(8 if number == 1 else 0)

    stream = from_iterable([1] * 2_000 + [2]).pipe(
        distinct_within(60, by=lambda n: n), adaptive_flat_map(slow, Fixed(2))
    )
    run_virtual(stream.to(collect([])).run())
    (said,) = [record.message for record in caplog.records]
    assert "stage 2 'distinct_within' reads nothing, because 1,024 duplicates wait" in said
    assert "(hold=1,024)" in said


@pytest.mark.parametrize("read_by", ["key", "time"])
def test_a_stop_iteration_out_of_the_users_function_fails_its_event(run: Run, read_by: str) -> None:
    def among(number: int) -> int:
        return next(known for known in (0, 1, 3) if known == number)

    sink = MemorySink()
    operator = (
        distinct_within(10, by=among, on_error="skip")
        if read_by == "key"
        else distinct_within(10, by=str, time=among, on_error="skip")
    )
    report = run(MemorySource(range(4)).pipe(operator).to(sink).run())
    assert (sink.values, report.statistics["failed"]) == ([0, 1, 3], 1)
