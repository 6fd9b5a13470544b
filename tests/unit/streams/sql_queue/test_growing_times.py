"""When rows behind the last one that was read by its time are looked for no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.sql_queue.growing_rows import GrowingOptions
from penstock.streams.sql_queue.growing_times import RowsByTime
from penstock.streams.testing import run_virtual

POLL = 1.0
Pair = tuple[str, str]


class _Layout:
    table = "events"


class Database:
    """Answers what `RowsByTime` asks, from pairs of times and ids and the transactions that are
    open: their virtual ids, and their numbers if they have written. The next has number 100."""

    url, layout, columns, commits_in_order = "sqlite:///x.db", _Layout, ["at", "id"], False

    def __init__(self, *rows: Pair) -> None:
        self.rows = set(rows)
        self.open: list[str] = []
        self.writing: list[int] = []
        self.next = 100

    async def read(self, text: str, **values: Any) -> list[Any]:
        if "pg_locks" in text:
            return [(min([*self.writing, self.next]), self.next, self.open)]
        front = (values.get("front", ""), values.get("front_id", ""))
        if "time_aa" in values:
            names = [name.removeprefix("time_") for name in values if name.startswith("time_")]
            wanted = {(values[f"time_{name}"], values[f"id_{name}"]) for name in names}
            found = sorted(self.rows & wanted)
        elif "<=" in text:
            since = (values["since"] or "", "")
            return sorted(row for row in self.rows if since <= row <= front)
        else:
            found = sorted(row for row in self.rows if row > front)[: values["count"]]
        return [(*row, *row) for row in found]


class _Run:
    @property
    def now(self) -> Callable[[], float]:
        return asyncio.get_running_loop().time


async def _insist(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


def reading(database: Database, *, follow: bool = True) -> RowsByTime:
    options = GrowingOptions(["at", "id"], None, 100, follow, POLL, 60.0)
    rows = RowsByTime(cast(Any, _Run()), StageInfo("read_table"), database, _insist, options)
    rows._columns = "t.at, t.id"
    return rows


async def look(rows: RowsByTime, times: int = 1) -> list[str]:
    """The ids of all rows that have come, after so many looks that are `POLL` apart."""
    ids: list[str] = []
    for _ in range(times):
        await asyncio.sleep(POLL)
        while found := await rows.next_rows(100):
            ids += [id for (_, id), _ in found]
    return ids


def remembered(rows: RowsByTime) -> int:
    number: int = rows.statistics()["remembered"]
    return number


def test_rows_are_remembered_until_every_transaction_that_was_open_has_ended() -> None:
    async def story() -> None:
        database = Database(("08:01", "a"), ("08:02", "b"))
        database.open = ["3/1", "4/1"]
        rows = reading(database)
        assert await look(rows, 3) == ["a", "b"]
        # Those that begin later do not count.
        database.open = ["4/1", "5/1"]
        assert await look(rows, 5) == []
        assert remembered(rows) == 2
        database.open = ["5/1"]
        database.rows.add(("08:00", "late"))
        assert await look(rows, 3) == ["late"]
        assert remembered(rows) == 1
        assert rows.state([])["since"] == "08:02"
        # One of the last time may still come, and one from before then not.
        database.rows |= {("08:02", "a tie"), ("08:00", "too late")}
        assert await look(rows) == ["a tie"]

    run_virtual(story())


def test_a_transaction_may_have_its_time_a_moment_before_it_counts_as_open() -> None:
    async def story() -> None:
        database = Database(("08:02", "b"))
        rows = reading(database)
        assert await look(rows) == ["b"]
        database.open = ["3/1"]
        assert await look(rows, 3) == []
        database.open = []
        database.rows.add(("08:01", "late"))
        assert await look(rows) == ["late"]

    run_virtual(story())


def test_rows_are_remembered_while_a_prepared_transaction_has_a_lower_number() -> None:
    async def story() -> None:
        database = Database(("08:01", "a"), ("08:02", "b"))
        database.writing = [99]
        rows = reading(database)
        await look(rows, 6)
        assert remembered(rows) == 2
        database.writing, database.next = [100], 101
        await look(rows, 3)
        assert remembered(rows) == 1

    run_virtual(story())


def test_rows_that_go_on_coming_do_not_keep_earlier_ones_from_being_settled() -> None:
    async def story() -> None:
        database = Database()
        rows = reading(database)
        for minute in range(50):
            database.rows.add((f"08:{minute:02}", "x"))
            assert await look(rows) == ["x"]
            assert remembered(rows) <= 6

    run_virtual(story())


def test_what_an_earlier_run_has_not_finished_stays_in_the_position_until_it_was_read() -> None:
    async def story() -> None:
        pairs = [(f"08:{n // 10:02}", f"{n:03}") for n in range(250)]
        first = reading(Database(*pairs))
        while await first.next_rows(100):
            pass
        second = reading(Database(*pairs))
        second.go_on(first.state(pairs[:150]))
        found = [token for token, _ in await second.next_rows(100)]
        assert found == pairs[:100]
        assert second.state(found)["again"] == pairs[:150]
        assert [token for token, _ in await second.next_rows(100)] == pairs[100:150]
        assert await second.next_rows(100) == []

    run_virtual(story())
