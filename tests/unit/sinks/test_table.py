from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime
from enum import Enum
from math import inf, nan
from typing import Any
from uuid import UUID

import msgspec
import pytest
from reactivex import operators as ops

from penstock import (
    Fixed,
    Pipeline,
    adaptive_flat_map,
    collect,
    from_iterable,
    read_table,
    write_table,
)
from penstock.streams.base.errors import BuildError, ColumnMissing, TableMissing
from penstock.streams.failures.backoff import Backoff
from penstock.streams.failures.policy import route
from penstock.streams.sql_queue import Store
from tests.helpers.spans import Spans, identity, parent
from tests.unit.sources.test_table import (
    number,
    numbers_of,
    payloads,
    queue,
    run,
    source_numbers,
    statuses,
)


async def results(store: Store) -> list[tuple[Any, ...]]:
    return await store.query("SELECT n, who FROM results ORDER BY n")


async def make_results(store: Store) -> None:
    await store.query("CREATE TABLE results (n integer UNIQUE CHECK (n <> 13), who text)")


def test_what_was_written_into_a_queue_is_read_from_it(database: str) -> None:
    async def work() -> None:
        report = await from_iterable({"n": n} for n in range(3000)).to(write_table(database)).run()
        assert report.statistics["finished"] == 3000
        values, _ = await numbers_of(read_table(database, follow=False))
        assert values == list(range(3000))

    run(work())


def test_the_context_of_a_trace_goes_with_a_row_to_the_next_queue_and_into_a_column(
    database: str,
) -> None:
    spans = Spans()

    async def double(value: dict[str, Any]) -> dict[str, Any]:
        return {"n": 2 * value["n"]}

    async def traced(pipeline: Pipeline, share: float) -> None:
        running = pipeline.start()
        running.trace(spans.provider, sample=share)
        await running.wait()

    async def work() -> None:
        async with queue(database) as store:
            await store.query("CREATE TABLE results (n integer, traceparent text)")
            await traced(from_iterable([{"n": 1}, {"n": 2}]).to(write_table(database)), 1)
            columns = ["n", "traceparent"]
            again = read_table(database, follow=False).pipe(adaptive_flat_map(double))
            await traced(again.to(write_table(database, "results", columns=columns)), 0)
            rows = await store.query("SELECT n, traceparent FROM results ORDER BY n")
        sent, came = spans.named("event of from_iterable"), spans.named("event of read_table")
        assert {parent(span) for span in came} == {identity(span) for span in sent}
        assert len(came) == 2
        assert [n for n, _ in rows] == [2, 4]
        assert {text.split("-")[2] for _, text in rows} == {identity(span) for span in came}

    run(work())


class Order(msgspec.Struct):
    n: int


def test_records_are_rows_of_a_queue(database: str) -> None:
    async def work() -> None:
        await from_iterable(map(Order, range(3))).to(write_table(database)).run()
        values, _ = await numbers_of(read_table(database, follow=False))
        assert values == [0, 1, 2]

    run(work())


def test_fields_go_into_the_columns_of_a_table(database: str) -> None:
    async def work() -> None:
        async with queue(database) as store:
            await make_results(store)
            values = [{"n": 1, "who": "é \\ \"'"}, {"n": 2, "who": None}, {"n": 3}]
            await (
                from_iterable(values)
                .to(write_table(database, "results", columns=["n", "who"]))
                .run()
            )
            assert await results(store) == [(1, "é \\ \"'"), (2, None), (3, None)]
            await (
                from_iterable([{"m": 4}])
                .to(write_table(database, "results", columns={"n": "m"}))
                .run()
            )
            assert (await results(store))[-1] == (4, None)
            sink = write_table(database, "results", columns=["n", "who"], on_error="skip")
            report = await from_iterable([Order(5), "text", 6]).to(sink).run()
            assert (await results(store))[-1] == (5, None)
            assert report.statistics["failed"] == 2

    run(work())


@pytest.mark.parametrize("events", [3, 5_000])
def test_a_column_whose_field_no_event_has_is_reported_once(
    database: str, events: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with queue(database) as store:
            await make_results(store)
            sink = write_table(database, "results", columns={"n": "n", "who": "woh"})
            await from_iterable({"n": n + 20, "who": "a"} for n in range(events)).to(sink).run()
            assert (await results(store))[-1] == (events + 19, None)
            # Some event has it, or its value is null.
            sink = write_table(database, "results", columns=["n", "who"])
            await from_iterable([{"n": 1}, {"n": 2, "who": None}]).to(sink).run()

    run(work())
    first = "1,000" if events > 3 else "3"
    assert [record.getMessage() for record in caplog.records] == [
        f"write_table: no event of the first {first} has the field 'woh' (column 'who'), so "
        "that it is null in every row; the last one has 'n', 'who'"
    ]


def test_a_row_and_its_result_are_written_in_one_transaction(database: str) -> None:
    async def work() -> None:
        async with queue(database, 400) as store, queue(database, table="out") as out:
            # Every transaction that marks a row finds its result there, and vice versa.
            stream = read_table(database, follow=False).pipe(adaptive_flat_map(lambda e: e))
            counts: set[tuple[int, int]] = set()

            async def look() -> None:
                while True:
                    text = (
                        "SELECT (SELECT count(*) FROM {table} WHERE {status} = 1), "
                        "(SELECT count(*) FROM out)"
                    )
                    counts.update(await store.query(text))  # type: ignore[arg-type]
                    await asyncio.sleep(0)

            looking = asyncio.create_task(look())
            report = await stream.to(write_table(database, "out")).run()
            looking.cancel()
            assert all(done == written for done, written in counts)
            assert report.statistics["finished"] == 400
            assert sorted(map(number, await payloads(out))) == list(range(400))
            assert await statuses(store) == [1] * 400

    run(work())


def test_all_results_of_a_row_are_written_or_none(database: str) -> None:
    async def work() -> None:
        def fail(event: dict[str, Any]) -> dict[str, Any]:
            if number(event) == 12:
                raise ValueError("the third child of row 1")
            return event

        async with queue(database, 3) as store, queue(database, table="out") as out:
            children = ops.flat_map(lambda e: [{"n": e["n"] * 10 + child} for child in range(4)])
            stream = read_table(database, follow=False, attempts=1).pipe(
                children, adaptive_flat_map(fail, on_error="revert")
            )
            await stream.to(write_table(database, "out")).run()
            assert await statuses(store) == [1, -1, 1]
            assert sorted(map(number, await payloads(out))) == [0, 1, 2, 3, 20, 21, 22, 23]

    run(work())


def test_a_row_may_have_more_results_than_the_sink_has_room_for(database: str) -> None:
    async def work() -> None:
        async with queue(database, 2) as store, queue(database, table="out") as out:
            children = ops.flat_map(lambda e: [e] * 3000)
            stream = read_table(database, follow=False).pipe(children)
            await asyncio.wait_for(stream.to(write_table(database, "out")).run(), 30)
            assert await out.query("SELECT count(*) FROM {table}") == [(6000,)]
            assert await statuses(store) == [1, 1]

    run(work())


def test_a_result_of_several_rows_is_written_once(database: str) -> None:
    async def work() -> None:
        async with queue(database, 10) as store, queue(database, table="out") as out:
            stream = read_table(database, follow=False).pipe(
                ops.buffer_with_count(4), ops.map(lambda rows: {"rows": rows})
            )
            await stream.to(write_table(database, "out")).run()
            written = await payloads(out)
            assert [[number(value) for value in batch["rows"]] for batch in written] == [
                [0, 1, 2, 3],
                [4, 5, 6, 7],
                [8, 9],
            ]
            assert await statuses(store) == [1] * 10

    run(work())


@pytest.mark.parametrize("from_queue", [True, False])
def test_a_value_that_the_database_refuses_fails_and_the_others_are_written(
    database: str, from_queue: bool
) -> None:
    async def work() -> None:
        async with queue(database, 20) as store:
            await make_results(store)
            await store.query("INSERT INTO results (n) VALUES (7)")
            source: Any = read_table(database, follow=False)
            if not from_queue:
                source = from_iterable({"n": n} for n in range(20))
            sink = write_table(database, "results", columns=["n"], on_error="skip")
            report = await source.to(sink).run()
            assert [n for n, _ in await results(store)] == [n for n in range(20) if n != 13]
            assert report.statistics["failed"] == 2
            assert report.statistics["finished"] == 18
            if from_queue:
                found = await statuses(store)
                assert [n for n, status in enumerate(found) if status == -1] == [7, 13]
                assert found.count(1) == 18

    run(work())


def test_a_refused_value_stops_the_pipeline_by_default(database: str) -> None:
    async def work() -> None:
        async with queue(database, 20) as store:
            await make_results(store)
            sink = write_table(database, "results", columns=["n"])
            with pytest.raises(Exception, match=r"(?i)check"):
                await read_table(database, backoff=Backoff(60, 60)).to(sink).run()
            found = await statuses(store)
            assert found[13] == 0
            assert found.count(1) == len(await results(store))

    run(work())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "not JSON serializable"),
        *(({"n": [None, value]}, "JSON has no number") for value in (nan, inf)),
        *((value, "takes JSON objects") for value in (7, "a", [1], None, True, 1.5)),
    ],
)
def test_a_value_that_a_reader_could_not_read_fails_its_event(
    database: str, value: object, said: str
) -> None:
    async def work() -> None:
        sink = write_table(database, on_error="skip")
        report = await from_iterable([{"n": 1}, value, {"n": 2}]).to(sink).run()
        assert report.statistics["failed"] == 1
        with pytest.raises(TypeError, match=said):
            await from_iterable([value]).to(write_table(database)).run()
        async with queue(database):
            values, _ = await numbers_of(read_table(database, follow=False))
        assert values == [1, 2]

    run(work())


@pytest.mark.parametrize("number", [nan, inf, -inf])
def test_a_number_that_json_does_not_have_fails_its_event_in_a_column_too(
    database: str, number: float
) -> None:
    async def work() -> None:
        async with queue(database, 0) as store:
            await make_results(store)
            values = [{"n": 1}, {"n": number}, {"n": 2}]
            sink = write_table(database, "results", columns=["n"], on_error="skip")
            report = await from_iterable(values).to(sink).run()
            assert report.statistics["failed"] == 1
            assert [n for n, _ in await results(store)] == [1, 2]

    run(work())


def test_several_sinks_share_the_rows_of_a_source(database: str) -> None:
    async def work() -> None:
        async with queue(database, 50) as store, queue(database, table="out") as out:
            values: list[Any] = []
            report = (
                await read_table(database, follow=False)
                .to(write_table(database, "out"), collect(values), write_table(database, "more"))
                .run()
            )
            assert len(values) == len(await payloads(out)) == 50
            assert await statuses(store) == [1] * 50
            assert source_numbers(report)["held"] == 0

    run(work())


def test_another_database_gets_its_rows_before_those_of_the_source_are_marked(
    database: str, tmp_path: Any
) -> None:
    async def work() -> None:
        other = f"sqlite:///{tmp_path}/other.db"
        async with queue(database, 50) as store, queue(other) as out:
            await read_table(database, follow=False).to(write_table(other)).run()
            assert len(await payloads(out)) == 50
            assert await statuses(store) == [1] * 50

    run(work())


def test_missing_tables_and_columns_are_reported_at_the_start(database: str) -> None:
    async def work() -> None:
        async with queue(database) as store:
            with pytest.raises(TableMissing, match="results"):
                await from_iterable([{}]).to(write_table(database, "results", columns=["n"])).run()
            await make_results(store)
            with pytest.raises(ColumnMissing, match="'m'"):
                await from_iterable([{}]).to(write_table(database, "results", columns=["m"])).run()

    run(work())


def test_columns_must_name_some() -> None:
    with pytest.raises(BuildError, match="columns"):
        write_table("sqlite:///work.db", columns=[])
    with pytest.raises(BuildError, match="either columns are filled, or rows are enqueued"):
        write_table("sqlite:///work.db", columns=["n"], queue={"payload": "body"})


@pytest.mark.parametrize("queue", ["hooks", 3, {"payload": 3}, {"payload": ""}])
def test_names_of_a_queue_that_are_none_are_refused_with_the_form_they_have(queue: Any) -> None:
    with pytest.raises(BuildError, match=r"maps? .*name"):
        write_table("sqlite:///work.db", queue=queue)


@pytest.mark.parametrize("columns", ["name", 3, [3], {"n": 3}, [""], [{}], b"n"])
def test_columns_that_are_not_names_are_refused(columns: Any) -> None:
    with pytest.raises(BuildError, match=r"write_table\(columns=.*names"):
        write_table("sqlite:///work.db", columns=columns)


@pytest.mark.parametrize("table", [3, "", None])
def test_a_table_without_a_name_is_refused(table: Any) -> None:
    with pytest.raises(BuildError, match="not a valid name of a table"):
        write_table("sqlite:///work.db", table)


class Size(Enum):
    SMALL = "small"
    LARGE = 40


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (Size.SMALL, "small"),
        (Size.LARGE, "40"),
        ([1, "a"], '[1,"a"]'),
        ({"a": None}, '{"a":null}'),
    ],
)
def test_a_value_that_json_has_as_a_text_fills_a_column_without_quotes(
    database: str, value: object, text: str
) -> None:
    async def work() -> None:
        async with queue(database) as store:
            await make_results(store)
            sink = write_table(database, "results", columns=["who"])
            await from_iterable([{"who": value}]).to(sink).run()
            assert await results(store) == [(None, text)]

    run(work())


@pytest.mark.parametrize("by", [None, "key"])
def test_letters_about_rows_of_the_same_database_are_written_and_can_be_read(
    database: str, by: str | None
) -> None:
    def fail(event: dict[str, Any]) -> int:
        if number(event) % 2:
            raise ValueError("odd")
        return number(event)

    async def work() -> None:
        async with queue(database, 6) as store:
            refused = route(write_table(database, "letters"))
            handler = adaptive_flat_map(fail, on_error=refused)
            values: list[int] = []
            rows = read_table(database, by=by, follow=False)
            report = await rows.pipe(handler).to(collect(values)).run()
            assert report.statistics["failed"] == 3
            assert sorted(values) == [0, 2, 4]
            assert await statuses(store) == [1, -1] * 3
            letters: list[dict[str, Any]] = []
            await read_table(database, "letters", follow=False).to(collect(letters)).run()
            found = {
                (letter["value"]["n"], letter["error"], letter["message"]) for letter in letters
            }
            assert found == {(n, "ValueError", "odd") for n in (1, 3, 5)}
            assert {letter["attempts"] for letter in letters} == {1}

    run(work())


def test_letters_fill_columns_by_the_names_of_their_fields(database: str) -> None:
    def fail(value: int) -> int:
        raise ValueError(f"no {value}")

    async def work() -> None:
        async with queue(database) as store:
            await store.query("CREATE TABLE refused (error text, message text, attempts integer)")
            columns = ["error", "message", "attempts"]
            refused = route(write_table(database, "refused", columns=columns))
            stream = from_iterable([7]).pipe(adaptive_flat_map(fail, on_error=refused))
            await stream.to(collect([])).run()
            assert await store.query("SELECT * FROM refused") == [("ValueError", "no 7", 1)]

    run(work())


@pytest.mark.parametrize("kind", ["text", "jsonb"])
def test_letters_with_characters_that_a_column_cannot_hold_are_written(
    database: str, kind: str
) -> None:
    def fail(value: str) -> int:
        raise ValueError(f"no {value}")

    async def work() -> None:
        async with queue(database) as store:
            await store.query(f"CREATE TABLE refused (message text, value {kind})")
            refused = route(write_table(database, "refused", columns=["message", "value"]))
            handler = adaptive_flat_map(fail, Fixed(1), on_error=refused)
            stream = from_iterable(["a", "b\0\0c", "d\\u0000"]).pipe(handler)
            report = await stream.to(collect([])).run()
            assert report.statistics["failed"] == 3
            rows = await store.query("SELECT message FROM refused")
            nul = "\0" if database.startswith("sqlite") else "\\0"
            assert rows == [("no a",), (f"no b{nul}{nul}c",), ("no d\\u0000",)]

    run(work())
