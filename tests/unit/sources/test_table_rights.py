"""Missing rights on a database are reported at once."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import collect, from_iterable, read_table, write_table
from penstock.streams.base.errors import RightsMissing
from penstock.streams.sql_queue import ClaimTerms, open_store


async def filled(url: str) -> None:
    store = open_store(url)
    await store.open()
    await store.put([b'{"n": 1, "key": 1}'])
    await store.close()


@pytest.fixture
def poor(postgres: str) -> Iterator[str]:
    """The URL for a user who may connect to the database, and nothing else."""
    asyncio.run(filled(postgres))
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE ROLE poor LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA public TO poor")
        yield postgres.replace("postgres@", "poor@")
        connection.execute("DROP OWNED BY poor CASCADE")
        connection.execute("DROP ROLE poor")


@pytest.mark.parametrize("granted", ["", "SELECT"])
@pytest.mark.parametrize("by", [None, "key"])
def test_missing_rights_are_reported_at_once_and_by_name(
    poor: str, postgres: str, granted: str, by: str | None
) -> None:
    if granted:
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute("GRANT SELECT ON queue TO poor")
    with pytest.raises(RightsMissing, match="permission denied for") as caught:
        asyncio.run(read_table(poor, by=by).to(collect([])).run())
    assert "UPDATE on 'queue'" in str(caught.value)


def test_a_writer_without_rights_is_reported(poor: str) -> None:
    pipeline = from_iterable([{"n": 1}]).to(write_table(poor, "queue"))
    with pytest.raises(RightsMissing, match="permission denied for table queue"):
        asyncio.run(pipeline.run())


def test_a_writer_that_updates_rows_and_may_not_is_reported_before_the_first_event(
    poor: str, postgres: str
) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE counts (k integer PRIMARY KEY, n integer)")
        connection.execute("GRANT SELECT, INSERT ON counts TO poor")
    columns = ["k", "n"]
    sink = write_table(poor, "counts", columns=columns, key="k", on_conflict="update")
    with pytest.raises(RightsMissing, match="permission denied for table counts"):
        asyncio.run(from_iterable([]).to(sink).run())
    sink = write_table(poor, "counts", columns=columns, key="k", on_conflict="ignore")
    asyncio.run(from_iterable([{"k": 1, "n": 2}]).to(sink).run())


def test_who_finds_the_table_of_keys_needs_no_right_to_make_it(poor: str, postgres: str) -> None:
    async def work() -> None:
        store = open_store(postgres)
        await store.open()
        await store.has_suspects(ClaimTerms("owner", by="key"))
        await store.query("GRANT SELECT, UPDATE ON {table} TO poor")
        await store.query("GRANT SELECT, INSERT, UPDATE, DELETE ON {keys} TO poor")
        await store.close()
        values: list[Any] = []
        await read_table(poor, by="key", follow=False).to(collect(values)).run()
        assert [value["n"] for value in values] == [1]

    asyncio.run(work())


def test_a_file_that_may_not_be_written_is_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    asyncio.run(filled(url))
    connect = sqlite3.connect

    def read_only(file: str, **options: Any) -> sqlite3.Connection:
        return connect(f"file:{file}?mode=ro", uri=True, **options)

    monkeypatch.setattr(sqlite3, "connect", read_only)
    with pytest.raises(RightsMissing, match="readonly"):
        asyncio.run(read_table(url, follow=False).to(collect([])).run())
