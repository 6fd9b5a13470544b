"""What belongs together is written together, whatever kinds of things it is."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Flowable, collect, read_table, write_table
from penstock.streams.base.errors import HandlerCancelled
from penstock.streams.delivery.commit import Commit, Kind, Part, by_kind
from penstock.streams.failures.backoff import Backoff
from penstock.streams.protocol.acknowledgement import roots
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.sql_queue import ClaimTerms, Row, Settlement
from penstock.streams.sql_queue.reader import ReaderOptions, TableReader
from penstock.streams.stages.own import SinkStage
from penstock.streams.stages.sink_stage import Closed, Sink
from penstock.streams.testing import run_virtual
from tests.helpers.memory_store import MemoryStore


class Log:
    """Writes units of numbers, each of which takes `seconds`."""

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds
        self.added: list[int] = []
        self.units: list[list[int]] = []
        self.errors: list[BaseException] = []
        self.at_once = 0
        self.commit = Commit(
            "write the log",
            self._write if seconds is None else self._write_slowly,
            lambda call: asyncio.get_running_loop().call_soon(call),
            self.errors.append,
        )

    def add(self, *numbers: int) -> None:
        self.added += numbers
        self.commit.due()

    def _write(self) -> None:
        unit, self.added = self.added, []
        if -1 in unit:
            raise ValueError("the disk is full")
        self.units.append(unit)

    async def _write_slowly(self) -> None:
        self.at_once += 1
        assert self.at_once == 1, "two units are being written"
        unit, self.added = self.added, []
        await asyncio.sleep(self.seconds or 0)
        self.at_once -= 1
        self.added, rest = unit, self.added
        try:
            self._write()
        finally:
            self.added = rest


def test_what_is_added_in_one_iteration_is_one_unit() -> None:
    async def work() -> None:
        log = Log()
        log.add(1)
        log.add(2, 3)
        assert log.commit.is_busy
        assert log.units == []
        await asyncio.sleep(0)
        assert log.units == [[1, 2, 3]]
        assert not log.commit.is_busy

    run_virtual(work())


def test_what_is_added_while_a_unit_is_written_is_in_the_next() -> None:
    async def work() -> None:
        log = Log(1.0)
        log.add(1)
        await asyncio.sleep(0.5)
        log.add(2)
        log.add(3)
        await asyncio.sleep(1)
        assert log.units == [[1]]
        assert log.commit.is_busy
        await asyncio.sleep(1)
        assert log.units == [[1], [2, 3]]
        assert not log.commit.is_busy

    run_virtual(work())


def test_a_close_waits_for_the_unit_that_is_being_written_and_writes_the_last() -> None:
    async def work() -> None:
        log = Log(1.0)
        log.add(1)
        await asyncio.sleep(0.5)
        log.add(2)
        await log.commit.flush()
        assert log.units == [[1], [2]]
        assert asyncio.get_running_loop().time() >= 2

    run_virtual(work())


def test_a_unit_that_was_added_and_not_begun_is_written_once_by_a_close() -> None:
    async def work() -> None:
        log = Log()
        log.add(1)
        await log.commit.flush()
        await asyncio.sleep(0.1)
        assert log.units == [[1]]

    run_virtual(work())


def test_a_wait_for_the_unit_that_is_being_written_does_not_wait_for_the_next() -> None:
    async def work() -> None:
        log = Log(1.0)

        async def add() -> None:
            for number in range(1, 10):
                log.add(number)
                await asyncio.sleep(0.5)

        adding = asyncio.create_task(add())
        await asyncio.sleep(0.5)
        await log.commit.ended()
        assert log.units == [[1]]
        await adding

    run_virtual(work())


def test_the_error_of_a_unit_is_reported_and_nothing_is_begun_by_itself_after_it() -> None:
    async def work() -> None:
        log = Log(1.0)
        log.add(-1)
        await asyncio.sleep(0.5)
        log.add(2)
        await asyncio.sleep(5)
        assert list(map(str, log.errors)) == ["the disk is full"]
        assert log.units == []
        await log.commit.flush()
        assert log.units == [[2]]

    run_virtual(work())


def test_the_error_of_the_last_unit_is_raised_by_the_close_and_not_reported_as_well() -> None:
    async def work() -> None:
        log = Log(1.0)
        log.add(-1)
        await asyncio.sleep(0.5)
        with pytest.raises(ValueError, match="disk is full"):
            await log.commit.flush()
        assert log.errors == []

    run_virtual(work())


def test_after_a_flush_more_may_be_added_and_errors_are_reported_again() -> None:
    async def work() -> None:
        log = Log(1.0)
        log.add(1)
        await log.commit.flush()
        log.add(2)
        await asyncio.sleep(1.5)
        log.add(-1)
        await asyncio.sleep(1.5)
        assert log.units == [[1], [2]]
        assert list(map(str, log.errors)) == ["the disk is full"]

    run_virtual(work())


def test_a_flush_that_is_cancelled_leaves_the_rest_to_be_written() -> None:
    async def work() -> None:
        log = Log(1.0)
        log.add(1)
        flushing = asyncio.create_task(log.commit.flush(asyncio.shield))
        await asyncio.sleep(0.5)
        log.add(2)
        flushing.cancel()
        await asyncio.sleep(2)
        assert log.units == [[1], [2]]

    run_virtual(work())


@pytest.mark.parametrize("number", [1, -1])
def test_a_flush_that_comes_when_a_unit_has_just_ended_ends_too(number: int) -> None:
    """Before the loop has told the commit of it."""

    async def work() -> None:
        waits = list[bool]()
        flushes = list[asyncio.Task[None]]()

        def ended(writing: asyncio.Task[None]) -> asyncio.Future[None]:
            waits.append(writing.done())
            assert len(waits) < 10, "it waits for ever"
            return asyncio.shield(writing)

        class Flushed(Log):
            def _write(self) -> None:
                # Its first step is before the callbacks of this task.
                flushes.append(asyncio.create_task(self.commit.flush(ended)))
                super()._write()

        log = Flushed(1.0)
        log.add(number)
        await asyncio.sleep(2)
        (flush,) = flushes
        assert waits == [True]
        assert log.errors == []
        if number > 0:
            await flush
            assert log.units == [[1]]
        else:
            with pytest.raises(ValueError, match="disk is full"):
                await flush

    run_virtual(work())


def test_a_unit_that_others_cancel_is_an_error() -> None:
    async def work() -> None:
        log = Log(1.0)
        log.add(1)
        await asyncio.sleep(0.5)
        (unit,) = [task for task in asyncio.all_tasks() if "write the log" in task.get_name()]
        unit.cancel()
        await asyncio.sleep(0.1)
        assert [type(error) for error in log.errors] == [HandlerCancelled]

    run_virtual(work())


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=20),
    st.none() | st.floats(0.1, 3),
)
def test_all_that_was_added_is_written_once_in_order_and_never_two_units_at_a_time(
    steps: list[tuple[int, int]], seconds: float | None
) -> None:
    async def work() -> None:
        log, last = Log(seconds), 0
        for count, wait in steps:
            log.add(*range(last, last + count))
            last += count
            await asyncio.sleep(wait)
        await log.commit.flush()
        assert [number for unit in log.units for number in unit] == list(range(last))
        assert not log.commit.is_busy
        assert log.errors == []

    run_virtual(work())


# Kinds of parts.


class Listed:
    """A kind in memory."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def write(self, transaction: Any, values: list[Any], /) -> None:
        self.values += values


class Peaks:
    """A kind that nothing else knows of: the greatest number of each key, in a table of its own."""

    def write(self, transaction: sqlite3.Connection, values: list[tuple[str, int]], /) -> None:
        transaction.executemany(
            "INSERT INTO peaks VALUES (?, ?) ON CONFLICT DO UPDATE SET most = max(most, excluded."
            "most)",
            values,
        )


class WithKind(Sink[Any]):
    """A sink beside which each event adds a part of another kind to the rows that it comes from."""

    def __init__(
        self, sink: Sink[Any], kind: Kind, value_of: Callable[[Any], Any], ends: list[Any]
    ) -> None:
        self.info = sink.info
        self._sink = sink
        self._kind = kind
        self._value_of = value_of
        self._ends = ends

    def open(self, run: Run, closed: Closed) -> SinkStage[Any]:
        stage = self._sink.open(run, closed)
        before = stage.on_events

        def on_events(events: list[Event[Any]], /) -> None:
            for event in events:
                self._add(event)
            before(events)

        stage.on_events = on_events  # type: ignore[method-assign]
        return stage

    def _add(self, event: Event[Any]) -> None:
        rows: list[Row] = [row for _, row in roots(event)]
        for row in rows:
            row.add(Part(self._kind, self._value_of(event.value), rows, self._done))

    def _done(self, part: Part[Row], error: Exception | None) -> bool:
        self._ends.append((part.value, None if error is None else type(error)))
        return False


def test_each_value_is_written_once_in_order_for_its_kind_and_none_that_is_settled() -> None:
    one, other, ends = Listed(), Listed(), list[Any]()

    def done(part: Part[str], error: Exception | None) -> bool:
        ends.append((part.value, error))
        return False

    parts = [Part(kind, n, ["a"], done) for n, kind in enumerate([one, other, one, one, other])]
    assert by_kind([*parts, parts[0]]) == {one: [0, 2, 3], other: [1, 4]}
    parts[2].settle()
    parts[2].settle(ValueError())
    assert by_kind(parts) == {one: [0, 3], other: [1, 4]}
    assert ends == [(2, None)]


def test_a_part_gives_its_room_to_another_once_when_it_ends_or_while_it_waits() -> None:
    room, ends = list[int](), list[bool]()

    def part() -> Part[str]:
        return Part(Listed(), 0, ["a"], done, lambda: room.append(len(ends)))

    def done(part: Part[str], error: Exception | None) -> bool:
        ends.append(part.is_void)
        return True

    waiting, void = part(), part()
    waiting.release()
    assert room == [0]
    assert waiting.settle(ValueError())
    assert void.settle(is_void=True)
    void.release()
    assert (room, ends) == ([0, 2], [False, True])


def test_a_further_kind_is_written_with_results_by_the_writer_in_memory() -> None:
    units: list[dict[Kind, list[Any]]] = []

    class Watched(MemoryStore):
        async def settle(self, settlement: Settlement, terms: ClaimTerms) -> list[Row]:
            units.append(dict(settlement.parts))
            assert sum(map(len, settlement.parts.values())) == 2 * len(settlement.finished)
            return await super().settle(settlement, terms)

    store = Watched(json.dumps({"n": n}) for n in range(5))
    results, further, ends = Listed(), Listed(), list[Any]()

    def attach(downstream: Subscriber[Any], run: Run) -> None:
        manner = ReaderOptions(Backoff(), batch=2, follow=False, poll=1.0, patience=10.0)
        TableReader(downstream, run, rows.info, store, ClaimTerms("me"), manner).start()

    rows = Flowable[Any](attach, StageInfo("read_table"))
    first = WithKind(collect([]), results, lambda value: value["n"], ends)
    run_virtual(rows.to(WithKind(first, further, str, ends)).run())
    assert results.values == list(range(5))
    assert further.values == [str({"n": n}) for n in range(5)]
    assert len(ends) == 10
    assert all(set(unit) == {results, further} for unit in units)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A database with a queue `q` of ten rows and a table for peaks, none of which is 7."""
    with closing(sqlite3.connect(tmp_path / "q.db", isolation_level=None)) as db:
        db.execute("CREATE TABLE peaks (key TEXT PRIMARY KEY, most INTEGER CHECK (most != 7))")
        yield db


def peaks_of(path: Path, ends: list[Any]) -> Coroutine[Any, Any, Any]:
    url = f"sqlite:///{path}"

    async def work() -> None:
        await Flowable.from_iterable({"n": n} for n in range(10)).to(write_table(url, "q")).run()
        sink = write_table(url, "out", on_error="skip")
        with_peaks = WithKind(sink, Peaks(), lambda value: (f"k{value['n'] % 2}", value["n"]), ends)
        await read_table(url, "q", follow=False).to(with_peaks).run()

    return work()


def test_a_further_kind_is_in_the_transaction_of_sqlite_that_has_the_rows_and_the_results(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    ends: list[Any] = []
    asyncio.run(peaks_of(tmp_path / "q.db", ends))
    # The transaction that would have a peak of 7 is undone as a whole: no result, no outcome.
    done = database.execute("SELECT payload ->> 'n' FROM out ORDER BY 1").fetchall()
    assert [n for (n,) in done] == [n for n in range(10) if n != 7]
    assert database.execute("SELECT * FROM peaks ORDER BY key").fetchall() == [("k0", 8), ("k1", 9)]
    states = database.execute("SELECT payload ->> 'n', status FROM q ORDER BY 1").fetchall()
    assert states == [(n, -1 if n == 7 else 1) for n in range(10)]
    assert sorted(ends, key=lambda end: end[0][1]) == [
        ((f"k{n % 2}", n), sqlite3.IntegrityError if n == 7 else None) for n in range(10)
    ]
