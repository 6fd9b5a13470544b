"""Pipelines with workers on virtual time: order, limits, failures, workers that end."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from threading import Lock
from typing import Any

import pytest

from penstock import (
    Backoff,
    Fixed,
    Flowable,
    Inbox,
    adaptive_flat_map,
    batch,
    collect,
    dead_letters,
    from_async_iterable,
    from_iterable,
    group_by,
    inbox,
    ops,
    retry,
    route,
    spread,
    using,
)
from penstock.streams.base.errors import (
    JobFailed,
    NotPicklable,
    RaisedInWorker,
    WorkerLost,
    WrongType,
)
from penstock.streams.limits import Outcome
from penstock.streams.pipelines.running import Report, Running
from penstock.streams.stages.time_slice import LARGEST
from penstock.streams.testing import MemorySink
from penstock.streams.testing.loop import VirtualTimeLoop, run_virtual
from penstock.streams.workers.messages import Ended
from penstock.streams.workers.placement import section_of
from tests.helpers.local_workers import LocalCrew, random_delay

Event = tuple[int, int]


def events(clients: int, each: int) -> list[Event]:
    return [(client, number) for number in range(each) for client in range(clients)]


def client_of(event: Event) -> int:
    return event[0]


class Handler:
    """Takes a random time, and records what is in flight in all workers together."""

    def __init__(self, seed: int = 0, seconds: float = 0.01) -> None:
        self._random = random.Random(seed)
        self._seconds = seconds
        self.in_flight: Counter[int] = Counter()
        self.most = self.most_of_a_client = 0
        self.began: list[Event] = []

    async def __call__(self, event: Event) -> Event:
        client = event[0]
        self.in_flight[client] += 1
        self.began.append(event)
        self.most = max(self.most, self.in_flight.total())
        self.most_of_a_client = max(self.most_of_a_client, self.in_flight[client])
        try:
            await asyncio.sleep(self._random.uniform(0, 2 * self._seconds))
        finally:
            self.in_flight[client] -= 1
        return event


def run_with(
    crew: LocalCrew,
    stream: Flowable[Any],
    beside: Callable[[Running], Any] | None = None,
) -> tuple[list[Any], Report]:
    into: list[Any] = []

    async def main() -> Report:
        async with stream.to(collect(into)).start(workers=crew) as running:
            if beside is not None:
                await beside(running)
            return await running.wait()

    return into, run_virtual(main())


def in_order(results: list[Event]) -> bool:
    last: dict[int, int] = {}
    for client, number in results:
        if number <= last.get(client, -1):
            return False
        last[client] = number
    return True


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_each_clients_events_are_worked_on_one_at_a_time_and_in_order(
    workers: int, seed: int
) -> None:
    handler, sent = Handler(seed), events(9, 30)
    crew = LocalCrew(workers, random_delay(seed, 0.02))
    stream = from_iterable(sent).pipe(
        group_by(client_of, buffer=50), spread(), adaptive_flat_map(handler, limit=Fixed(4))
    )
    results, report = run_with(crew, stream)
    assert sorted(results) == sorted(sent)
    assert in_order(results)
    assert in_order(handler.began)
    assert handler.most_of_a_client == 1
    assert handler.most <= 4
    assert report.exit_status == 0
    assert report.statistics["finished"] == len(sent)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_limit_is_that_of_all_workers_together(limit: int) -> None:
    handler = Handler()
    crew = LocalCrew(2, random_delay(1, 0.003))
    stream = from_iterable(events(20, 10)).pipe(adaptive_flat_map(handler, limit=Fixed(limit)))
    results, _ = run_with(crew, stream)
    assert len(results) == 200
    assert handler.most == limit


def test_results_of_many_keys_go_to_the_parent_in_messages_of_about_as_many_as_lists_have() -> None:
    crew = LocalCrew(2, lambda: 0.0005)
    stream = from_iterable(events(100, 100)).pipe(
        group_by(client_of), spread(), adaptive_flat_map(client_of)
    )
    run_with(crew, stream)
    for worker in range(2):
        _, answers = crew.messages(worker)
        sizes = [len(answer.numbers) for answer in answers if isinstance(answer, Ended)]
        assert len(sizes) > 10
        assert sum(sizes) / len(sizes) > 0.7 * LARGEST


def test_a_slot_that_one_worker_cannot_use_is_lent_to_the_other() -> None:
    # Three keys with much to do, and one limit: whichever worker has them gets the slots.
    handler = Handler(seconds=0.01)
    sent = events(3, 100)
    crew = LocalCrew(2)
    stream = from_iterable(sent).pipe(
        group_by(client_of), spread(), adaptive_flat_map(handler, limit=Fixed(3))
    )
    _, report = run_with(crew, stream)
    assert handler.most == 3
    assert report.statistics["seconds"] < 1.3


def test_a_key_belongs_to_a_worker_only_while_it_has_an_event_there() -> None:
    async def arriving() -> AsyncIterator[Event]:
        yield 0, 0
        await asyncio.sleep(1)
        # Long after that one has ended, another key keeps its worker busy.
        yield 1, 1
        await asyncio.sleep(0.001)
        yield 0, 2

    crew = LocalCrew(2)
    stream = from_async_iterable(arriving).pipe(
        group_by(client_of), spread(), adaptive_flat_map(Handler(seconds=0.1), limit=Fixed(4))
    )
    run_with(crew, stream)
    assert (crew.values(0), crew.values(1)) == ([(0, 0), (1, 1)], [(0, 2)])


@pytest.mark.parametrize(("before", "after"), [(6, 1), (1, 6), (6, 2)])
def test_a_changed_limit_is_in_force_everywhere_within_20_ms(before: int, after: int) -> None:
    handler = Handler(seconds=0.001)
    crew = LocalCrew(3, random_delay(2, 0.004))
    stream = from_iterable(events(40, 50)).pipe(
        group_by(client_of, buffer=100), spread(), adaptive_flat_map(handler, limit=Fixed(before))
    )
    seen: list[int] = []

    async def retune(running: Running) -> None:
        await asyncio.sleep(0.1)
        running.retune(Fixed(after))
        await asyncio.sleep(0.02)
        handler.most = 0
        await asyncio.sleep(0.1)
        seen.append(handler.most)

    results, _ = run_with(crew, stream, retune)
    assert len(results) == 2000
    assert in_order(results)
    assert seen == [after]


@pytest.mark.parametrize("how", ["retune", "assign"])
@pytest.mark.parametrize("workers", [2, 3])
def test_a_raised_limit_is_in_force_while_all_calls_take_long(workers: int, how: str) -> None:
    limit = Fixed(2)

    async def long(event: Event) -> Event:
        in_flight.add(event)
        await asyncio.sleep(100)
        in_flight.remove(event)
        return event

    async def retune(running: Running) -> None:
        await asyncio.sleep(10.01)
        assert len(in_flight) == 2
        if how == "assign":
            limit.limit = 7
        else:
            running.retune(Fixed(7))
        await asyncio.sleep(0.02)
        assert len(in_flight) == 7

    in_flight: set[Event] = set()
    stream = from_iterable(events(9, 1)).pipe(adaptive_flat_map(long, limit=limit))
    results, _ = run_with(LocalCrew(workers, random_delay(5, 0.005)), stream, retune)
    assert len(results) == 9


def test_a_limiter_sees_the_calls_of_all_workers_together() -> None:
    class Six:
        limit = 6
        reason = "a test"

        def on_complete(self, now: float, started: float, level: int, outcome: Outcome) -> None:
            levels.append(level)

    levels: list[int] = []
    stream = from_iterable(events(6, 50)).pipe(
        group_by(client_of), spread(), adaptive_flat_map(Handler(), limit=Six())
    )
    run_with(LocalCrew(2), stream)
    assert len(levels) == 300
    assert 5 <= sum(levels) / len(levels) <= 6


def test_ordered_results_are_put_in_order_by_the_parent() -> None:
    handler, sent = Handler(3), events(200, 1)
    stream = from_iterable(sent).pipe(adaptive_flat_map(handler, limit=Fixed(8), ordered=True))
    results, _ = run_with(LocalCrew(3, random_delay(3, 0.01)), stream)
    assert results == sent


def test_a_plain_handler_and_what_keeps_nothing_around_it_give_what_one_process_does() -> None:
    stream = from_iterable(range(500)).pipe(
        ops.map(lambda value: value + 1),
        group_by(lambda value: value % 10),
        spread(),
        ops.filter(lambda value: value % 3),
        adaptive_flat_map(lambda value: value * 2),
        ops.flat_map(lambda value: [value, -value] if value % 4 else []),
        ops.scan(lambda total, value: total + value, 0),
    )
    results, report = run_with(LocalCrew(2, random_delay(4, 0.002)), stream)
    alone: list[int] = []
    run_virtual(stream.to(collect(alone)).run())
    assert results[-1] == alone[-1] == 0
    assert len(results) == len(alone)
    assert report.statistics["dropped"] == {"filter": 166, "flat_map": 167}


@pytest.mark.parametrize("below", [False, True])
def test_streams_that_are_read_for_an_event_are_read_in_workers_too(below: bool) -> None:
    async def handler(value: int) -> int:
        return await asyncio.sleep(0.01, value)

    opening = ops.flat_map(lambda value: from_iterable([value, value + 100]))
    handling = adaptive_flat_map(handler, limit=Fixed(4))
    stages = (handling, opening) if below else (opening, handling)
    results, report = run_with(LocalCrew(2), from_iterable(range(50)).pipe(*stages))
    assert sorted(results) == [*range(50), *range(100, 150)]
    # Those of the parent: what a worker has read inside a stage is not counted there.
    assert (report.statistics["in"], report.statistics["finished"]) == (50, 50)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_ordered_results_never_wait_for_room_that_later_ones_have(
    seed: int, keyed: bool, several: bool
) -> None:
    draw = random.Random(seed)

    async def once(value: int) -> int:
        await asyncio.sleep(draw.choice([0, 0.001, 0.05]))
        return value

    async def twice(value: int) -> AsyncIterator[int]:
        for _ in range(2):
            yield await once(value)

    grouped = [group_by(lambda value: value % 7), spread()] if keyed else []
    stream = from_iterable(range(300)).pipe(
        *grouped, adaptive_flat_map(twice if several else once, (8, 64), ordered=True, window=8)
    )

    async def main() -> list[int]:
        into: list[int] = []
        async with asyncio.timeout(1000):
            crew = LocalCrew(2, random_delay(seed, 0.003))
            await stream.to(collect(into)).start(workers=crew).wait()
        return into

    assert run_virtual(main()) == sorted([*range(300)] * (1 + several))


def test_ordered_results_come_after_a_kill_where_their_events_had_changed_workers() -> None:
    async def handler(value: int) -> int:
        await asyncio.sleep(0.01)
        return value

    async def main() -> list[int]:
        into: list[int] = []
        crew = LocalCrew(2)
        work = adaptive_flat_map(handler, Fixed(4), ordered=True, window=2)
        stream = from_iterable(range(200)).pipe(group_by(lambda value: value % 3), spread(), work)
        async with asyncio.timeout(100), stream.to(collect(into)).start(workers=crew) as running:
            await asyncio.sleep(0.02)
            # What the second worker has not begun goes behind what the first one has.
            running.retune(Fixed(1))
            await asyncio.sleep(0.02)
            running.retune(Fixed(9))
            await asyncio.sleep(0.01)
            crew.kill(0)
            await running.wait()
        return into

    assert sorted(run_virtual(main())) == list(range(200))


async def several(value: int) -> AsyncIterator[int]:
    for part in range(3):
        await asyncio.sleep(0.001)
        yield value * 10 + part


def test_a_handler_with_several_results_gives_them_all_and_waits_for_demand() -> None:
    stream = from_iterable(range(100)).pipe(
        adaptive_flat_map(several, limit=Fixed(5), window=8),
    )
    results, report = run_with(LocalCrew(2, random_delay(5, 0.002)), stream)
    assert sorted(results) == sorted(value * 10 + part for value in range(100) for part in range(3))
    assert report.statistics["finished"] == 100


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("on_error", ["skip", retry(2, then="skip")])
def test_an_event_that_fails_after_some_results_gives_those_that_wait_for_room(
    ordered: bool, on_error: Any
) -> None:
    async def two_and_no_more(value: int) -> AsyncIterator[int]:
        async for result in several(value):
            yield result
            if result % 10 == 1:
                raise ValueError(value)

    work = adaptive_flat_map(
        two_and_no_more, Fixed(9), window=4, ordered=ordered, on_error=on_error
    )
    results, report = run_with(LocalCrew(1, lambda: 0.02), from_iterable(range(40)).pipe(work))
    attempts = 1 if on_error == "skip" else 2
    expected = [value * 10 + part for value in range(40) for part in (0, 1)] * attempts
    assert sorted(results) == sorted(expected)
    assert report.statistics["failed"] == 40


async def doubled(values: list[int]) -> list[int]:
    await asyncio.sleep(0.01)
    return [2 * value for value in values]


def test_batches_share_their_number_of_calls() -> None:
    stream = from_iterable(range(300)).pipe(batch(doubled, max_size=10, parallel=3))
    results, report = run_with(LocalCrew(2, random_delay(6, 0.002)), stream)
    assert sorted(results) == [2 * value for value in range(300)]
    assert [one["parallel"] for one in report.statistics["stages"][1]["by_worker"]] == [1, 2]


# Failures.


async def odd(value: int) -> int:
    await asyncio.sleep(0.001)
    if value % 2:
        raise ValueError(f"odd: {value}")
    return value


def test_a_handler_that_fails_stops_the_pipeline_and_the_rest_is_returned() -> None:
    into: list[int] = []
    tens = from_iterable([*range(0, 40, 2), 1, *range(0, 400, 2)])
    pipeline = tens.pipe(adaptive_flat_map(odd, limit=Fixed(2))).to(collect(into))

    async def main() -> Report:
        running = pipeline.start(workers=LocalCrew(2, random_delay(7, 0.002)))
        with pytest.raises(ValueError, match="odd: 1") as error:
            await running.wait()
        assert "in stage 2 'adaptive_flat_map', on the event 1" in error.value.__notes__
        return running.report()

    numbers = run_virtual(main()).statistics
    assert numbers["failed"] == 1
    assert numbers["finished"] == len(into) >= 20
    assert numbers["in"] == numbers["finished"] + numbers["failed"] + numbers["returned"]
    assert numbers["returned"]


def test_skipped_events_are_counted() -> None:
    stream = from_iterable(range(100)).pipe(adaptive_flat_map(odd, limit=Fixed(4), on_error="skip"))
    results, report = run_with(LocalCrew(2, random_delay(8, 0.002)), stream)
    assert sorted(results) == list(range(0, 100, 2))
    assert report.statistics["failed"] == 50
    assert report.statistics["stages"][1]["skipped"] == 50
    assert report.exit_status == 3


def test_letters_are_written_by_the_parent_with_their_attempts(tmp_path: Any) -> None:
    letters = tmp_path / "letters.jsonl"
    policy = retry(3, Backoff(0.001), then=route(dead_letters(letters)))
    stream = from_iterable(range(20)).pipe(adaptive_flat_map(odd, limit=Fixed(4), on_error=policy))
    _, report = run_with(LocalCrew(2, random_delay(9, 0.002)), stream)
    lines = letters.read_text().splitlines()
    assert len(lines) == 10
    assert all('"attempts":3' in line for line in lines)
    assert report.statistics["failed"] == 10
    assert report.statistics["stages"][1]["routed"] == 10


class Odd(Exception):
    def __init__(self, value: int, what: str, lock: object = None) -> None:
        super().__init__(f"{what} {value}")
        self.lock = lock


async def fails_with_an_error_of_its_own(value: int) -> int:
    raise Odd(value, "not even")


def test_an_error_of_a_class_with_other_arguments_keeps_its_type_and_text() -> None:
    stream = from_iterable([1]).pipe(adaptive_flat_map(fails_with_an_error_of_its_own))
    with pytest.raises(Odd) as caught:
        run_with(LocalCrew(2), stream)
    assert str(caught.value) == "not even 1"
    assert isinstance(caught.value.__cause__, RaisedInWorker)


async def fails_with_an_error_that_cannot_be_copied(value: int) -> int:
    raise Odd(value, "not even", Lock())


def test_an_error_that_cannot_be_sent_is_told_in_words() -> None:
    stream = from_iterable([1]).pipe(adaptive_flat_map(fails_with_an_error_that_cannot_be_copied))
    with pytest.raises(JobFailed, match="Odd: 'not even 1'"):
        run_with(LocalCrew(2), stream)


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def fails_with_an_error_without_a_text(value: int) -> int:
    raise Silent(lambda: value)


def test_an_error_whose_text_cannot_be_read_stops_the_pipeline_too() -> None:
    stream = from_iterable([1]).pipe(adaptive_flat_map(fails_with_an_error_without_a_text))
    with pytest.raises(JobFailed, match="Silent whose str raised RuntimeError"):
        run_with(LocalCrew(2), stream)


async def divides_by_zero(value: int) -> int:
    try:
        return 1 // (value - value)
    except ZeroDivisionError as error:
        raise ValueError("no quotient") from error


def test_the_cause_of_an_error_is_its_traceback_in_the_worker() -> None:
    stream = from_iterable([1]).pipe(adaptive_flat_map(divides_by_zero))
    with pytest.raises(ValueError, match="no quotient") as caught:
        run_with(LocalCrew(2), stream)
    origin = caught.value.__cause__
    assert isinstance(origin, RaisedInWorker)
    assert "return 1 // (value - value)" in str(origin)
    assert 'raise ValueError("no quotient") from error' in str(origin)
    assert origin.stack[-1].name == "divides_by_zero"


def test_a_value_that_cannot_be_sent_back_is_in_its_letter_as_the_worker_got_it(
    tmp_path: Any,
) -> None:
    letters = tmp_path / "letters.jsonl"
    stream = from_iterable(range(4)).pipe(
        ops.map(lambda value: lambda: value),
        adaptive_flat_map(lambda value: odd(value()), on_error=route(dead_letters(letters))),
    )
    results, report = run_with(LocalCrew(2), stream)
    assert sorted(results) == [0, 2]
    assert report.exit_status == 3
    lines = [json.loads(line) for line in letters.read_text().splitlines()]
    assert sorted((line["value"], line["error"]) for line in lines) == [
        (1, "ValueError"),
        (3, "ValueError"),
    ]


def test_keys_that_cannot_be_sent_are_in_the_statistics_as_text() -> None:
    class Client:
        def __repr__(self) -> str:
            return "a client"

    client = Client()
    seen: list[Any] = []

    async def look(running: Running) -> None:
        await asyncio.sleep(0.5)
        seen.append(running.statistics()["stages"][1])

    stream = from_iterable(range(10)).pipe(
        group_by(lambda _: client), spread(), adaptive_flat_map(slow)
    )
    results, _ = run_with(LocalCrew(1), stream, look)
    assert results == list(range(10))
    assert seen[0]["hottest"] == "a client"
    assert seen[0]["hottest_keys"][0]["key"] == "a client"


class Identity:
    """Two are never equal."""


class Colour(Enum):
    RED, BLUE = 1, 2


@dataclass(frozen=True)
class Named:
    name: str


def test_a_key_that_is_equal_to_nothing_but_itself_is_refused() -> None:
    events = [{"client": Identity()}, {"client": Identity()}]
    stream = from_iterable(events).pipe(group_by("client"), spread(), adaptive_flat_map(accept))
    with pytest.raises(WrongType, match=r"'group_by': .* is equal to nothing but itself"):
        run_with(LocalCrew(2), stream)


@pytest.mark.parametrize("client", [Colour.RED, Named("a"), None, (1, "a"), float("nan"), Identity])
def test_a_key_whose_copy_is_the_same_key_is_dealt(client: Any) -> None:
    stream = from_iterable([{"client": client}]).pipe(
        group_by("client"), spread(), adaptive_flat_map(accept)
    )
    results, _ = run_with(LocalCrew(2), stream)
    assert results == ["done"]


def test_a_key_that_is_found_anew_for_each_event_is_dealt_whatever_it_is() -> None:
    clients = [Identity(), Identity()]
    stream = from_iterable(range(4)).pipe(
        group_by(lambda value: clients[value % 2]), spread(), adaptive_flat_map(accept)
    )
    results, _ = run_with(LocalCrew(2), stream)
    assert results == ["done"] * 4


async def accept(value: Any) -> str:
    return "done"


async def slow(value: int) -> int:
    await asyncio.sleep(0.1)
    return value


def test_an_error_of_closing_in_a_worker_is_that_of_the_pipeline() -> None:
    @asynccontextmanager
    async def session() -> AsyncIterator[int]:
        yield 1
        raise OSError("cannot close")

    async def add(one: int, value: int) -> int:
        return one + value

    stream = from_iterable(range(5)).pipe(adaptive_flat_map(using(session)(add)))
    with pytest.raises(OSError, match="cannot close"):
        run_with(LocalCrew(2), stream)


def test_a_result_that_cannot_be_sent_is_an_error_that_says_so() -> None:
    stream = from_iterable([1]).pipe(adaptive_flat_map(lambda value: lambda: value))
    with pytest.raises(NotPicklable, match="the result of stage 2 'adaptive_flat_map' cannot be"):
        run_with(LocalCrew(2), stream)


@pytest.mark.parametrize("policy", ["skip", "revert", "route", "retry"])
def test_a_result_that_cannot_be_sent_is_a_failure_of_its_stage(policy: str) -> None:
    letters = MemorySink()
    on_error: dict[str, Any] = {"route": route(letters), "retry": retry(3, then=route(letters))}
    stream = from_iterable(range(6)).pipe(
        adaptive_flat_map(
            lambda value: (lambda: value) if value == 4 else value,
            on_error=on_error.get(policy, policy),
        )
    )
    results, report = run_with(LocalCrew(2), stream)
    assert sorted(results) == [0, 1, 2, 3, 5]
    numbers = report.statistics
    counted = {"skip": "skipped", "revert": "reverted"}.get(policy, "routed")
    assert numbers["stages"][1][counted] == 1
    assert (numbers["failed"], numbers["finished"], numbers["unfinished"]) == (1, 5, 0)
    assert numbers["errors"] == {"NotPicklable": 1}
    if policy in on_error:
        ((_, letter),) = letters.accepted
        assert (letter.value, letter.attempts) == (4, 1)


@pytest.mark.parametrize("policy", ["skip", "revert"])
@pytest.mark.parametrize("results", [1, 2])
def test_an_event_whose_handler_fails_is_counted_as_in_one_process(
    policy: Any, results: int
) -> None:
    async def handler(value: int) -> AsyncIterator[int]:
        if results == 2:
            yield value
        if value == 4:
            raise ValueError(value)
        yield value

    def outcome(crew: LocalCrew | None) -> Any:
        async def main() -> Report:
            stream = from_iterable(range(9)).pipe(adaptive_flat_map(handler, on_error=policy))
            async with stream.to(collect([])).start(workers=crew) as running:
                return await running.wait()

        numbers = run_virtual(main()).statistics
        return numbers["finished"], numbers["failed"], numbers["returned"], numbers["errors"]

    assert outcome(LocalCrew(2)) == outcome(None) == (8, 1, 0, {"ValueError": 1})


def test_events_of_a_killed_worker_that_the_limit_excludes_go_to_the_others() -> None:
    async def handler(value: int) -> int:
        await asyncio.sleep(10)
        return value

    async def main() -> list[int]:
        results: list[int] = []
        crew = LocalCrew(2)
        stream = from_iterable(range(4)).pipe(adaptive_flat_map(handler, limit=Fixed(2)))
        async with stream.to(collect(results)).start(workers=crew) as running:
            await asyncio.sleep(1)
            running.retune(Fixed(1))
            await asyncio.sleep(1)
            crew.kill(1)
            await asyncio.sleep(200)
            assert running.statistics()["unfinished"] == 0
        return results

    assert sorted(run_virtual(main())) == [0, 1, 2, 3]


def test_a_limit_that_falls_and_rises_while_no_call_ends_leaves_no_worker_without_slots() -> None:
    began: list[float] = []

    async def handler(value: int) -> int:
        began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(10)
        return value

    async def main() -> list[int]:
        results: list[int] = []
        stream = from_iterable(range(30)).pipe(adaptive_flat_map(handler, limit=Fixed(9)))
        async with stream.to(collect(results)).start(workers=LocalCrew(2)) as running:
            for limit in (1, 4):
                await asyncio.sleep(1)
                running.retune(Fixed(limit))
            await running.wait()
        return results

    assert sorted(run_virtual(main())) == list(range(30))
    assert [began.count(at) for at in (0, 10, 20)] == [9, 4, 4]


def test_one_of_several_results_that_cannot_be_sent_fails_its_event() -> None:
    async def handler(value: int) -> AsyncIterator[Any]:
        yield value
        if value == 1:
            yield lambda: value
        yield value

    stream = from_iterable(range(3)).pipe(adaptive_flat_map(handler, on_error="skip"))
    results, report = run_with(LocalCrew(1), stream)
    assert sorted(results) == [0, 0, 1, 1, 2, 2]
    assert (report.statistics["failed"], report.statistics["finished"]) == (1, 2)


def test_results_that_cannot_be_sent_fail_the_first_and_return_the_others() -> None:
    async def main() -> Report:
        stream = from_iterable(range(6)).pipe(
            group_by(lambda value: 0), spread(), adaptive_flat_map(lambda value: lambda: value)
        )
        running = stream.to(collect([])).start(workers=LocalCrew(2))
        with pytest.raises(NotPicklable):
            await running.wait()
        return running.report()

    numbers = run_virtual(main()).statistics
    assert (numbers["in"], numbers["failed"], numbers["returned"]) == (6, 1, 5)


def test_an_event_that_cannot_be_sent_is_an_error_that_says_so() -> None:
    stream = from_iterable([1, lambda: 2]).pipe(adaptive_flat_map(str))
    with pytest.raises(NotPicklable, match="an event cannot be sent to another process"):
        run_with(LocalCrew(2), stream)


def test_a_cancelled_pipeline_returns_everything() -> None:
    async def cancel(running: Running) -> None:
        await asyncio.sleep(0.05)
        running.cancel()

    stream = from_iterable(events(10, 100)).pipe(
        group_by(client_of), spread(), adaptive_flat_map(Handler(), limit=Fixed(4))
    )
    results, report = run_with(LocalCrew(2, random_delay(10, 0.005)), stream, cancel)
    numbers = report.statistics
    assert report.exit_status == 5
    assert numbers["unfinished"] == 0
    assert numbers["finished"] == len(results)
    assert numbers["returned"] == numbers["in"] - numbers["finished"] > 0


def test_a_drain_finishes_what_is_in() -> None:
    async def drain(running: Running) -> None:
        await asyncio.sleep(0.05)
        running.begin_drain(10, by_signal=True)

    stream = from_iterable(events(10, 1000)).pipe(
        group_by(client_of, buffer=40), spread(), adaptive_flat_map(Handler(), limit=Fixed(4))
    )
    results, report = run_with(LocalCrew(2, random_delay(11, 0.005)), stream, drain)
    assert 0 < len(results) == report.statistics["in"] == report.statistics["finished"] < 10_000
    assert report.exit_status == 4


@pytest.mark.parametrize("buffer", [4, 60])
@pytest.mark.parametrize("plain", [False, True])
def test_no_more_is_read_than_the_stages_hold_in_one_process(buffer: int, plain: bool) -> None:
    read = most = 0
    sink = MemorySink(seconds=0.01)

    def reading() -> Iterator[Event]:
        nonlocal read, most
        for event in events(20, 60):
            read += 1
            most = max(most, read - len(sink.values))
            yield event

    handler: Any = (lambda event: event) if plain else Handler(seconds=0.001)
    stream = from_iterable(reading).pipe(
        group_by(client_of, buffer=buffer),
        spread(),
        adaptive_flat_map(handler, limit=Fixed(4), window=6),
    )
    pipeline = stream.to(sink)

    async def main() -> Report:
        async with pipeline.start(workers=LocalCrew(2, random_delay(3, 0.003))) as running:
            return await running.wait()

    assert run_virtual(main()).exit_status == 0
    # Those that the stages hold, and the ones that the sink has in its hands.
    holds = section_of(stream.chain()).bound()
    assert holds is not None
    assert holds // 2 < most <= holds + 1


# Workers that end.


@pytest.mark.parametrize("seed", range(6))
def test_a_worker_that_dies_loses_nothing_and_breaks_no_order(seed: int) -> None:
    handler, sent = Handler(seed, 0.002), events(8, 40)
    crew = LocalCrew(3, random_delay(seed, 0.003))
    draw = random.Random(seed)

    async def kill(_: Running) -> None:
        for _ in range(4):
            await asyncio.sleep(draw.uniform(0, 0.05))
            if crew.alive:
                crew.kill(draw.choice(crew.alive))

    stream = from_iterable(sent).pipe(
        group_by(client_of, buffer=60), spread(), adaptive_flat_map(handler, limit=Fixed(5))
    )
    results, report = run_with(crew, stream, kill)
    assert sorted(results) == sorted(sent)
    assert in_order(results)
    assert report.statistics["finished"] == len(sent)
    assert crew.started > 3


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("parallel", [1, 3])
def test_a_worker_of_batches_that_dies_loses_nothing(parallel: int, keyed: bool) -> None:
    handler, sent = Handler(5, 0.002), events(8, 40)
    crew = LocalCrew(2, random_delay(5, 0.003))

    async def work(some: list[Event]) -> list[Event]:
        return [await handler(event) for event in some]

    async def kill(_: Running) -> None:
        for _ in range(4):
            await asyncio.sleep(0.1)
            crew.kill(crew.alive[0])

    grouped = [group_by(client_of), spread()] if keyed else []
    stream = from_iterable(sent).pipe(*grouped, batch(work, 8, parallel=parallel))
    results, report = run_with(crew, stream, kill)
    assert sorted(results) == sorted(sent)
    assert report.statistics["finished"] == len(sent)
    assert handler.most <= parallel
    assert crew.started >= 4


def test_what_workers_that_have_ended_had_is_not_counted_as_waiting() -> None:
    handler, sent = Handler(3, 0.002), events(30, 10)
    crew = LocalCrew(2, random_delay(3, 0.003))

    async def kill(_: Running) -> None:
        for _ in range(5):
            # Longer than from one report of a worker to the next.
            await asyncio.sleep(0.21)
            crew.kill(crew.alive[0])

    stream = from_iterable(sent).pipe(
        group_by(client_of), spread(), adaptive_flat_map(handler, limit=Fixed(1))
    )
    results, report = run_with(crew, stream, kill)
    assert sorted(results) == sorted(sent)
    _, grouping, spreading, working, _ = report.statistics["stages"]
    assert (grouping["waiting"], grouping["groups"], spreading["ready"]) == (0, 0, 0)
    assert (working["waiting"], working["in_flight"], working["undelivered"]) == (0, 0, 0)
    # Each of two had them all at the most, however often one was started again.
    assert grouping["peak_groups"] <= 2 * 30
    assert 2 < len(grouping["by_worker"]) <= crew.started


def test_a_plain_handler_is_in_a_call_in_each_worker_that_has_events() -> None:
    def handler(value: int) -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        # Its worker reports between two calls, in which it has none in flight.
        loop.advance(0.05)
        return value

    seen: list[int] = []

    async def look(running: Running) -> None:
        for _ in range(20):
            await asyncio.sleep(0.1)
            numbers = running.statistics()
            if numbers["finished"] < 50:
                seen.append(numbers["in_flight"])

    stream = from_iterable(range(100)).pipe(adaptive_flat_map(handler))
    _, report = run_with(LocalCrew(2), stream, look)
    assert set(seen) == {2}
    assert report.statistics["in_flight"] == 0


def test_the_stages_of_all_workers_never_hold_more_than_their_bound() -> None:
    handler, sent = Handler(3, 0.002), events(600, 10)
    stream = from_iterable(sent).pipe(
        group_by(client_of, buffer=200), spread(), adaptive_flat_map(handler, limit=Fixed(50))
    )
    results, report = run_with(LocalCrew(2), stream)
    assert sorted(results) == sorted(sent)
    grouping = report.statistics["stages"][1]
    # All that the section has unfinished: 200 events, and those of 50 calls with their results.
    assert grouping["peak"] <= grouping["bound"] == 200 + 50 + 256


def plainly_exits(value: int) -> int:
    if value == 30:
        raise SystemExit(3)
    return value


def exits_after_a_slice(value: int) -> int:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.advance(0.01)
    return plainly_exits(value)


@pytest.mark.parametrize("handler", [plainly_exits, exits_after_a_slice])
def test_a_handler_that_exits_ends_the_pipeline_as_in_one_process(handler: Any) -> None:
    stream = from_iterable(range(40)).pipe(
        adaptive_flat_map(handler, limit=Fixed(4), on_error="skip")
    )

    async def main() -> Report:
        running = stream.to(collect([])).start(workers=LocalCrew(2))
        with pytest.raises(SystemExit) as error:
            await running.wait()
        assert error.value.code == 3
        assert "on the event 30" in error.value.__notes__[0]
        return running.report()

    report = run_virtual(main())
    assert report.statistics["unfinished"] == 0
    assert report.statistics["returned"] >= 1
    assert report.exit_status == 1


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_an_event_that_kills_its_worker_three_times_is_an_error_of_its_stage(
    on_error: Any,
) -> None:
    crew = LocalCrew(2)
    killed: list[int] = []

    async def deadly(value: int) -> int:
        await asyncio.sleep(0.001)
        if value == 7:
            killed.append(value)
            # Whichever worker has it.
            for worker in crew.alive:
                if 7 in crew.values(worker):
                    crew.kill(worker)
            await asyncio.sleep(1)
        return value

    stream = from_iterable(range(40)).pipe(
        adaptive_flat_map(deadly, limit=Fixed(4), on_error=on_error)
    )
    if on_error == "stop":
        with pytest.raises(WorkerLost, match="ended 3 times while it worked on this event"):
            run_with(crew, stream)
    else:
        results, report = run_with(crew, stream)
        assert sorted(results) == [value for value in range(40) if value != 7]
        assert report.statistics["failed"] == 1
    assert len(killed) == 3


def test_a_worker_that_hangs_is_reported_once_with_its_event_and_stage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    crew = LocalCrew(2)
    into: list[Event] = []
    silent: list[Any] = []

    async def main() -> None:
        handler = Handler(seconds=1.0)
        stream = from_iterable(events(4, 5)).pipe(
            group_by(client_of), spread(), adaptive_flat_map(handler, limit=Fixed(4))
        )
        running = stream.to(collect(into)).start(workers=crew)
        await asyncio.sleep(0.5)
        crew.silence(1)
        await asyncio.sleep(100)
        silent.extend(running.stage_statistics(4)["silent_workers"])
        assert running.report().outcome == "running"
        running.cancel()
        crew.kill(1)

    run_virtual(main())
    (said,) = caplog.messages
    assert said.startswith(
        "worker process 2 of 2 (pid 1002) has said nothing for 4 s: it was stopped, or a call of "
        "stage 4 'adaptive_flat_map' does not let go of the interpreter. It is held up perhaps by "
    )
    assert " events, of which the first that it was sent is (1, 0). " in said
    assert (
        " kill -9 1002 gives its events to another process, and an event that has ended 3 " in said
    )
    assert [
        (one["worker"], one["pid"], one["seconds"] > 90, one["events"] > 0) for one in silent
    ] == [(2, 1002, True, True)]


def test_a_process_in_place_of_a_silent_one_is_reported_as_soon_if_the_event_holds_it_up_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    crew = LocalCrew(2)
    into: list[Event] = []

    async def main() -> None:
        handler = Handler(seconds=1.0)
        stream = from_iterable(events(4, 5)).pipe(
            group_by(client_of),
            spread(),
            adaptive_flat_map(handler, limit=Fixed(4), on_error="skip"),
        )
        running = stream.to(collect(into)).start(workers=crew)
        await asyncio.sleep(0.5)
        for _ in range(3):
            crew.silence(1)
            await asyncio.sleep(30)
            crew.kill(1)
            # The next one has had the time to begin.
            await asyncio.sleep(0.1)
        await running.wait()

    run_virtual(main())
    assert sorted(into) == [one for one in sorted(events(4, 5)) if one != (2, 0)]
    said = [text for text in caplog.messages if "has said nothing" in text]
    assert [text.partition(": ")[0] for text in said] == [
        f"worker process 2 of 2 (pid {pid}) has said nothing for 4 s" for pid in (1002, 1003, 1004)
    ]
    assert [" by its only event, (2, 0). " in text for text in said] == [False, True, True]


def test_while_a_worker_is_silent_new_keys_go_to_the_others_and_its_own_keep_their_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    crew = LocalCrew(3)
    source: Inbox[Event] = inbox(64)
    into: list[Event] = []
    ended: list[int] = []
    silent: list[Any] = []
    six = events(6, 6)

    async def main() -> None:
        handler = Handler(seconds=0.01)
        stream = source.pipe(
            group_by(client_of), spread(), adaptive_flat_map(handler, limit=Fixed(6))
        )
        async with stream.to(collect(into)).start(workers=crew) as running:
            for event in six[:18]:
                await source.put(event)
            await asyncio.sleep(1)
            crew.freeze(1)
            for event in six[18:]:
                await source.put(event)
            await asyncio.sleep(10)
            ended.append(len(into))
            for client in range(100, 160):
                await source.put((client, 0))
            await asyncio.sleep(5)
            ended.append(len(into))
            crew.thaw(1)
            await asyncio.sleep(5)
            silent.extend(running.stage_statistics(4)["silent_workers"])

    run_virtual(main())
    before, after = ended
    assert 18 < before < 36
    assert (after, len(into), silent) == (before + 60, 96, [])
    for client in range(6):
        assert [number for one, number in into if one == client] == list(range(6))
    assert [text.partition(": ")[0] for text in caplog.messages] == [
        "worker process 2 of 3 (pid 1002) has said nothing for 4 s",
        "worker process 2 of 3 (pid 1002) goes on after 15 s",
    ]


def test_a_worker_that_has_begun_nothing_accuses_no_event(caplog: pytest.LogCaptureFixture) -> None:
    class WorkerFactory(LocalCrew):
        def open(self, *args: Any) -> Any:
            link = super().open(*args)
            if self.started <= 2:
                self.kill(0)
            return link

    crew = WorkerFactory(1)
    stream = from_iterable(events(1, 3)).pipe(adaptive_flat_map(Handler()))
    into, report = run_with(crew, stream)
    assert (len(into), report.outcome) == (3, "completed")
    assert caplog.messages == ["a worker process ended by a test; another one is started"] * 2


async def once(value: int) -> int:
    return value


async def twice(value: int) -> AsyncIterator[int]:
    yield value
    yield value


@pytest.mark.parametrize(
    ("stages", "each"),
    [
        ((adaptive_flat_map(once),), 1),
        ((adaptive_flat_map(twice),), 2),
        ((adaptive_flat_map(once), ops.filter(lambda _: False)), 0),
    ],
)
@pytest.mark.parametrize("pause", [1.0, 20.0], ids=["between events", "while nothing comes"])
def test_a_worker_that_is_killed_while_it_has_nothing_to_do_is_replaced_however_often(
    stages: tuple[Any, ...], each: int, pause: float
) -> None:
    crew = LocalCrew(1)

    async def slow_source() -> AsyncIterator[int]:
        for value in range(10):
            yield value
            await asyncio.sleep(pause)

    async def killing(_: Running) -> None:
        await asyncio.sleep(0.5)
        for _ in range(8):
            crew.kill(0)
            await asyncio.sleep(1)

    results, report = run_with(crew, from_async_iterable(slow_source()).pipe(*stages), killing)
    assert crew.started == 9
    assert results == [value for value in range(10) for _ in range(each)]
    assert report.exit_status == 0


def test_the_peak_of_calls_in_all_workers_is_no_more_than_their_limit() -> None:
    async def hot_then_cold() -> AsyncIterator[Event]:
        for client in (0, 1):
            for number in range(20):
                yield (client, number)
            await asyncio.sleep(1)

    stream = from_async_iterable(hot_then_cold()).pipe(adaptive_flat_map(Handler(), limit=Fixed(4)))
    _, report = run_with(LocalCrew(3), stream)
    assert report.statistics["stages"][1]["peak_in_flight"] == 4


def test_a_worker_that_cannot_be_started_stops_the_pipeline() -> None:
    class WorkerFactory(LocalCrew):
        def open(self, *args: Any) -> Any:
            if self.started:
                raise OSError("no more processes")
            return super().open(*args)

    stream = from_iterable(events(4, 5)).pipe(adaptive_flat_map(Handler()))
    with pytest.raises(WorkerLost, match="cannot be started: no more processes"):
        run_with(WorkerFactory(2), stream)
