"""`distinct_within` with a store: its keys are those of events that are done, in all runs."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    Backoff,
    Fixed,
    Pipeline,
    Store,
    adaptive_flat_map,
    collect,
    distinct_within,
    event_time,
    from_iterable,
    group_by,
    inbox,
    ops,
    read_jsonl,
    read_table,
    retry,
    route,
    run,
    spread,
    stateful,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.boundary.strict_subscriber import connect
from penstock.streams.protocol.acknowledgement import Family, Joined
from penstock.streams.protocol.event import DROPPED, FINISHED, RETURNED, Event
from penstock.streams.runtime.context import Run
from penstock.streams.state.codec import key_in
from penstock.streams.testing import ManualPublisher, MemorySink, Probe, run_virtual
from penstock.streams.testing.crash import run_until_crash
from tests.helpers.walks import seeds


class Trouble(Exception):
    pass


def keys_in(store: Store) -> dict[Any, float]:
    """The keys in a store, each with the time of its first event."""
    backend = store._open()
    return {
        key_in(row.key): json.loads(row.state)
        for stage in backend.stages()
        for row in backend.scan(stage.name)
    }


def passed(events: Sequence[Any], store: Store, seconds: float = 10, **options: Any) -> list[Any]:
    """The events, pairs of a key and a time, that pass."""
    found: list[Any] = []
    options = {"by": 0, "time": 1, "max_ahead": None, **options}
    stage = distinct_within(seconds, store=store, **options)
    run_virtual(from_iterable(events).pipe(stage).to(collect(found)).run())
    return found


def firsts(events: Sequence[Any], seconds: float) -> tuple[list[Any], dict[Any, float]]:
    """The events that pass, by the definition, and the time of the first event of each key."""
    first: dict[Any, float] = {}
    found: list[Any] = []
    for event in events:
        key, time = event[:2]
        if key not in first or abs(time - first[key]) >= seconds:
            first[key] = time
            found.append(event)
    return found, first


# From run to run.


def test_a_key_is_known_in_the_next_run() -> None:
    store = Store.memory()
    assert passed([("a", 1), ("b", 2), ("a", 5)], store) == [("a", 1), ("b", 2)]
    assert passed([("a", 6), ("a", 11), ("b", 11), ("b", 12)], store) == [("a", 11), ("b", 12)]


def test_keys_in_a_file_outlive_their_program(tmp_path: Path) -> None:
    found: list[Any] = []
    for letters in ("aba", "bcb"):
        stage = distinct_within(3 * 86400, str, store=Store(tmp_path / "keys.state"))
        run(from_iterable(letters).pipe(stage).to(collect(found)))
    assert found == ["a", "b", "c"]


def test_without_a_time_it_is_the_wall_clock_that_counts() -> None:
    store, found = Store.memory(), list[Any]()

    async def story(*waits: float) -> None:
        box = inbox(10)
        running = box.pipe(distinct_within(10, str, store=store)).to(collect(found)).start()
        for wait in waits:
            await asyncio.sleep(wait)
            await box.put("a")
        await running.drain()

    run_virtual(story(3, 9, 1))
    assert keys_in(store) == {"a": 13}
    # The clock of a virtual run begins at 0 again: the wall clock was set back.
    run_virtual(story(4, 8))
    assert found == ["a"] * 2


lengths = st.floats(0.5, 20)
stories = st.lists(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 6)), max_size=9), max_size=4
)


@given(stories, lengths, st.sampled_from([1, 2, 1000]))
def test_restarts_change_nothing(story: list[list[Any]], seconds: float, cache: int) -> None:
    store, time = Store.memory(cache=cache), 0
    everything: list[Any] = []
    found: list[Any] = []
    for part in story:
        events = list[Any]()
        for key, later in part:
            time += later
            events.append((key, time, len(everything) + len(events)))
        found += passed(events, store, seconds)
        everything += events
    assert found == firsts(everything, seconds)[0]


def test_keys_that_have_left_the_window_are_deleted() -> None:
    store = Store.memory()
    events: list[Any] = [(n, n) for n in range(100)]
    assert passed(events, store) == events
    assert keys_in(store).keys() == set(range(89, 100))
    passed([(1000, 105)], store)
    assert keys_in(store).keys() == {*range(95, 100), 1000}


# Events that are not done.


def test_the_key_of_an_event_that_ended_the_run_is_not_known_in_the_next() -> None:
    store, found = Store.memory(), list[Any]()

    async def work(event: Any) -> Any:
        if event == "bad" and not found.count("again"):
            raise Trouble(event)
        return event

    def letters(*events: str) -> Pipeline:
        stages = distinct_within(9, str, store=store), adaptive_flat_map(work, Fixed(1))
        return from_iterable(events).pipe(*stages).to(collect(found))

    with pytest.raises(Trouble):
        run_virtual(letters("good", "bad").run())
    assert list(keys_in(store)) == ["good"]
    run_virtual(letters("again", "bad", "good").run())
    assert found == ["good", "again", "bad"]


@pytest.mark.parametrize("before", [False, True])
def test_a_key_whose_event_was_skipped_may_pass_again(before: bool) -> None:
    store, found = Store.memory(), list[Any]()
    if before:
        passed([("a", 1)], store)

    async def work(event: Any) -> Any:
        await asyncio.sleep(1)
        if event[2] == "bad":
            raise Trouble(event)
        return event

    async def story() -> None:
        box = inbox(10)
        stage: Any = distinct_within(10, 0, 1, max_ahead=None, store=store)
        handler = adaptive_flat_map(work, Fixed(1), on_error="skip")
        running = box.pipe(stage, handler).to(collect(found)).start()
        for n in range(3):
            await box.put(("a", 20 + n, "bad"))
        await asyncio.sleep(2)
        # It has left the window, and may be deleted.
        assert keys_in(store).get("a") in ((1, None) if before else (None,))
        await box.put(("a", 24, "good"))
        await running.drain()

    run_virtual(story())
    assert found == [("a", 24, "good")]
    assert keys_in(store) == {"a": 24}


def test_a_duplicate_is_done_when_the_first_is_committed() -> None:
    async def story() -> list[tuple[str, float]]:
        box, sink = inbox(10), MemorySink(seconds=1)
        stage = distinct_within(100, str, store=Store.memory(every=0.5))
        running = box.pipe(stage).to(sink).start()
        times: list[tuple[str, float]] = []
        loop = asyncio.get_running_loop()

        async def put(text: str) -> None:
            await box.put(text, wait=True)
            times.append((text, loop.time()))

        await asyncio.gather(put("a"), put("a"), put("b"))
        await put("a")
        await running.drain()
        return times

    assert run_virtual(story()) == [("a", 1.5), ("a", 1.5), ("b", 2.5), ("a", 3.0)]


def test_a_duplicate_is_returned_with_the_first_and_both_may_come_again() -> None:
    async def story() -> tuple[Any, ...]:
        source, probe, run = ManualPublisher[str](), Probe[Any](request=99, hold=True), Run()
        store = Store.memory()
        source.ledger.gives_again = True
        connect(source.pipe(distinct_within(9, str, store=store)), probe, run)
        for letter in "aab":
            source.send(letter)
        probe.events[0].give_back()
        probe.events[1].finish()
        await asyncio.sleep(1)
        first = source.ledger.ended(RETURNED), source.ledger.ended(FINISHED)
        source.send("a")
        source.send("a")
        probe.events[2].finish()
        await asyncio.sleep(1)
        ledger = source.ledger
        return (*first, ledger.ended(FINISHED), ledger.ended(DROPPED), sorted(keys_in(store)))

    assert run_virtual(story()) == (["a", "a"], ["b"], ["b", "a"], ["a"], ["a", "b"])


def test_a_key_passes_once_although_its_first_event_is_lost_as_the_next_ones_come() -> None:
    async def story() -> tuple[list[Any], list[Any]]:
        source, probe, run = ManualPublisher[Any](), Probe[Any](request=99, hold=True), Run()
        source.ledger.gives_again = True
        stage = distinct_within(10, 0, 1, max_ahead=None, store=Store.memory())
        connect(source.pipe(stage), probe, run)

        def emitted(value: Any) -> Event[Any]:
            return source.ledger.enter(Event(value, 0.0, source.ledger))

        def parts(value: Any, *parts: Any) -> list[Event[Any]]:
            family = Family(emitted(value), "none")
            children = [family.child(part) for part in parts]
            family.close()
            return children

        first, rest = parts("first", ("a", 0), "rest")
        last, lost = parts("lost", ("b", 20), "rest")
        source._to.on_events([first, emitted(("b", 0)), last])
        # What came after it cannot be done in this run.
        probe.events[1].give_back()
        joined: Event[Any] = Event(("c", 30), 0.0, Joined([rest, lost]))
        source._to.on_events([joined, emitted(("a", 30))])
        source._to.on_events([emitted(("a", 31))])
        for event in probe.events:
            event.finish()
        await asyncio.sleep(1)
        return probe.values, source.ledger.ended(RETURNED)

    values, returned = run_virtual(story())
    assert values == [("a", 0), ("b", 0), ("b", 20), ("a", 30)]
    assert sorted(map(str, returned)) == ["('b', 0)", "first", "lost"]


def test_a_bad_time_is_an_error_of_its_event() -> None:
    letters: list[Any] = []
    events = [("a", 1), ("b", "soon"), ("a", 2), ("c",), ("d", 3)]
    found = passed(events, Store.memory(), on_error=route(collect(letters)))
    assert found == [("a", 1), ("d", 3)]
    assert [letter.value for letter in letters] == [("b", "soon"), ("c",)]


def test_what_is_counted() -> None:
    store = Store.memory()
    stage: Any = distinct_within(10, str, store=store)
    report = run_virtual(from_iterable("abab").pipe(stage).to(collect([])).run())
    assert report.statistics["dropped"] == {"duplicate": 2}
    found = report.statistics["stages"][1]
    assert found["keys"] == 2
    assert found["held"] == 0


# What may be with it.


def test_it_may_be_behind_any_source_since_a_repeated_event_is_a_duplicate(tmp_path: Path) -> None:
    store = Store.memory()
    for source in (
        read_jsonl(tmp_path / "a.jsonl", position=tmp_path / "position"),
        read_jsonl(tmp_path / "a.jsonl", position=store),
        read_table(f"sqlite:///{tmp_path}/queue.db", "jobs"),
    ):
        source.pipe(distinct_within(9, "id", store=store))
    other = read_jsonl(tmp_path / "a.jsonl", position=Store.memory())
    with pytest.raises(BuildError, match="Give both the same store"):
        other.pipe(distinct_within(9, "id", store=store))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"store": "file"}, r"give a Store\(path\)"),
        ({"name": "keys"}, "together with store"),
        ({"store": Store.memory(), "name": ""}, "a text is needed"),
        ({"store": Store.memory(), "max_keys": 9}, "bound what is in memory without a store"),
        ({"store": Store.memory(), "hold": 9}, "bound what is in memory without a store"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(BuildError, match=why):
        distinct_within(9, "id", **options)


def test_a_stage_inside_groups_is_refused() -> None:
    each: Any = distinct_within(9, "id", store=Store.memory())
    groups = group_by("id", each=lambda group: group.pipe(each), idle=9)
    with pytest.raises(BuildError, match=r"inside group_by\(each=...\)"):
        run_virtual(from_iterable([{"id": 1}]).pipe(groups, spread()).to(collect([])).run())


# Crashes.


class Story:
    """A random pipeline over a file with duplicates, in a store."""

    def __init__(self, seed: int, path: Path) -> None:
        draw = random.Random(seed)
        self.path = path
        self.seconds = draw.choice([3, 10, 30, 1000])
        self.store = Store.memory(
            every=draw.choice([0.0, 0.02, 0.3]), cache=draw.choice([1, 3, 1000])
        )
        self.pause = draw.choice([0, 0.004])
        self.results: list[Any] = []
        self.wants = {
            name: draw.random() < 0.4
            for name in ("parts", "lists", "groups", "retries", "second", "two sinks")
        }
        time, self.events = 0, list[Any]()
        rows: list[list[Any]] = []
        for n in range(draw.randint(1, 40)):
            row = []
            for part in range(draw.randint(0, 3) if self.wants["parts"] else 1):
                time += draw.choice([0, 0, 1, 2])
                row.append([f"k{draw.randint(0, 5)}", time, f"{n}.{part}"])
            self.events += row
            rows.append(row)
        path.write_text("".join(json.dumps({"row": row}) + "\n" for row in rows), encoding="utf-8")

    def pipeline(self, seed: int) -> Pipeline:
        moods, failed = random.Random(seed), set[str]()

        async def work(event: Any) -> Any:
            if moods.random() < 0.8:
                await asyncio.sleep(moods.choice([0, 0.001, 0.01, 0.05]))
            if self.wants["retries"] and moods.random() < 0.3 and event[2] not in failed:
                failed.add(event[2])
                raise Trouble(event)
            return event

        wants = self.wants
        stages: list[Any] = [ops.flat_map(lambda line: line["row"])]
        if wants["lists"]:
            stages += [ops.buffer_with_count(2), ops.flat_map(lambda events: events)]
        stages.append(
            distinct_within(self.seconds, 0, 1, max_ahead=None, store=self.store, name="keys")
        )
        if wants["groups"]:
            stages += [group_by(0), spread()]
        policy: Any = retry(3, Backoff(0.01)) if wants["retries"] else "stop"
        stages.append(adaptive_flat_map(work, Fixed(3), on_error=policy))
        if wants["second"]:
            stages.append(
                stateful(lambda n, event: (n + 1, [event]), 0, start=0, name="n", store=self.store)
            )
        sink = MemorySink(seconds=self.pause)
        sink.accepted = self.results
        sinks = [sink, MemorySink(seconds=0.002)] if wants["two sinks"] else [sink]
        return read_jsonl(self.path, position=self.store).pipe(*stages).to(*sinks)


@seeds(150)
def test_after_crashes_the_same_events_have_passed_as_in_one_run(seed: int, tmp_path: Path) -> None:
    story = Story(seed, tmp_path / "in.jsonl")
    crashes = random.Random(seed)
    crashed = 0
    while (
        run_until_crash(story.pipeline(seed + crashed).run(), crashes.randint(1, 60 + 5 * crashed))
        is None
    ):
        crashed += 1
        assert crashed < 200, "it gets no further"
    want, first = firsts(story.events, story.seconds)
    assert {event[2] for _, event in story.results} == {event[2] for event in want}
    backend = story.store._open()
    kept = {key_in(row.key): json.loads(row.state) for row in backend.scan("keys")}
    assert kept.items() <= first.items()
    latest = max((time for _, time, _ in story.events), default=0)
    assert kept.keys() >= {key for key, at in first.items() if at + story.seconds > latest}
    if story.wants["second"]:
        counts = Counter(key for key, _, _ in want)
        assert {key_in(row.key): json.loads(row.state) for row in backend.scan("n")} == counts


@seeds(200)
def test_after_crashes_late_events_have_found_the_same_keys(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    seconds, lateness = draw.choice([1, 3, 6]), draw.choice([0, 0, 2])
    time, events = 0, list[Any]()
    for n in range(draw.randint(1, 30)):
        time += draw.choice([0, 0, 1, 2, 5])
        at = time - draw.choice([0, 0, 0, 1, 4, 9])
        events.append({"key": f"k{draw.randint(0, 3)}", "at": at, "n": n})
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    store = Store.memory(every=draw.choice([0.0, 0.02, 0.3]), cache=draw.choice([1, 1000]))
    sink = MemorySink()

    def pipeline(seed: int) -> Pipeline:
        moods = random.Random(seed)

        async def work(event: Any) -> Any:
            await asyncio.sleep(moods.choice([0, 0, 0.001, 0.05]))
            return event

        stages: list[Any] = [distinct_within(seconds, "key", "at", max_ahead=None, store=store)]
        if lateness:
            stages = [
                event_time("at", lateness, idle=None, max_ahead=None),
                distinct_within(seconds, "key", store=store),
            ]
        handler = adaptive_flat_map(work, Fixed(3))
        return read_jsonl(path, position=store).pipe(*stages, handler).to(sink)

    crashed = 0
    while (
        run_until_crash(pipeline(seed + crashed).run(), draw.randint(1, 60 + 5 * crashed)) is None
    ):
        crashed += 1
        assert crashed < 200, "it gets no further"
    assert {event["n"] for event in sink.values} == late_firsts(events, seconds, lateness)


def late_firsts(events: Sequence[Any], seconds: float, lateness: float) -> set[int]:
    """The numbers of the events that pass, by the definition: a late event finds no key that the
    watermark before it has left behind, and its own is seen at that watermark."""
    first: dict[Any, tuple[float, float]] = {}
    found: set[int] = set()
    watermark = float("-inf")
    for key, time, number in map(dict.values, events):
        late_at = watermark if time < watermark else float("-inf")
        watermark = max(watermark, time - lateness)
        if key in first:
            at, since = first[key]
            if abs(time - at) < seconds and since + seconds > late_at:
                continue
        first[key] = time, max(time, late_at)
        found.add(number)
    return found
