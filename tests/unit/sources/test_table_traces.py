"""The context of a trace in columns of a table that is read as a queue."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from penstock import Pipeline, collect, from_iterable, read_table, write_table
from penstock.streams.sql_queue import ClaimTerms, open_store
from penstock.streams.sql_queue.schema import Required
from tests.helpers.spans import Spans, identity, parent

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01"


@dataclass
class Table:
    """A queue that a user's table is, or that is kept beside one."""

    url: str
    beside: bool

    def execute(self, text: str) -> None:
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as db, db:
                db.execute(text)
        else:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(text.encode())

    def add(self, column: str, kind: str = "text") -> None:
        self.execute(f"ALTER TABLE jobs ADD COLUMN {column} {kind}")

    def read(self, spans: Spans, **options: Any) -> list[Any]:
        """What a traced run reads from the table, `by` a column if it says so."""
        results: list[Any] = []
        by = options.pop("by", None)
        source = read_table(self.url, "jobs", beside=self.beside, by=by, follow=False)
        traced(spans, source.to(collect(results)), **options)
        return results


def traced(spans: Spans, pipeline: Pipeline, **options: Any) -> None:
    async def story() -> None:
        running = pipeline.start()
        running.trace(spans.provider, **options)
        async with running:
            pass

    asyncio.run(story())


@pytest.fixture(params=["ordinary", "beside"])
def table(database: str, request: pytest.FixtureRequest) -> Table:
    found = Table(database, beside=request.param == "beside")
    if found.beside:
        kind = "INTEGER" if database.startswith("sqlite") else "bigint GENERATED ALWAYS AS IDENTITY"
        found.execute(
            f"CREATE TABLE jobs (id {kind} PRIMARY KEY, payload text, status integer DEFAULT 0)"
        )
    else:

        async def make() -> None:
            store = open_store(database, "jobs")
            await store.open()
            await store.close()

        asyncio.run(make())
    return found


@pytest.fixture
def spans() -> Spans:
    return Spans()


def contexts(spans: Spans) -> list[Any]:
    """What the spans of the events that were read are below."""
    return [parent(span) for span in spans.named("event of read_table")]


@pytest.mark.parametrize("by", [None, "traceparent"])
def test_a_trace_that_write_table_puts_into_a_column_goes_on_with_read_table(
    table: Table, spans: Spans, by: str | None
) -> None:
    table.add("traceparent")
    values = [{"payload": {"n": n}} for n in range(3)]
    columns = ["payload", "traceparent"]
    traced(spans, from_iterable(values).to(write_table(table.url, "jobs", columns=columns)))
    results = table.read(spans, sample=0, by=by)
    written = spans.named("event of from_iterable")
    read = spans.named("event of read_table")
    assert {parent(span) for span in read} == {identity(span) for span in written}
    assert len(read) == 3
    assert {span.get_span_context().trace_id for span in read} == {
        span.get_span_context().trace_id for span in written
    }
    assert sorted(result["n"] for result in results) == [0, 1, 2]


def test_the_state_of_a_trace_comes_in_a_column_too(table: Table, spans: Spans) -> None:
    table.add("traceparent")
    table.add("tracestate")
    table.execute(
        "INSERT INTO jobs (payload, traceparent, tracestate) VALUES "
        f"""('{{"n": 1}}', '{PARENT}', 'a=1'), ('{{"n": 2}}', '{PARENT}', NULL)"""
    )
    results = table.read(spans)
    assert [result.get("tracestate") for result in results] == ["a=1", None]
    assert contexts(spans) == ["b7ad6b7169203331"] * 2


def test_the_context_in_a_payload_goes_before_that_in_the_column(
    table: Table, spans: Spans
) -> None:
    table.add("traceparent")
    table.add("tracestate")
    payload = f'{{"n": 1, "traceparent": "{OTHER}"}}'
    table.execute(
        "INSERT INTO jobs (payload, traceparent, tracestate) VALUES "
        f"('{payload}', '{PARENT}', 'a=1')"
    )
    (result,) = table.read(spans)
    assert contexts(spans) == ["c7ad6b7169203331"]
    # The state in the column belongs to the other context.
    assert "tracestate" not in result


def test_a_row_whose_column_has_no_valid_context_begins_a_trace(table: Table, spans: Spans) -> None:
    table.add("traceparent")
    table.execute(
        "INSERT INTO jobs (payload, traceparent) VALUES "
        """('{"n": 1}', NULL), ('{"n": 2}', ''), ('{"n": 3}', 'none')"""
    )
    assert [result["n"] for result in table.read(spans)] == [1, 2, 3]
    assert contexts(spans) == [None] * 3


def test_the_column_is_called_as_the_field(table: Table, spans: Spans) -> None:
    table.add("traceparent")
    table.add('"our {trace}"')
    table.execute(
        """INSERT INTO jobs (payload, traceparent, "our {trace}") VALUES """
        f"""('{{"n": 1}}', '{PARENT}', '{OTHER}')"""
    )
    (result,) = table.read(spans, field="our {trace}")
    assert contexts(spans) == ["c7ad6b7169203331"]
    assert set(result) == {"n", "our {trace}"}


def test_without_a_field_no_column_is_read(table: Table, spans: Spans) -> None:
    table.add("traceparent")
    table.execute(f"""INSERT INTO jobs (payload, traceparent) VALUES ('{{"n": 1}}', '{PARENT}')""")
    assert table.read(spans, field=None) == [{"n": 1}]
    assert contexts(spans) == [None]


def test_a_reader_that_is_not_traced_reads_no_column(table: Table) -> None:
    table.add("traceparent")
    table.execute(f"""INSERT INTO jobs (payload, traceparent) VALUES ('{{"n": 1}}', '{PARENT}')""")

    async def work() -> None:
        store = open_store(table.url, "jobs", beside=table.beside)
        await store.open()
        (row,) = (await store.claim(1, ClaimTerms("me"))).rows
        assert not hasattr(row, "headers")
        await store.close()

    asyncio.run(work())


def test_a_table_without_the_column_is_read_as_before(table: Table, spans: Spans) -> None:
    table.add("tracestate")
    table.execute("""INSERT INTO jobs (payload, tracestate) VALUES ('{"n": 1}', 'a=1')""")
    (result,) = table.read(spans)
    assert "tracestate" not in result
    assert contexts(spans) == [None]


@pytest.mark.parametrize("by", [None, "n"])
def test_a_row_that_is_claimed_alone_has_its_context(table: Table, by: str | None) -> None:
    table.add("traceparent")
    table.add("n", "integer")
    table.execute(
        f"""INSERT INTO jobs (payload, traceparent, n) VALUES ('{{"n": 1}}', '{PARENT}', 1)"""
    )

    async def work() -> None:
        store = open_store(table.url, "jobs", beside=table.beside)
        await store.open(Required(context="traceparent"))
        terms = [ClaimTerms(name, lease=0.0, attempts=2, by=by) for name in ("crashed", "next")]
        assert len((await store.claim(1, terms[0])).rows) == 1
        # By key, this claim finds what the first reader left behind.
        assert (await store.claim(1, terms[1])).rows == []
        (row,) = (await store.claim_suspect(terms[1])).rows
        assert row.headers == {"traceparent": PARENT}
        await store.close()

    asyncio.run(work())
