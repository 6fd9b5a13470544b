"""`lookup` in a table of a database: which row an event gets, how many queries that takes, and what
becomes of events when the database is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    collect,
    database_table,
    for_each,
    from_iterable,
    group_by,
    inbox,
    lookup,
    ops,
    route,
)
from penstock.streams.base.errors import (
    BuildError,
    DatabaseUnavailable,
    WrongType,
)
from penstock.streams.joins.database_stage import LookupFailed
from penstock.streams.testing import MemorySink, MemorySource, run_virtual
from tests.helpers.rows_by_key import RowsByKey
from tests.helpers.walks import examples

PLANS = {"ann": {"plan": "free"}, "bob": {"plan": "team"}}


def itself(key: Any) -> Any:
    return key


def looked_up(events: Any, rows: RowsByKey, on_error: Any = "stop", **options: Any) -> Any:
    """The results, and the numbers of the stage."""
    found: list[Any] = []

    async def main() -> Any:
        stage = lookup(rows.table(**options), itself, on_error=on_error)
        return await from_iterable(events).pipe(stage).to(collect(found)).run()

    report = run_virtual(main())
    (numbers,) = (one for one in report.statistics["stages"] if one["name"] == "lookup")
    return found, numbers


def test_each_event_gets_the_row_of_its_key_or_none_in_order() -> None:
    rows = RowsByKey(PLANS, seconds=1)
    found, numbers = looked_up(["ann", "eve", None, "bob", "ann"], rows, ttl=60)
    plans = [(user, row and row["plan"]) for user, row in found]
    assert plans == [
        ("ann", "free"),
        ("eve", None),
        (None, None),
        ("bob", "team"),
        ("ann", "free"),
    ]
    assert (numbers["found"], numbers["missing"]) == (3, 2)
    assert not rows.is_open


def test_one_query_reads_the_rows_of_all_events_that_wait() -> None:
    rows = RowsByKey(seconds=1)
    users = [f"u{n % 70}" for n in range(300)]
    found, numbers = looked_up(users, rows, ttl=60)
    assert [user for user, _ in found] == users
    assert rows.queries == [users[:70]]
    assert (numbers["queries"], numbers["read"], numbers["cached"]) == (1, 70, 70)


Play = Callable[[Any, RowsByKey], Any]


def played(play: Play, rows: RowsByKey, **options: Any) -> list[tuple[float, str, Any]]:
    """The plan that each user got, with the second in which that came."""
    found: list[tuple[float, str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began, box = loop.time(), inbox(1000)

        def note(pair: tuple[str, Any]) -> None:
            found.append((round(loop.time() - began, 3), pair[0], pair[1] and pair[1]["plan"]))

        stage = lookup(rows.table(**options), itself)
        running = box.pipe(stage).to(for_each(note)).start()
        await play(box.put, rows)
        await running.drain()

    run_virtual(main())
    return found


def test_a_row_is_read_again_when_it_is_as_old_as_ttl_says() -> None:
    async def play(put: Any, rows: RowsByKey) -> None:
        await put("ann")
        await asyncio.sleep(5)
        rows.there = {"ann": {"plan": "team"}}
        await put("ann")
        await asyncio.sleep(5)
        await put("ann")
        await asyncio.sleep(5)

    # The query began at 0, and took 2 seconds.
    found = played(play, RowsByKey(PLANS, seconds=2), ttl=10)
    assert found == [(2.0, "ann", "free"), (5.0, "ann", "free"), (12.0, "ann", "team")]


def test_that_there_is_no_row_is_also_known_for_ttl_seconds() -> None:
    async def play(put: Any, rows: RowsByKey) -> None:
        for _ in range(4):
            await put("eve")
            await asyncio.sleep(4)
            rows.there = {"eve": {"plan": "new"}}

    rows = RowsByKey()
    found = played(play, rows, ttl=10)
    assert [plan for _, _, plan in found] == [None, None, None, "new"]
    assert len(rows.queries) == 2


def test_with_ttl_0_each_list_of_events_costs_a_query() -> None:
    async def play(put: Any, rows: RowsByKey) -> None:
        for _ in range(3):
            await put("ann")
            await asyncio.sleep(1)

    rows = RowsByKey(PLANS)
    played(play, rows, ttl=0)
    assert rows.queries == [["ann"]] * 3


def test_what_comes_during_a_query_waits_for_the_next_one() -> None:
    async def play(put: Any, rows: RowsByKey) -> None:
        await put("ann")
        for user in ("bob", "eve", "ann", "bob"):
            await asyncio.sleep(0.1)
            await put(user)
        await asyncio.sleep(5)

    rows = RowsByKey(PLANS, seconds=1)
    found = played(play, rows, ttl=60)
    assert rows.queries == [["ann"], ["bob", "eve"]]
    assert [(at, user) for at, user, _ in found] == [
        (1.0, "ann"),
        (2.0, "bob"),
        (2.0, "eve"),
        (2.0, "ann"),
        (2.0, "bob"),
    ]


def test_the_cache_keeps_the_rows_of_the_keys_that_were_used_last() -> None:
    async def play(put: Any, rows: RowsByKey) -> None:
        for user in ("a", "b", "a", "c", "a", "b"):
            await put(user)
            await asyncio.sleep(1)

    rows = RowsByKey()
    played(play, rows, ttl=60, cache=2)
    assert rows.queries == [["a"], ["b"], ["c"], ["b"]]


def test_events_have_their_rows_also_if_the_cache_has_no_room_for_all() -> None:
    rows = RowsByKey({n: {"n": n} for n in range(300)}, seconds=1)
    found, numbers = looked_up(range(300), rows, ttl=60, cache=3)
    assert all(row == {"n": n} for n, row in found)
    assert numbers["cached"] == 3


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("event"), st.integers(0, 3)),
            st.tuples(st.just("row"), st.integers(0, 3)),
            st.tuples(st.just("pause"), st.sampled_from([0.5, 1.0, 3.0, 7.0])),
        ),
        max_size=40,
    ),
    ttl=st.sampled_from([0.0, 1.0, 5.0]),
    cache=st.integers(1, 5),
    seconds=st.sampled_from([0.0, 0.25, 2.0]),
)
@examples(1000)
def test_a_row_is_one_that_the_table_had_at_most_ttl_before_and_a_key_never_goes_back(
    steps: list[tuple[str, Any]], ttl: float, cache: int, seconds: float
) -> None:
    # Of each key: since when there was which row.
    history: dict[int, list[tuple[float, int]]] = {key: [(-1.0, 0)] for key in range(4)}
    came: list[tuple[int, float]] = []
    found: list[tuple[int, float, int]] = []
    rows = RowsByKey(seconds=seconds)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began, box = loop.time(), inbox(1000)

        def note(pair: tuple[int, Any]) -> None:
            version = pair[1]["version"] if pair[1] else 0
            found.append((pair[0], loop.time() - began, version))

        running = box.pipe(lookup(rows.table(ttl, cache), itself)).to(for_each(note)).start()
        await asyncio.sleep(0)
        for step, value in steps:
            if step == "event":
                came.append((value, loop.time() - began))
                await box.put(value)
            elif step == "row":
                version = history[value][-1][1] + 1
                rows.there[value] = {"version": version}
                history[value].append((loop.time() - began, version))
            else:
                await asyncio.sleep(value)
        await running.drain()

    run_virtual(main())
    assert [key for key, _, _ in found] == [key for key, _ in came]
    newest = dict.fromkeys(range(4), 0)
    for (key, put), (_, left, version) in zip(came, found, strict=True):
        versions = history[key]
        ends = [begin for begin, _ in versions[1:]] + [float("inf")]
        begin, _ = versions[version]
        # It was there at some time from `ttl` before the event came until its result left.
        assert begin <= left + 1e-9
        assert ends[version] >= put - ttl - 1e-9
        assert version >= newest[key]
        newest[key] = version


# Errors.


def test_a_key_that_cannot_be_in_the_column_is_an_error_of_its_events_only() -> None:
    rows = RowsByKey({n: {"n": n} for n in range(10)}, seconds=1)
    rows.refused = {3, 7}
    letters = MemorySink()
    found, numbers = looked_up([*range(10), 3], rows, route(letters), ttl=60)
    assert [n for n, _ in found] == [0, 1, 2, 4, 5, 6, 8, 9]
    assert [letter.value for letter in letters.values] == [3, 7, 3]
    assert "not a number" in str(letters.values[0].error)
    assert numbers["routed"] == 3


def test_a_key_that_several_rows_have_is_an_error_that_says_what_to_do() -> None:
    rows = RowsByKey({"ann": [{"plan": "free"}, {"plan": "team"}]})
    with pytest.raises(
        LookupFailed, match=r"several rows have 'ann' in 'user' of plans in"
    ) as info:
        looked_up(["bob", "ann"], rows)
    assert "a column that is unique, or a view" in str(info.value)
    assert any("'lookup'" in note and "'ann'" in note for note in info.value.__notes__)


@pytest.mark.parametrize("key", [b"x", ("a", 1), frozenset()])
def test_a_key_that_is_neither_text_nor_number_is_an_error(key: Any) -> None:
    with pytest.raises(WrongType, match="cannot be compared with a column"):
        looked_up([key], RowsByKey())
    found, _ = looked_up([key, "bob"], RowsByKey(PLANS), "skip")
    assert [user for user, _ in found] == ["bob"]


def test_a_missing_or_unhashable_key_is_an_error_of_its_event() -> None:
    letters: list[Any] = []
    found: list[Any] = []
    events = [{"user": "ann"}, {}, {"user": []}, {"user": "bob"}]
    stage = lookup(RowsByKey(PLANS).table(), "user", on_error=route(collect(letters)))

    async def main() -> Any:
        return await from_iterable(events).pipe(stage).to(collect(found)).run()

    run_virtual(main())
    assert [event["user"] for event, _ in found] == ["ann", "bob"]
    assert [letter.value for letter in letters] == [{}, {"user": []}]


def test_results_in_front_of_an_error_are_sent_and_what_is_behind_it_is_returned() -> None:
    rows = RowsByKey(PLANS, seconds=1)
    rows.refused = {"x"}
    source, found = MemorySource(["ann", "x", "bob"]), list[Any]()

    async def main() -> None:
        with pytest.raises(LookupFailed):
            await source.pipe(lookup(rows.table(), itself)).to(collect(found)).run()

    run_virtual(main())
    assert [user for user, _ in found] == ["ann"]
    assert (source.acked, source.returned) == (["ann"], ["bob"])


def test_a_database_that_is_away_is_tried_again_and_nothing_is_lost() -> None:
    async def play(put: Any, rows: RowsByKey) -> None:
        rows.away = True
        await put("ann")
        await asyncio.sleep(30)
        await put("bob")
        rows.away = False
        await asyncio.sleep(30)

    found = played(play, RowsByKey(PLANS))
    assert [(user, plan) for _, user, plan in found] == [("ann", "free"), ("bob", "team")]


def test_a_database_that_stays_away_ends_the_pipeline_with_stage_and_event() -> None:
    rows = RowsByKey(PLANS)
    rows.away = True
    with pytest.raises(DatabaseUnavailable, match="could not be used for 60 s") as info:
        looked_up(["ann", "bob"], rows, "skip")
    assert any("stage 2 'lookup'" in note and "'ann'" in note for note in info.value.__notes__)
    assert "leases" not in str(info.value)


def test_a_cancel_during_a_query_returns_the_events_that_wait() -> None:
    source, rows = MemorySource(["ann", "bob"]), RowsByKey(PLANS, seconds=10)

    async def main() -> None:
        running = source.pipe(lookup(rows.table(), itself)).to(for_each(print)).start()
        await asyncio.sleep(1)
        running.cancel()
        await running.wait()

    run_virtual(main())
    assert sorted(source.returned) == ["ann", "bob"]
    assert not rows.is_open


def test_events_are_requested_only_as_results_are() -> None:
    rows = RowsByKey(seconds=1)

    async def main() -> None:
        read: list[int] = []
        stream = from_iterable(range(100)).pipe(
            ops.do_action(read.append), lookup(rows.table(), itself)
        )
        results = aiter(stream)
        await anext(results)
        assert len(read) == 1

    run_virtual(main())


# Options.


@pytest.mark.parametrize("option", ["as_of", "wait", "late", "name"])
def test_options_for_tables_of_streams_are_refused(option: str) -> None:
    values: dict[str, Any] = {"as_of": "at", "wait": 1, "late": "stop", "name": "x"}
    stage: Any = lookup
    with pytest.raises(BuildError, match=rf"lookup\({option}=...\) is for tables of streams"):
        stage(RowsByKey().table(), "user", **{option: values[option]})


def test_it_is_refused_inside_a_group() -> None:
    grouped = from_iterable([1]).pipe
    with pytest.raises(BuildError, match="put lookup outside"):
        grouped(
            group_by(
                itself, each=lambda group: group.pipe(lookup(RowsByKey().table(), itself)), idle=1
            )
        )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"by": ""}, "the name of a column"),
        ({"ttl": -1}, "ttl=-1"),
        ({"cache": 0}, "cache=0"),
        ({"columns": []}, "names of columns"),
        ({"columns": "plan"}, "names of columns"),
        ({"patience": -1}, "at least 0 s"),
        ({"url": "mysql://x"}, "does not name a known database"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], text: str) -> None:
    given = {"url": "sqlite:///a.db", "table": "plans", "by": "user", "ttl": 60, **options}
    with pytest.raises(BuildError, match=text):
        database_table(**given)


def test_it_says_what_it_reads_without_the_password() -> None:
    plans = database_table("postgresql://me:secret@host/shop", "plans", by="user_id", ttl=60)
    info = from_iterable([1]).pipe(lookup(plans, by="user")).info
    assert info.detail == "by user in user_id of plans in postgresql://me:***@host/shop"
    assert info.note == "keeps 10,000 rows for 60 s"
