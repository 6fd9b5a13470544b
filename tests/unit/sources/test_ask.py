from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from reactivex import operators as ops

from penstock import (
    Backoff,
    DeadLetter,
    Fixed,
    Inbox,
    Store,
    adaptive_flat_map,
    batch,
    chunk,
    collect,
    distinct_within,
    for_each,
    group_by,
    inbox,
    join,
    rate_limit,
    retry,
    route,
    spread,
    stateful,
    write_jsonl,
)
from penstock.streams.base.errors import (
    AnswerTimeout,
    BadArgument,
    BuildError,
    Dropped,
    Duplicate,
    InboxClosed,
    Returned,
)
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.stages.own import Stage
from penstock.streams.testing import MemorySink
from penstock.streams.testing.plugin import Run
from tests.helpers.local_workers import LocalCrew
from tests.helpers.walks import seeds

Operators = tuple[Any, ...]
Story = Callable[[Inbox[Any]], Coroutine[Any, Any, None]]


class Trouble(Exception):
    pass


async def a_second(value: int) -> int:
    await asyncio.sleep(1)
    return -value


async def a_moment(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def fails(value: int) -> int:
    await asyncio.sleep(1)
    raise Trouble(value)


async def through(operators: Operators, story: Story, *sinks: Any) -> dict[str, Any]:
    """Ask a pipeline of these operators; returns the statistics of the run."""
    box: Inbox[Any] = inbox(10)
    async with box.pipe(*operators).to(*sinks or (MemorySink(),)).start() as running:
        await story(box)
    return running.statistics()


async def outcome(ask: Coroutine[Any, Any, Any]) -> Any:
    """What a caller gets: the answer, or the name of the error."""
    try:
        return await ask
    except Exception as error:
        return type(error).__name__


def test_a_caller_gets_the_result_of_its_own_event(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        loop = asyncio.get_running_loop()
        assert await box.ask(1) == -1
        assert loop.time() == 1
        assert await asyncio.gather(*(box.ask(n) for n in range(20))) == [-n for n in range(20)]

    run(through((adaptive_flat_map(a_second),), story))


def test_a_batch_written_for_lists_answers_each_caller_and_is_called_with_one_when_idle(
    run: Run,
) -> None:
    sizes: list[int] = []

    async def negated(numbers: list[int]) -> list[int]:
        sizes.append(len(numbers))
        await asyncio.sleep(1)
        return [-number for number in numbers]

    async def story(box: Inbox[Any]) -> None:
        assert await box.ask(1) == -1
        assert await asyncio.gather(*(box.ask(n) for n in range(10))) == [-n for n in range(10)]

    run(through((batch(negated),), story))
    assert sizes[0] == 1
    assert max(sizes) > 1


def test_several_results_are_a_list_and_all_is_always_one(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        assert await box.ask(3) == [3, 3, 3]
        assert await box.ask(1) == 1
        assert await box.ask_all(3) == [3, 3, 3]
        assert await box.ask_all(1) == [1]

    run(through((ops.flat_map(lambda n: [n] * n),), story))


def test_a_handler_that_returns_no_results_is_an_empty_list_or_a_drop_by_name(run: Run) -> None:
    async def nothing(value: int) -> Any:
        return
        yield

    async def story(box: Inbox[Any]) -> None:
        assert await box.ask_all(1) == []
        with pytest.raises(Dropped, match=r"without a result: it was dropped \(no results\)") as no:
            await box.ask(1)
        assert no.value.cause == "no results"

    run(through((adaptive_flat_map(nothing),), story))


def test_what_is_dropped_on_purpose_is_named_with_its_cause(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        assert await box.ask(6) == 6
        for asked in (box.ask(1), box.ask_all(1)):
            with pytest.raises(Dropped) as dropped:
                await asked
            assert dropped.value.cause == "filter"

    run(through((ops.filter(lambda n: n > 5),), story))


def test_with_several_sinks_a_result_is_answered_once_when_all_have_it(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        assert await box.ask_all(1) == [1]
        assert asyncio.get_running_loop().time() == 3

    run(through((), story, MemorySink(), MemorySink(seconds=3)))


def test_an_error_of_a_sink_is_the_error_of_the_caller(run: Run) -> None:
    def refuses(value: int) -> None:
        if value:
            raise Trouble

    async def story(box: Inbox[Any]) -> None:
        assert await outcome(box.ask(1)) == "Trouble"
        assert await box.ask(0) == 0

    run(through((), story, for_each(refuses, on_error="skip")))


@pytest.mark.parametrize("policy", ["skip", "revert", "route"])
def test_an_error_comes_to_the_caller_as_that_error(run: Run, policy: Any) -> None:
    letters: list[DeadLetter] = []
    on_error = route(collect(letters)) if policy == "route" else policy

    async def story(box: Inbox[Any]) -> None:
        with pytest.raises(Trouble, match="1"):
            await box.ask(1)
        assert len(letters) == (policy == "route")

    run(through((adaptive_flat_map(fails, on_error=on_error),), story))


def test_a_result_that_came_at_the_third_attempt_is_answered(run: Run) -> None:
    attempts: list[int] = []

    async def at_last(value: int) -> int:
        attempts.append(value)
        if len(attempts) < 3:
            raise Trouble
        return -value

    async def story(box: Inbox[Any]) -> None:
        assert await box.ask(1) == -1
        assert asyncio.get_running_loop().time() == pytest.approx(3)

    backoff = Backoff(1, jitter=0)
    run(through((adaptive_flat_map(at_last, on_error=retry(3, backoff)),), story))


def test_when_the_pipeline_stops_the_failed_event_raises_its_error_and_the_others_are_named(
    run: Run,
) -> None:
    async def story() -> None:
        box: Inbox[int] = inbox(2)
        stream = box.pipe(adaptive_flat_map(fails, limit=Fixed(1)))
        running = stream.to(MemorySink()).start()
        asked = [asyncio.create_task(outcome(box.ask(n))) for n in range(5)]
        with pytest.raises(Trouble):
            await running.wait()
        assert await asyncio.gather(*asked) == [
            *("Trouble", "Returned", "Returned"),
            *("InboxClosed", "InboxClosed"),
        ]

    run(story())


def test_a_drain_answers_what_was_taken_in_and_refuses_what_comes_later(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        asked = asyncio.create_task(box.ask(1))
        await asyncio.sleep(0.5)
        running.begin_drain()
        with pytest.raises(InboxClosed):
            await box.ask(2)
        assert await asked == -1

    async def whole() -> None:
        nonlocal running
        box: Inbox[Any] = inbox(10)
        running = box.pipe(adaptive_flat_map(a_second)).to(MemorySink()).start()
        await story(box)
        await running.wait()

    running: Any = None
    run(whole())


def test_a_cancel_returns_what_is_asked_by_name(run: Run) -> None:
    async def story() -> None:
        box: Inbox[Any] = inbox(10)
        running = box.pipe(adaptive_flat_map(a_second)).to(MemorySink()).start()
        asked = asyncio.create_task(box.ask(1))
        await asyncio.sleep(0.5)
        running.cancel()
        with pytest.raises(Returned):
            await asked

    run(story())


def test_past_its_timeout_a_caller_gets_an_error_and_its_event_goes_on(run: Run) -> None:
    seen: list[int] = []

    async def story(box: Inbox[Any]) -> None:
        with pytest.raises(AnswerTimeout, match=r"no answer within 0\.5 s"):
            await box.ask(1, timeout=0.5)
        assert asyncio.get_running_loop().time() == 0.5
        assert await box.ask(2, timeout=5) == -2

    numbers = run(through((adaptive_flat_map(a_second),), story, collect(seen)))
    assert seen == [-1, -2]
    assert numbers["finished"] == 2


def test_a_timeout_of_the_handler_is_not_that_of_the_caller(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        assert await outcome(box.ask(1, timeout=5)) == "HandlerTimeout"

    operators = (adaptive_flat_map(a_second, timeout=0.5, on_error="skip"),)
    run(through(operators, story))


def test_a_caller_whose_timeout_passes_while_it_waits_for_room_has_put_nothing(run: Run) -> None:
    seen: list[int] = []

    async def story() -> None:
        box: Inbox[int] = inbox(1)
        stream = box.pipe(adaptive_flat_map(a_second, limit=Fixed(1)))
        async with stream.to(collect(seen)).start() as running:
            asked = [asyncio.create_task(box.ask(n)) for n in (1, 2)]
            await asyncio.sleep(0.1)
            with pytest.raises(AnswerTimeout, match="was not put in before the timeout"):
                await box.ask(3, timeout=0.5)
            assert asyncio.get_running_loop().time() == 0.6
            assert running.statistics()["stages"][0]["callers"] == 0
            assert await asyncio.gather(*asked) == [-1, -2]

    run(story())
    assert seen == [-1, -2]


class Message:
    pass


def test_nothing_is_kept_of_an_event_that_is_withdrawn(run: Run) -> None:
    async def story() -> None:
        box: Inbox[Message] = inbox(1)
        pipeline = box.pipe(adaptive_flat_map(asyncio.sleep, limit=Fixed(1))).to(MemorySink())
        message = Message()
        known = weakref.ref(message)
        asked = asyncio.create_task(box.ask(message))
        del message
        await asyncio.sleep(0)
        running = pipeline.start()
        # It is taken in, and its caller cancelled before it resumes.
        asyncio.get_running_loop().call_soon(asked.cancel)
        await asyncio.sleep(1)
        assert asked.cancelled()
        del asked
        gc.collect()
        assert known() is None
        assert running.statistics()["in"] == 0
        await running.drain()

    run(story())


class Forgets(Stage[int, int]):
    def on_events(self, events: list[Event[int]]) -> None: ...


def test_an_event_that_a_stage_has_forgotten_is_returned_at_the_end(run: Run) -> None:
    async def story() -> None:
        box: Inbox[int] = inbox(1)
        pipeline = box.then(lambda below, run, info: Forgets(below), StageInfo("forgets"))
        running = pipeline.to(MemorySink()).start()
        asked = asyncio.create_task(outcome(box.ask(1)))
        await asyncio.sleep(1)
        await running.drain()
        assert await asked == "Returned"

    run(story())


def test_a_cancelled_caller_does_not_cancel_its_event(run: Run) -> None:
    seen: list[int] = []

    async def story(box: Inbox[Any]) -> None:
        asked = asyncio.create_task(box.ask(1))
        await asyncio.sleep(0.5)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    run(through((adaptive_flat_map(a_second),), story, collect(seen)))
    assert seen == [-1]


def test_a_duplicate_gets_the_answer_of_the_first_one_while_that_is_under_way_and_later(
    run: Run,
) -> None:
    calls: list[int] = []

    async def called(value: int) -> int:
        calls.append(value)
        return await a_second(value)

    async def story(box: Inbox[Any]) -> None:
        loop = asyncio.get_running_loop()
        assert await asyncio.gather(box.ask(1), box.ask(-1)) == [-1, -1]
        assert loop.time() == 1
        assert await box.ask(-1) == -1
        assert (loop.time(), calls) == (1, [1])
        await asyncio.sleep(60)
        # The key is new again.
        assert await box.ask(-1) == 1

    run(through((distinct_within(60, by=abs), adaptive_flat_map(called)), story))


def test_a_duplicate_gets_the_answer_of_a_first_one_whose_caller_has_gone(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        assert await outcome(box.ask(1, timeout=0.5)) == "AnswerTimeout"
        assert await box.ask(1, timeout=1) == -1
        assert await box.ask(1) == -1

    run(through((distinct_within(60, by=abs), adaptive_flat_map(a_second)), story))


def test_a_duplicate_of_what_was_dropped_is_dropped_for_the_same_cause(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        for _ in range(2):
            with pytest.raises(Dropped) as dropped:
                await box.ask(1)
            assert dropped.value.cause == "filter"

    run(through((distinct_within(60, by=abs), ops.filter(lambda n: n > 5)), story))


def test_a_duplicate_of_what_failed_is_processed_again(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        first, second = await asyncio.gather(outcome(box.ask(1)), outcome(box.ask(1)))
        assert (first, second) == ("Trouble", "Trouble")
        assert await outcome(box.ask(1)) == "Trouble"
        assert asyncio.get_running_loop().time() == 2

    handler = adaptive_flat_map(fails, Fixed(3), on_error="skip")
    run(through((distinct_within(60, by=abs), handler), story))


def test_at_most_hold_answers_are_kept_and_then_a_duplicate_is_named(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        for number in (1, 2, 3):
            assert await box.ask(number) == -number
        assert await box.ask(3) == -3
        assert await box.ask(2) == -2
        with pytest.raises(Duplicate, match="dropped as a duplicate") as duplicate:
            await box.ask(1)
        assert duplicate.value.cause == "duplicate"

    run(through((distinct_within(60, by=abs, hold=2), adaptive_flat_map(a_second)), story))


def test_a_duplicate_of_what_nobody_asked_about_is_named(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        await box.put(1, wait=True)
        assert await outcome(box.ask(1)) == "Duplicate"

    run(through((distinct_within(60, by=abs), adaptive_flat_map(a_second)), story))


def test_callers_whose_events_were_put_into_one_list_all_get_the_list(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        assert await asyncio.gather(*(box.ask(n) for n in range(3))) == [[0, 1, 2]] * 3

    run(through((chunk(3),), story))


def test_a_list_of_several_results_of_one_event_is_one_result(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        assert await box.ask_all(2) == [[2, 2]]

    run(through((ops.flat_map(lambda n: [n] * n), chunk(2)), story))


def test_order_per_key_and_a_key_of_its_own_change_no_answer(run: Run) -> None:
    def counted(group: Any) -> Any:
        return group.pipe(ops.scan(lambda count, number: count + number, 0))

    async def story(box: Inbox[Any]) -> None:
        answers = await asyncio.gather(*(box.ask(n) for n in (1, 2, 3, 4)))
        assert answers == [-1, -2, -4, -6]

    groups = group_by(lambda n: n % 2, each=counted, idle=60)
    run(through((groups, spread(), adaptive_flat_map(a_second)), story))


def test_each_reader_of_a_shared_stream_gives_a_result(run: Run) -> None:
    async def story() -> None:
        box: Inbox[int] = inbox(10)
        shared = box.pipe(ops.share())
        both = shared.pipe(ops.map(lambda n: -n), ops.merge(shared))
        async with both.to(MemorySink()).start():
            assert sorted(await box.ask_all(1)) == [-1, 1]

    run(story())


def test_two_inboxes_that_are_merged_answer_their_own_callers(run: Run) -> None:
    async def story() -> None:
        one: Inbox[int] = inbox(10)
        other: Inbox[int] = inbox(10)
        merged = one.pipe(ops.merge(other), adaptive_flat_map(a_second))
        async with merged.to(MemorySink()).start() as running:
            assert await asyncio.gather(one.ask(1), other.ask(2)) == [-1, -2]
            await running.drain()

    run(story())


def test_a_caller_that_asks_before_the_run_begins_is_answered(run: Run) -> None:
    async def story() -> None:
        box: Inbox[int] = inbox(10)
        asked = asyncio.create_task(box.ask(1))
        await asyncio.sleep(1)
        async with box.to(MemorySink()).start():
            assert await asked == 1

    run(story())


def test_asking_where_no_sink_gets_the_results_is_refused_by_name(run: Run) -> None:
    async def story() -> None:
        box: Inbox[int] = inbox(10)
        early = asyncio.create_task(box.ask(0))
        await asyncio.sleep(0)

        async def read() -> list[int]:
            return [value async for value in box]

        reading = asyncio.create_task(read())
        with pytest.raises(BuildError, match=r"read the inbox in a pipeline"):
            await early
        with pytest.raises(BuildError, match=r"read the inbox in a pipeline"):
            await box.ask(1)
        await box.put(2)
        reading.cancel()

    run(story())


@pytest.mark.parametrize("timeout", [0, -1, True, "1", float("nan")])
def test_a_wrong_timeout_is_refused(run: Run, timeout: Any) -> None:
    async def story(box: Inbox[Any]) -> None:
        with pytest.raises(BadArgument, match="must be positive seconds"):
            await box.ask(1, timeout=timeout)

    run(through((), story))


# Workers.


async def in_workers(operators: Operators, story: Story, *sinks: Any) -> None:
    box: Inbox[Any] = inbox(10)
    pipeline = box.pipe(*operators).to(*sinks)
    async with pipeline.start(workers=LocalCrew(2, lambda: 0.1)):
        await story(box)
    # What is still on its way to the workers arrives.
    await asyncio.sleep(10)


def test_results_from_worker_processes_come_back_to_the_caller(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        asked = [outcome(box.ask(n)) for n in (1, 2, 3, 1, 4)]
        assert await asyncio.gather(*asked) == [-1, "Dropped", [-3, -3, -3], -1, "Trouble"]

    async def handler(value: int) -> int:
        if value == 4:
            raise Trouble
        return await a_second(value)

    stages = (
        distinct_within(60, by=abs),
        adaptive_flat_map(handler, Fixed(5), on_error="skip"),
        ops.filter(lambda n: n != -2),
        ops.flat_map(lambda n: [n] * -n),
    )
    run(in_workers(stages, story, collect([])))


@pytest.mark.parametrize("beside", [False, True])
def test_results_that_workers_encode_are_refused_by_name(
    run: Run, tmp_path: Path, beside: bool
) -> None:
    async def story(box: Inbox[Any]) -> None:
        await box.put(1, wait=True)
        assert await outcome(box.ask(2)) == (-2 if beside else "BuildError")

    written = write_jsonl(tmp_path / "out.jsonl")
    sinks = (written, collect([])) if beside else (written,)
    run(in_workers((adaptive_flat_map(a_second),), story, *sinks))


def test_results_that_stay_in_the_workers_are_refused_by_name(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        with pytest.raises(BuildError, match="with workers= give it a sink that gets the results"):
            await box.ask(1)

    sink = for_each(lambda value: None, in_workers=True)
    run(in_workers((adaptive_flat_map(a_second),), story, sink))


# Stores.


def count(visits: int, value: int) -> tuple[int, list[int]]:
    return visits + 1, [visits + 1]


def test_behind_a_store_an_answer_comes_after_the_commit(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        for visit in (1, 2, 3):
            assert await box.ask(7) == visit
            # As another process would read it.
            assert store.read("count", 7) == visit

    store = Store.memory()
    run(through((stateful(count, by=abs, start=0, store=store, name="count"),), story))


@pytest.mark.parametrize("order", ["distinct first", "state first"])
def test_a_duplicate_behind_a_store_gets_the_answer_of_the_first_one(run: Run, order: str) -> None:
    async def story(box: Inbox[Any]) -> None:
        assert await asyncio.gather(box.ask(1), box.ask(1)) == [-1, -1]
        assert await box.ask(1) == -1
        assert asyncio.get_running_loop().time() < 2

    store = Store.memory()
    stages = [
        distinct_within(60, by=abs, store=store),
        stateful(lambda n, v: (n + 1, [v]), by=abs, start=0, store=store),
    ]
    if order == "state first":
        stages.reverse()
    run(through((*stages, adaptive_flat_map(a_second)), story))


def test_an_event_that_only_changes_a_state_has_no_results(run: Run) -> None:
    async def story(box: Inbox[Any]) -> None:
        assert await box.ask_all(1) == []
        with pytest.raises(Dropped) as dropped:
            await box.ask(1)
        assert dropped.value.cause == "in a state"
        assert "it is kept in a state: its results come with other events" in str(dropped.value)

    run(through((stateful(lambda n, value: (n + 1, []), by=abs, start=0),), story))


def test_a_pair_of_a_join_is_a_result_of_its_second_event(run: Run) -> None:
    other: Inbox[Any] = inbox(10)

    async def story(box: Inbox[Any]) -> None:
        with pytest.raises(Dropped, match="kept in a state"):
            await other.ask(("b", 10))
        assert await box.ask(("a", 10)) == (("a", 10), ("b", 10))

    run(through((join(other, by=1, within=60, time=1),), story))


# Threads.


def test_a_thread_gets_the_answer_about_its_event() -> None:
    box: Inbox[int] = inbox(3)
    heard: list[Any] = []

    def ask(number: int, **timeout: float) -> None:
        try:
            heard.append(box.ask_threadsafe(number, **timeout))
            heard.append(box.ask_all_threadsafe(number))
        except Exception as error:
            heard.append(type(error))

    async def work(number: int) -> list[int]:
        if number == 3:
            await asyncio.Event().wait()
        return [number] * number

    async def story() -> None:
        stages = (adaptive_flat_map(work, Fixed(2)), ops.flat_map(lambda numbers: numbers))
        running = box.pipe(*stages).to(MemorySink()).start()
        for number in (2, 1, 0):
            await asyncio.to_thread(ask, number)
        await asyncio.to_thread(ask, 3, timeout=0.01)
        with pytest.raises(
            BuildError, match=r"use `await inbox\.put\(value\)` or `await inbox\.ask"
        ):
            box.ask_threadsafe(1)
        running.cancel()
        await running.wait()
        await asyncio.to_thread(ask, 1, timeout=5)
        with pytest.raises(BadArgument):
            await asyncio.to_thread(box.ask_threadsafe, 1, timeout=0)

    asyncio.run(story())
    assert heard == [[2, 2], [2, 2], 1, [1], Dropped, AnswerTimeout, InboxClosed]


# Many.


def one_of(rng: random.Random) -> tuple[Any, Callable[[int], list[int]]]:
    """A stage, and what it makes of a value; only of 2 it makes nothing."""

    async def later(value: int) -> int:
        await asyncio.sleep(rng.random())
        return value + 1

    async def several(value: int) -> Any:
        for one in range(value % 3):
            await asyncio.sleep(rng.random() / 10)
            yield value * 10 + one

    async def in_lists(values: list[int]) -> list[int]:
        await asyncio.sleep(rng.random())
        if rng.random() < 0.2:
            raise Trouble
        return [value + 2 for value in values]

    again = retry(50, Backoff(0.01))
    return rng.choice(
        [
            (ops.map(lambda n: n * 2), lambda n: [n * 2]),
            (ops.filter(lambda n: n % 5), lambda n: [n] if n % 5 else []),
            (ops.flat_map(lambda n: [n, n + 1]), lambda n: [n, n + 1]),
            (adaptive_flat_map(later, Fixed(5)), lambda n: [n + 1]),
            (adaptive_flat_map(later, ordered=True), lambda n: [n + 1]),
            (
                adaptive_flat_map(several, Fixed(3)),
                lambda n: [n * 10 + one for one in range(n % 3)],
            ),
            (batch(in_lists, on_error=again), lambda n: [n + 2]),
            (rate_limit(50), lambda n: [n]),
            (stateful(lambda seen, n: (seen + 1, [n, -n]), by=abs, start=0), lambda n: [n, -n]),
        ]
    )


@seeds(200)
def test_an_answer_is_what_the_stages_make_of_that_value_alone(run: Run, seed: int) -> None:
    rng = random.Random(seed)
    chosen = [one_of(rng) for _ in range(rng.randint(1, 4))]
    stages = [stage for stage, _ in chosen]
    if rng.random() < 0.5:
        stages[:0] = [group_by(lambda n: n % 3), spread(), adaptive_flat_map(a_moment)]

    def by_hand(value: int) -> list[int]:
        values = [value]
        for _, makes in chosen:
            values = [made for one in values for made in makes(one)]
        return sorted(values)

    async def client(box: Inbox[Any], value: int) -> None:
        await asyncio.sleep(rng.random() * 3)
        patience = rng.choice([None, 0.5, 1000])
        asked = asyncio.ensure_future(box.ask_all(value, timeout=patience))
        if rng.random() < 0.2:
            await asyncio.sleep(rng.random())
            asked.cancel()
        try:
            assert sorted(await asked) == by_hand(value)
        except Dropped:
            assert not by_hand(value)
        except (AnswerTimeout, asyncio.CancelledError):
            assert patience == 0.5 or asked.cancelled()

    async def story(box: Inbox[Any]) -> None:
        await asyncio.gather(*(client(box, rng.randrange(20)) for _ in range(30)))

    sinks = [MemorySink(), MemorySink(seconds=0.01)]
    run(through(tuple(stages), story, *sinks[: rng.randint(1, 2)]))


def test_ten_thousand_callers_get_their_own_answers_through_batches_and_retries(
    run: Run, run_seed: int
) -> None:
    rng = random.Random(run_seed)

    async def flaky(requests: list[dict[str, int]]) -> list[dict[str, int]]:
        await asyncio.sleep(rng.random() / 100)
        if rng.random() < 0.2:
            raise Trouble
        return [{**request, "square": request["n"] ** 2} for request in requests]

    async def client(box: Inbox[Any], name: int) -> None:
        for number in range(50):
            n = name * 1000 + number
            assert await box.ask({"n": n, "client": name % 40}) == {
                "n": n,
                "client": name % 40,
                "square": n**2,
            }

    async def story(box: Inbox[Any]) -> None:
        await asyncio.gather(*(client(box, name) for name in range(200)))

    stages = (
        distinct_within(60, by="n"),
        group_by("client"),
        spread(),
        batch(flaky, on_error=retry(30, Backoff(0.001))),
    )
    numbers = run(through(stages, story))
    assert numbers["finished"] == 10_000
