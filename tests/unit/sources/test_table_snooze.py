"""Rows that are snoozed, dead at once, of other kinds, or in a paused queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    Running,
    Snooze,
    adaptive_flat_map,
    batch,
    collect,
    from_iterable,
    group_by,
    read_table,
    retry,
    spread,
    write_table,
)
from penstock.streams.base.errors import BadArgument, BuildError
from penstock.streams.failures.backoff import Backoff
from penstock.streams.sql_queue import ClaimTerms, Failure, Settlement, Store, open_store
from penstock.streams.sql_queue.analytics.statistics import measure
from penstock.streams.sql_queue.schema import Required
from tests.helpers.until import until

SOON = Backoff(0.01, cap=0.01)
Values = list[dict[str, Any]]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncGenerator[Store, None]:
    store = open_store(url, **options)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


async def put(url: str, values: Values) -> None:
    await from_iterable(values).to(write_table(url)).run()


def is_paused(running: Running) -> bool:
    stages = running.statistics()["stages"]
    return bool(stages and stages[0]["paused"])


async def ends(store: Store) -> list[tuple[Any, ...]]:
    return await store.query(
        "SELECT {id}, {status}, {attempts}, {error} FROM {table} ORDER BY {id}"
    )


@pytest.mark.parametrize("on_error", ["stop", "skip", "revert", retry(3, SOON, then="skip")])
@pytest.mark.parametrize("stage", ["flat_map", "batch"])
def test_a_row_that_is_snoozed_comes_again_without_an_attempt_more_whatever_the_policy(
    database: str, stage: str, on_error: Any
) -> None:
    seen: list[int] = []

    async def handler(value: dict[str, Any]) -> int:
        seen.append(value["n"])
        if value["n"] == 2 and seen.count(2) < 4:
            raise Snooze(0.01)
        return int(value["n"])

    async def each(values: Values) -> list[int]:
        return [await handler(value) for value in values]

    async def work() -> None:
        await put(database, [{"n": n} for n in (1, 2, 3)])
        working: Any = (
            adaptive_flat_map(handler, on_error=on_error)
            if stage == "flat_map"
            else batch(each, 1, on_error=on_error)
        )
        done: list[int] = []
        source = read_table(database, attempts=2, follow=False)
        report = await source.pipe(working).to(collect(done)).run()
        assert sorted(done) == [1, 2, 3]
        assert seen.count(2) == 4
        assert report.outcome == "completed"
        assert report.statistics["failed"] == 0
        numbers = report.statistics["stages"][0]
        assert (numbers["snoozed"], numbers["reverted"], numbers["dead"]) == (3, 0, 0)
        async with opened(database) as store:
            assert await ends(store) == [(1, 1, 1, None), (2, 1, 1, None), (3, 1, 1, None)]

    run(work())


def test_later_rows_of_a_key_wait_for_one_that_is_snoozed(database: str) -> None:
    seen: list[tuple[str, int]] = []

    async def handler(value: dict[str, Any]) -> None:
        seen.append((value["key"], value["n"]))
        if value["n"] == 1 and seen.count((value["key"], 1)) == 1:
            raise Snooze(0.05)

    async def work() -> None:
        await put(database, [{"key": key, "n": n} for n in (1, 2, 3) for key in "ab"])
        source = read_table(database, by="key", follow=False)
        done: list[Any] = []
        pipeline = source.pipe(group_by("key"), spread(), adaptive_flat_map(handler))
        await pipeline.to(collect(done)).run()
        for key in "ab":
            assert [n for one, n in seen if one == key] == [1, 1, 2, 3]

    run(work())


def test_a_row_that_failed_before_keeps_its_error_and_attempts_when_it_is_snoozed(
    database: str,
) -> None:
    terms = ClaimTerms("me", attempts=2)

    async def work() -> None:
        async with opened(database) as store:
            await store.put(["{}"])
            for failure in (("boom", False), ("", True), ("", True)):
                (row,) = (await store.claim(1, terms)).rows
                ending = Failure(row, failure[0], 0.0, snoozed=failure[1])
                assert await store.settle(Settlement(failed=[ending]), terms) == []
                assert await ends(store) == [(1, 0, 1, "boom")]
            stats = await measure(store, 60)
            assert (stats.waiting, stats.failed, stats.snoozed) == (0, 1, 0)

    run(work())


def test_the_statistics_of_a_queue_count_the_rows_that_are_snoozed(database: str) -> None:
    async def work() -> None:
        async with opened(database) as store:
            await store.put(["{}"] * 4)
            rows = (await store.claim(3, ClaimTerms("me"))).rows
            endings = [Failure(row, "", 90.0, snoozed=True) for row in rows[:2]]
            ending = Settlement(failed=endings, returned=rows[2:])
            assert await store.settle(ending, ClaimTerms("me")) == []
            stats = await measure(store, 60)
            assert (stats.waiting, stats.delayed, stats.snoozed) == (4, 2, 2)

    run(work())


def test_with_a_source_that_cannot_give_an_event_again_snooze_is_an_error() -> None:
    def handler(value: int) -> int:
        raise Snooze(1)

    pipeline = from_iterable([1]).pipe(adaptive_flat_map(handler)).to(collect([]))
    with pytest.raises(Snooze, match="again in 1 s"):
        asyncio.run(pipeline.run())


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "1", True, None])
def test_snooze_takes_seconds(seconds: Any) -> None:
    with pytest.raises(BadArgument, match="seconds, or a timedelta, of 0 or more"):
        Snooze(seconds)


def test_snooze_takes_a_timedelta() -> None:
    assert Snooze(timedelta(minutes=2)).seconds == 120.0


def test_some_types_of_errors_make_a_row_dead_at_once_while_others_are_tried_again(
    database: str,
) -> None:
    def handler(value: dict[str, Any]) -> None:
        raise {1: KeyError, 2: ValueError, 3: UnicodeError}[value["n"]]("no")

    async def work() -> None:
        await put(database, [{"n": n} for n in (1, 2, 3)])
        source = read_table(database, dead_on=ValueError, attempts=3, backoff=SOON, follow=False)
        pipeline = source.pipe(adaptive_flat_map(handler, on_error="revert"))
        report = await pipeline.to(collect([])).run()
        assert report.statistics["failed"] == 3
        async with opened(database) as store:
            found = await ends(store)
        assert [(status, attempts) for _, status, attempts, _ in found] == [
            (-1, 3),
            (-1, 1),
            (-1, 1),
        ]

    run(work())


def test_a_reader_claims_only_rows_of_its_kinds(database: str) -> None:
    async def work() -> None:
        kinds = ["mail", "bill", None, "sms", "mail"]
        await put(database, [{"n": n, "kind": kind} for n, kind in enumerate(kinds)])
        done: Values = []
        for only in ({"kind": ["sms", "mail"]}, {"kind": "bill"}):
            await read_table(database, only=only, follow=False).to(collect(done)).run()
        assert [one["n"] for one in done] == [0, 3, 4, 1]
        async with opened(database) as store:
            assert (await measure(store, 60)).waiting == 1

    run(work())


def test_kinds_of_rows_may_be_in_a_column_and_expired_leases_are_only_taken_of_ones_own(
    database: str,
) -> None:
    async def work() -> None:
        async with opened(database) as store:
            await store.query("ALTER TABLE {table} ADD COLUMN kind text")
            await store.put(["{}"] * 4)
            await store.query(
                "UPDATE {table} SET kind = CASE WHEN {id} < 3 THEN 'a%' ELSE 'b{{' END"
            )
            gone = ClaimTerms("gone", lease=0.0)
            assert len((await store.claim(9, gone)).rows) == 4
        mine = open_store(database)
        await mine.open(Required(only=("kind", ["b{"])))
        assert [row.id for row in (await mine.claim(9, ClaimTerms("me"))).rows] == [3, 4]
        await mine.close()

    run(work())


def test_a_reader_of_one_kind_does_not_wait_for_others_of_another(database: str) -> None:
    async def work() -> None:
        await put(database, [{"kind": "bill"}, {"kind": "mail"}])
        async with opened(database) as store:
            assert len((await store.claim(1, ClaimTerms("other"))).rows) == 1
            done: Values = []
            await read_table(database, only={"kind": "mail"}, follow=False).to(collect(done)).run()
            assert done == [{"kind": "mail"}]

    run(work())


@pytest.mark.parametrize("by", [None, "key"])
def test_no_reader_claims_anything_of_a_paused_queue_and_all_go_on_when_it_is_resumed(
    database: str, by: str | None
) -> None:
    async def work() -> None:
        done: Values = []
        async with opened(database) as store:
            await store.pause(True)
            assert (await measure(store, 60)).paused
            await store.put(['{"key": 1}'] * 3)
            source = read_table(database, by=by, poll=0.05)
            async with source.to(collect(done)).start() as running:
                await until(lambda: is_paused(running))
                await asyncio.sleep(0.2)
                assert done == []
                assert running.statistics()["stages"][0]["claims"] == 0
                await store.pause(False)
                await until(lambda: len(done) == 3)
                await running.drain()
            assert not (await measure(store, 60)).paused
            await store.pause(False)

    run(work())


def test_a_reader_that_ends_when_nothing_is_left_waits_while_the_queue_is_paused(
    database: str,
) -> None:
    async def work() -> None:
        done: Values = []
        async with opened(database) as store:
            await store.put(["{}"])
            await store.pause(True)
            running = read_table(database, follow=False).to(collect(done)).start()
            async with running:
                await until(lambda: is_paused(running))
                await store.pause(False)
                await running.wait()
        assert done == [{}]

    run(work())


@pytest.mark.parametrize(
    "options",
    [
        {"only": "mail"},
        {"only": {}},
        {"only": {"a": "b", "c": "d"}},
        {"only": {"a": []}},
        {"only": {"a": [1]}},
        {"dead_on": 1},
        {"dead_on": (ValueError, KeyboardInterrupt)},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BuildError, match=next(iter(options))):
        read_table("sqlite:///x.db", **options)
