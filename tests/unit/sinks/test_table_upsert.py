from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reactivex import operators as ops

from penstock import adaptive_flat_map, collect, from_iterable, read_table, write_table
from penstock.streams.base.errors import BuildError, CannotOpen
from penstock.streams.failures.policy import route
from penstock.streams.sql_queue import Insertion, Store, open_store
from penstock.streams.sql_queue.schema import Upsert
from tests.unit.sources.test_table import number, queue, run, statuses

COUNTS = (
    "CREATE TABLE counts (minute text, shop integer, n integer CHECK (n <> 13), note text, "
    "UNIQUE (minute, shop))"
)
KEY = ["minute", "shop"]
COLUMNS = [*KEY, "n"]


async def counts(store: Store) -> list[tuple[Any, ...]]:
    return await store.query("SELECT minute, shop, n, note FROM counts ORDER BY minute, shop")


def count(minute: str, n: int | None, shop: int = 1) -> dict[str, Any]:
    return {"minute": minute, "shop": shop, "n": n}


def test_a_row_with_the_key_is_updated_in_the_columns_that_are_filled(database: str) -> None:
    async def work() -> None:
        async with queue(database) as store:
            await store.query(COUNTS)
            await store.query(
                "INSERT INTO counts VALUES ('a', 1, 5, 'mine'), ('a', 2, 6, 'mine'), "
                "('b', 1, 7, 'mine')"
            )
            sink = write_table(database, "counts", columns=COLUMNS, key=KEY, on_conflict="update")
            values = [count("a", 50), count("b", None), count("c", 8)]
            report = await from_iterable(values).to(sink).run()
            assert report.statistics["finished"] == 3
            assert await counts(store) == [
                ("a", 1, 50, "mine"),
                ("a", 2, 6, "mine"),
                ("b", 1, None, "mine"),
                ("c", 1, 8, None),
            ]

    run(work())


def test_a_row_with_the_key_stays_as_it_is_where_conflicts_are_ignored(database: str) -> None:
    async def work() -> None:
        async with queue(database) as store:
            await store.query(COUNTS)
            await store.query("INSERT INTO counts VALUES ('a', 1, 5, 'mine')")
            sink = write_table(database, "counts", columns=COLUMNS, key=KEY, on_conflict="ignore")
            # Of new ones the first stays, whether they are of one transaction or of several.
            values = [count("a", 50), count("b", 1), count("b", 2), count("b", 3)]
            report = await from_iterable(values).to(sink).run()
            assert report.statistics["finished"] == 4
            assert await counts(store) == [("a", 1, 5, "mine"), ("b", 1, 1, None)]

    run(work())


def test_the_last_of_one_key_in_a_transaction_wins_and_all_finish(database: str) -> None:
    async def work() -> None:
        async with queue(database) as store:
            await store.query(COUNTS)
            sink = write_table(database, "counts", columns=COLUMNS, key=KEY, on_conflict="update")
            values = [count(f"{n % 7}", n + 20) for n in range(3_000)]
            report = await from_iterable(values).to(sink).run()
            assert report.statistics["finished"] == 3_000
            last = {value["minute"]: value["n"] for value in values}
            assert {minute: n for minute, _, n, _ in await counts(store)} == last

    run(work())


def test_rows_of_one_key_are_written_by_one_statement(database: str) -> None:
    async def work() -> None:
        async with queue(database) as store:
            await store.query(COUNTS)
            fields = {name: name for name in COLUMNS}
            table = open_store(database, "counts")
            for replaces, kept in ((True, 3), (False, 3), (True, 3)):
                into = Insertion(table, fields, Upsert(KEY, replaces))
                values = [table.encoded(fields, count("a", n)) for n in (1, 2, 3)]
                await table.write({into: values})
                assert await counts(store) == [("a", 1, kept, None)]
            await table.close()

    run(work())


@pytest.mark.parametrize(
    ("on_conflict", "kept"), [("update", [("a", 3), ("b", 4)]), ("ignore", [("a", 1), ("b", 2)])]
)
def test_keys_that_the_database_has_for_equal_are_one(
    database: str, on_conflict: Any, kept: list[tuple[str, int]]
) -> None:
    async def work() -> None:
        async with queue(database) as store:
            kind = "text COLLATE nocase" if database.startswith("sqlite") else "numeric(6, 1)"
            await store.query(f"CREATE TABLE equal (k {kind} PRIMARY KEY, n integer)")
            sink = write_table(
                database, "equal", columns=["k", "n"], key="k", on_conflict=on_conflict
            )
            keys = ["a", "b", "A", "B"] if "nocase" in kind else ["1", "2", "1.04", "2.00"]
            values = [{"k": k, "n": n} for n, k in enumerate(keys, 1)]
            await from_iterable(values).to(sink).run()
            found = await store.query("SELECT n FROM equal ORDER BY k")
            assert [n for (n,) in found] == [n for _, n in kept]

    run(work())


VALUES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(20, 99)), max_size=30)


@given(runs=st.lists(st.tuples(st.sampled_from(["update", "ignore"]), VALUES), max_size=3))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_table_is_what_a_dict_would_be(database: str, runs: list[tuple[Any, Any]]) -> None:
    async def work() -> None:
        async with queue(database) as store:
            await store.query("DROP TABLE IF EXISTS counts")
            await store.query(COUNTS)
            expected: dict[tuple[str, int], int] = {}
            for on_conflict, values in runs:
                for minute, shop, n in values:
                    if on_conflict == "update":
                        expected[str(minute), shop] = n
                    else:
                        expected.setdefault((str(minute), shop), n)
                sink = write_table(
                    database, "counts", columns=COLUMNS, key=KEY, on_conflict=on_conflict
                )
                events = [count(str(minute), n, shop) for minute, shop, n in values]
                report = await from_iterable(events).to(sink).run()
                assert report.statistics["finished"] == len(values)
            found = {(minute, shop): n for minute, shop, n, _ in await counts(store)}
            assert found == expected

    run(work())


def test_a_result_updates_its_row_in_the_transaction_of_the_source(database: str) -> None:
    async def work() -> None:
        async with queue(database, 40) as store:
            await store.query(COUNTS)

            def counted(event: dict[str, Any]) -> dict[str, Any]:
                return count(str(number(event) % 3), number(event) + 20)

            sink = write_table(database, "counts", columns=COLUMNS, key=KEY, on_conflict="update")
            report = await read_table(database, follow=False).pipe(ops.map(counted)).to(sink).run()
            assert report.statistics["stages"][-1]["shared"] == 0
            assert await statuses(store) == [1] * 40
            last = [("0", 1, 59, None), ("1", 1, 57, None), ("2", 1, 58, None)]
            assert await counts(store) == last

    run(work())


@pytest.mark.parametrize("from_queue", [True, False])
def test_an_update_that_the_database_refuses_fails_and_the_others_are_written(
    database: str, from_queue: bool
) -> None:
    async def work() -> None:
        async with queue(database, 20) as store:
            await store.query(COUNTS)
            await store.query("INSERT INTO counts VALUES ('12', 1, 5, ''), ('13', 1, 5, '')")
            events: Any = read_table(database, follow=False)
            if not from_queue:
                events = from_iterable({"n": n} for n in range(20))

            def counted(event: dict[str, Any]) -> dict[str, Any]:
                return count(str(number(event)), number(event))

            sink = write_table(
                database, "counts", columns=COLUMNS, key=KEY, on_conflict="update", on_error="skip"
            )
            report = await events.pipe(ops.map(counted)).to(sink).run()
            assert report.statistics["failed"] == 1
            assert report.statistics["finished"] == 19
            found = {int(minute): n for minute, _, n, _ in await counts(store)}
            assert found == {n: n for n in range(20)} | {13: 5}

    run(work())


@pytest.mark.parametrize("value", [{"minute": None, "n": 1}, {"n": 1}])
def test_an_event_without_a_value_for_the_key_fails(database: str, value: Any) -> None:
    async def work() -> None:
        async with queue(database) as store:
            await store.query("CREATE TABLE counts (minute text UNIQUE, n integer)")
            columns = {"minute": "minute", "n": "n"}
            options: Any = {"columns": columns, "key": "minute", "on_conflict": "update"}
            sink = write_table(database, "counts", **options, on_error="skip")
            values = [{"minute": "a", "n": 1}, value, {"minute": "a", "n": 2}]
            report = await from_iterable(values).to(sink).run()
            assert report.statistics["failed"] == 1
            assert await store.query("SELECT minute, n FROM counts") == [("a", 2)]
            sink = write_table(database, "counts", **options)
            with pytest.raises(TypeError, match=r"column 'minute' of the key .* missing or null"):
                await from_iterable([value]).to(sink).run()

    run(work())


def test_letters_update_rows_by_their_key(database: str) -> None:
    def fail(value: str) -> int:
        raise ValueError(f"no\0 {value[1:]}")

    async def work() -> None:
        async with queue(database) as store:
            await store.query("CREATE TABLE refused (input text PRIMARY KEY, message text)")
            columns = {"input": "value", "message": "message"}
            refused = route(
                write_table(database, "refused", columns=columns, key="input", on_conflict="update")
            )
            stream = from_iterable(["ab", "ab", "cd"]).pipe(
                adaptive_flat_map(fail, on_error=refused)
            )
            await stream.to(collect([])).run()
            nul = "\0" if database.startswith("sqlite") else "\\0"
            assert await store.query("SELECT input, message FROM refused ORDER BY input") == [
                ("ab", f"no{nul} b"),
                ("cd", f"no{nul} d"),
            ]

    run(work())


def test_a_key_may_be_all_that_is_filled(database: str) -> None:
    async def work() -> None:
        async with queue(database) as store:
            await store.query("CREATE TABLE seen (k integer PRIMARY KEY, n integer DEFAULT 7)")
            sink = write_table(database, "seen", columns=["k"], key="k", on_conflict="update")
            await from_iterable({"k": k % 3} for k in range(9)).to(sink).run()
            assert await store.query("SELECT k, n FROM seen ORDER BY k") == [(0, 7), (1, 7), (2, 7)]

    run(work())


def test_names_in_a_key_are_quoted(database: str) -> None:
    async def work() -> None:
        async with queue(database) as store:
            columns = {'a"b%s': "k", "select": "n", "ordinality": "n", "place": "n", "value": "n"}
            await store.query(
                'CREATE TABLE "odd%s" ("a""b%s" text PRIMARY KEY, "select" integer, '
                "ordinality integer, place integer, value integer)"
            )
            sink = write_table(
                database, "odd%s", columns=columns, key='a"b%s', on_conflict="update"
            )
            await from_iterable([{"k": "x", "n": 1}, {"k": "x", "n": 2}]).to(sink).run()
            assert await store.query('SELECT * FROM "odd%s"') == [("x", 2, 2, 2, 2)]

    run(work())


@pytest.mark.parametrize("index", ["", "minute", "minute, shop, n"])
def test_a_key_without_its_unique_index_is_refused_at_the_start_with_the_statement_that_helps(
    database: str, index: str
) -> None:
    async def work() -> None:
        async with queue(database) as store:
            await store.query("CREATE TABLE counts (minute text, shop integer, n integer)")
            if index:
                await store.query(f"CREATE UNIQUE INDEX others ON counts ({index})")
            await store.query("CREATE INDEX other ON counts (minute, shop)")
            await store.query("CREATE UNIQUE INDEX part ON counts (minute, shop) WHERE n > 3")

            async def write() -> None:
                sink = write_table(
                    database, "counts", columns=COLUMNS, key=KEY, on_conflict="update"
                )
                await from_iterable([count("a", 1), count("a", 2)]).to(sink).run()

            with pytest.raises(CannotOpen) as refused:
                await write()
            said = str(refused.value)
            assert "Table 'counts' in " in said
            assert "has no primary key or unique index on just 'minute', 'shop'" in said
            await store.query(said.partition("key= needs: ")[2])
            await write()
            assert await store.query("SELECT * FROM counts") == [("a", 1, 2)]

    run(work())


def test_a_unique_constraint_that_is_checked_at_the_commit_is_no_help(postgres: str) -> None:
    async def work() -> None:
        async with queue(postgres) as store:
            await store.query(
                "CREATE TABLE counts (minute text UNIQUE DEFERRABLE INITIALLY DEFERRED, n integer)"
            )
            sink = write_table(
                postgres, "counts", columns=["minute", "n"], key="minute", on_conflict="update"
            )
            with pytest.raises(CannotOpen, match=r"'counts_minute_key' .* DEFERRABLE"):
                await from_iterable([{"minute": "a", "n": 1}]).to(sink).run()

    run(work())


def test_two_writers_that_update_the_same_rows_in_other_orders_both_end(database: str) -> None:
    async def work() -> None:
        async with queue(database) as store:
            await store.query("CREATE TABLE counts (minute integer PRIMARY KEY, n integer)")

            async def write(minutes: list[int], n: int) -> None:
                sink = write_table(
                    database, "counts", columns=["minute", "n"], key="minute", on_conflict="update"
                )
                values = [{"minute": minute, "n": n} for minute in minutes]
                report = await from_iterable(values).to(sink).run()
                assert report.statistics["finished"] == len(minutes)
                assert report.statistics["stages"][-1]["reconnects"] == 0

            # No two of one key are in one transaction.
            there = list(range(1_100)) * 10
            await asyncio.gather(write(there, 1), write(there[::-1], 2))
            assert await store.query("SELECT count(*) FROM counts") == [(1_100,)]

    run(work())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": "n"}, "on_conflict="),
        ({"key": "n", "on_conflict": "error"}, "on_conflict="),
        ({"on_conflict": "update"}, "key="),
        ({"on_conflict": "replace", "key": "n"}, '"error", "update" or "ignore"'),
        ({"key": "m", "on_conflict": "update"}, "'m' must be among the columns"),
        ({"key": [], "on_conflict": "update"}, "name of a column"),
        ({"key": ["n", 3], "on_conflict": "update"}, "name of a column"),
        ({"key": {"n"}, "on_conflict": "update"}, "name of a column"),
        ({"key": b"n", "on_conflict": "update"}, "name of a column"),
        ({"key": "n", "on_conflict": "update", "columns": None}, "columns="),
    ],
)
def test_a_key_and_what_becomes_of_a_conflict_go_together(
    options: dict[str, Any], said: str
) -> None:
    given: dict[str, Any] = {"columns": ["n"], **options}
    with pytest.raises(BuildError, match=said):
        write_table("sqlite:///work.db", "results", **given)
