from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Context,
    Fixed,
    Store,
    adaptive_flat_map,
    chunk,
    collect,
    distinct_within,
    from_iterable,
    group_by,
    inbox,
    ops,
    read_jetstream,
    read_jsonl,
    read_kafka,
    read_table,
    route,
    run,
    spread,
    stateful,
)
from penstock.streams.base.errors import BuildError, CannotOpen, Returned, WrongType, notes_of
from penstock.streams.boundary.strict_subscriber import connect
from penstock.streams.protocol.event import FINISHED, RETURNED, Event
from penstock.streams.runtime.context import Run
from penstock.streams.state.backend import Unit
from penstock.streams.state.memory import Memory
from penstock.streams.testing import (
    COMPLETED,
    ManualPublisher,
    MemorySink,
    Probe,
    VirtualClock,
    run_virtual,
)


def count(n: int, event: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    return n + 1, [{"user": event["user"], "visits": n + 1}]


def visits(users: str, store: Store | None, **options: Any) -> list[int]:
    """How often each of the users was there, by the time it came."""
    found: list[Any] = []
    events = from_iterable([{"user": user} for user in users])
    pipeline = events.pipe(stateful(count, "user", start=0, store=store, **options))
    run_virtual(pipeline.to(collect(found)).run())
    return [one["visits"] for one in found]


# States.


def test_each_key_has_a_state(clock: VirtualClock) -> None:
    def numbered(n: int, letter: str) -> tuple[int, list[str]]:
        return n + 1, [f"{letter}{n + 1}"]

    seen = clock.play("a-b-a-a-|", stateful(numbered, str, start=0))
    assert seen == [(0, "a1"), (2, "b1"), (4, "a2"), (6, "a3"), (8, COMPLETED)]


def test_the_next_run_goes_on_with_the_states_of_the_last() -> None:
    store = Store.memory()
    assert visits("abaac", store) == [1, 1, 2, 3, 1]
    assert visits("ab", store) == [4, 2]


@pytest.fixture(params=["file", "rocks", "postgresql"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for states, of each kind."""
    if request.param == "file":
        return str(tmp_path / "counts.state")
    if request.param == "rocks":
        return f"rocks:///{tmp_path}/counts"
    url: str = request.getfixturevalue("postgres")
    return url


def test_states_outlive_their_program(path: str) -> None:
    for want in ([1, 1, 2], [3, 2, 4]):
        found: list[Any] = []
        events = from_iterable([{"user": user} for user in "aba"])
        counts = stateful(count, "user", start=0, store=Store(path))
        run(events.pipe(counts).to(collect(found)))
        assert [one["visits"] for one in found] == want


def test_keys_of_a_store_on_disk_that_are_not_in_memory_are_read_from_it(path: str) -> None:
    found: list[Any] = []
    users = "abcabcdaabbcc"
    counts = stateful(count, "user", start=0, store=Store(path, cache=1, every=0.0))
    run(from_iterable([{"user": user} for user in users]).pipe(counts).to(collect(found)))
    assert [one["visits"] for one in found] == visits(users, None)


def test_without_a_store_states_last_as_long_as_the_run() -> None:
    assert visits("aab", None) == [1, 2, 1]
    assert visits("aab", None) == [1, 2, 1]


def test_keys_that_are_not_in_memory_are_read_from_the_store() -> None:
    store = Store.memory(cache=1)
    users = "abcabcdaabbcc"
    assert visits(users, store) == visits(users, None)


def test_a_key_whose_state_is_none_is_forgotten() -> None:
    def third(seen: list[str] | None, event: str) -> tuple[list[str] | None, list[Any]]:
        seen = [*(seen or ()), event]
        return (None, [seen]) if len(seen) == 3 else (seen, [])

    store, found = Store.memory(), list[Any]()
    pipeline = from_iterable("aabaaa").pipe(stateful(third, str, store=store)).to(collect(found))
    run_virtual(pipeline.run())
    assert found == [["a", "a", "a"]]
    found.clear()
    run_virtual(
        from_iterable("ab").pipe(stateful(third, str, store=store)).to(collect(found)).run()
    )
    assert found == [["a", "a", "a"]]


def test_a_start_that_can_change_is_made_anew_for_each_key() -> None:
    def append(seen: list[int], event: int) -> tuple[list[int], list[list[int]]]:
        seen.append(event)
        return seen, [list(seen)]

    found: list[Any] = []
    counts = stateful(append, lambda n: n % 2, start=list[int]())
    run_virtual(from_iterable([1, 2, 3, 4]).pipe(counts).to(collect(found)).run())
    assert found == [[1], [2], [1, 3], [2, 4]]


def test_a_state_is_of_its_type_also_in_the_next_run() -> None:
    @dataclass
    class Sum:
        total: int = 0

    def add(state: Sum, n: int) -> tuple[Sum, list[str]]:
        state.total += n
        return state, [f"{type(state).__name__} {state.total}"]

    store, found = Store.memory(), list[str]()
    for _ in range(2):
        sums = stateful(add, lambda _: "all", start=Sum(), type=Sum, store=store)
        run_virtual(from_iterable([1, 2]).pipe(sums).to(collect(found)).run())
    assert found == ["Sum 1", "Sum 3", "Sum 4", "Sum 6"]


def test_an_older_state_is_made_one_of_the_present_version_when_it_is_read() -> None:
    store, found = Store.memory(), list[Any]()
    assert visits("aab", store, name="visits") == [1, 2, 1]

    def seen(state: dict[str, int], event: Any) -> tuple[dict[str, int], list[int]]:
        state["n"] += 1
        return state, [state["n"]]

    newer = stateful(
        *(seen, "user"),
        start={"n": 0},
        name="visits",
        version=3,
        migrate={1: lambda n: [n], 2: lambda ns: {"n": ns[0]}},
        store=store,
    )
    events = from_iterable([{"user": user} for user in "abc"])
    run_virtual(events.pipe(newer).to(collect(found)).run())
    assert found == [3, 2, 1]


def halved(n: int) -> int:
    """A conversion that some states cannot have."""
    if n % 2:
        raise ValueError(f"{n} is odd")
    return n // 2


def test_an_event_whose_state_cannot_be_converted_is_routed_and_the_state_stays() -> None:
    store, letters = Store.memory(), list[Any]()
    visits("aaabb", store, name="visits")
    newer: Any = {"name": "visits", "version": 2, "migrate": {1: halved}, "store": store}
    to_letters = route(collect(letters))
    assert visits("abacab", on_error=to_letters, **newer) == [2, 1, 3]
    assert [letter.value for letter in letters] == [{"user": "a"}] * 3
    assert [str(letter.error) for letter in letters] == ["3 is odd"] * 3
    assert len({id(letter.error) for letter in letters}) == 3
    assert visits("ab", on_error="skip", **newer) == [4]
    with pytest.raises(ValueError, match="3 is odd") as raised:
        visits("ba", **newer)
    assert any("in migrate[1] of stage 2" in note for note in notes_of(raised.value))
    assert visits("ab", **newer | {"migrate": {1: int}}) == [4, 6]


def test_a_stored_state_that_is_not_of_its_type_is_an_error_of_its_event() -> None:
    @dataclass
    class Sum:
        total: int

    def add(was: Sum | None, event: dict[str, str]) -> tuple[Sum, list[int]]:
        now = Sum(1 if was is None else was.total + 1)
        return now, [now.total]

    store, found = Store.memory(), list[int]()
    visits("a", store, name="sums")
    sums = stateful(add, "user", name="sums", type=Sum, store=store, on_error="skip")
    events = from_iterable([{"user": user} for user in "abab"])
    run_virtual(events.pipe(sums).to(collect(found)).run())
    assert found == [1, 2]


def test_a_timer_of_a_state_that_cannot_be_converted_stays_for_the_next_run() -> None:
    store = Store.memory()

    def alarms(until: float, key: str, migrate: Any) -> list[Any]:
        found, letters = list[Any](), list[Any]()
        stage: Any = stateful(
            *(lambda n, _, ctx: (n, ctx.timer("due", at=50.0)), str),
            start=3,
            on_timer=lambda n, name, ctx: (None, [(ctx.key, n)]),
            name="alarms",
            version=1 if migrate is None else 2,
            migrate=migrate,
            store=store,
            on_error=route(collect(letters)),
        )

        async def story() -> None:
            box = inbox(10)
            running = box.pipe(stage).to(collect(found)).start()
            await box.put(key)
            await asyncio.sleep(until)
            await running.drain()

        run_virtual(story())
        return [letter.value for letter in letters] or found

    assert alarms(1, "a", None) == []
    assert alarms(100, "b", {1: halved}) == [{"key": "a", "timer": "due"}]
    assert alarms(100, "c", {1: int}) == [("a", 3), ("c", 3)]


def test_a_state_that_is_over_is_not_converted() -> None:
    store = Store.memory()

    def go(time: float, **options: Any) -> list[int]:
        async def story() -> list[Any]:
            found: list[Any] = []
            await asyncio.sleep(time)
            stage = stateful(count, "user", start=0, ttl=10, name="v", store=store, **options)
            await from_iterable([{"user": "a"}]).pipe(stage).to(collect(found)).run()
            return found

        return [one["visits"] for one in run_virtual(story())]

    assert go(0) == [1]
    assert go(10, version=2, migrate={1: halved}) == [1]


# Results.


@pytest.mark.parametrize(
    ("results", "want"),
    [
        ((), []),
        (None, []),
        (["x"], ["x"]),
        (("x", "y"), ["x", "y"]),
        (iter("xyz"), ["x", "y", "z"]),
    ],
)
def test_an_event_has_any_number_of_results(results: Any, want: list[str]) -> None:
    found: list[str] = []
    stage = stateful(lambda state, event: (1, results), str)
    report = run_virtual(from_iterable("a").pipe(stage).to(collect(found)).run())
    assert found == want
    assert report.statistics["in"] == 1


def test_no_more_results_are_sent_than_were_requested() -> None:
    sink = MemorySink(hold=True)
    stage = stateful(lambda state, n: (n, range(n)), lambda n: n)

    async def story() -> None:
        running = from_iterable([3, 2]).pipe(stage).to(sink).start()
        for want in ([0], [0, 1], [0, 1, 2], [0, 1, 2, 0], [0, 1, 2, 0, 1]):
            await asyncio.sleep(1)
            sink.accept()
            await asyncio.sleep(1)
            assert sink.values == want
        await running.wait()

    run_virtual(story())


def test_the_source_is_told_when_all_results_are_accepted_and_the_state_is_kept() -> None:
    async def story() -> list[float]:
        box = inbox(10)
        loop = asyncio.get_running_loop()
        sink = MemorySink(seconds=1)
        stage = stateful(
            lambda n, event: (n + 1, [event, event]), str, start=0, store=Store.memory(every=0.5)
        )
        running = box.pipe(stage).to(sink).start()
        times: list[float] = []
        for _ in range(2):
            await box.put("a", wait=True)
            times.append(loop.time())
        await running.drain()
        return times

    assert run_virtual(story()) == [2.5, 5.0]


# Errors.


def test_an_error_ends_the_pipeline_and_leaves_the_state() -> None:
    def broken(seen: list[int], n: int) -> tuple[list[int], list[int]]:
        seen.append(n)
        if n == 3:
            raise ValueError("three")
        return seen, [sum(seen)]

    store, found = Store.memory(), list[Any]()
    stage = stateful(broken, lambda _: 0, start=list[int](), store=store)
    with pytest.raises(ValueError, match="three"):
        run_virtual(from_iterable([1, 2, 3]).pipe(stage).to(collect(found)).run())
    assert found == [1, 3]
    stage = stateful(lambda seen, _: (seen, [seen]), lambda _: 0, start=list[int](), store=store)
    run_virtual(from_iterable([0]).pipe(stage).to(collect(found)).run())
    assert found == [1, 3, [1, 2]]


def test_states_by_another_key_are_refused() -> None:
    store = Store.memory()
    visits("a", store, name="visits")
    stage = stateful(count, "client", start=0, name="visits", store=store)
    with pytest.raises(BuildError, match="by user, and now it keeps them by client"):
        run_virtual(from_iterable([]).pipe(stage).to(collect([])).run())


def test_an_event_that_is_skipped_leaves_no_trace_in_the_state() -> None:
    def broken(seen: list[int], n: int) -> tuple[list[int], list[int]]:
        seen.append(n)
        if n % 2:
            raise ValueError(n)
        return seen, [sum(seen)]

    found: list[Any] = []
    stage = stateful(broken, lambda _: 0, start=list[int](), on_error="skip")
    run_virtual(from_iterable([2, 1, 4, 3, 6]).pipe(stage).to(collect(found)).run())
    assert found == [2, 6, 12]


def test_a_state_that_was_committed_is_read_again_after_an_error() -> None:
    def broken(seen: list[str], event: str) -> tuple[list[str], list[str]]:
        seen.append(event)
        if event == "bad":
            raise ValueError(event)
        return seen, ["-".join(seen)]

    async def story() -> list[str]:
        source, probe = ManualPublisher[str](), Probe[str](request=9)
        stage = stateful(broken, lambda _: 0, start=list[str](), on_error="skip")
        connect(source.pipe(stage), probe, Run())
        for events in (["a"], ["bad", "b"]):
            source._to.on_events(
                [source.ledger.enter(Event(event, 0.0, source.ledger)) for event in events]
            )
            await asyncio.sleep(1)
        return probe.values

    assert run_virtual(story()) == ["a", "a-b"]


@pytest.mark.parametrize(("in_thread", "most"), [(False, 256), (True, 2_000)])
def test_no_more_events_are_read_than_one_commit_and_the_next_may_have(
    in_thread: bool, most: int
) -> None:
    found: list[Any] = []
    waited: list[int] = []

    class Counts(Memory):
        def commit(self, unit: Unit) -> None:
            waited.append(len(found) - sum(waited))
            super().commit(unit)

    backend = Counts()
    backend.in_thread = in_thread
    events = from_iterable([{"user": n % 7} for n in range(10_000)])
    stage = stateful(count, "user", start=0, store=Store.of(backend, "counts", every=3600.0))
    run(events.pipe(stage).to(collect(found)))
    assert len(found) == 10_000
    assert max(waited) <= most
    assert len(waited) <= 10_000 / (most / 2) + 1


def test_an_event_has_no_part_in_what_another_one_before_it_did() -> None:
    class Remembers(Memory):
        def __init__(self) -> None:
            super().__init__()
            self.written: list[bytes] = []

        def commit(self, unit: Unit) -> None:
            self.written += [state for rows in unit.rows.values() for _, state, *_ in rows]
            super().commit(unit)

    def texts(state: Any, event: str) -> tuple[Any, list[str]]:
        if event == "raise":
            raise ValueError(event)
        return None if event == "gone" else [event], []

    async def story() -> None:
        box = inbox(10)
        stage = stateful(texts, len, store=Store.of(backend, "texts"), on_error="skip")
        async with box.pipe(stage).to(collect([])).start() as running:
            for event in ("a", "raise", "bb", "gone", "raise", "c"):
                with suppress(ValueError):
                    await box.put(event, wait=True)
            await running.drain()

    backend = Remembers()
    run_virtual(story())
    assert backend.written == [b'["a"]', b'["bb"]', b'["c"]']


def test_a_commit_that_fails_ends_the_run_and_no_source_is_told() -> None:
    class Full(Memory):
        def commit(self, unit: Unit) -> None:
            raise OSError("the disk is full")

    async def story() -> None:
        box = inbox(10)
        stage = stateful(count, "user", start=0, store=Store.of(Full(), "full"))
        running = box.pipe(stage).to(collect([])).start()
        with pytest.raises(Returned):
            await box.put({"user": "a"}, wait=True)
        with pytest.raises(OSError, match="the disk is full"):
            await running.wait()

    run_virtual(story())


def test_a_missing_key_is_an_error_of_the_stage_and_may_be_routed() -> None:
    letters, found = list[Any](), list[Any]()
    events = from_iterable([{"user": "a"}, {}, {"user": "a"}])
    stage = stateful(count, "user", start=0, on_error=route(collect(letters)))
    run_virtual(events.pipe(stage).to(collect(found)).run())
    assert [one["visits"] for one in found] == [1, 2]
    assert [letter.value for letter in letters] == [{}]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (7, "returned 7, and not the new state and the results"),
        ((1, 2, 3), "and not the new state and the results"),
        ((1, "text"), "the results are 'text', and not a list"),
        ((1, {"a": 1}), "and not a list of results"),
        ((1, 5), "the results are 5"),
    ],
)
def test_an_answer_of_another_form_is_named(answer: Any, why: str) -> None:
    with pytest.raises(WrongType, match=why):
        run_virtual(
            from_iterable("a").pipe(stateful(lambda s, e: answer, str)).to(collect([])).run()
        )


def test_a_state_that_json_cannot_hold_is_an_error_of_its_event() -> None:
    letters: list[Any] = []
    stage: Any = stateful(lambda s, e: ({e}, ()), str, on_error=route(collect(letters)))
    run_virtual(from_iterable("ab").pipe(stage).to(collect([])).run())
    assert [letter.value for letter in letters] == ["a", "b"]


@pytest.mark.parametrize("state", [2**64, float("nan"), b"bytes", "\ud800", {1, 2}])
def test_what_json_cannot_hold_is_an_error_of_its_event(state: Any) -> None:
    letters, found = list[Any](), list[Any]()
    states = {"good": 2**64 - 1, "bad": state, "better": -(2**63)}
    stage: Any = stateful(
        lambda before, name: (states[name], [before]),
        lambda _: 0,
        on_error=route(collect(letters)),
    )
    run_virtual(from_iterable(states).pipe(stage).to(collect(found)).run())
    assert [letter.value for letter in letters] == ["bad"]
    assert found == [None, 2**64 - 1]


def test_a_state_in_which_something_cannot_be_kept_names_its_stage_and_key() -> None:
    def add(seen: list[Any], event: Any) -> tuple[list[Any], tuple[()]]:
        return [*seen, event], ()

    stage: Any = stateful(add, lambda _: "all", start=list[Any](), name="seen")
    with pytest.raises(TypeError) as raised:
        run_virtual(from_iterable([1, {2}]).pipe(stage).to(collect([])).run())
    assert "stage 2 'stateful' cannot keep the state of the key 'all'" in str(
        notes_of(raised.value)
    )


@pytest.mark.parametrize("key", [("a", 1), 1, 1.5, "ü", None, True])
def test_keys_of_plain_values_are_found_again(key: Any) -> None:
    store, found = Store.memory(cache=1), list[int]()
    for _ in range(2):
        stage = stateful(lambda n, _: (n + 1, [n + 1]), lambda _: key, start=0, store=store)
        run_virtual(from_iterable([1]).pipe(stage).to(collect(found)).run())
    assert found == [1, 2]


def test_other_keys_are_refused_with_what_to_do() -> None:
    stage: Any = stateful(lambda n, _: (n, ()), lambda _: frozenset([1]), start=0)
    with pytest.raises(WrongType, match="a text, a number, None or a tuple"):
        run_virtual(from_iterable([1]).pipe(stage).to(collect([])).run())


def test_a_missing_key_is_one_error_and_not_two() -> None:
    stage = stateful(count, "user", start=0)
    with pytest.raises(KeyError, match="user") as raised:
        run_virtual(from_iterable([{"user": "a"}, {}]).pipe(stage).to(collect([])).run())
    assert raised.value.__context__ is None


# Timers.


def beat(last: float | None, event: str, ctx: Context) -> tuple[float, list[str]]:
    ctx.timer("silent", after=30)
    return ctx.time, []


def silent(last: float | None, timer: str, ctx: Context) -> tuple[float | None, list[str]]:
    return last, [f"{ctx.key} {timer} since {last:g} at {ctx.time:g}"]


def test_a_timer_fires_once_unless_it_is_set_again() -> None:
    sink = MemorySink()

    async def story() -> None:
        box = inbox(10)
        running = box.pipe(stateful(beat, str, on_timer=silent)).to(sink).start()
        for wait, key in ((0, "a"), (20, "b"), (5, "a"), (100, "b")):
            await asyncio.sleep(wait)
            await box.put(key)
        await asyncio.sleep(200)
        await running.drain()

    run_virtual(story())
    assert sink.accepted == [
        (50, "b silent since 20 at 50"),
        (55, "a silent since 25 at 55"),
        (155, "b silent since 125 at 155"),
    ]


def test_a_timer_that_fell_due_between_two_runs_fires_at_the_start_of_the_next() -> None:
    store, sink = Store.memory(), MemorySink()

    def once(key: str, seconds: float) -> None:
        async def story() -> None:
            box = inbox(10)
            running = box.pipe(stateful(beat, str, on_timer=silent, store=store)).to(sink).start()
            await asyncio.sleep(seconds)
            await box.put(key)
            await asyncio.sleep(1)
            await running.drain()

        run_virtual(story())

    once("a", 1)
    once("b", 40)
    assert sink.values == ["a silent since 1 at 31"]
    once("c", 90)
    assert sink.values == ["a silent since 1 at 31", "b silent since 40 at 70"]


def test_many_timers_that_are_far_ahead_fire_in_order() -> None:
    def at(state: int | None, event: int, ctx: Context) -> tuple[int, list[int]]:
        ctx.timer("later", at=float(event))
        return event, []

    def later(state: int | None, name: str, ctx: Context) -> tuple[None, list[int | None]]:
        return None, [state]

    sink = MemorySink()
    ahead = [(n * 7919) % 5000 + 1 for n in range(1500)]

    async def story() -> None:
        box = inbox(2000)
        stage: Any = stateful(at, int, on_timer=later, store=Store.memory(cache=10))
        running = box.pipe(stage).to(sink).start()
        for one in ahead:
            await box.put(one)
        await asyncio.sleep(6000)
        await running.drain()

    run_virtual(story())
    assert [(time, value) for time, value in sink.accepted] == [
        (float(n), n) for n in sorted(set(ahead))
    ]


def test_a_timer_whose_function_fails_is_over() -> None:
    letters: list[Any] = []

    def broken(state: Any, name: str, ctx: Context) -> Any:
        raise ValueError(name)

    async def story() -> None:
        box = inbox(10)
        stage = stateful(beat, str, on_timer=broken, on_error=route(collect(letters)))
        running = box.pipe(stage).to(collect([])).start()
        await box.put("a")
        await asyncio.sleep(500)
        await running.drain()

    run_virtual(story())
    assert [letter.value for letter in letters] == [{"key": "a", "timer": "silent"}]


def test_a_timer_that_no_function_is_for_is_refused() -> None:
    stage = stateful(beat, str, start=0.0, ttl=60)
    with pytest.raises(WrongType, match="give stateful an on_timer="):
        run_virtual(from_iterable("a").pipe(stage).to(collect([])).run())


def test_a_timer_of_an_earlier_program_leaves_the_state_if_no_function_is_for_it_any_more() -> None:
    store, found = Store.memory(), list[int]()

    def numbered(n: int, event: str, ctx: Context) -> tuple[int, list[int]]:
        if event == "first":
            ctx.timer("old", after=5)
        return n + 1, [n + 1]

    async def story(event: str, on_timer: Any) -> None:
        box = inbox(10)
        stage: Any = stateful(
            *(numbered, lambda _: "key"),
            start=0,
            on_timer=on_timer,
            ttl=60,
            name="numbers",
            store=store,
        )
        running = box.pipe(stage).to(collect(found)).start()
        await box.put(event)
        await asyncio.sleep(10 * (on_timer is None))
        await box.put(event)
        await running.drain()

    run_virtual(story("first", silent))
    run_virtual(story("second", None))
    assert found == [1, 2, 3, 4]


def test_an_error_of_a_timer_names_its_key_and_misses_none_in_an_event() -> None:
    def step(state: Any, event: Any, ctx: Context) -> Any:
        ctx.timer("silent", after=30)
        return 1, []

    def broken(state: Any, name: str, ctx: Context) -> Any:
        raise ValueError(name)

    async def story() -> None:
        box = inbox(10)
        stage: Any = stateful(step, "user", on_timer=broken)
        running = box.pipe(stage).to(collect([])).start()
        await box.put({"user": "ann"})
        await running.wait()

    with pytest.raises(ValueError, match="silent") as raised:
        run_virtual(story())
    assert notes_of(raised.value) == (
        ["in stage 2 'stateful', on the event {'key': 'ann', 'timer': 'silent'}"]
    )


def test_a_timer_whose_result_was_not_accepted_fires_again_in_the_next_run() -> None:
    store, found = Store.memory(), list[str]()

    async def refuse(result: str) -> str:
        raise ValueError(result)

    async def story(*behind: Any) -> None:
        box = inbox(10)
        stage = stateful(beat, str, on_timer=silent, store=store)
        running = box.pipe(stage, *behind).to(collect(found)).start()
        if behind:
            await box.put("a")
        await asyncio.sleep(40)
        await running.drain()

    with pytest.raises(ValueError, match="a silent since 0"):
        run_virtual(story(adaptive_flat_map(refuse, Fixed(1))))
    run_virtual(story())
    assert found == ["a silent since 0 at 30"]


@pytest.mark.parametrize("ttl", [10, timedelta(seconds=10)])
def test_a_state_ends_its_ttl_after_its_last_change(ttl: Any) -> None:
    async def story() -> list[int]:
        found: list[int] = []
        box = inbox(10)
        stage = stateful(lambda n, _: (n + 1, [n + 1]), str, start=0, ttl=ttl, store=Store.memory())
        running = box.pipe(stage).to(collect(found)).start()
        for wait in (0, 9, 9, 11, 9):
            await asyncio.sleep(wait)
            await box.put("a")
        await running.drain()
        return found

    assert run_virtual(story()) == [1, 2, 3, 1, 2]


def test_no_event_finds_a_state_whose_ttl_is_over_however_many_end_at_the_start() -> None:
    store = Store.memory()

    def visits_at(time: float, repeat: int) -> list[int]:
        found: list[int] = []
        stage = stateful(lambda n, _: (n + 1, [n + 1]), int, start=0, ttl=10, store=store)

        async def story() -> None:
            await asyncio.sleep(time)
            events = [key for key in range(250) for _ in range(repeat)]
            await from_iterable(events).pipe(stage).to(collect(found)).run()

        run_virtual(story())
        return found

    assert visits_at(0, 1) == [1] * 250
    assert visits_at(9, 1) == [2] * 250
    assert visits_at(19, 2) == [1, 2] * 250


@pytest.mark.parametrize("cache", [1, 1_000])
@pytest.mark.parametrize("kind", ["memory", "file", "rocks", "postgresql"])
def test_a_state_is_over_at_the_end_of_its_ttl_however_many_end_then(
    kind: str, cache: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = f"rocks:///{tmp_path}/a" if kind == "rocks" else str(tmp_path / "a.state")
    if kind == "postgresql":
        path = request.getfixturevalue("postgres")
    store = Store.memory(cache=cache) if kind == "memory" else Store(path, cache=cache)
    found: list[int] = []

    async def story(*waits: float) -> None:
        box = inbox(1_000)
        stage = stateful(lambda n, _: (n + 1, [n + 1]), int, start=0, ttl=10, store=store)
        running = box.pipe(stage).to(collect(found)).start()
        for wait in waits:
            await asyncio.sleep(wait)
            for key in range(250):
                await box.put(key)
        await running.drain()

    run_virtual(story(0, 9.75, 10))
    # The clock begins at 0 again.
    run_virtual(story(29.75, 9.75))
    assert Counter(found) == {1: 3 * 250, 2: 2 * 250}


def test_a_state_whose_ttl_is_over_is_not_read_from_the_store() -> None:
    store = Store.memory(every=5)

    async def story() -> list[Any]:
        box, seen = inbox(10), list[Any]()
        stage: Any = stateful(lambda n, _: (n + 1, []), str, start=0, ttl=10, store=store, name="n")
        running = box.pipe(stage).to(collect([])).start()
        await box.put("a")
        # Its deletion is committed after 15 seconds.
        for wait in (9, 3, 4):
            await asyncio.sleep(wait)
            seen.append(store.read("n", "a"))
        await running.drain()
        return seen

    assert run_virtual(story()) == [1, None, None]


def test_a_timer_that_is_due_before_the_end_of_a_state_may_keep_it() -> None:
    store, found = Store.memory(), list[Any]()

    def step(n: int, event: int, ctx: Context) -> tuple[int, list[int]]:
        ctx.timer("early", after=5)
        return n + 1, [n + 1]

    def early(n: int, name: str, ctx: Context) -> tuple[int, list[str]]:
        return n, [name]

    async def story(time: float) -> None:
        stage: Any = stateful(step, int, start=0, on_timer=early, ttl=10, store=store)
        await asyncio.sleep(time)
        await from_iterable(range(250)).pipe(stage).to(collect(found)).run()

    run_virtual(story(0))
    run_virtual(story(60))
    assert Counter(found) == {1: 250, "early": 250, 2: 250}


# What is refused.


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"name": ""}, "a text is needed"),
        ({"ttl": 0}, "ttl=0.*timedelta"),
        ({"version": 0}, "whole number"),
        ({"version": 2, "migrate": {2: int}}, "each version before it"),
        ({"version": 2}, "each version before it"),
        ({"version": 3, "migrate": {1: int}}, "each version before it"),
        ({"store": "file"}, "give a Store"),
        ({"start": {1, 2}}, "a list or a dict"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(BuildError, match=why):
        stateful(count, "user", **options)


def test_an_async_step_is_refused_with_the_way_out() -> None:
    async def step(state: Any, event: Any) -> Any: ...

    with pytest.raises(BuildError, match="await in adaptive_flat_map"):
        stateful(step, "user")  # type: ignore[arg-type]  # as a user may write


def test_two_stages_of_one_name_are_refused() -> None:
    store = Store.memory()
    stages = [stateful(count, "user", start=0, store=store) for _ in range(2)]
    with pytest.raises(BuildError, match="have the name"):
        run_virtual(from_iterable([]).pipe(*stages).to(collect([])).run())


def test_states_of_a_stage_that_is_gone_are_not_left_to_themselves() -> None:
    store = Store.memory()
    visits("a", store, name="visits")
    with pytest.raises(BuildError, match="the stage 'visits', which the pipeline does not have"):
        visits("a", store, name="counts")


def test_a_run_that_is_refused_sends_nothing_and_leaves_the_store_as_it_was() -> None:
    store, found = Store.memory(), list[int]()
    assert visits("aa", store, name="visits", version=2, migrate={1: int}) == [1, 2]
    for options in ({"name": "counts"}, {"name": "visits", "version": 1}):
        counts = stateful(count, "user", start=0, store=store, **options)
        with pytest.raises(BuildError):
            run_virtual(from_iterable([{"user": "a"}]).pipe(counts).to(collect(found)).run())
    assert visits("a", store, name="visits", version=2, migrate={1: int}) == [3]
    assert found == []


def test_a_run_that_kept_no_state_does_not_stand_in_the_way_of_the_program_before_it() -> None:
    store = Store.memory()
    assert visits("aa", store, name="visits") == [1, 2]
    newer = [
        stateful(count, "user", start=0, name=name, version=2, migrate={1: int}, store=store)
        for name in ("visits", "more")
    ]
    run_virtual(from_iterable([]).pipe(*newer).to(collect([])).run())
    assert visits("a", store, name="visits") == [3]


def test_a_store_of_one_run_is_refused_to_another(tmp_path: Path) -> None:
    store = Store(tmp_path / "one.state")

    async def story() -> None:
        box = inbox(10)
        running = box.pipe(stateful(count, "user", start=0, store=store)).to(collect([])).start()
        await asyncio.sleep(0)
        with pytest.raises(CannotOpen, match="used by another run"):
            await (
                from_iterable([])
                .pipe(stateful(count, "user", start=0, store=store))
                .to(collect([]))
                .run()
            )
        await running.drain()

    asyncio.run(story())


def test_sources_that_keep_what_is_done_elsewhere_are_refused(tmp_path: Path) -> None:
    store = Store.memory()
    for source in (
        read_jsonl(tmp_path / "a.jsonl", position=tmp_path / "position"),
        read_jsonl(tmp_path / "a.jsonl", position=Store.memory()),
        read_kafka("orders", "bills"),
        read_kafka("orders", "bills", offsets=Store.memory()),
        read_jetstream("orders"),
    ):
        with pytest.raises(BuildError, match=r"Give both the same [sS]tore"):
            source.pipe(stateful(count, "user", start=0, store=store))


def test_a_table_is_refused_in_front_of_states_that_end_with_the_run(tmp_path: Path) -> None:
    rows = read_table(f"sqlite:///{tmp_path}/queue.db", "jobs")
    with pytest.raises(
        BuildError, match=r"behind read_table of a queue only the stage needs one, as store="
    ):
        rows.pipe(stateful(count, "user", start=0))
    rows.pipe(stateful(count, "user", start=0, store=Store.memory()))


def test_two_stores_for_one_event_are_refused() -> None:
    one = stateful(count, "user", start=0, store=Store.memory())
    other = stateful(count, "user", start=0, store=Store.memory(), name="other")
    with pytest.raises(BuildError, match="Give both the same store"):
        from_iterable([{"user": "a"}]).pipe(one, other)


def test_a_stage_inside_groups_is_refused() -> None:
    counts: Any = stateful(count, "user", start=0)
    each = group_by("user", each=lambda group: group.pipe(counts), idle=9)
    with pytest.raises(BuildError, match=r"inside group_by\(each=...\)"):
        run_virtual(from_iterable([{"user": "a"}]).pipe(each, spread()).to(collect([])).run())


# Beside others.


def test_duplicates_of_an_event_that_waits_for_its_commit_wait_too() -> None:
    found: list[Any] = []
    store = Store.memory(every=1)
    events = from_iterable([{"user": "a"}, {"user": "a"}, {"user": "b"}])
    stage = stateful(count, "user", start=0, store=store)
    report = run_virtual(events.pipe(distinct_within(10, "user"), stage).to(collect(found)).run())
    assert [one["user"] for one in found] == ["a", "b"]
    assert report.statistics["finished"] == 2


def test_a_stage_that_is_told_of_ends_may_be_between_two_with_state() -> None:
    store = Store.memory()
    stages: Any = (
        stateful(count, "user", start=0, store=store, name="all"),
        distinct_within(10, "user"),
        stateful(count, "user", start=0, store=store, name="first of a user"),
    )
    events = from_iterable([{"user": user} for user in "abaa"])
    run_virtual(events.pipe(*stages).to(collect([])).run())
    rows = {stage.name: store._open().scan(stage.name) for stage in store._open().stages()}
    assert {name: [row.state for row in kept] for name, kept in rows.items()} == {
        "all": [b"3", b"1"],
        "first of a user": [b"1", b"1"],
    }


def test_an_event_behind_one_of_its_key_that_was_returned_is_returned_too() -> None:
    async def story() -> tuple[list[str], list[str]]:
        source, probe, run = ManualPublisher[str](), Probe[Any](request=9, hold=True), Run()
        store = Store.memory()
        stage = stateful(lambda n, text: (n + 1, [text]), itemgetter(0), start=0, store=store)
        connect(source.pipe(stage), probe, run)
        source.send("a1")
        source.send("b1")
        probe.events[0].give_back()
        source.send("a2")
        source.send("b2")
        for event in probe.events[1:]:
            event.finish()
        await asyncio.sleep(1)
        return source.ledger.ended(RETURNED), source.ledger.ended(FINISHED)

    assert run_virtual(story()) == (["a1", "a2"], ["b1", "b2"])


def test_a_stage_behind_it_that_keeps_more_than_may_be_held_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        stage = stateful(lambda n, _: (n + 1, [n]), str, start=0, store=Store.memory())
        numbers = from_iterable([1] * 11_000).pipe(stage, chunk(10_500))
        running = numbers.to(collect([])).start()
        await asyncio.sleep(10)
        await running.drain()

    run_virtual(story())
    assert "reads nothing, because 10,000 events behind it have not ended" in caplog.text


def test_a_handler_behind_it_gets_the_events_of_a_key_in_order() -> None:
    async def work(event: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(1 / event["visits"])
        return event

    found: list[Any] = []
    events = from_iterable([{"user": user} for user in "abababab"])
    stages: Any = (
        stateful(count, "user", start=0, store=Store.memory()),
        ops.filter(lambda one: one["visits"] != 2),  # type: ignore[index]  # any value to mypy
    )
    handled: Any = (group_by("user"), spread(), adaptive_flat_map(work, Fixed(4)))
    run_virtual(events.pipe(*stages, *handled).to(collect(found)).run())
    for user in "ab":
        assert [one["visits"] for one in found if one["user"] == user] == [1, 3, 4]
