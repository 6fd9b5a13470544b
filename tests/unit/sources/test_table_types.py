"""Values and columns of other types than those that a queue has."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from penstock import collect, from_iterable, read_table, write_table
from penstock.__main__ import main
from penstock.streams.base.errors import CannotOpen
from penstock.streams.sql_queue import ClaimTerms, Settlement, open_store
from penstock.streams.sql_queue.analytics.replay import read_visits
from penstock.streams.sql_queue.analytics.statistics import measure


def read(url: str, table: str = "queue", **options: Any) -> list[Any]:
    found: list[Any] = []
    asyncio.run(read_table(url, table, follow=False, **options).to(collect(found)).run())
    return found


@pytest.fixture
def work(tmp_path: Path) -> str:
    """The file of an empty queue in SQLite."""
    url = f"sqlite:///{tmp_path}/work.db"
    asyncio.run(from_iterable(list[Any]()).to(write_table(url)).run())
    return url


def execute(url: str, text: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
        db.execute(text)


@pytest.mark.parametrize("by", [None, "n"])
@pytest.mark.parametrize(
    "time",
    [
        "CURRENT_TIMESTAMP",
        "'2020-01-02T03:04:05.678+02:00'",
        "'2020-01-02'",
        "'1700000000.5'",
        "x'31'",
        "'2020-99-99 no time'",
        "'soon'",
    ],
)
def test_a_row_whose_time_is_a_text_is_due(work: str, by: str | None, time: str) -> None:
    execute(work, f"INSERT INTO queue (payload, run_at) VALUES ('{{\"n\": 1}}', {time})")
    execute(work, f"INSERT INTO queue (payload, enqueued) VALUES ('{{\"n\": 2}}', {time})")
    assert read(work, by=by) == [{"n": 1}, {"n": 2}]


def test_a_text_of_a_time_to_come_is_waited_for_and_counted_as_delayed(work: str) -> None:
    execute(work, "INSERT INTO queue (payload, run_at) VALUES ('{}', '2999-01-01 00:00:00')")
    assert read(work) == []

    async def story() -> None:
        store = open_store(work)
        await store.open()
        stats = await measure(store, 60.0)
        assert (stats.waiting, stats.delayed) == (1, 1)
        assert len(await read_visits(store, 60.0)) == 1
        await store.close()

    asyncio.run(story())


def test_peek_shows_a_time_that_is_a_text(work: str, capfd: pytest.CaptureFixture[str]) -> None:
    execute(work, "INSERT INTO queue (payload, run_at) VALUES ('{}', '2999-01-01 00:00:00')")
    assert main(["queue", "peek", work]) == 0
    assert '"run_at":"2999-01-01 00:00:00"' in capfd.readouterr().out


def test_ids_of_several_types_are_claimed_together(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/own.db"
    execute(
        url,
        "CREATE TABLE own (id PRIMARY KEY, payload, status, run_at, enqueued, started, finished, "
        "attempts, owner, token, expires, error)",
    )
    execute(
        url,
        "INSERT INTO own (id, payload, status, attempts) VALUES (2, '{\"n\": 1}', 0, 0), "
        "('1', '{\"n\": 2}', 0, 0), (x'30', '{\"n\": 3}', 0, 0)",
    )
    assert [event["n"] for event in read(url, "own", columns={})] == [1, 2, 3]


_OWN = """CREATE TABLE own (id bigint PRIMARY KEY, payload text, status integer, run_at {time},
    enqueued {time}, started {time}, finished {time}, attempts {attempts}, owner text,
    token {token}, expires {time}, error text)"""
_TYPES = {"time": "timestamptz", "attempts": "integer", "token": "bigint"}


@pytest.mark.parametrize(
    ("kinds", "column"),
    [
        ({"token": "integer"}, "token"),
        ({"token": "text"}, "token"),
        ({"attempts": "varchar(9)"}, "attempts"),
        ({"time": "text"}, "run_at"),
        ({"time": "date"}, "run_at"),
        ({"time": "double precision"}, "run_at"),
    ],
)
def test_columns_of_postgresql_that_cannot_hold_what_a_queue_writes_are_refused_at_the_start(
    postgres: str, kinds: dict[str, str], column: str
) -> None:
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute(_OWN.format_map(_TYPES | kinds).encode())
    with pytest.raises(CannotOpen, match=f"Column '{column}' of table 'own' .* is of type"):
        read(postgres, "own", columns={})


@pytest.mark.parametrize("column", ["attempts", "token"])
def test_so_are_numbers_in_sqlite_that_are_declared_as_texts(tmp_path: Path, column: str) -> None:
    url = f"sqlite:///{tmp_path}/own.db"
    execute(url, _OWN.format_map(_TYPES | {"time": "real", column: "text"}))
    with pytest.raises(CannotOpen, match=f"Column '{column}' of table 'own' .* is of type"):
        read(url, "own", columns={})


SETTINGS = [
    "TimeZone=Asia/Tokyo",
    "DateStyle=German",
    "IntervalStyle=iso_8601",
    "extra_float_digits=-3",
    "bytea_output=escape",
]


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamptz", "2026-11-28 12:00+02"),
        ("timestamp", "2026-11-28 12:00"),
        ("date", "2026-11-28"),
        ("tstzrange", "[2026-11-28 12:00+02,)"),
        ("timestamptz[]", "{2026-11-28 12:00+02}"),
        ("interval", "1 day 02:00"),
        ("double precision", "0.1234567890123456"),
        ("bytea", r"\x0041ff"),
        ("varchar(9)", "a"),
        ("numeric(9, 2)", "1.5"),
    ],
)
def test_a_key_is_the_same_for_readers_whose_sessions_write_its_value_otherwise(
    postgres: str, kind: str, value: str, beside: bool
) -> None:
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute("CREATE TABLE queue " + _OWN.format_map(_TYPES).removeprefix("CREATE TABLE own"))
        db.execute(f"ALTER TABLE queue ADD COLUMN key {kind}".encode())
        for n in (1, 2):
            columns = "id, payload, status, attempts, key"
            db.execute(f"INSERT INTO queue ({columns}) VALUES ({n}, '{{}}', 0, 0, '{value}')")

    async def story() -> None:
        options = quote(" ".join(f"-c {setting}" for setting in SETTINGS))
        stores = [
            open_store(url, "queue", None if beside else {}, beside=beside)
            for url in (postgres, f"{postgres}?options={options}")
        ]
        for store in stores:
            await store.open()
        one, other = stores
        (first,) = (await one.claim(1, ClaimTerms("one", by="key"))).rows
        assert (await other.claim(1, ClaimTerms("other", by="key"))).rows == []
        ended = Settlement(finished=[first], idle_keys=[(str(first.key), first.epoch)])
        assert await one.settle(ended, ClaimTerms("one", by="key")) == []
        (second,) = (await other.claim(1, ClaimTerms("other", by="key"))).rows
        assert second.key == first.key
        for store in stores:
            await store.close()

    asyncio.run(story())
