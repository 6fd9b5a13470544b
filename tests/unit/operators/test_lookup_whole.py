"""`lookup` in a `table(whole=True)` of sources that end: when events leave, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Store,
    collect,
    event_time,
    from_async_iterable,
    from_iterable,
    inbox,
    lookup,
    ops,
    read_jsonl,
    run,
    table,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.testing import run_virtual

ROWS: list[Any] = [
    {"key": 1, "name": "old"},
    {"key": None, "name": "none"},
    {"key": 1, "name": "new"},
]


def found(events: list[Any], rows: Any, **options: Any) -> list[Any]:
    results: list[Any] = []
    pipeline = from_iterable(events).pipe(lookup(table(rows, "key", whole=True), "key", **options))
    run(pipeline.to(collect(results)))
    return [(event["n"], row and row["name"]) for event, row in results]


def test_each_event_has_the_newest_row_that_was_there_at_the_start() -> None:
    events = [{"n": 1, "key": 1}, {"n": 2, "key": 2}, {"n": 3, "key": None}]
    assert found(events, from_iterable(ROWS)) == [(1, "new"), (2, None), (3, None)]


def test_a_file_is_read_to_its_end_before_the_first_event(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"key": {key}, "name": "{key}"}}\n' for key in range(5_000)))
    events = [{"n": key, "key": key} for key in range(4_990, 5_010)]
    expected = [(key, str(key) if key < 5_000 else None) for key in range(4_990, 5_010)]
    assert found(events, read_jsonl(path)) == expected


def test_no_event_is_read_before_the_rows_are_there() -> None:
    async def rows() -> AsyncIterator[Any]:
        await asyncio.sleep(100)
        yield {"key": 1, "name": "late"}

    async def main() -> None:
        box: Any = inbox(10)
        results: list[Any] = []
        whole = table(from_async_iterable(rows), "key", whole=True)
        running = box.pipe(lookup(whole, "key")).to(collect(results)).start()
        await box.put({"key": 1})
        await asyncio.sleep(99)
        (numbers,) = (one for one in running.statistics()["stages"] if one["name"] == "lookup")
        assert (numbers["is_whole"], numbers["waiting"], results) == (False, 0, [])
        await asyncio.sleep(2)
        assert results == [({"key": 1}, {"key": 1, "name": "late"})]
        await running.drain(5)

    run_virtual(main())


def test_a_drain_before_the_rows_are_there_pairs_no_event() -> None:
    async def rows() -> AsyncIterator[Any]:
        yield {"key": 1, "name": "first"}
        await asyncio.sleep(100)
        yield {"key": 1, "name": "last"}

    async def main() -> None:
        box: Any = inbox(10)
        results: list[Any] = []
        whole = table(from_async_iterable(rows), "key", whole=True)
        running = box.pipe(lookup(whole, "key")).to(collect(results)).start()
        await box.put({"key": 1})
        await asyncio.sleep(1)
        await running.drain(20)
        assert not results

    run_virtual(main())


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_a_row_or_an_event_without_a_key_is_an_error_of_the_stage(policy: Any) -> None:
    rows, events = [{"name": "no key"}, *ROWS], [{"n": 0}, {"n": 1, "key": 1}]
    if policy == "skip":
        assert found(events, from_iterable(rows), on_error=policy) == [(1, "new")]
        return
    for given in ((events, ROWS), (events[1:], rows)):
        with pytest.raises(KeyError) as caught:
            found(given[0], from_iterable(given[1]), on_error=policy)
        assert "'lookup'" in "".join(caught.value.__notes__)


def test_a_key_that_cannot_be_one_is_an_error_of_its_event() -> None:
    events: list[Any] = [{"n": 0, "key": []}, {"n": 1, "key": 1}]
    rows: list[Any] = [{"key": {}}, *ROWS]
    assert found(events, from_iterable(rows), on_error="skip") == [(1, "new")]


def test_an_error_of_the_table_ends_the_run() -> None:
    def broken(_: Any) -> Any:
        raise ZeroDivisionError

    rows = from_iterable(ROWS).pipe(ops.map(broken))
    with pytest.raises(ZeroDivisionError):
        found([{"n": 1, "key": 1}], rows)


@pytest.mark.parametrize(
    ("option", "value"), [("keep", 5), ("time", "at"), ("store", Store("a.state"))]
)
def test_options_of_tables_with_times_are_refused(option: str, value: Any) -> None:
    with pytest.raises(BuildError, match=rf"table\(whole=True, {option}="):
        table(from_iterable(ROWS), "key", whole=True, **{option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [("as_of", "at"), ("wait", 5), ("late", "stop"), ("name", "plans")],
)
def test_options_of_look_ups_by_time_are_refused(option: str, value: Any) -> None:
    with pytest.raises(BuildError, match=rf"lookup\({option}=.*table\(whole=True\) has the rows"):
        lookup(table(from_iterable(ROWS), "key", whole=True), "key", **{option: value})


@pytest.mark.parametrize(
    "rows",
    [
        lambda: inbox(5),
        lambda: read_jsonl("rows.jsonl", follow=True),
        lambda: read_jsonl("rows.jsonl", position="rows.position"),
        lambda: from_iterable(ROWS).pipe(ops.share()),
        lambda: from_iterable(ROWS).pipe(ops.merge(from_iterable(ROWS))),
    ],
)
def test_sources_that_do_not_say_what_was_there_at_the_start_are_refused(rows: Any) -> None:
    with pytest.raises(BuildError, match=r"table\(whole=True\)"):
        table(rows(), "key", whole=True)


def test_events_with_times_find_the_newest_row_as_well() -> None:
    results: list[Any] = []
    rows = from_iterable([{"key": 1, "at": 5, "name": "later"}]).pipe(event_time("at"))
    events = from_iterable([{"key": 1, "at": 1}]).pipe(event_time("at"))
    run(events.pipe(lookup(table(rows, "key", whole=True), "key")).to(collect(results)))
    assert results[0][1]["name"] == "later"
