"""`lookup` in tables of real databases: the rows that keys find, and what is said at the start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from penstock import collect, database_table, for_each, from_iterable, inbox, lookup, run
from penstock.streams.base.errors import CannotOpen, ColumnMissing, RightsMissing, TableMissing
from penstock.streams.joins.database_stage import LookupFailed
from tests.helpers.statements import execute
from tests.helpers.until import until

PLANS = [
    "CREATE TABLE plans (user_id TEXT PRIMARY KEY, plan TEXT, seats INTEGER)",
    "INSERT INTO plans VALUES ('ann', 'free', 1), ('bob', 'team', 20)",
]


def found_in(
    url: str, keys: list[Any], table: str = "plans", by: str = "user_id", **options: Any
) -> list[Any]:
    """The row that each key finds."""
    on_error = options.pop("on_error", "stop")
    found: list[tuple[Any, Any]] = []
    rows = database_table(url, table, by, **{"ttl": 60, **options})
    stage = lookup(rows, lambda key: key, on_error=on_error)
    run(from_iterable(keys).pipe(stage).to(collect(found)))
    return [row for _, row in found]


def test_keys_find_their_rows(database: str) -> None:
    execute(database, *PLANS)
    assert found_in(database, ["bob", "eve", "ann", None, "bob"]) == [
        {"user_id": "bob", "plan": "team", "seats": 20},
        None,
        {"user_id": "ann", "plan": "free", "seats": 1},
        None,
        {"user_id": "bob", "plan": "team", "seats": 20},
    ]


def test_a_row_has_the_columns_that_are_chosen(database: str) -> None:
    execute(database, *PLANS)
    assert found_in(database, ["ann"], columns=["seats"]) == [{"seats": 1}]


def test_a_view_and_odd_names_are_fine(database: str) -> None:
    execute(
        database,
        *PLANS,
        """CREATE VIEW "the ""plans"" 100%" AS
        SELECT user_id AS "user: %s {id}", plan AS ":plan" FROM plans""",
    )
    rows = found_in(database, ["ann"], 'the "plans" 100%', "user: %s {id}")
    assert rows == [{"user: %s {id}": "ann", ":plan": "free"}]


def test_keys_are_compared_as_the_type_of_their_column(database: str) -> None:
    execute(
        database,
        "CREATE TABLE numbers (n INTEGER PRIMARY KEY, name CHAR(3))",
        "INSERT INTO numbers VALUES (1, 'one'), (7, 'sev')",
    )
    assert [row["name"] for row in found_in(database, [1, "7"], "numbers", "n")] == ["one", "sev"]
    # A key that is longer than the column's values is no prefix of them.
    assert found_in(database, ["one", "oneself"], "numbers", "name") == [
        {"n": 1, "name": "one"},
        None,
    ]


def test_a_key_of_another_type_fails_alone(postgres: str) -> None:
    execute(
        postgres,
        "CREATE TABLE numbers (n INTEGER PRIMARY KEY, id UUID)",
        "INSERT INTO numbers VALUES (1, '00000000-0000-0000-0000-00000000000a'), (2, NULL)",
    )
    with pytest.raises(LookupFailed, match=r"'x' cannot be in 'n' of numbers in postgresql://"):
        found_in(postgres, [1, "x"], "numbers", "n")
    keys = [1, "x", 2, "y\0", 10**30, "\ud800"]
    assert len(found_in(postgres, keys, "numbers", "n", on_error="skip")) == 2
    ten = UUID(int=10)
    assert [row["n"] for row in found_in(postgres, [ten, str(ten)], "numbers", "id")] == [1, 1]


def test_a_key_that_sqlite_cannot_have_fails_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    execute(url, *PLANS)
    assert len(found_in(url, ["ann", 10**30, "\ud800", "bob"], on_error="skip")) == 2


def test_a_key_of_several_rows_is_refused(database: str) -> None:
    execute(database, *PLANS, "INSERT INTO plans VALUES ('eve', 'free', 1), ('joe', 'free', 2)")
    with pytest.raises(LookupFailed, match="several rows have 'free' in 'plan' of plans"):
        found_in(database, ["team", "free"], by="plan")
    assert len(found_in(database, ["team", "free"], by="plan", on_error="skip")) == 1


def test_a_row_that_changes_is_found_when_ttl_is_over(database: str) -> None:
    execute(database, *PLANS)
    found: list[Any] = []

    async def main() -> None:
        box = inbox(10)
        stage = lookup(database_table(database, "plans", "user_id", ttl=0), lambda key: key)
        running = box.pipe(stage).to(collect(found)).start()
        for plan in ("free", "team"):
            execute(database, f"UPDATE plans SET plan = '{plan}'")
            await box.put("ann")
            await until(lambda plan=plan: bool(found) and found[-1][1]["plan"] == plan)
        await running.drain()

    asyncio.run(main())
    assert [row["plan"] for _, row in found] == ["free", "team"]


def test_a_thousand_keys_are_one_query(database: str) -> None:
    execute(database, *PLANS)
    found: list[Any] = []
    plans = database_table(database, "plans", "user_id", ttl=60)
    events = from_iterable(range(5000)).pipe(lookup(plans, lambda n: f"user {n % 2500}"))
    report = run(events.to(collect(found)))
    (numbers,) = (one for one in report.statistics["stages"] if one["name"] == "lookup")
    assert [n for n, _ in found] == list(range(5000))
    assert numbers["read"] == 2500
    assert numbers["queries"] <= 10


def test_a_missing_table_and_a_missing_column_are_said_at_the_start(database: str) -> None:
    execute(database, *PLANS)
    with pytest.raises(TableMissing, match=r"has no table .plan.\. Did you mean 'plans'"):
        found_in(database, [], "plan")
    with pytest.raises(ColumnMissing, match=r"has no column .user.; it has: user_id, plan"):
        found_in(database, [], by="user")
    with pytest.raises(ColumnMissing, match="has no columns 'colour', 'size'"):
        found_in(database, [], columns=["colour", "plan", "size"])


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(CannotOpen, match="does not exist"):
        found_in(f"sqlite:///{tmp_path}/shop.db", [])
    assert not list(tmp_path.iterdir())


def test_a_file_of_sqlite_is_left_as_it_is(tmp_path: Path) -> None:
    execute(f"sqlite:///{tmp_path}/shop.db", *PLANS)
    before = (tmp_path / "shop.db").read_bytes()
    (tmp_path / "shop.db").chmod(0o444)
    assert len(found_in(f"sqlite:///{tmp_path}/shop.db", ["ann"])) == 1
    assert (tmp_path / "shop.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["shop.db"]


def test_a_file_of_sqlite_may_be_replaced(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("shop", "next")]
    for url in urls:
        execute(url, *PLANS)
    execute(urls[1], "UPDATE plans SET plan = 'new'")
    found: list[Any] = []

    async def main() -> None:
        box = inbox(10)
        stage = lookup(database_table(urls[0], "plans", "user_id", ttl=0), lambda key: key)
        running = box.pipe(stage).to(for_each(lambda pair: found.append(pair[1]["plan"]))).start()
        await box.put("ann")
        await until(lambda: bool(found))
        (tmp_path / "next.db").replace(tmp_path / "shop.db")
        await box.put("ann")
        await running.drain()

    asyncio.run(main())
    assert found == ["free", "new"]


def test_rights_that_are_missing_are_named(postgres: str) -> None:
    execute(
        postgres,
        *PLANS,
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN",
        "GRANT USAGE ON SCHEMA public TO reader",
    )
    url = psycopg.conninfo.conninfo_to_dict(postgres)
    other = f"postgresql://reader@{url['host']}:{url['port']}/{url['dbname']}"
    with pytest.raises(RightsMissing, match="It needs SELECT on 'plans'"):
        found_in(other, ["ann"])
    execute(postgres, "GRANT SELECT ON plans TO reader")
    assert len(found_in(other, ["ann"])) == 1


def test_a_column_that_is_added_meanwhile_does_no_harm(postgres: str) -> None:
    execute(postgres, *PLANS)
    found: list[Any] = []

    async def main() -> None:
        box = inbox(100)
        stage = lookup(database_table(postgres, "plans", "user_id", ttl=0), lambda key: key)
        running = box.pipe(stage).to(collect(found)).start()
        for n in range(20):
            if n == 10:
                execute(postgres, "ALTER TABLE plans ADD COLUMN colour TEXT")
            await box.put("ann")
            await until(lambda n=n: len(found) > n)
        await running.drain()

    asyncio.run(main())
    assert {tuple(row) for _, row in found} == {("user_id", "plan", "seats")}
