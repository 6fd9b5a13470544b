from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from string import ascii_letters
from typing import Any
from uuid import UUID

import orjson
import psycopg
import pytest
from reactivex import operators as ops

from penstock import (
    Flowable,
    adaptive_flat_map,
    collect,
    dead_letters,
    for_each,
    group_by,
    read_table,
    spread,
    write_table,
)
from penstock.streams.base.errors import BuildError, CannotOpen, MissingExtra, TableMissing
from penstock.streams.failures.backoff import Backoff
from penstock.streams.failures.policy import retry, route
from penstock.streams.limits import Fixed
from penstock.streams.pipelines.running import Report
from penstock.streams.sql_queue import ClaimTerms, Settlement, Store, open_store
from penstock.streams.sql_queue.ledger import Ledger
from penstock.streams.testing import Probe
from tests.helpers.beside import use_own
from tests.helpers.until import until

SOON = Backoff(0.01, cap=0.01)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@pytest.fixture(params=["ordinary", "beside"], autouse=True)
def beside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the queue is beside a user's table: everything is the same."""
    if request.param == "beside":
        use_own(sys.modules[__name__], monkeypatch)
    return bool(request.param == "beside")


@asynccontextmanager
async def queue(url: str, count: int = 0, table: str = "queue") -> AsyncGenerator[Store, None]:
    """A queue with a number of rows."""
    store = open_store(url, table)
    await store.open()
    try:
        await store.put([orjson.dumps({"n": n, "key": n % 3}) for n in range(count)])
        yield store
    finally:
        await store.close()


async def statuses(store: Store) -> list[int]:
    return [
        status for (status,) in await store.query("SELECT {status} FROM {rows} AS t ORDER BY {id}")
    ]


async def attempts(store: Store) -> list[int]:
    return [
        count for (count,) in await store.query("SELECT {attempts} FROM {rows} AS t ORDER BY {id}")
    ]


async def payloads(store: Store) -> list[Any]:
    rows = await store.query("SELECT {own_payload} FROM {own} ORDER BY {own_id}")
    return [orjson.loads(text) if isinstance(text, str) else text for (text,) in rows]


def number(event: dict[str, Any]) -> int:
    return int(event["n"])


async def numbers_of(source: Flowable[dict[str, Any]]) -> tuple[list[int], Report]:
    values: list[dict[str, Any]] = []
    report = await source.to(collect(values)).run()
    return [number(value) for value in values], report


def source_numbers(report: Report) -> dict[str, Any]:
    numbers: dict[str, Any] = report.statistics["stages"][0]
    return numbers


def test_each_row_becomes_an_event_and_is_processed_when_that_has_finished(database: str) -> None:
    async def work() -> None:
        async with queue(database, 1500) as store:
            values, report = await numbers_of(read_table(database, follow=False))
            assert values == list(range(1500))
            assert await statuses(store) == [1] * 1500
            assert report.exit_status == 0
            assert report.statistics["in"] == report.statistics["finished"] == 1500

    run(work())


def test_rows_that_wait_are_counted_while_it_is_recorded(database: str) -> None:
    async def work() -> None:
        async def never(_: Any) -> None:
            await asyncio.Event().wait()

        async with queue(database, 1500) as store:
            # One row is not due, and those that a reader has claimed do not wait.
            await store.put([orjson.dumps({"n": 1500})], delay=3600)
            stream = read_table(database, batch=10).pipe(adaptive_flat_map(never, Fixed(1)))
            running = stream.to(collect([])).start()
            running.record()
            await asyncio.sleep(0)
            assert not running.is_ready
            await until(lambda: source_numbers(running.report())["pending"] is not None)
            assert running.is_ready
            numbers = source_numbers(running.report())
            assert 1500 - 200 <= numbers["pending"] <= 1500
            running.begin_drain()
            assert not running.is_ready
            running.cancel()
            await running.wait()

        async with queue(database, 10):
            _, report = await numbers_of(read_table(database, follow=False))
            assert source_numbers(report)["pending"] is None

    run(work())


def test_the_progress_through_a_table_is_known_while_it_is_recorded(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = "penstock.streams.sql_queue.reader._COUNTED_EVERY"
    monkeypatch.setattr(every, 0.01)

    async def work() -> None:
        go_on = asyncio.Event()

        async def held(value: Any) -> Any:
            await go_on.wait()
            return value

        def has_emitted_of(rows: int, numbers: dict[str, Any]) -> bool:
            pending = numbers["pending"]
            if pending is None or pending == rows:
                return False
            return bool(numbers["emitted"] == numbers["in"] / rows)

        async with queue(database, 1000):
            stream = read_table(database, batch=10, follow=False)
            running = stream.pipe(adaptive_flat_map(held, Fixed(1))).to(collect([])).start()
            running.record()
            await asyncio.sleep(0)
            assert running.statistics()["progress"] is None
            # Rows that are being claimed while they are counted come right with a later count.
            await until(lambda: has_emitted_of(1000, source_numbers(running.report())))
            assert running.statistics()["progress"] == 0
            # Most rows that were counted go to another reader, and are not counted again.
            monkeypatch.setattr(every, 3600)
            await asyncio.sleep(0.2)
            others, _ = await numbers_of(read_table(database, follow=False, wait_for_leases=False))
            go_on.set()
            report = await running.wait()
            assert 0 < report.statistics["in"] == 1000 - len(others) < 500
            assert source_numbers(report)["emitted"] == report.statistics["progress"] == 1.0

    run(work())


@pytest.mark.parametrize("backoff", [Backoff(0.001, cap=0.001), Backoff(3600, cap=3600)])
def test_a_row_that_is_to_be_tried_again_is_a_part_of_the_input_that_is_not_done_with(
    database: str, backoff: Backoff, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.streams.sql_queue.reader._COUNTED_EVERY", 0.01)
    monkeypatch.setattr("penstock.streams.sql_queue.reader._REST", 0)

    def fail_half(value: Any) -> Any:
        if value["n"] % 2:
            raise ConnectionError("no")
        return value

    async def work() -> None:
        async with queue(database, 20):
            source = read_table(database, follow=False, attempts=1000, backoff=backoff)
            working = adaptive_flat_map(fail_half, Fixed(1), on_error="revert")
            running = source.pipe(working).to(collect([])).start()
            running.record()
            await asyncio.sleep(0)
            comes_again = backoff.cap < 1
            least = 200 if comes_again else 10
            await until(lambda: running.statistics()["returned"] >= least)
            # Until it has been counted a few times.
            await asyncio.sleep(0.1)
            seen = running.statistics()
            assert seen["progress"] == pytest.approx(0.5, abs=0.2 if comes_again else 0)
            running.cancel()
            await running.wait()

    run(work())


def test_rows_that_go_back_and_come_again_are_not_listed_as_unfinished(database: str) -> None:
    def fail_first(value: Any) -> Any:
        if value["n"] == 0:
            raise ConnectionError("no")
        return value

    async def work() -> None:
        async with queue(database, 30):
            source = read_table(database, by="key", follow=False, attempts=5, backoff=SOON)
            working = adaptive_flat_map(fail_first, Fixed(1), on_error="revert")
            pipeline = source.pipe(group_by("key"), spread(), working).to(collect([]))
            report = await pipeline.run()
            # With the failed row, those of its key that have been claimed go back.
            assert report.statistics["returned"] > 4
            assert source_numbers(report)["returned_tokens"] == []

    run(work())


def test_a_table_that_is_followed_has_no_progress(database: str) -> None:
    async def work() -> None:
        async with queue(database, 10):
            running = read_table(database).to(collect([])).start()
            running.record()
            await asyncio.sleep(0)
            await until(lambda: source_numbers(running.report())["pending"] is not None)
            assert running.statistics()["progress"] is None
            running.cancel()
            await running.wait()

    run(work())


def test_a_reader_holds_no_more_rows_than_its_pipeline_has_room_for(database: str) -> None:
    """So other readers find work, though many rows go out at once when it begins."""

    async def work() -> None:
        ended = asyncio.Event()

        async def wait(event: dict[str, Any]) -> None:
            await ended.wait()

        async with queue(database, 400):
            pipeline = read_table(database).pipe(
                group_by("n", buffer=32), spread(), adaptive_flat_map(wait, Fixed(8))
            )
            async with pipeline.to(collect([])).start() as running:

                async def is_full() -> bool:
                    stages = running.statistics()["stages"]
                    return any(stage.get("waiting") == 32 for stage in stages)

                await until(is_full)
                source = running.statistics()["stages"][0]
                assert 8 + 32 <= source["held"] <= 8 + 32 + 8
                running.cancel()

    run(work())


def test_an_empty_queue_ends_at_once_without_follow(database: str) -> None:
    async def work() -> None:
        async with queue(database):
            values, report = await numbers_of(read_table(database, follow=False))
        assert (values, report.exit_status) == ([], 0)

    run(work())


def test_what_is_enqueued_while_the_reader_waits_is_read(database: str) -> None:
    async def work() -> None:
        async with queue(database) as store:
            values: list[Any] = []
            # It polls so rarely that it must have been notified.
            async with read_table(database, poll=3600).to(collect(values)).start() as running:
                for n in range(3):
                    await store.put([orjson.dumps({"n": n})])
                    await until(lambda n=n: len(values) == n + 1)  # type: ignore[misc]
                await running.drain(10)
            assert await statuses(store) == [1, 1, 1]

    run(work())


def test_a_reverted_row_is_tried_again_and_dead_after_its_last_attempt(database: str) -> None:
    async def work() -> None:
        tried: list[int] = []

        def fail(event: dict[str, Any]) -> dict[str, Any]:
            tried.append(number(event))
            if number(event) == 1:
                raise ValueError("not this one\0")
            return event

        async with queue(database, 3) as store:
            source = read_table(database, follow=False, attempts=3, backoff=SOON)
            values, report = await numbers_of(
                source.pipe(adaptive_flat_map(fail, on_error="revert"))
            )
            assert values == [0, 2]
            assert sorted(tried) == [0, 1, 1, 1, 2]
            assert await statuses(store) == [1, -1, 1]
            ((error,),) = await store.query("SELECT {error} FROM {table} WHERE {status} = -1")
            assert error.startswith("ValueError: not this one")
            assert "adaptive_flat_map" in error
            numbers = source_numbers(report)
            assert (numbers["reverted"], numbers["dead"], numbers["redelivered"]) == (2, 1, 2)
            assert report.exit_status == 3

    run(work())


def test_what_is_reverted_counts_as_returned_and_a_run_that_ends_well_ends_with_0(
    database: str,
) -> None:
    async def work() -> None:
        tried: list[int] = []

        def fail_once(event: dict[str, Any]) -> dict[str, Any]:
            tried.append(number(event))
            if number(event) < 2 and tried.count(number(event)) == 1:
                raise ValueError("not yet")
            return event

        async with queue(database, 4) as store:
            source = read_table(database, follow=False, backoff=SOON)
            values, report = await numbers_of(
                source.pipe(adaptive_flat_map(fail_once, on_error="revert"))
            )
            assert sorted(values) == [0, 1, 2, 3]
            assert await statuses(store) == [1] * 4
            numbers = report.statistics
            assert (numbers["in"], numbers["finished"]) == (6, 4)
            assert (numbers["returned"], numbers["failed"]) == (2, 0)
            stage = numbers["stages"][1]
            assert (stage["reverted"], stage["skipped"]) == (2, 0)
            assert report.exit_status == 0

    run(work())


def test_an_event_that_stops_the_pipeline_gives_its_row_back(database: str) -> None:
    async def work() -> None:
        def fail(event: dict[str, Any]) -> None:
            raise ValueError("stop here")

        async with queue(database, 3) as store:
            with pytest.raises(ValueError, match="stop here") as caught:
                await read_table(database).pipe(adaptive_flat_map(fail)).to(collect([])).run()
            assert any("(row " in note for note in caught.value.__notes__)
            assert await statuses(store) == [0, 0, 0]
            assert sorted(await attempts(store)) == [0, 0, 1]

    run(work())


@pytest.mark.parametrize("then", ["skip", "route"])
def test_an_event_that_was_given_up_on_has_failed_for_good(
    database: str, tmp_path: Path, then: str
) -> None:
    async def work() -> None:
        def fail(event: dict[str, Any]) -> dict[str, Any]:
            raise ValueError("never")

        policy: Any = "skip" if then == "skip" else route(dead_letters(tmp_path / "dead"))
        async with queue(database, 2) as store:
            source = read_table(database, follow=False)
            _, report = await numbers_of(
                source.pipe(adaptive_flat_map(fail, on_error=retry(2, Backoff(0, 0), policy)))
            )
            assert await statuses(store) == [-1, -1]
            assert report.statistics["failed"] == 2

    run(work())


def test_what_is_dropped_on_purpose_is_processed(database: str) -> None:
    async def work() -> None:
        async with queue(database, 4) as store:
            source = read_table(database, follow=False)
            values, report = await numbers_of(source.pipe(ops.filter(lambda e: e["n"] > 1)))
            assert values == [2, 3]
            assert await statuses(store) == [1] * 4
            assert sum(report.statistics["dropped"].values()) == 2

    run(work())


def test_a_payload_that_is_not_an_object_has_failed_for_good_and_the_rest_goes_on(
    database: str,
) -> None:
    async def work() -> None:
        async with queue(database, 1) as store:
            await store.put(["[1]", "null", '{"n": 1}'])
            values, report = await numbers_of(read_table(database, follow=False))
            assert values == [0, 1]
            assert await statuses(store) == [1, -1, -1, 1]
            assert source_numbers(report)["bad_rows"] == 2
            assert report.exit_status == 3

    run(work())


INSERT_OWN = "INSERT INTO {{own}} ({{own_payload}}, {{own_status}}) VALUES ({}, 0)"


def test_a_payload_that_cannot_be_decoded_has_failed_for_good(tmp_path: Path) -> None:
    async def work() -> None:
        url = f"sqlite:///{tmp_path}/work.db"
        async with queue(url) as store:
            await store.query(INSERT_OWN.format(":body"), body="{nonsense")
            await store.query(INSERT_OWN.format("CAST(x'ff' AS TEXT)"))
            await store.put(['{"n": 1}'])
            values, _ = await numbers_of(read_table(url, follow=False))
            assert values == [1]
            assert await statuses(store) == [-1, -1, 1]
            values, _ = await numbers_of(read_table(url, by="key", follow=False))

    run(work())


OWN = """CREATE TABLE own (uid {bytes} PRIMARY KEY, payload text, status integer DEFAULT 0,
    run_at {time}, enqueued {time}, started {time}, finished {time}, attempts integer DEFAULT 0,
    owner text, token bigint, expires {time}, error text)"""


def test_a_table_of_ones_own_may_have_ids_of_any_type_and_payloads_that_are_null(
    database: str,
) -> None:
    sqlite = database.startswith("sqlite")
    types = (
        {"bytes": "blob", "time": "real"} if sqlite else {"bytes": "uuid", "time": "timestamptz"}
    )
    ids: list[Any] = [bytes([n]) * 16 if sqlite else UUID(int=n) for n in range(5)]

    async def work() -> None:
        async with queue(database) as store:
            await store.query(OWN.format_map(types))
            for n, id in enumerate(ids):
                payload = None if n == 2 else orjson.dumps({"n": n}).decode()
                await store.query(
                    "INSERT INTO own (uid, payload) VALUES (:id, :p)", id=id, p=payload
                )
            source = read_table(database, "own", columns={"id": "uid"}, follow=False)
            report = await source.to(collect(done := [])).run()
            assert [number(event) for event in done] == [0, 1, 3, 4]
            rows = await store.query("SELECT uid, error FROM own WHERE status = -1")
            assert [id for id, _ in rows] == [ids[2]]
            assert "its payload is null" in rows[0][1]
            assert report.statistics["finished"] == 4

    run(work())


@pytest.mark.parametrize("by", [None, "who"])
@pytest.mark.parametrize("column", ["status", "attempts"])
def test_a_row_without_a_status_or_attempts_is_left_alone(
    database: str, column: str, by: str | None
) -> None:
    types = {"bytes": "integer", "time": "real" if database[0] == "s" else "timestamptz"}

    async def work() -> None:
        async with queue(database) as store:
            await store.query(OWN.format_map(types))
            for n in range(3):
                payload = orjson.dumps({"n": n, "key": 0}).decode()
                await store.query(
                    "INSERT INTO own (uid, payload) VALUES (:id, :p)", id=n, p=payload
                )
            await store.query("ALTER TABLE own ADD who text")
            await store.query(f"UPDATE own SET {column} = NULL WHERE uid = 1")
            source = read_table(database, "own", columns={"id": "uid"}, by=by, follow=False)
            values, _ = await numbers_of(source)
            assert values == [0, 2]

    run(work())


def test_cancel_gives_back_what_was_not_worked_on_to_its_end(database: str) -> None:
    async def work() -> None:
        begun = asyncio.Event()

        async def hang(event: dict[str, Any]) -> None:
            begun.set()
            await asyncio.Event().wait()

        async with queue(database, 50) as store:
            stream = read_table(database).pipe(adaptive_flat_map(hang, limit=Fixed(4)))
            async with stream.to(collect([])).start() as running:
                await begun.wait()
                running.cancel()
            assert await statuses(store) == [0] * 50
            assert await attempts(store) == [0] * 50
            assert running.report().outcome == "cancelled"

    run(work())


def test_drain_finishes_what_is_in_work_and_gives_the_rest_back(database: str) -> None:
    async def work() -> None:
        release = asyncio.Event()
        begun: list[int] = []

        async def wait(event: dict[str, Any]) -> dict[str, Any]:
            begun.append(number(event))
            await release.wait()
            return event

        async with queue(database, 50) as store:
            stream = read_table(database).pipe(adaptive_flat_map(wait, limit=Fixed(4)))
            async with stream.to(collect([])).start() as running:
                await until(lambda: len(begun) == 4)
                running.begin_drain(10)
                release.set()
            found = await statuses(store)
            assert found.count(1) == len(begun)
            assert found.count(0) == 50 - len(begun)

    run(work())


def test_the_lease_of_a_long_call_is_renewed_also_while_the_pipeline_is_paused(
    database: str,
) -> None:
    async def work() -> None:
        release = asyncio.Event()
        begun = asyncio.Event()

        async def wait(event: dict[str, Any]) -> dict[str, Any]:
            begun.set()
            await release.wait()
            return event

        async with queue(database, 1) as store:
            stream = read_table(database, lease=1.0).pipe(adaptive_flat_map(wait))
            async with stream.to(collect([])).start() as running:
                await begun.wait()
                running.pause()
                ((before,),) = await store.query("SELECT {expires} FROM {table}")

                async def renewed_twice() -> bool:
                    ((now,),) = await store.query("SELECT {seconds} {expires}) FROM {table}")
                    return bool(now > start + 0.6)

                ((start,),) = await store.query("SELECT {seconds} {expires}) FROM {table}")
                await until(renewed_twice)
                assert (await store.claim(1, ClaimTerms("thief"))).rows == []
                release.set()
                running.resume()
                await running.drain(10)
            assert before is not None
            assert await statuses(store) == [1]
            assert await attempts(store) == [1]

    run(work())


def test_what_became_of_a_row_whose_lease_was_lost_is_void_and_counted(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        release = asyncio.Event()
        begun = asyncio.Event()

        async def wait(event: dict[str, Any]) -> dict[str, Any]:
            begun.set()
            await release.wait()
            return event

        async with queue(database, 1) as store, queue(database, table="results") as results:
            stream = read_table(database).pipe(adaptive_flat_map(wait))
            async with stream.to(write_table(database, "results")).start() as running:
                await begun.wait()
                await store.query("UPDATE {table} SET {expires} = {now}")
                (row,) = (await store.claim(1, ClaimTerms("thief"))).rows
                assert row.attempts == 2
                release.set()
                await running.drain(10)
            assert await statuses(store) == [9]
            assert await payloads(results) == []
            report = running.report()
            assert source_numbers(report)["lost_leases"] == 1
            assert (report.statistics["failed"], report.statistics["finished"]) == (1, 0)
            assert report.exit_status == 3

    run(work())
    (told,) = caplog.messages
    assert told.startswith("LeaseLost: row 1 was given to another reader")
    assert told.endswith("(in stage 1 'read_table')")


def test_what_crashed_its_readers_is_tried_alone(database: str) -> None:
    async def work() -> None:
        working: list[int] = []
        together: dict[int, int] = {}

        async def handler(event: dict[str, Any]) -> dict[str, Any]:
            working.append(number(event))
            await asyncio.sleep(0.002)
            together[number(event)] = max(together.get(number(event), 0), len(working))
            working.remove(number(event))
            return event

        async with queue(database, 40) as store:
            # Four rows whose readers crashed all the times but the last.
            gone = ClaimTerms("gone", lease=0.0, attempts=9)
            for _ in range(2):
                await store.claim(4, gone)
            stream = read_table(database, attempts=3, follow=False)
            values, _ = await numbers_of(stream.pipe(adaptive_flat_map(handler, limit=Fixed(8))))
            assert sorted(values) == list(range(40))
            assert [together[n] for n in range(4)] == [1] * 4
            assert max(together.values()) > 1
            assert await statuses(store) == [1] * 40
            assert (await attempts(store))[:5] == [3, 3, 3, 3, 1]

    run(work())


def test_order_per_key_holds_across_readers(database: str) -> None:
    async def work() -> None:
        working: set[int] = set()
        seen: dict[int, list[int]] = {}

        async def handler(event: dict[str, Any]) -> None:
            key = event["key"]
            assert key not in working
            working.add(key)
            await asyncio.sleep(0)
            seen.setdefault(key, []).append(number(event))
            working.discard(key)

        async with queue(database, 300) as store:
            pipelines = [
                read_table(database, by="key", batch=5, follow=False)
                .pipe(group_by("key"), spread(), adaptive_flat_map(handler))
                .to(collect([]))
                for _ in range(3)
            ]
            reports = await asyncio.gather(*(pipeline.run() for pipeline in pipelines))
            while 0 in await statuses(store):
                reports.append(await pipelines[0].run())
            assert await statuses(store) == [1] * 300
            assert seen == {key: list(range(key, 300, 3)) for key in range(3)}
            assert sum(report.statistics["finished"] for report in reports) == 300

    run(work())


def test_a_row_that_failed_is_tried_again_before_the_later_ones_of_its_key(database: str) -> None:
    async def work() -> None:
        effects: list[int] = []

        def handler(event: dict[str, Any]) -> dict[str, Any]:
            if number(event) == 3 and effects.count(3) < 1:
                effects.append(3)
                raise ValueError("once")
            return event

        async with queue(database, 12) as store, queue(database, table="results") as results:
            stream = read_table(database, by="key", backoff=SOON, follow=False, attempts=9).pipe(
                group_by("key"), spread(), adaptive_flat_map(handler, on_error="revert")
            )
            await stream.to(write_table(database, "results")).run()
            while 0 in await statuses(store):
                await stream.to(write_table(database, "results")).run()
            assert await statuses(store) == [1] * 12
            written = [number(value) for value in await payloads(results)]
            assert [n for n in written if n % 3 == 0] == [0, 3, 6, 9]
            assert sorted(written) == list(range(12))

    run(work())


def test_what_others_give_back_or_lose_meanwhile_is_read_before_the_end(database: str) -> None:
    async def work() -> None:
        async with queue(database, 4) as other:
            mine = ClaimTerms("other")
            given_back, _ = (await other.claim(2, mine)).rows
            probe = Probe[dict[str, Any]]()
            read_table(database, batch=1, follow=False).connect(probe)

            async def answered() -> bool:
                processed = (await statuses(other)).count(1)
                return probe.ended or processed == len(probe.values) == probe.requested

            while not probe.ended:
                # Not before all rows are marked: then nothing is held.
                probe.request(1)
                await until(answered)
                if len(probe.values) == 1:
                    await other.settle(Settlement(returned=[given_back]), mine)
                    await other.query("UPDATE {table} SET {expires} = {now} WHERE {id} = 2")
            assert sorted(map(number, probe.values)) == list(range(4))

    run(work())


def test_a_reader_goes_on_when_its_connections_are_cut(postgres: str) -> None:
    async def work() -> None:
        def cut() -> None:
            with psycopg.connect(postgres, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'penstock'"
                )

        async with queue(postgres, 600):
            pass
        values: list[Any] = []

        async def handler(event: dict[str, Any]) -> dict[str, Any]:
            if number(event) in (100, 300):
                cut()
            return event

        stream = read_table(postgres, batch=50).pipe(adaptive_flat_map(handler))
        async with stream.to(write_table(postgres, "results"), collect(values)).start() as running:
            await until(lambda: running.statistics()["finished"] == 600)
            await running.drain(10)
        assert source_numbers(running.report())["reconnects"] >= 1
        async with queue(postgres) as store, queue(postgres, table="results") as results:
            assert await statuses(store) == [1] * 600
            assert sorted(map(number, await payloads(results))) == list(range(600))

    run(work())


RECORDED = """
CREATE TABLE recorded (what text);
CREATE FUNCTION record() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN INSERT INTO recorded VALUES (current_setting(''synchronous_commit'')); RETURN NEW; END';
CREATE TRIGGER record AFTER UPDATE ON queue FOR EACH ROW EXECUTE FUNCTION record();
"""


@pytest.mark.parametrize(("by", "kept"), [("key", "on"), (None, "off")])
def test_claims_survive_a_crash_of_the_server_where_there_is_an_order_per_key(
    postgres: str, by: str | None, kept: str
) -> None:
    async def work() -> None:
        async with queue(postgres, 3) as store:
            with psycopg.connect(postgres, autocommit=True) as connection:
                connection.execute(RECORDED)
                assert len((await store.claim(3, ClaimTerms("me", by=by))).rows) == 3
                assert set(connection.execute("SELECT what FROM recorded")) == {(kept,)}

    run(work())


def test_a_missing_table_is_reported_at_the_start(database: str) -> None:
    async def work() -> None:
        with pytest.raises(TableMissing):
            await numbers_of(read_table(database, "orders", columns={"payload": "body"}))

    run(work())


def test_a_missing_database_is_reported_at_the_start() -> None:
    async def work() -> None:
        with pytest.raises(CannotOpen, match=r"127\.0\.0\.1:1/"):
            await numbers_of(read_table("postgresql://127.0.0.1:1/none"))

    run(work())


@pytest.mark.parametrize(
    "options",
    [
        *({"attempts": 0}, {"attempts": 1.5}, {"batch": 0}, {"batch": -1}, {"batch": "7"}),
        *({"lease": 0}, {"lease": float("inf")}, {"lease": "1"}, {"poll": 0}, {"patience": -1}),
        *({"by": ""}, {"by": 5}, {"name": 5}, {"backoff": 0.1}),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BuildError, match=next(iter(options))):
        read_table("sqlite:///work.db", **options)


def test_unknown_columns_are_refused() -> None:
    with pytest.raises(BuildError, match="'body'"):
        read_table("sqlite:///work.db", columns={"body": "payload"})


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for ours in ("claims", "table"):
        monkeypatch.delitem(
            sys.modules, f"penstock.streams.sql_queue.postgres.{ours}", raising=False
        )
    with pytest.raises(MissingExtra, match=r"\[postgres\]"):
        read_table("postgresql://host/name")
    with pytest.raises(MissingExtra):
        write_table("postgresql://host/name")


def test_a_sink_that_fails_late_reverts_its_row(database: str) -> None:
    async def work() -> None:
        tried: list[int] = []

        async def fail_once(event: dict[str, Any]) -> None:
            tried.append(number(event))
            await asyncio.sleep(0)
            if tried.count(1) == 1 and number(event) == 1:
                raise ValueError("once")

        async with queue(database, 2) as store:
            source = read_table(database, backoff=SOON)
            async with source.to(for_each(fail_once, on_error="revert")).start() as running:
                await until(lambda: running.statistics()["finished"] == 2)
                await running.drain(10)
            assert sorted(tried) == [0, 1, 1]
            assert await statuses(store) == [1, 1]

    run(work())


def long_text() -> str:
    """20 kB that cannot be compressed much."""
    return "".join(random.Random(0).choices(ascii_letters, k=20_000))


def rows_that_break_claims(postgres: bool) -> dict[str, tuple[str, int]]:
    """Payloads with a key `key`, and the status that each ends with."""
    long = orjson.dumps({"n": 1, "key": long_text()}).decode()
    # PostgreSQL cannot read any field of a payload with \u0000 anywhere.
    nul = -1 if postgres else 1
    return {
        "a key of 20 kB": (long, 1),
        "a NUL": ('{"n": 1, "key": "k", "text": "a\\u0000b"}', nul),
        "a key with a NUL": ('{"n": 1, "key": "a\\u0000b"}', nul),
        "half a surrogate pair": ('{"n": 1, "key": "k", "text": "\\ud800"}', -1),
        "a key with half a surrogate pair": ('{"n": 1, "key": "\\ud800"}', -1),
        "escapes that are harmless": ('{"n": 1, "key": "\\u00e9", "text": "\\\\u0000"}', 1),
    }


@pytest.mark.parametrize("kind", rows_that_break_claims(postgres=False))
def test_a_row_whose_key_cannot_be_read_fails_by_itself_and_the_others_go_on(
    database: str, kind: str
) -> None:
    payload, ends = rows_that_break_claims(database.startswith("postgresql"))[kind]

    async def work() -> None:
        async with queue(database, 4) as store:
            await store.put([payload, '{"n": 9, "key": 0}'])
            stream = read_table(database, by="key", follow=False)
            values, report = await numbers_of(stream.pipe(group_by("key"), spread()))
            assert sorted(values) == sorted([0, 1, 2, 3, 9, *([1] if ends == 1 else [])])
            assert await statuses(store) == [1, 1, 1, 1, ends, 1]
            assert source_numbers(report)["bad_rows"] == (ends == -1)
            if ends == -1:
                ((error,),) = await store.query("SELECT {error} FROM {table} WHERE {status} = -1")
                assert error.startswith("BadRow: row 5 of ")

    run(work())


def test_rows_of_a_long_key_are_with_one_reader_at_a_time(database: str) -> None:
    async def work() -> None:
        async with queue(database) as mine, queue(database) as yours:
            long, other = long_text(), long_text() + "!"
            keys = (long, other, long)
            await mine.put([orjson.dumps({"n": n, "key": key}) for n, key in enumerate(keys)])
            first = (await mine.claim(1, ClaimTerms("me", by="key"))).rows
            second = (await yours.claim(9, ClaimTerms("you", by="key"))).rows
            assert [row.id for row in (*first, *second)] == [1, 2]

    run(work())


@pytest.mark.parametrize(
    "equal",
    [
        ("1", "1.0", "true", "1e0", "10E-1"),
        ("0", "-0", "0.0", "-0.0", "false"),
        ("-2.5", "-2.50", "-25e-1"),
        ("100", "1e2", "100.000"),
        ("9007199254740992", "9007199254740992.0"),
        ('"ann"', '"a\\u006en"'),
        ("null", '""'),
    ],
)
@pytest.mark.parametrize("more", ["", "a long text " * 100])
def test_rows_whose_keys_are_equal_are_with_one_reader_at_a_time(
    database: str, equal: tuple[str, ...], more: str
) -> None:
    async def work() -> None:
        async with queue(database) as mine, queue(database) as yours:
            keys = (*equal, '"other"')
            await mine.put([f'{{"n":0,"more":"{more}","key":{key}}}'.encode() for key in keys])
            assert len((await mine.claim(1, ClaimTerms("me", by="key"))).rows) == 1
            others = (await yours.claim(9, ClaimTerms("you", by="key"))).rows
            assert [row.id for row in others] == [len(keys)]

    run(work())


@pytest.mark.parametrize("keys", [("1", "2"), ("10", "100"), ("0.5", "0.05"), ("1e-3", "1e3")])
def test_rows_whose_keys_differ_are_with_several_readers(
    database: str, keys: tuple[str, ...]
) -> None:
    async def work() -> None:
        async with queue(database) as mine, queue(database) as yours:
            await mine.put([f'{{"n":0,"key":{key}}}'.encode() for key in keys])
            first = (await mine.claim(1, ClaimTerms("me", by="key"))).rows
            second = (await yours.claim(9, ClaimTerms("you", by="key"))).rows
            assert [row.id for row in (*first, *second)] == [1, 2]

    run(work())


@pytest.mark.parametrize("by", [None, "key"])
def test_rows_claimed_beside_one_that_kills_its_readers_do_not_die_with_it(
    database: str, by: str | None
) -> None:
    async def work() -> None:
        async with queue(database) as store:
            # In each key the rows before and after the one that kills are innocent.
            await store.put([orjson.dumps({"n": n, "key": n // 4}) for n in range(12)])
            killer, deaths, done = 5, 0, 0
            for _ in range(200):
                terms = ClaimTerms("mortal", lease=0.0, attempts=3, by=by)
                rows = (
                    await store.claim_suspect(terms)
                    if await store.has_suspects(terms)
                    else await store.claim(100, terms)
                ).rows
                if not rows and not await store.has_suspects(terms):
                    break
                numbers = [orjson.loads(row.payload or b"")["n"] for row in rows]
                if killer in numbers:
                    # Rows processed beside it are no longer recorded.
                    deaths += 1
                elif rows:
                    done += len(rows)
                    keys = {(row.key, row.epoch) for row in rows if row.key is not None}
                    await store.settle(Settlement(finished=rows, idle_keys=list(keys)), terms)
            # Two beside others, and then as many alone as it has attempts.
            assert deaths == 5
            expected = [1] * 12
            expected[killer] = -1
            assert await statuses(store) == expected

    run(work())


@pytest.mark.parametrize("by", [None, "key"])
@pytest.mark.parametrize("most", [1, 2])
def test_a_row_that_crashed_its_readers_too_often_is_reported_as_failed(
    database: str, by: str | None, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with queue(database, 1) as store:
            # Its readers die with it, the last ones while it is alone.
            gone = ClaimTerms("gone", lease=0.0, attempts=most, by=by)
            (row,) = (await store.claim(1, gone)).rows
            for _ in range(most if most > 1 else 0):
                assert (await store.claim(1, gone)).rows == []
                assert (await store.claim_suspect(gone)).rows[0].id == row.id
            await store.put([orjson.dumps({"n": 1, "key": 1})])
            stream = read_table(database, attempts=most, by=by, follow=False)
            values, report = await numbers_of(stream)
            assert values == [1]
            assert await statuses(store) == [-1, 1]
            (error,) = await store.query("SELECT {error} FROM {rows} AS t WHERE {status} = -1")
            assert error[0].startswith("LeaseLost: ")
            assert error[0].endswith(f" row {row.id}")
            numbers = report.statistics
            assert (numbers["in"], numbers["finished"], numbers["failed"]) == (2, 1, 1)
            assert source_numbers(report)["dead"] == 1
            assert report.exit_status == 3
            # It is given up once.
            _, report = await numbers_of(stream)
            assert report.exit_status == 0

    run(work())
    (told,) = caplog.messages
    assert told.startswith("LeaseLost: row 1 of ")
    assert "penstock queue retry" in told
    assert told.endswith("(in stage 1 'read_table')")


@pytest.mark.parametrize("by", [None, "key"])
@pytest.mark.parametrize("end", ["stop", "skip", "revert", "finish", "cancel"])
def test_a_row_that_its_own_reader_gives_up_is_counted_once(
    database: str, by: str | None, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        begun, release = asyncio.Event(), asyncio.Event()

        async def wait(event: dict[str, Any]) -> dict[str, Any]:
            begun.set()
            await release.wait()
            if end != "finish":
                raise ValueError("no")
            return event

        policy: Any = "stop" if end in ("finish", "cancel") else end
        async with queue(database) as store:
            await store.put([orjson.dumps({"n": 0, "key": 0})])
            stream = read_table(database, attempts=1, by=by, poll=0.05)
            work = adaptive_flat_map(wait, Fixed(4), on_error=policy)
            running = stream.pipe(work).to(collect([])).start()
            await begun.wait()
            # As when its loop was blocked, and a claim of its own comes before the renewal.
            await store.query("UPDATE {table} SET {expires} = {now}")
            if by is not None:
                await store.query("UPDATE {keys} SET expires = {now}")

            async def is_dead() -> bool:
                return await statuses(store) == [-1]

            await until(is_dead)
            if end == "cancel":
                running.cancel()
            else:
                release.set()
                running.begin_drain(10)
            with suppress(ValueError):
                await running.wait()
            report = running.report()
            numbers = {name: report.statistics[name] for name in ("in", "failed", "returned")}
            assert numbers == {"in": 1, "failed": 1, "returned": 0}
            assert source_numbers(report)["dead"] == 1
            assert report.exit_status in ({1} if end == "stop" else {5} if end == "cancel" else {3})

    run(work())
    (told,) = [one for one in caplog.messages if "row 1 of" in one]
    assert "has failed for good" in told


@pytest.mark.parametrize("end", ["stop", "skip", "revert"])
def test_a_row_that_its_reader_gives_up_before_its_failure_is_recorded_is_counted_once(
    database: str, end: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        failing, release = asyncio.Event(), asyncio.Event()
        write = Ledger._write  # pyright: ignore[reportPrivateUsage]

        async def write_later(ledger: Ledger, batch: Settlement) -> None:
            failing.set()
            await release.wait()
            await write(ledger, batch)

        monkeypatch.setattr(Ledger, "_write", write_later)

        def fail(event: Any) -> None:
            raise ValueError("no")

        async with queue(database) as store:
            await store.put([orjson.dumps({"n": 0})])
            stream = read_table(database, attempts=1, poll=0.05)
            running = stream.pipe(adaptive_flat_map(fail, on_error=end)).to(collect([])).start()
            await failing.wait()
            await store.query("UPDATE {table} SET {expires} = {now}")

            async def is_dead() -> bool:
                return await statuses(store) == [-1]

            if end != "stop":
                await until(is_dead)
            release.set()
            running.begin_drain(10)
            with suppress(ValueError):
                await running.wait()
            report = running.report()
            numbers = {name: report.statistics[name] for name in ("in", "failed", "returned")}
            assert numbers == {"in": 1, "failed": 1, "returned": 0}
            assert source_numbers(report)["dead"] == 1

    run(work())


@pytest.mark.parametrize("beside", ["ordinary"], indirect=True)
@pytest.mark.parametrize("by", [None, "key"])
def test_a_row_that_failed_before_does_not_die_of_the_crash_of_another(
    database: str, by: str | None
) -> None:
    async def work() -> None:
        async with queue(database, 1) as store:
            terms = ClaimTerms("me", lease=0.0, attempts=2, by=by)
            await store.query("UPDATE {table} SET {attempts} = 1")
            (row,) = (await store.claim(1, terms)).rows
            assert row.attempts == 2
            for attempt in (2, 3):
                assert (await store.claim(1, terms)).rows == []
                assert await store.has_suspects(terms)
                (alone,) = (await store.claim_suspect(terms)).rows
                assert alone.attempts == attempt
            assert (await store.claim(1, terms)).buried == [row.id]
            assert not await store.has_suspects(terms)

    run(work())


def test_the_later_rows_of_a_suspect_wait_for_it(database: str) -> None:
    async def work() -> None:
        async with queue(database) as store:
            await store.put([orjson.dumps({"n": n, "key": "k"}) for n in range(4)])
            gone, here = (
                ClaimTerms(name, lease=0.0, attempts=2, by="key") for name in ("gone", "here")
            )
            await store.claim(2, gone)
            for _ in range(2):
                # Two suspects: neither they nor those behind them are claimed with others.
                assert (await store.claim(9, here)).rows == []
                terms = ClaimTerms("alone", lease=60.0, attempts=2, by="key")
                (alone,) = (await store.claim_suspect(terms)).rows
                assert (await store.claim(9, here)).rows == []
                idle = [(str(alone.key), alone.epoch)]
                assert await store.settle(Settlement([alone], idle_keys=idle), terms) == []
            assert [row.id for row in (await store.claim(9, here)).rows] == [3, 4]

    run(work())


def test_a_suspect_that_takes_longer_than_its_lease_lets_nothing_overtake_the_next_one(
    database: str,
) -> None:
    done: list[int] = []

    async def slow(event: dict[str, Any]) -> None:
        if event["n"] == 0:
            # Its reader claims others after the length of a lease, in which nothing has ended.
            await asyncio.sleep(1.0)
        done.append(event["n"])

    async def work() -> None:
        async with queue(database) as store:
            await store.put([orjson.dumps({"n": n, "key": "k"}) for n in range(4)])
            await store.claim(2, ClaimTerms("gone", lease=0.0, attempts=2, by="key"))
            rows = read_table(
                database, by="key", attempts=2, lease=0.3, poll=0.05, follow=False
            ).pipe(group_by("key"), spread(), adaptive_flat_map(slow))
            await rows.to(collect([])).run()
            assert done == [0, 1, 2, 3]
            assert await statuses(store) == [1] * 4

    run(work())


@pytest.mark.parametrize("by", [None, "key"])
def test_a_suspect_that_is_given_back_unbegun_stays_one_and_is_not_overtaken(
    database: str, by: str | None
) -> None:
    async def work() -> None:
        async with queue(database) as store:
            await store.put([orjson.dumps({"n": n, "key": "k"}) for n in range(3)])
            await store.claim(2, ClaimTerms("gone", lease=0.0, attempts=2, by=by))
            terms = ClaimTerms("here", lease=60.0, attempts=2, by=by)
            first = (await store.claim(9, terms)).rows
            assert [row.id for row in first] == ([] if by else [3])
            for settled in ("returned", "finished"):
                assert await store.has_suspects(terms)
                (alone,) = (await store.claim_suspect(terms)).rows
                assert (alone.id, alone.attempts) == (1, 2)
                idle = [(alone.key, alone.epoch)] if alone.key is not None else []
                settlement = Settlement(**{settled: [alone]}, idle_keys=idle)
                assert await store.settle(settlement, terms) == []
                assert (await store.claim(9, terms)).rows == []
            (second,) = (await store.claim_suspect(terms)).rows
            assert second.id == 2

    run(work())


def test_tables_that_are_read_inside_of_another_stream_are_closed_when_their_rows_are_done(
    database: str,
) -> None:
    async def slow(value: dict[str, Any]) -> None:
        await asyncio.sleep(0.005)

    async def work() -> None:
        tables = ["first", "second", "third"]
        inner = Flowable.from_iterable(tables).flat_map(
            lambda table: read_table(database, table, follow=False)
        )
        stores = [queue(database, 20, table) for table in tables]
        async with stores[0] as first, stores[1] as second, stores[2] as third:
            pipeline = inner.pipe(adaptive_flat_map(slow, Fixed(4))).to(collect([]))
            async with pipeline.start() as running:
                pass
            # The names of the tables, and their rows.
            assert running.report().statistics["finished"] == 3 + 3 * 20
            for store in (first, second, third):
                assert await statuses(store) == [1] * 20
            assert not running._run.lessors

    run(work())
