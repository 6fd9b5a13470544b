"""Rows of tables in the commits of a store: the rows that were read, and those that are written."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from reactivex import operators as ops

from penstock import (
    Fixed,
    Flowable,
    adaptive_flat_map,
    collect,
    distinct_within,
    for_each,
    from_iterable,
    read_jsonl,
    read_table,
    stateful,
    write_table,
)
from penstock import Store as States
from penstock.streams.base.errors import BuildError, CannotOpen
from penstock.streams.failures.backoff import Backoff
from penstock.streams.failures.policy import route
from penstock.streams.runtime.context import Run
from penstock.streams.sql_queue import Store, open_store
from penstock.streams.sql_queue.ledger import Ledger
from penstock.streams.state.codec import key_in

SOON = Backoff(0.01, cap=0.01)
RESULTS = "CREATE TABLE results (n integer PRIMARY KEY, k integer, c integer)"
COLUMNS = ["n", "k", "c"]


@pytest.fixture(params=["same", "elsewhere"])
def states(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> States:
    if request.param == "same":
        return States(database)
    return States(tmp_path / "elsewhere.state")


@asynccontextmanager
async def queue(url: str, count: int = 0) -> AsyncGenerator[Store, None]:
    """A queue with a number of rows, and a table for the results."""
    store = open_store(url)
    await store.open()
    try:
        await store.put([orjson.dumps({"n": n, "k": n % 3}) for n in range(count)])
        await store.query(RESULTS)
        yield store
    finally:
        await store.close()


def count(c: int, event: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    return c + 1, [{**event, "c": c + 1}]


def counted(states: States) -> Any:
    return stateful(count, "k", start=0, store=states)


def kept(states: States) -> dict[Any, Any]:
    """The states that are committed."""
    backend: Any = states._open()
    backend.open_to_read()
    try:
        (stage,) = backend.stages()
        return {key_in(row.key): json.loads(row.state) for row in backend.scan(stage.name)}
    finally:
        backend.close()


def of(numbers: Iterable[int]) -> dict[int, int]:
    return dict(Counter(n % 3 for n in numbers))


async def numbers(store: Store, table: str = "results") -> list[int]:
    return [n for (n,) in await store.query(f"SELECT n FROM {table} ORDER BY n")]


async def ends(store: Store) -> Counter[int]:
    rows = await store.query("SELECT {status} FROM {rows} AS t")
    return Counter(status for (status,) in rows)


def results(database: str, **options: Any) -> Any:
    return write_table(database, "results", columns=COLUMNS, **options)


# From a table.


def test_rows_end_with_their_states_and_results(database: str, states: States) -> None:
    async def work() -> None:
        async with queue(database, 300) as store:
            source = read_table(database, follow=False)
            report = await source.pipe(counted(states)).to(results(database)).run()
            assert report.statistics["finished"] == 300
            assert await numbers(store) == list(range(300))
            assert await ends(store) == {1: 300}

    asyncio.run(work())
    assert kept(states) == of(range(300))


def test_rows_of_keys_end_in_commits_and_their_keys_are_free_then(database: str) -> None:
    async def work() -> None:
        async with queue(database, 60) as store:
            for _ in range(2):
                source = read_table(database, by="k", batch=7, follow=False, lease=60)
                await source.pipe(counted(States(database))).to(results(database)).run()
                assert await store.query("SELECT 1 FROM {keys}") == []
                await store.put([orjson.dumps({"n": 60 + n, "k": n}) for n in range(3)])
            found = await store.query("SELECT k, c FROM results ORDER BY k, n")
            assert found == [(k, c) for k in range(3) for c in range(1, 22)]

    asyncio.run(work())


def test_an_event_that_is_reverted_below_changes_the_state_once(database: str) -> None:
    tried: set[int] = set()

    async def fails_first(event: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0.001 * (event["n"] % 4))
        if event["n"] % 5 == 0 and event["n"] not in tried:
            tried.add(event["n"])
            raise ValueError(event)
        return event

    async def work() -> None:
        async with queue(database, 60) as store:
            source = read_table(database, follow=False, backoff=SOON, attempts=99)
            stages = (
                counted(States(database)),
                adaptive_flat_map(fails_first, Fixed(8), on_error="revert"),
            )
            await source.pipe(*stages).to(results(database)).run()
            assert await ends(store) == {1: 60}
            # Each state was made of all those before it, and written once.
            found = await store.query("SELECT k, c FROM results ORDER BY k, c")
            assert found == [(k, c) for k in range(3) for c in range(1, 21)]

    asyncio.run(work())
    assert kept(States(database)) == of(range(60))


def test_a_row_whose_attempts_are_used_up_has_not_changed_its_state(
    database: str, states: States
) -> None:
    async def fails(event: dict[str, Any]) -> dict[str, Any]:
        if event["n"] == 4:
            raise ValueError(event)
        return event

    async def work() -> None:
        async with queue(database, 9) as store:
            source = read_table(database, follow=False, backoff=SOON, attempts=2)
            stages = counted(states), adaptive_flat_map(fails, Fixed(3), on_error="revert")
            await source.pipe(*stages).to(collect([])).run()
            assert await ends(store) == {1: 8, -1: 1}

    asyncio.run(work())
    assert kept(states) == of(n for n in range(9) if n != 4)


def test_a_row_that_another_reader_has_got_is_not_in_the_states(database: str) -> None:
    async def work() -> None:
        async with queue(database, 6) as store:

            async def taken_away(event: dict[str, Any]) -> dict[str, Any]:
                if event["n"] == 1:
                    await store.query(
                        "UPDATE {table} SET {token} = 7 WHERE {attempts} = 1 AND "
                        "{id} = (SELECT min({id}) + 1 FROM {table})"
                    )
                return event

            source = read_table(database, follow=False, wait_for_leases=False)
            stages = counted(States(database)), adaptive_flat_map(taken_away, Fixed(1))
            report = await source.pipe(*stages).to(results(database)).run()
            assert report.statistics["stages"][0]["lost_leases"] == 1
            assert await numbers(store) == [0, 2, 3, 4, 5]
            found = await store.query("SELECT k, c FROM results ORDER BY n")
            # What was counted after it was counted anew.
            assert found == [(0, 1), (2, 1), (0, 2), (1, 1), (2, 2)]

    asyncio.run(work())
    assert kept(States(database)) == of([0, 2, 3, 4, 5])


def test_rows_that_the_store_has_and_the_table_has_not_are_not_done_again(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(count: int) -> Any:
        values: list[Any] = []
        source = read_table(database, follow=False, lease=0.3)
        states = States(tmp_path / "elsewhere.state")
        stages = counted(states), adaptive_flat_map(fails_with_7, Fixed(9), on_error="skip")
        report = await source.pipe(*stages).to(collect(values), results(database)).run()
        assert len(values) == count
        return report.statistics

    async def fails_with_7(event: dict[str, Any]) -> dict[str, Any]:
        if event["n"] == 7:
            raise ValueError(event)
        return event

    async def story() -> None:
        async with queue(database, 40) as store:
            with monkeypatch.context() as patch:
                # It dies between its commits and what follows from them.
                patch.setattr(Ledger, "_write", dies)
                with pytest.raises(Died):
                    await work(39)
            assert await ends(store) == {9: 40}
            await store.put([orjson.dumps({"n": 40, "k": 1})])
            statistics = await work(1)
            assert statistics["dropped"] == {"already done": 39}
            assert await ends(store) == {1: 40, -1: 1}
            (error,) = await store.query("SELECT {error} FROM {rows} AS t WHERE {status} = -1")
            assert "ValueError" in error[0]
            # They were there before the commits.
            assert await numbers(store) == [n for n in range(41) if n != 7]

    asyncio.run(story())
    assert kept(States(tmp_path / "elsewhere.state")) == of(range(41))


class Died(Exception):
    pass


async def dies(*_: object) -> None:
    # When all is committed.
    await asyncio.sleep(1)
    raise Died


def test_what_the_table_has_recorded_is_forgotten_by_the_next_run(
    database: str, tmp_path: Path
) -> None:
    states = States(tmp_path / "elsewhere.state")

    async def work(count: int) -> None:
        source = read_table(database, follow=False)
        await source.pipe(counted(states)).to(collect([])).run()
        backend: Any = states._open()
        backend.open_to_read()
        ((_, mark),) = backend.marks()
        backend.close()
        assert len(orjson.loads(mark)) == count

    async def story() -> None:
        async with queue(database, 30) as store:
            await work(30)
            await work(0)
            await store.put([orjson.dumps({"n": 40, "k": 1})])
            await work(1)

    asyncio.run(story())


# Into a table.


@pytest.mark.parametrize("source", ["table", "values"])
def test_a_refused_row_is_skipped_alone(source: str, database: str) -> None:
    async def work() -> None:
        async with queue(database, 30) as store:
            await store.query("ALTER TABLE results RENAME TO results_before")
            await store.query(REFUSING)
            values = [{"n": n, "k": n % 3} for n in range(30)]
            rows: Any = from_iterable(values)
            if source == "table":
                rows = read_table(database, follow=False)
            stream = rows.pipe(counted(States(database)))
            report = await stream.to(results(database, on_error="skip")).run()
            assert report.statistics["stages"][-1]["skipped"] == 1
            assert await numbers(store) == [n for n in range(30) if n != 13]
            if source == "table":
                assert await ends(store) == {1: 29, -1: 1}

    asyncio.run(work())
    # A failure that is skipped is done.
    assert kept(States(database)) == of(range(30))


REFUSING = "CREATE TABLE results (n integer CHECK (n <> 13), k integer, c integer)"


@pytest.mark.parametrize("policy", ["stop", "revert"])
def test_what_is_refused_is_in_no_state_and_all_others_are_written(
    policy: Any, database: str
) -> None:
    async def work() -> None:
        async with queue(database, 30) as store:
            await store.query("ALTER TABLE results RENAME TO results_before")
            await store.query(REFUSING)
            source = read_table(database, follow=False, backoff=SOON, attempts=3)
            stream = source.pipe(counted(States(database)))
            running = stream.to(results(database, on_error=policy)).start()
            if policy == "stop":
                with pytest.raises(Exception, match="13"):
                    await running.wait()
            else:
                await running.wait()
                assert await ends(store) == {1: 29, -1: 1}
            # Also those of the same commit, but for what was counted after it.
            written = await numbers(store)
            assert set(range(30)) - set(written) <= {13, 16, 19, 22, 25, 28}
            assert Counter(status for status in (await ends(store)).elements() if status == 1) == {
                1: len(written)
            }
            expected.update(of(written))

    expected: dict[int, int] = {}
    asyncio.run(work())
    assert kept(States(database)) == expected


def test_a_refused_row_is_routed_and_its_event_is_done_then(database: str) -> None:
    letters: list[Any] = []

    async def work() -> None:
        async with queue(database, 30) as store:
            await store.query("ALTER TABLE results RENAME TO results_before")
            await store.query(REFUSING)
            stream = read_table(database, follow=False).pipe(counted(States(database)))
            await stream.to(results(database, on_error=route(collect(letters)))).run()
            assert await numbers(store) == [n for n in range(30) if n != 13]
            assert await ends(store) == {1: 29, -1: 1}

    asyncio.run(work())
    assert [letter.value["n"] for letter in letters] == [13]
    assert kept(States(database)) == of(range(30))


@pytest.mark.parametrize("policy", ["skip", "route"])
def test_the_key_of_a_refused_row_is_not_remembered(policy: str, database: str) -> None:
    on_error: Any = route(collect([])) if policy == "route" else policy

    async def work() -> None:
        async with queue(database) as store:
            await store.query("ALTER TABLE results RENAME TO results_before")
            await store.query(REFUSING)
            distinct = distinct_within(999, "n", store=States(database))
            lists = [[{"n": n + m, "k": 0} for m in range(5)] for n in range(0, 30, 5)]
            stages: Any = ops.flat_map(lambda rows: rows), distinct, ops.flat_map(twice)
            stream = from_iterable(lists).pipe(*stages)
            await stream.to(results(database, on_error=on_error)).run()
            found = [n for n in range(30) for _ in range(2) if n != 13]
            assert await numbers(store) == found

    asyncio.run(work())
    assert sorted(kept(States(database))) == [n for n in range(30) if n != 13]


def twice(event: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(event, c=c) for c in range(2)]


@pytest.mark.parametrize("writer", ["the store", "the source"])
def test_a_refused_row_is_no_duplicate_when_it_comes_again(writer: str, database: str) -> None:
    async def work() -> None:
        async with queue(database, 30) as store:
            await store.query("ALTER TABLE results RENAME TO results_before")
            await store.query(REFUSING)
            stages: list[Any] = [distinct_within(999, "n"), ops.flat_map(twice)]
            if writer == "the store":
                stages.insert(0, counted(States(database)))
            source = read_table(database, follow=False, backoff=SOON, attempts=3)
            await source.pipe(*stages).to(results(database, on_error="revert")).run()
            assert await ends(store) == {1: 29, -1: 1}
            assert await numbers(store) == [n for n in range(30) for _ in range(2) if n != 13]

    asyncio.run(work())


def test_lines_of_a_file_are_rows_without_any_state(database: str, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(b"".join(orjson.dumps({"n": n, "k": 0, "c": 0}) + b"\n" for n in range(3_000)))

    async def work() -> None:
        async with queue(database) as store:
            for added in (range(0), range(3_000, 3_007)):
                with file.open("ab") as lines:
                    lines.writelines(orjson.dumps({"n": n, "k": 0, "c": 0}) + b"\n" for n in added)
                source = read_jsonl(file, position=States(database))
                report = await source.to(results(database)).run()
            assert report.statistics["finished"] == 7
            assert await numbers(store) == list(range(3_007))

    asyncio.run(work())


@pytest.mark.parametrize("keyed", [False, True], ids=["", "keyed"])
@pytest.mark.parametrize("has_states", [False, True], ids=["", "states"])
def test_what_another_sink_skips_is_written_too(
    database: str, states: States, tmp_path: Path, has_states: bool, keyed: bool
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f'{{"n": {n}, "k": {n % 3}, "c": 0}}\n' for n in range(10)))

    def odd(event: dict[str, Any]) -> None:
        if event["n"] % 2:
            raise ValueError(event)

    async def work() -> None:
        async with queue(database) as store:
            options: dict[str, Any] = {"key": "n", "on_conflict": "update"} if keyed else {}
            sinks = for_each(odd, on_error="skip"), results(database, **options)
            lines = read_jsonl(path, position=states)
            stages = [counted(states)] if has_states else []
            await asyncio.wait_for(lines.pipe(*stages).to(*sinks).run(), 60)
            assert await numbers(store) == list(range(10))

    asyncio.run(work())


@pytest.mark.parametrize("several", [False, True])
def test_results_in_two_tables_are_those_of_the_events_that_were_not_reverted(
    database: str, several: bool
) -> None:
    tried: set[int] = set()

    async def fails_first(event: dict[str, Any]) -> dict[str, Any]:
        # Later events of the key have ended by then, or are on their way into the tables.
        await asyncio.sleep(0.003 * (event["n"] % 5 == 0) + 0.001 * (event["n"] % 2))
        if event["n"] % 5 == 0 and event["n"] not in tried:
            tried.add(event["n"])
            raise ValueError(event)
        return event

    async def work() -> None:
        async with queue(database, 60) as store:
            await store.query("CREATE TABLE last (k integer PRIMARY KEY, c integer)")
            source = read_table(database, follow=False, attempts=10, backoff=SOON)
            stage = adaptive_flat_map(fails_first, Fixed(16), on_error="revert")
            last = write_table(database, "last", columns=["k", "c"], key="k", on_conflict="update")
            sinks = [results(database), last, *([collect([])] if several else [])]
            pipeline = source.pipe(counted(States(database)), stage).to(*sinks)
            await asyncio.wait_for(pipeline.run(), 60)
            assert await numbers(store) == list(range(60))
            assert len(await store.query("SELECT k FROM last")) == 3

    asyncio.run(work())
    assert kept(States(database)) == of(range(60))


def test_many_results_of_one_event_do_not_wait_for_their_commit(database: str) -> None:
    def many(state: Any, event: dict[str, Any]) -> Any:
        return 1, [{"n": n, "k": 0, "c": 0} for n in range(3_000)]

    async def work() -> None:
        async with queue(database, 1) as store:
            stage = stateful(many, "k", store=States(database))
            await read_table(database, follow=False).pipe(stage).to(results(database)).run()
            assert await numbers(store) == list(range(3_000))

    asyncio.run(asyncio.wait_for(work(), 60))


def test_jobs_that_a_commit_enqueues_wake_their_reader(database: str) -> None:
    async def work() -> None:
        async with queue(database, 5):
            store = open_store(database, "next")
            await store.open()
            stream = read_table(database, follow=False).pipe(counted(States(database)))
            await stream.to(write_table(database, "next")).run()
            values: list[Any] = []
            await read_table(database, "next", follow=False).to(collect(values)).run()
            assert [(value["n"], value["c"]) for value in values] == [
                (0, 1),
                (1, 1),
                (2, 1),
                (3, 2),
                (4, 2),
            ]
            await store.close()

    asyncio.run(work())


# What is refused.


def test_one_table_that_is_read_twice_is_refused_if_the_store_is_elsewhere(
    database: str, tmp_path: Path
) -> None:
    async def work() -> None:
        async with queue(database, 3):
            states = States(tmp_path / "elsewhere.state")
            one, two = (read_table(database, follow=False) for _ in range(2))
            both: Flowable[Any] = one.pipe(ops.merge(two))
            with pytest.raises(CannotOpen, match="Two sources of the pipeline read table"):
                await both.pipe(counted(states)).to(collect([])).run()

    asyncio.run(work())


def test_results_of_worker_processes_are_refused_in_the_database_of_the_store(
    database: str,
) -> None:
    async def work() -> None:
        context = Run()
        sink = results(database, in_workers=True)
        sink.check_in_workers(context)
        States(database).marks_in(context)
        with pytest.raises(BuildError, match="leave in_workers out"):
            sink.check_in_workers(context)
        await context.close()

    asyncio.run(work())
