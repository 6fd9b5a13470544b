"""An ordinary table is read by a column of times, with ids where times are equal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from penstock import Running, adaptive_flat_map, collect, read_table
from penstock.streams.base.errors import BuildError, CannotOpen, ColumnMissing
from tests.helpers.statements import Connection, execute, interleave
from tests.helpers.until import until
from tests.helpers.walks import seeds
from tests.unit.sources.test_table_growing import numbers

PAIR = ("at", "id")


@pytest.fixture
def events(database: str) -> str:
    """A table whose ids do not grow."""
    kind = "text" if database.startswith("sqlite") else "timestamptz"
    execute(database, f'CREATE TABLE events (id text PRIMARY KEY, "at" {kind}, n integer)')
    return database


def insert(url: str, *rows: tuple[str, int]) -> None:
    """Rows with these ids, at so many minutes past eight."""
    for id, minute in rows:
        at = f"2026-01-31 08:{minute:02}:00+00:00"
        execute(url, f"""INSERT INTO events (id, "at") VALUES ('{id}', '{at}')""")


async def read(url: str, **options: Any) -> list[str]:
    """The ids of what a run reads, in that order."""
    done: list[dict[str, Any]] = []
    source = read_table(url, "events", from_id=PAIR, follow=False, **options)
    await source.to(collect(done)).run()
    return [row["id"] for row in done]


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_rows_come_by_time_and_by_id_where_times_are_equal_and_none_twice(
    events: str, tmp_path: Path, batch: int
) -> None:
    position = tmp_path / "p"
    insert(events, ("c", 1), ("a", 2), ("d", 2), ("b", 0))

    async def work() -> None:
        assert await read(events, position=position, batch=batch) == ["b", "c", "a", "d"]
        assert await read(events, position=position, batch=batch) == []
        # Of the last time, before and behind the last id.
        insert(events, ("b2", 2), ("e", 2), ("f", 3))
        found = await read(events, position=position, batch=batch)
        assert sorted(found) == ["b2", "e", "f"]
        assert await read(events, position=position, batch=batch) == []

    asyncio.run(work())


def test_what_was_not_finished_comes_again_and_nothing_else(events: str, tmp_path: Path) -> None:
    position = tmp_path / "p"
    insert(events, *((id, minute) for minute in range(5) for id in (f"x{minute}", f"y{minute}")))

    def handler(row: dict[str, Any]) -> str:
        if row["id"] in ("y0", "x2"):
            raise ValueError("no")
        return str(row["id"])

    async def work() -> None:
        done: list[str] = []
        source = read_table(events, "events", from_id=PAIR, position=position, follow=False)
        working = adaptive_flat_map(handler, on_error="revert")
        await source.pipe(working).to(collect(done)).run()
        assert len(done) == 8
        execute(events, "DELETE FROM events WHERE id = 'y0'")
        assert await read(events, position=position) == ["x2"]
        assert await read(events, position=position) == []

    asyncio.run(work())


def test_a_row_whose_time_was_changed_comes_again(events: str, tmp_path: Path) -> None:
    position = tmp_path / "p"
    insert(events, ("a", 1), ("b", 2))

    async def work() -> None:
        assert await read(events, position=position) == ["a", "b"]
        execute(events, """UPDATE events SET "at" = '2026-01-31 09:00:00+00:00' WHERE id = 'a'""")
        assert await read(events, position=position) == ["a"]

    asyncio.run(work())


def forgets(running: Running) -> Any:
    return until(lambda: numbers(running)["remembered"] <= 1)


def test_a_row_comes_whose_transaction_took_its_time_long_before_it_wrote(
    postgres: str, tmp_path: Path
) -> None:
    execute(postgres, 'CREATE TABLE events (id bigint PRIMARY KEY, "at" timestamptz DEFAULT now())')
    position = tmp_path / "p"

    async def work() -> None:
        late = await psycopg.AsyncConnection.connect(postgres)
        await late.execute("SELECT 1")  # from now on it has a time, and no number
        done: list[dict[str, Any]] = []
        source = read_table(postgres, "events", from_id=PAIR, position=position, poll=0.02)
        async with source.to(collect(done)).start() as running:
            for id in range(10):
                execute(postgres, f"INSERT INTO events VALUES ({id})")
            await until(lambda: len(done) == 10)
            await running.drain()
        await late.execute("INSERT INTO events VALUES (99)")
        await late.commit()
        done.clear()
        source = read_table(postgres, "events", from_id=PAIR, position=position, poll=0.02)
        async with source.to(collect(done)).start() as running:
            await until(lambda: [row["id"] for row in done] == [99])
            await forgets(running)
            await running.drain()
        assert numbers(running)["in"] == 1
        await late.close()

    asyncio.run(work())


@seeds(40)
def test_every_row_that_is_committed_comes_once_whatever_its_time_and_the_order_of_the_commits(
    postgres: str, tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    # Times are coarse, so that many are equal, and ids do not grow.
    execute(
        postgres,
        """CREATE TABLE events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), "at" timestamptz
        DEFAULT date_trunc('milliseconds', now()))""",
    )
    position = tmp_path / "p"

    seen: list[str] = []

    async def begin(connection: Connection) -> None:
        await connection.execute("SELECT 1")

    async def insert_one(connection: Connection) -> Any:
        cursor = await connection.execute("INSERT INTO events DEFAULT VALUES RETURNING id")
        (id,) = await cursor.fetchone() or ()
        return id

    async def look(committed: set[Any]) -> None:
        batch = rng.choice((1, 3, 100))
        seen.extend(await read(postgres, position=position, batch=batch, poll=0.01))
        assert set(seen) == committed

    asyncio.run(interleave(rng, postgres, begin, insert_one, look))
    assert sorted(seen) == sorted(set(seen))


@pytest.mark.parametrize("pair", [(), ("at",) * 2, ("at", "id", "n"), ("at", 1), 5, ("at", "")])
def test_anything_but_a_column_or_a_pair_of_columns_is_refused(pair: Any) -> None:
    with pytest.raises(BuildError, match="from_id"):
        read_table("sqlite:///x.db", from_id=pair)


def test_what_is_missing_or_of_another_order_is_said(events: str, tmp_path: Path) -> None:
    position = tmp_path / "p"
    insert(events, ("a", 1))

    async def refused(error: type[Exception], match: str, pair: Any) -> None:
        source = read_table(events, "events", from_id=pair, position=position, follow=False)
        with pytest.raises(error, match=match):
            await source.to(collect([])).run()

    async def work() -> None:
        await refused(ColumnMissing, "lacks 'time'", ("time", "id"))
        assert await read(events, position=position) == ["a"]
        await refused(CannotOpen, "not a position", ("n", "id"))
        await refused(CannotOpen, "remove", "n")

    asyncio.run(work())
