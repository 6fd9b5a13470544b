"""What a reader does with the calls of rows that are cancelled in their table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from penstock import adaptive_flat_map, batch, collect, for_each, group_by, retry, spread
from penstock.streams.base.errors import HandlerTimeout
from penstock.streams.failures.backoff import Backoff
from penstock.streams.limits import Fixed
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.sql_queue import Claim, ClaimTerms, Row
from penstock.streams.sql_queue.reader import ReaderOptions, TableReader
from penstock.streams.testing import run_virtual
from tests.helpers.memory_store import MemoryStore

LEASE = 30.0
# Two looks at the table are a second apart.
NOTICED = 1.0


class Table(MemoryStore):
    """Rows with the numbers 1, 2, ...; with `keyed` all of them have one key. `renewed` has the
    rows of each renewal, `released` when the key was left to other readers."""

    def __init__(self, rows: int, *, keyed: bool = False) -> None:
        super().__init__(f'{{"n": {n}}}' for n in range(1, rows + 1))
        self.keyed = keyed
        self.renewed: list[list[int]] = []
        self.released: list[float] = []

    async def claim(self, *args: Any, **options: Any) -> Claim:
        claim = await super().claim(*args, **options)
        for row in claim.rows:
            if self.keyed:
                row.key, row.epoch = "k", 1
        return claim

    async def renew(self, rows: Sequence[Row], terms: ClaimTerms) -> list[Row]:
        self.renewed.append([row.id for row in rows])
        return await super().renew(rows, terms)

    async def release(self, keys: Sequence[tuple[str, int | None]]) -> None:
        assert list(keys) == [("k", 1)]
        self.released.append(now())


def now() -> float:
    return asyncio.get_running_loop().time()


def rows_of(table: Table, batch: int = 100) -> Flowable[dict[str, Any]]:
    def attach(downstream: Subscriber[dict[str, Any]], run: Run) -> None:
        manner = ReaderOptions(Backoff(), batch=batch, follow=False, poll=1.0, patience=10.0)
        terms = ClaimTerms("me", LEASE, by="key" if table.keyed else None)
        TableReader(downstream, run, rows.info, table, terms, manner).start()

    rows = Flowable[dict[str, Any]](attach, StageInfo("read_table"))
    return rows


class Calls:
    """A handler whose calls take ten seconds, unless they are cancelled, in which case they end so
    many seconds later; row 1 is cancelled two and a half seconds after its call has begun."""

    def __init__(self, table: Table, *, takes: float = 10.0, ends_after: float = 0.0) -> None:
        self.table = table
        self.began: list[tuple[int, float]] = []
        self.cancelled: list[tuple[int, float]] = []
        self.takes, self.ends_after = takes, ends_after

    async def __call__(self, value: dict[str, Any]) -> int:
        n: int = value["n"]
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        self.began.append((n, now()))
        if n == 1:
            asyncio.get_running_loop().call_later(2.5, self.table.cancels.add, 1)
        try:
            await asyncio.sleep(self.takes)
        except asyncio.CancelledError:
            await asyncio.sleep(self.ends_after)
            self.cancelled.append((n, now()))
            raise
        return n


async def numbers_of(stream: Flowable[Any], done: list[Any]) -> dict[str, Any]:
    report = await stream.to(collect(done)).run()
    numbers: dict[str, Any] = report.statistics["stages"][0]
    assert numbers["in"] == numbers["finished"] + sum(numbers["dropped"].values())
    return numbers


def test_the_call_of_a_row_that_is_cancelled_is_cancelled_within_a_second_and_no_other() -> None:
    table = Table(4)
    calls, done = Calls(table), list[int]()
    stream = rows_of(table).pipe(adaptive_flat_map(calls, limit=Fixed(2)))
    numbers = run_virtual(numbers_of(stream, done))
    assert calls.cancelled == [(1, 3.0)]
    # Its slot goes on with the next row.
    assert calls.began == [(1, 0.0), (2, 0.0), (3, 3.0), (4, 10.0)]
    assert sorted(done) == [2, 3, 4]
    assert numbers["dropped"] == {"cancelled": 1}
    assert (numbers["cancelled"], numbers["lost_leases"], numbers["dead"]) == (1, 0, 0)


def test_the_next_row_of_a_key_begins_when_the_cancelled_call_has_really_ended() -> None:
    table = Table(2, keyed=True)
    calls, done = Calls(table, ends_after=25.0), list[int]()
    stream = rows_of(table).pipe(group_by(lambda _: "k"), spread(), adaptive_flat_map(calls))
    run_virtual(numbers_of(stream, done))
    assert calls.began == [(1, 0.0), (2, 28.0)]
    assert done == [2]
    # The key is renewed for the call that goes on.
    assert all(1 in renewed for renewed in table.renewed[:2])


def test_a_key_without_other_rows_is_left_to_other_readers_when_the_call_has_ended() -> None:
    table = Table(1, keyed=True)
    calls = Calls(table, ends_after=45.0)
    run_virtual(numbers_of(rows_of(table).pipe(adaptive_flat_map(calls)), []))
    assert table.renewed == [[1]] * 4
    assert table.released == [3.0 + 45.0]


def test_a_key_is_free_at_once_if_the_call_had_ended_before_its_row_was_found_cancelled() -> None:
    table = Table(1, keyed=True)
    calls, done = Calls(table, takes=2.7), list[int]()
    numbers = run_virtual(numbers_of(rows_of(table).pipe(adaptive_flat_map(calls)), done))
    assert table.released == [2.7]
    assert (calls.cancelled, done) == ([], [1])
    assert numbers["dropped"] == {"cancelled": 1}
    assert numbers["failed"] == numbers["lost_leases"] == 0


@pytest.mark.parametrize("reply", ["returns", "fails"])
def test_whatever_a_cancelled_call_returns_or_raises_does_not_count(reply: str) -> None:
    table = Table(2)
    calls, done = Calls(table), list[int]()

    async def stubborn(value: dict[str, Any]) -> int:
        with suppress(asyncio.CancelledError):
            await calls(value)
        if value["n"] == 1 and reply == "fails":
            raise ValueError("too late")
        return int(value["n"])

    stream = rows_of(table).pipe(adaptive_flat_map(stubborn, limit=Fixed(1), timeout=20.0))
    numbers = run_virtual(numbers_of(stream, done))
    assert done == [2]
    assert numbers["dropped"] == {"cancelled": 1}


@pytest.mark.parametrize("timeout", [2.9, 3.5])
def test_a_call_that_is_late_and_is_cancelled_too_is_cancelled_once(timeout: float) -> None:
    table = Table(2)
    calls, done = Calls(table, takes=20.0, ends_after=5.0), list[int]()
    stream = rows_of(table).pipe(adaptive_flat_map(calls, limit=Fixed(1), timeout=timeout))
    with suppress(HandlerTimeout):
        run_virtual(numbers_of(stream, done))
    # Once, or it could not clean up.
    assert calls.cancelled[0] == (1, min(timeout, 3.0) + 5.0)
    assert calls.began[1][1] == calls.cancelled[0][1]


def test_a_row_that_is_cancelled_while_it_waits_for_its_next_attempt_is_not_tried_again() -> None:
    table = Table(1)
    began: list[float] = []

    async def failing(value: dict[str, Any]) -> None:
        began.append(now())
        table.cancels.add(1)
        raise ValueError("again")

    policy = retry(5, Backoff(20.0, cap=20.0, jitter=0))
    stream = rows_of(table).pipe(adaptive_flat_map(failing, on_error=policy))
    numbers = run_virtual(numbers_of(stream, []))
    assert began == [0.0]
    assert numbers["dropped"] == {"cancelled": 1}


def test_a_call_with_a_batch_is_cancelled_if_all_of_its_rows_are() -> None:
    table, done = Table(30), list[int]()
    cancelled: list[list[int]] = []
    several: list[list[int]] = []

    async def each(values: list[dict[str, Any]]) -> list[int]:
        numbers: list[int] = [value["n"] for value in values]
        if len(numbers) > 1:
            several.append(numbers)
            gone = {1: numbers[:1], 2: numbers}.get(len(several), [])
            asyncio.get_running_loop().call_later(2.5, table.cancels.update, gone)
        try:
            await asyncio.sleep(10.0)
        except asyncio.CancelledError:
            cancelled.append(numbers)
            raise
        return numbers

    numbers = run_virtual(numbers_of(rows_of(table).pipe(batch(each, 3)), done))
    # The others of the first one go on, and so does the call that has it with them.
    assert cancelled == [several[1]]
    assert set(done) == set(range(1, 31)) - set(several[1])
    assert numbers["dropped"] == {"cancelled": 1 + len(several[1])}


def test_the_iterator_of_a_cancelled_call_is_closed() -> None:
    table = Table(1)
    calls, done, closed = Calls(table), list[int](), list[float]()

    async def several(value: dict[str, Any]) -> AsyncGenerator[int, None]:
        try:
            yield 0
            yield await calls(value)
        finally:
            closed.append(now())

    numbers = run_virtual(numbers_of(rows_of(table).pipe(adaptive_flat_map(several)), done))
    assert (done, closed) == ([0], [3.0])
    assert numbers["dropped"] == {"cancelled": 1}


def test_the_call_of_a_function_at_the_end_is_cancelled_too() -> None:
    table = Table(3)
    calls = Calls(table)

    async def work() -> dict[str, Any]:
        report = await rows_of(table).to(for_each(calls)).run()
        numbers: dict[str, Any] = report.statistics["stages"][0]
        return numbers

    numbers = run_virtual(work())
    assert calls.began == [(1, 0.0), (2, 3.0), (3, 13.0)]
    assert (numbers["finished"], numbers["dropped"]) == (2, {"cancelled": 1})


def test_a_row_that_is_cancelled_before_it_has_begun_does_not_begin() -> None:
    table = Table(3)
    calls, done = Calls(table), list[int]()
    table.cancels.add(2)
    stream = rows_of(table).pipe(group_by("n"), spread(), adaptive_flat_map(calls, limit=Fixed(1)))
    numbers = run_virtual(numbers_of(stream, done))
    assert [n for n, _ in calls.began] == [1, 3]
    assert (numbers["cancelled"], done) == (2, [3])
