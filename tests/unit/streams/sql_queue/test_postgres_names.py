"""Names of tables up to the longest that PostgreSQL has, and databases in other encodings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock import adaptive_flat_map, collect, from_iterable, read_table, write_table
from penstock.streams.base.errors import BuildError
from penstock.streams.sql_queue import open_store
from penstock.streams.sql_queue.upkeep import peek


async def through(url: str, table: str, *events: Any, **options: Any) -> list[Any]:
    await from_iterable(events).to(write_table(url, table)).run()
    found: list[Any] = []
    await read_table(url, table, follow=False, **options).to(collect(found)).run()
    return found


@pytest.mark.parametrize("name", ["q" * 57, "q" * 60, "q" * 62, "q" * 63, "ä" * 31, 'a"%{b}' * 10])
def test_tables_with_long_names_have_keys_and_indexes_of_their_own(
    postgres: str, name: str
) -> None:
    async def story() -> None:
        other = name[:-1] + "x"
        for table in (name, other, f"shop.{name}"):
            for n in range(2):
                assert await through(postgres, table, {"n": n, "c": 1}, by="c") == [
                    {"n": n, "c": 1}
                ]

    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute("DROP SCHEMA IF EXISTS shop CASCADE")
        db.execute("CREATE SCHEMA shop")
        asyncio.run(story())
        found = db.execute("SELECT count(*) FROM pg_class WHERE relname LIKE '%status_id'")
        assert found.fetchone() == (3,)
        db.execute("DROP SCHEMA shop CASCADE")


@pytest.mark.parametrize("name", ["q" * 64, "ä" * 32, f"shop.{'q' * 64}"])
def test_a_name_that_postgresql_would_cut_off_is_refused(name: str) -> None:
    with pytest.raises(BuildError, match="more than 63 bytes"):
        open_store("postgresql://me@host/shop", name)
    open_store("sqlite:///work.db", name)


@pytest.mark.parametrize("name", ["q" * 60, "ä" * 31])
def test_a_queue_beside_a_table_with_a_long_name(postgres: str, name: str) -> None:
    async def story() -> None:
        found: list[Any] = []
        rows = read_table(postgres, name, beside=True, follow=False)
        await rows.to(collect(found)).run()
        assert found == [{}]

    with psycopg.connect(postgres, autocommit=True) as db:
        text = f'CREATE TABLE "{name}" (id int PRIMARY KEY, payload json, status int)'
        db.execute(text.encode())
        db.execute(f"INSERT INTO \"{name}\" VALUES (1, '{{}}', 0)".encode())
        asyncio.run(story())


ENCODINGS = ["SQL_ASCII", "LATIN1", "WIN1252", "EUC_JP", "KOI8R"]


@pytest.fixture(params=ENCODINGS)
def encoded(request: pytest.FixtureRequest, postgres: str) -> Iterator[str]:
    """The URL of a database in another encoding than UTF-8."""
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute("DROP DATABASE IF EXISTS other")
        text = f"CREATE DATABASE other ENCODING '{request.param}' LOCALE 'C' TEMPLATE template0"
        db.execute(text.encode())
        yield postgres.rpartition("/")[0] + "/other"
        db.execute("DROP DATABASE other")


def test_databases_in_other_encodings_hold_queues_of_any_text(encoded: str) -> None:
    def fail(event: dict[str, Any]) -> None:
        raise ValueError("é € 😀 \\ " + event["n"])

    async def story() -> None:
        event = {"n": 'a\\ é " € 日 😀'}
        assert await through(encoded, "queue", event, name="Käse €") == [event]
        assert await through(encoded, "queue", {"n": "k"}, name="Käse €", by="n") == [{"n": "k"}]
        await from_iterable([event, event]).to(write_table(encoded, "bad")).run()
        rows = read_table(encoded, "bad", attempts=1, follow=False)
        report = await rows.pipe(adaptive_flat_map(fail, on_error="revert")).to(collect([])).run()
        assert report.statistics["failed"] == 2
        store = open_store(encoded, "bad")
        await store.open()
        assert all("ValueError" in (row.error or "") for row in await peek(store, 9, -1))
        await store.close()

    asyncio.run(story())


def test_a_payload_that_is_no_text_is_a_bad_row(postgres: str) -> None:
    async def story(url: str) -> None:
        assert await through(url, "queue", {"n": 1}) == [{"n": 1}]
        with psycopg.connect(url, autocommit=True) as direct:
            direct.execute(
                b'INSERT INTO queue (payload) VALUES (\'{"n": "\xe9"}\'), (\'{"n": 2}\')'
            )
        found: list[Any] = []
        report = await read_table(url, follow=False).to(collect(found)).run()
        assert found == [{"n": 2}]
        assert report.statistics["stages"][0]["bad_rows"] == 1

    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute("DROP DATABASE IF EXISTS other")
        db.execute("CREATE DATABASE other ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
        asyncio.run(story(postgres.rpartition("/")[0] + "/other"))
        db.execute("DROP DATABASE other")
