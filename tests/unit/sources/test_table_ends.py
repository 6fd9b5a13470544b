"""When a reader that does not follow has nothing left to do, and what it waits for until then."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import orjson
import pytest
from reactivex import operators as ops

from penstock import Backoff, Fixed, adaptive_flat_map, chunk, collect, read_table
from penstock.streams.sql_queue import ClaimTerms, Failure, Settlement, Store, open_store
from penstock.streams.sql_queue.reader import TableReader
from tests.helpers.until import until


async def queue(url: str, count: int) -> Store:
    store = open_store(url)
    await store.open()
    await store.put([orjson.dumps({"n": n, "key": n % 2}) for n in range(1, count + 1)])
    return store


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def read(url: str, **options: Any) -> list[int]:
    values: list[dict[str, Any]] = []
    stream = read_table(url, follow=False, poll=0.05, **options)
    report = await stream.to(collect(values)).run()
    assert report.outcome == "completed"
    return [number_of(value) for value in values]


def number_of(event: dict[str, Any]) -> int:
    return int(event["n"])


@pytest.mark.parametrize("by", [None, "key"])
def test_rows_of_a_dead_reader_are_waited_for_and_that_is_said(
    database: str, by: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        store = await queue(database, 6)
        await store.claim(4, ClaimTerms("dead", lease=0.5, by=by))
        assert sorted(await read(database, by=by)) == [1, 2, 3, 4, 5, 6]
        await store.close()

    run(work())
    (told,) = caplog.messages
    assert told.startswith("read_table: waiting for rows elsewhere: 4 in work at dead (lease of ")


def test_rows_of_a_reader_that_lives_are_waited_for_until_it_has_done_them(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def waits() -> bool:
        return bool(caplog.messages)

    async def work() -> None:
        store = await queue(database, 4)
        terms = ClaimTerms("alive", lease=60.0)
        rows = (await store.claim(2, terms)).rows
        reading = asyncio.ensure_future(read(database))

        await until(waits)
        # One is done, the other is given back.
        assert await store.settle(Settlement([rows[0]], returned=[rows[1]]), terms) == []
        assert await reading == [3, 4, 2]
        await store.close()

    run(work())


@pytest.mark.parametrize("by", [None, "key"])
def test_a_row_that_another_reader_reverted_is_waited_for(database: str, by: str | None) -> None:
    async def work() -> None:
        store = await queue(database, 4)
        terms = ClaimTerms("another", by=by)
        (row,) = (await store.claim(1, terms)).rows
        assert await store.settle(Settlement(failed=[Failure(row, "later", 0.3)]), terms) == []
        assert sorted(await read(database, by=by)) == [1, 2, 3, 4]
        await store.close()

    run(work())


def test_rows_of_others_can_be_left_to_them_and_that_is_said(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        store = await queue(database, 6)
        await store.claim(4, ClaimTerms("another"))
        assert await read(database, wait_for_leases=False) == [5, 6]
        await store.close()

    run(work())
    (told,) = caplog.messages
    assert told.startswith("read_table: ended without rows elsewhere: 4 in work at another")


def test_rows_that_are_due_another_day_are_not_waited_for(database: str) -> None:
    async def work() -> None:
        store = await queue(database, 2)
        await store.put([b'{"n": 3}'], delay=86_400.0)
        assert await read(database) == [1, 2]
        await store.close()

    run(work())


def test_two_readers_that_hold_rows_until_their_ends_do_not_wait_for_each_other(
    database: str,
) -> None:
    async def total(name: str) -> float:
        values: list[float] = []
        stream = read_table(database, follow=False, poll=0.05, lease=0.5, batch=5, name=name).pipe(
            ops.map(lambda event: int(event["n"])), ops.sum()
        )
        await stream.to(collect(values)).run()
        return sum(values)

    async def work() -> None:
        store = await queue(database, 40)
        async with asyncio.timeout(20):
            totals = await asyncio.gather(total("one"), total("two"))
        assert sum(totals) == sum(range(1, 41))
        await store.close()

    run(work())


@pytest.mark.parametrize("by", [None, "key"])
def test_suspects_of_one_key_that_an_operator_holds_until_the_end_are_all_claimed(
    database: str, by: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not for a short lease: on a busy machine that would run out, and the suspect be dead.
    monkeypatch.setattr(TableReader, "_still", 0.1)

    async def work() -> None:
        store = await queue(database, 0)
        await store.put([orjson.dumps({"n": n, "key": "k"}) for n in range(1, 6)])
        await store.claim(3, ClaimTerms("crashed", lease=0.0, attempts=2, by=by))
        lists: list[list[dict[str, Any]]] = []
        rows = read_table(database, by=by, attempts=2, poll=0.05, follow=False)
        async with asyncio.timeout(20):
            report = await rows.pipe(ops.to_list()).to(collect(lists)).run()
        assert [number_of(event) for event in lists[0]] == [1, 2, 3, 4, 5]
        assert report.statistics["finished"] == 5
        found = await store.query("SELECT {status} FROM {rows} AS t")
        assert found == [(1,)] * 5
        await store.close()

    run(work())


@pytest.mark.parametrize("by", [None, "key"])
def test_a_suspect_that_takes_longer_than_its_lease_is_not_joined_by_another_one(
    database: str, by: str | None
) -> None:
    working: list[int] = []
    together: list[int] = []

    async def slow(event: dict[str, Any]) -> None:
        working.append(number_of(event))
        await asyncio.sleep(0.6)
        together.append(len(working))
        working.remove(number_of(event))

    async def work() -> None:
        store = await queue(database, 0)
        await store.put([orjson.dumps({"n": n, "key": "k"}) for n in range(2)])
        await store.claim(2, ClaimTerms("crashed", lease=0.0, attempts=2, by=by))
        rows = read_table(database, by=by, attempts=2, lease=0.2, poll=0.05, follow=False)
        await rows.pipe(adaptive_flat_map(slow, limit=Fixed(4))).to(collect([])).run()
        await store.close()

    run(work())
    assert together == [1, 1]


@pytest.mark.parametrize("by", [None, "key"])
def test_rows_that_fail_when_the_reader_has_ended_are_left_to_the_next_run_and_that_is_said(
    database: str, by: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[int] = []

    def fails_once(events: list[dict[str, Any]]) -> list[int]:
        numbers = [number_of(event) for event in events]
        tried.append(len(numbers))
        if 5 in numbers and len(tried) == 2:
            raise ValueError("not yet")
        return numbers

    async def work() -> None:
        store = await queue(database, 6)
        lists: list[list[int]] = []
        rows = read_table(database, by=by, backoff=Backoff(0.01, cap=0.01), follow=False)
        stages = chunk(4), adaptive_flat_map(fails_once, on_error="revert")
        report = await rows.pipe(*stages).to(collect(lists)).run()
        assert (report.outcome, report.exit_status) == ("incomplete", 5)
        assert report.statistics["returned"] == 2
        assert any(told.startswith("2 events failed after") for told in caplog.messages)
        await asyncio.sleep(0.02)
        report = await rows.pipe(*stages).to(collect(lists)).run()
        assert (report.outcome, report.exit_status) == ("completed", 0)
        assert sorted(number for numbers in lists for number in numbers) == [1, 2, 3, 4, 5, 6]
        await store.close()

    run(work())


@pytest.mark.parametrize("by", [None, "key"])
def test_a_row_that_fails_behind_take_is_left_to_the_next_run_and_that_is_said(
    database: str, by: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def second_fails(event: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        if event["n"] == 2:
            raise ValueError("not yet")
        return event

    async def work() -> None:
        store = await queue(database, 3)
        rows = read_table(database, by=by, follow=False)
        stages = ops.take(3), adaptive_flat_map(second_fails, Fixed(1), on_error="revert")
        report = await rows.pipe(*stages).to(collect([])).run()
        assert (report.outcome, report.exit_status) == ("incomplete", 5)
        assert any(told.startswith("1 event failed after") for told in caplog.messages)
        await store.close()

    run(work())


def test_rows_that_take_did_not_want_are_not_left_over(database: str) -> None:
    async def work() -> None:
        store = await queue(database, 9)
        stages = adaptive_flat_map(number_of, Fixed(4)), ops.take(3)
        report = await read_table(database, follow=False).pipe(*stages).to(collect([])).run()
        assert (report.outcome, report.exit_status) == ("completed", 0)
        await store.close()

    run(work())
