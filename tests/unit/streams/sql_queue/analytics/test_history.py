from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
import pytest

from penstock.streams.base.errors import BuildError
from penstock.streams.sql_queue import Store, open_store
from penstock.streams.sql_queue.analytics.history import HOUR, by_hour, by_kind
from penstock.streams.sql_queue.upkeep import peek

ROW = """INSERT INTO {table} ({payload}, {status}, {enqueued}, {run_at}, {started}, {finished})
SELECT :payload, :status, {now} - :came * {second}, {now} - :came * {second},
    CASE WHEN :status IN (1, -1) THEN {now} - :ended * {second} END,
    CASE WHEN :status IN (1, -1) THEN {now} - :ended * {second} END"""


def look(
    url: str,
    rows: list[tuple[str, int, float, float]],
    view: Callable[[Store], Coroutine[Any, Any, Any]],
) -> Any:
    """What a view shows of rows: payload, status, and how many seconds ago they came and ended."""

    async def main() -> Any:
        store = open_store(url)
        await store.open()
        try:
            for payload, status, came, ended in rows:
                text = ROW.replace(":payload", "(:payload)::json") if "postgres" in url else ROW
                await store.query(text, payload=payload, status=status, came=came, ended=ended)
            return await view(store)
        finally:
            await store.close()

    return asyncio.run(main())


def test_the_rows_open_at_the_end_of_an_hour_are_those_that_came_before_and_ended_later(
    database: str,
) -> None:
    # Some 24 hours: whenever in its hour the test runs, a row is within one and not at its edge.
    rows = [
        ("{}", 1, 20.0 * HOUR, 5.0 * HOUR),
        ("{}", -1, 20.0 * HOUR, 10.0 * HOUR),
        ("{}", 0, 15.0 * HOUR, 0.0),
    ]
    history = look(database, rows, lambda store: by_hour(store, 24.0 * HOUR))
    counts = [(hour.came, hour.finished, hour.dead) for hour in history.hours]
    assert len(history.hours) == 25
    assert [counts[24 - ago] for ago in (20, 15, 10, 5)] == [
        (2, 0, 0), (1, 0, 0), (0, 0, 1), (0, 1, 0)
    ]  # fmt: skip
    opened = [hour.open for hour in history.hours]
    assert opened == [0] * 4 + [2] * 5 + [3] * 5 + [2] * 5 + [1] * 6
    assert [hour.at - history.hours[0].at for hour in history.hours] == [
        n * HOUR for n in range(25)
    ]


def test_a_row_that_was_purged_is_missing_in_no_number_of_open_rows(database: str) -> None:
    history = look(database, [("{}", 0, 60.0, 0.0)], lambda store: by_hour(store, HOUR))
    assert history.hours[-1].open == 1


def test_rows_that_are_left_alone_or_whose_end_is_not_known_have_not_come(database: str) -> None:
    async def view(store: Store) -> Any:
        await store.query("UPDATE {table} SET {finished} = NULL WHERE {status} = -1")
        return await by_hour(store, HOUR), await by_kind(store, HOUR, "type")

    # Those that ended did so as they came, so that none was open when an hour ended.
    rows = [("{}", 5, 60.0, 0.0), ("{}", -1, 60.0, 60.0), ("{}", 1, 60.0, 60.0)]
    history, (kind,) = look(database, rows, view)
    assert [hour.open for hour in history.hours] == [0] * len(history.hours)
    assert sum(hour.came for hour in history.hours) == history.trend.came == kind.came == 1


@pytest.mark.parametrize(
    ("ended", "due", "empty_in"), [(3, 4, 4 * 3600 / 1), (2, 4, None), (1, 4, None), (2, 0, 0.0)]
)
def test_a_queue_is_empty_when_what_is_due_has_ended_at_the_rates_of_the_last_hour(
    database: str, ended: int, due: int, empty_in: float | None
) -> None:
    # Two came in the last hour, and `ended` ended.
    rows = [("{}", 1, 100.0, 50.0)] * min(ended, 2)
    rows += [("{}", 1, 9000.0, 60.0)] * (ended - len(rows))
    rows += [("{}", 0, 100.0, 0.0)] * (2 - min(ended, 2))
    rows += [("{}", 0, 9000.0, 0.0)] * (due - (2 - min(ended, 2)))
    trend = look(database, rows, lambda store: by_hour(store, HOUR)).trend
    assert (trend.came, trend.ended, trend.due) == (2, ended, due)
    assert trend.empty_in == (None if empty_in is None else pytest.approx(empty_in))


def test_the_trend_is_the_slope_of_the_open_rows(database: str) -> None:
    rows = [("{}", 0, n * HOUR, 0.0) for n in range(1, 9)] * 3
    trend = look(database, rows, lambda store: by_hour(store, 8.0 * HOUR)).trend
    assert trend.growth == pytest.approx(3.0)


@pytest.mark.parametrize("field", ["a b", "a'b", "a:b", "{a}", "a%b", "ä"])
def test_a_kind_is_a_field_of_any_name(database: str, field: str) -> None:
    payload = f'{{"{field}": "x"}}'
    (kind,) = look(database, [(payload, 0, 1.0, 0.0)], lambda store: by_kind(store, 60, field))
    assert (kind.kind, kind.waiting, kind.came) == ("x", 1, 1)


def test_a_kind_may_be_a_column_and_need_not_be_text(database: str) -> None:
    rows = [('{"n": 1}', 0, 1.0, 0.0), ('{"n": 1}', 1, 9.0, 1.0), ('{"n": null}', 0, 1.0, 0.0)]
    by_status = look(database, rows, lambda store: by_kind(store, 60, "status"))
    assert {kind.kind: kind.waiting for kind in by_status} == {"0": 2, "1": 0}
    by_n = look(database, [], lambda store: by_kind(store, 60, "n"))
    assert {kind.kind: (kind.waiting, kind.finished) for kind in by_n} == {
        "1": (1, 1),
        None: (1, 0),
    }


def test_a_kind_that_the_server_cannot_read_is_shown_with_question_marks(postgres: str) -> None:
    payloads = [r'{"k": "a\u0000"}', r'{"k": "\ud800b"}', r'{"k": "\u00e4", "o": "\\u0000"}']
    rows = [(payload, 0, 1.0, 0.0) for payload in payloads]
    kinds = look(postgres, rows, lambda store: by_kind(store, 60, "k"))
    assert {kind.kind for kind in kinds} == {"a?", "?b", "ä"}


def test_a_window_must_be_positive(database: str) -> None:
    for view in (lambda store: by_hour(store, 0.0), lambda store: by_kind(store, 0.0, "k")):
        with pytest.raises(BuildError, match="positive"):
            look(database, [], view)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_times_without_a_zone_in_ones_own_table_are_those_of_the_sessions_zone(
    postgres: str, zone: str
) -> None:
    url = f"{postgres}?options=-c%20TimeZone%3D{zone}"
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE TABLE jobs (id serial, payload json, status int, attempts int DEFAULT 0,"
            " enqueued timestamp DEFAULT now() - interval '1 s', run_at timestamp DEFAULT now(),"
            " started timestamp, finished timestamp, expires timestamp, owner text, token bigint,"
            " error text)"
        )
        connection.execute("""INSERT INTO jobs (payload, status) VALUES ('{"kind": "a"}', 0)""")
        connection.execute(
            "INSERT INTO jobs (payload, status, started, finished)"
            """ VALUES ('{"kind": "a"}', 1, now(), now())"""
        )

    async def story() -> None:
        store = open_store(url, "jobs", {})
        await store.open()
        history = await by_hour(store, HOUR)
        assert sum(hour.came for hour in history.hours) == 2
        assert sum(hour.finished for hour in history.hours) == 1
        (kind,) = await by_kind(store, HOUR, "kind")
        assert (kind.kind, kind.came, kind.done) == ("a", 2, 1)
        (row,) = await peek(store, 1)
        assert row.enqueued == pytest.approx(time.time(), abs=60)
        await store.close()

    asyncio.run(story())
