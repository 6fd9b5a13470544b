"""What a reader does with rows whose lease expired, or may have expired."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Literal

import pytest

from penstock import Flowable, adaptive_flat_map, collect, for_each, group_by, spread
from penstock.streams.failures.backoff import Backoff
from penstock.streams.limits import Fixed
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.sql_queue import Claim, ClaimTerms, Row, Settlement
from penstock.streams.sql_queue.reader import ReaderOptions, TableReader
from penstock.streams.sql_queue.store import DatabaseLost
from penstock.streams.stages.sink_stage import Sink
from penstock.streams.testing import VirtualTimeLoop, run_virtual
from tests.helpers.memory_store import MemoryStore

LEASE = 30.0
ROWS = 20


class Table(MemoryStore):
    """A table whose leases others may take, and which can be unavailable.

    `stolen` are the ids of rows that another reader took and has worked on.
    """

    def __init__(self, rows: int = ROWS) -> None:
        super().__init__(json.dumps({"n": n, "key": n % 2}) for n in range(1, rows + 1))
        self.stolen: set[int] = set()
        self.away_until = 0.0
        # Seconds that a renewal takes.
        self.renewal = 0.0

    async def renew(self, rows: Sequence[Row], terms: ClaimTerms) -> list[Row]:
        await self._answer()
        await asyncio.sleep(self.renewal)
        return [row for row in rows if row.id in self.stolen]

    async def settle(self, settlement: Settlement, terms: ClaimTerms) -> list[Row]:
        await self._answer()
        if lost := [row for row in settlement.rows() if row.id in self.stolen]:
            return lost
        return await super().settle(settlement, terms)

    async def _answer(self) -> None:
        if asyncio.get_running_loop().time() < self.away_until:
            raise DatabaseLost("gone fishing")


class Keyed(Table):
    """Has the parity of its rows' numbers as keys; a claim is answered `slow` seconds later.

    A row that is to be tried again holds back the claimed rows of its key.
    """

    def __init__(self, rows: int = ROWS) -> None:
        super().__init__(rows)
        self.slow = 0.0
        self._claimed: list[Row] = []
        self._held_back: dict[str | None, float] = {}

    async def claim(
        self, count: int, terms: ClaimTerms, *, reclaim: bool = True, left: Collection[str] = ()
    ) -> Claim:
        now = asyncio.get_running_loop().time()
        due = [one for one in self.waiting if self._held_back.get(str(one[0] % 2), 0.0) <= now]
        rest = [one for one in self.waiting if one not in due]
        self.waiting = due
        claim = await super().claim(count, terms, reclaim=reclaim)
        self.waiting = sorted([*self.waiting, *rest])
        for row in claim.rows:
            row.key = str(row.id % 2)
        self._claimed += claim.rows
        await asyncio.sleep(self.slow)
        return claim

    async def settle(self, settlement: Settlement, terms: ClaimTerms) -> list[Row]:
        lost = await super().settle(settlement, terms)
        now = asyncio.get_running_loop().time()
        over = set(settlement.rows())
        self._claimed = [row for row in self._claimed if row not in over]
        for failure in settlement.failed:
            if failure.delay is None:
                continue
            self._held_back[failure.row.key] = now + failure.delay
            back = [row for row in self._claimed if row.key == failure.row.key]
            self._claimed = [row for row in self._claimed if row not in back]
            self.waiting = sorted([*self.waiting, *((one.id, str(one.payload)) for one in back)])
        return lost


class Reading:
    """A reader of `table`, and the times at which its handler began each row."""

    def __init__(self, table: Table) -> None:
        self.begun: defaultdict[int, list[float]] = defaultdict(list)
        self.order: list[int] = []
        self.table = table
        self.rows = Flowable[dict[str, Any]](self._attach, StageInfo("read_table"))

    def _attach(self, downstream: Subscriber[dict[str, Any]], run: Run) -> None:
        manner = ReaderOptions(Backoff(), batch=100, follow=False, poll=1.0, patience=1000.0)
        terms = ClaimTerms("me", LEASE, by="key" if isinstance(self.table, Keyed) else None)
        TableReader(downstream, run, self.rows.info, self.table, terms, manner).start()

    def begin(self, event: dict[str, Any]) -> int:
        number = int(event["n"])
        self.order.append(number)
        self.begun[number].append(asyncio.get_running_loop().time())
        return number

    async def run(
        self,
        handler: Any,
        limit: int = 2,
        sink: Sink[Any] | None = None,
        on_error: Literal["stop", "revert"] = "stop",
    ) -> dict[str, Any]:
        """Process all rows in the order of their keys; return the source's statistics."""
        stream = self.rows.pipe(
            group_by("key"),
            spread(),
            adaptive_flat_map(handler, limit=Fixed(limit), on_error=on_error),
        )
        report = await stream.to(sink or collect([])).run()
        numbers: dict[str, Any] = report.statistics["stages"][0]
        return numbers


def block(seconds: float) -> None:
    """Block the event loop for this long."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.advance(seconds)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_rows_that_others_took_while_the_loop_was_blocked_are_not_begun(asynchronous: bool) -> None:
    table = Table()
    reading = Reading(table)

    def handler(event: dict[str, Any]) -> int:
        number = reading.begin(event)
        if number == 3:
            table.stolen |= set(range(4, ROWS + 1))
            block(2.5 * LEASE)
        return number

    async def handler_later(event: dict[str, Any]) -> int:
        return handler(event)

    numbers = run_virtual(reading.run(handler_later if asynchronous else handler))
    assert sorted(reading.begun) == [1, 2, 3]
    assert numbers["lost_leases"] == ROWS - 3
    assert (numbers["finished"], numbers["failed"]) == (3, 0)


def test_rows_that_nobody_took_meanwhile_are_claimed_again_and_finished_in_order() -> None:
    reading = Reading(Table())

    async def handler(event: dict[str, Any]) -> int:
        number = reading.begin(event)
        if number == 3:
            block(2.5 * LEASE)
        await asyncio.sleep(0.1)
        return number

    numbers = run_virtual(reading.run(handler))
    assert {n: len(times) for n, times in reading.begun.items()} == dict.fromkeys(
        range(1, ROWS + 1), 1
    )
    for odd in (0, 1):
        begun = [time for n, (time,) in sorted(reading.begun.items()) if n % 2 == odd]
        assert begun == sorted(begun)
    assert (numbers["finished"], numbers["failed"], numbers["lost_leases"]) == (ROWS, 0, 0)


def test_a_row_that_was_begun_and_is_given_back_since_its_lease_ran_out_counts_an_attempt() -> None:
    """It may have blocked its reader, and would be tried for ever."""
    table = Table()
    reading = Reading(table)
    done: list[int] = []

    async def handler(event: dict[str, Any]) -> int:
        number = reading.begin(event)
        if number == 3 and len(reading.begun[3]) < 3:
            block(2.5 * LEASE)
        await asyncio.sleep(0.1)
        return number

    # The sink's function does not begin with a row that is no longer held.
    numbers = run_virtual(reading.run(handler, sink=for_each(done.append)))
    assert table.attempts[3] == len(reading.begun[3]) == 3
    assert {table.attempts[n] for n, times in reading.begun.items() if len(times) == 1} == {1}
    assert sorted(done) == list(range(1, ROWS + 1))
    assert (numbers["finished"], numbers["failed"]) == (ROWS, 0)


def test_a_reader_is_ready_while_its_database_answers() -> None:
    table = Table()

    async def work() -> list[bool]:
        stream = Reading(table).rows.pipe(
            adaptive_flat_map(lambda event: asyncio.sleep(LEASE / 3, event), limit=Fixed(1))
        )
        running = stream.to(collect([])).start()
        seen: list[bool] = []
        for _ in range(3):
            await asyncio.sleep(LEASE / 2)
            seen.append(running.is_ready)
            table.away_until = LEASE
        running.cancel()
        await running.wait()
        return seen

    assert run_virtual(work()) == [True, False, True]


def test_nothing_begins_after_a_lease_that_could_not_be_renewed_ran_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = Table()
    reading = Reading(table)

    async def handler(event: dict[str, Any]) -> int:
        reading.begin(event)
        await asyncio.sleep(9)
        return 0

    async def work() -> dict[str, Any]:
        table.away_until = 3 * LEASE
        return await reading.run(handler)

    numbers = run_virtual(work())
    begun = [time for times in reading.begun.values() for time in times]
    assert not any(LEASE <= time < 3 * LEASE for time in begun)
    assert sorted(reading.begun) == list(range(1, ROWS + 1))
    assert (numbers["finished"], numbers["failed"], numbers["lost_leases"]) == (ROWS, 0, 0)
    (told,) = [message for message in caplog.messages if "the lease of" in message]
    assert "ran out before it was renewed" in told


@pytest.mark.parametrize(
    ("slow", "renewal"), [(0.6 * LEASE, 0.0), (LEASE / 3, 0.0), (LEASE / 2, LEASE / 3)]
)
def test_rows_of_a_slow_claim_are_not_held_for_longer_by_a_renewal_that_began_after_it(
    slow: float, renewal: float
) -> None:
    table = Keyed()
    table.renewal = renewal
    reading = Reading(table)
    later, table.waiting = table.waiting[2:], table.waiting[:2]
    claimed = 0.05 * LEASE

    async def handler(event: dict[str, Any]) -> int:
        if reading.begin(event) == 1:
            await asyncio.sleep(claimed)
            table.waiting += later
            table.slow = slow
            await asyncio.sleep(slow + 0.01)
            # The claim has ended, and no renewal succeeds any more.
            table.away_until = 4 * LEASE
        await asyncio.sleep(0.05 * LEASE)
        return 0

    numbers = run_virtual(reading.run(handler, limit=1))
    begun = [time for times in reading.begun.values() for time in times]
    assert any(time < claimed + LEASE for time in begun)
    assert not any(claimed + 1 + LEASE <= time < 4 * LEASE for time in begun)
    assert_in_order(reading)
    assert (numbers["finished"], numbers["failed"]) == (ROWS, 0)


def test_rows_may_wait_for_many_leases_if_those_are_renewed() -> None:
    reading = Reading(Table())

    async def handler(event: dict[str, Any]) -> int:
        reading.begin(event)
        await asyncio.sleep(3 * LEASE)
        return 0

    numbers = run_virtual(reading.run(handler))
    assert {len(times) for times in reading.begun.values()} == {1}
    assert (numbers["finished"], numbers["returned"]) == (ROWS, 0)


def test_a_row_that_another_reader_took_early_is_not_begun() -> None:
    """As by a reader whose clock is ahead: a renewal finds out, before the lease would expire."""
    table = Table()
    reading = Reading(table)

    async def handler(event: dict[str, Any]) -> int:
        number = reading.begin(event)
        if number == 1:
            table.stolen.add(ROWS)
            await asyncio.sleep(LEASE / 2)
        return number

    numbers = run_virtual(reading.run(handler, limit=1))
    assert sorted(reading.begun) == list(range(1, ROWS))
    assert (numbers["finished"], numbers["returned"]) == (ROWS - 1, 1)
    assert numbers["lost_leases"] == 1


def test_a_row_that_another_reader_took_before_it_was_done_here_counts_as_failed() -> None:
    table = Table()
    reading = Reading(table)

    async def handler(event: dict[str, Any]) -> int:
        number = reading.begin(event)
        if number == 1:
            table.stolen.add(1)
            await asyncio.sleep(LEASE / 2)
        return number

    numbers = run_virtual(reading.run(handler, limit=1))
    assert (numbers["finished"], numbers["failed"]) == (ROWS - 1, 1)
    assert numbers["lost_leases"] == 1


def test_later_rows_of_a_key_do_not_overtake_those_that_are_given_back() -> None:
    table = Keyed()
    reading = Reading(table)
    later, table.waiting = table.waiting[10:], table.waiting[:10]

    async def handler(event: dict[str, Any]) -> int:
        number = reading.begin(event)
        if number == 2:
            # The others of its key wait behind it for longer than their lease.
            table.away_until = asyncio.get_running_loop().time() + 1.5 * LEASE
            await asyncio.sleep(2 * LEASE)
            table.waiting += later
            await asyncio.sleep(2 * LEASE)
        return number

    numbers = run_virtual(reading.run(handler))
    assert_in_order(reading)
    assert {len(times) for times in reading.begun.values()} == {1}
    assert (numbers["finished"], numbers["failed"]) == (ROWS, 0)


def test_rows_that_are_given_back_during_a_claim_are_not_overtaken_by_what_it_brings() -> None:
    table = Keyed()
    reading = Reading(table)
    later, table.waiting = table.waiting[10:], table.waiting[:10]

    async def handler(event: dict[str, Any]) -> int:
        number = reading.begin(event)
        if number == 2:
            # The claim of the later rows begins while the lease lasts, is answered when those that
            # were claimed before them have been given back, and keeps that from being written.
            table.away_until = 1.5 * LEASE
            await asyncio.sleep(0.9 * LEASE)
            table.waiting += later
            table.slow = LEASE / 2
            await asyncio.sleep(0.2 * LEASE)
            table.slow = 0.0
        return number

    numbers = run_virtual(reading.run(handler))
    assert_in_order(reading)
    assert {len(times) for times in reading.begun.values()} == {1}
    assert (numbers["finished"], numbers["failed"]) == (ROWS, 0)


def test_a_row_that_is_reverted_during_a_claim_is_not_overtaken_by_what_it_brings() -> None:
    table = Keyed()
    reading = Reading(table)
    later, table.waiting = table.waiting[2:], table.waiting[:2]

    async def handler(event: dict[str, Any]) -> int:
        number = reading.begin(event)
        if number == 2 and len(reading.begun[2]) == 1:
            table.waiting += later
            table.slow = 3.0
            await asyncio.sleep(2.0)
            table.slow = 0.0
            raise ValueError("not yet")
        return number

    numbers = run_virtual(reading.run(handler, on_error="revert"))
    assert_in_order(reading)
    assert {n: len(times) for n, times in reading.begun.items() if len(times) > 1} == {2: 2}
    assert (numbers["finished"], numbers["reverted"]) == (ROWS, 1)


def test_rows_that_a_claim_brings_behind_one_that_another_reader_took_are_claimed_again() -> None:
    table = Keyed()
    reading = Reading(table)
    arrived: list[int] = []
    later, table.waiting = table.waiting[2:], table.waiting[:2]

    async def handler(event: dict[str, Any]) -> int:
        number = reading.begin(event)
        if number == 1:
            # It is given back during the claim of the later rows, and the next write tells that
            # another reader has it: nothing is held back for it.
            await asyncio.sleep(1.0)
            table.away_until = 1.5 * LEASE
            await asyncio.sleep(0.9 * LEASE)
            table.waiting += later
            table.slow = LEASE / 2
            await asyncio.sleep(0.2 * LEASE)
            table.slow = 0.0
            table.stolen = {1}
        return number

    numbers = run_virtual(reading.run(handler, sink=for_each(arrived.append)))
    assert_in_order(reading)
    assert sorted(reading.begun) == list(range(1, ROWS + 1))
    assert {len(times) for times in reading.begun.values()} == {1}
    assert (numbers["finished"], numbers["lost_leases"]) == (ROWS - 1, 1)


class Suspicious(Table):
    """Has one row that may have crashed its readers, from `since` on."""

    def __init__(self, since: float) -> None:
        super().__init__()
        self._since = since
        self.claimed_at: float | None = None

    async def has_suspects(self, terms: ClaimTerms) -> bool:
        now = asyncio.get_running_loop().time()
        return now >= self._since and self.claimed_at is None

    async def claim_suspect(self, terms: ClaimTerms) -> Claim:
        self.claimed_at = asyncio.get_running_loop().time()
        return Claim([Row(ROWS + 1, -1, 2, json.dumps({"n": ROWS + 1, "key": 0}))])


@pytest.mark.parametrize("stuck", [False, True])
def test_a_row_that_may_have_crashed_its_readers_waits_while_others_end(stuck: bool) -> None:
    table = Suspicious(since=1.0)
    reading = Reading(table)

    async def handler(event: dict[str, Any]) -> int:
        number = reading.begin(event)
        await asyncio.sleep(10 * LEASE if stuck and number == 2 else 0.4 * LEASE)
        return number

    numbers = run_virtual(reading.run(handler, limit=2))
    assert numbers["finished"] == ROWS + 1
    assert table.claimed_at is not None
    if stuck:
        # All others but those of its key have ended, and then a lease went by.
        assert (ROWS / 2) * 0.4 * LEASE < table.claimed_at < 10 * LEASE
    else:
        assert reading.begun[ROWS + 1] > reading.begun[ROWS]
        assert table.claimed_at == pytest.approx(ROWS / 2 * 0.4 * LEASE, abs=1.0)


def assert_in_order(reading: Reading) -> None:
    """Check that each row began for the last time before any later one of its key."""
    for odd in (0, 1):
        begun = [number for number in reading.order if number % 2 == odd]
        assert begun == sorted(begun)


def test_a_write_that_fails_while_the_run_ends_is_reported() -> None:
    class Failing(Table):
        async def claim(
            self, count: int, terms: ClaimTerms, *, reclaim: bool = True, left: Collection[str] = ()
        ) -> Claim:
            claim = await super().claim(count, terms, reclaim=reclaim)
            if not claim.rows:
                await asyncio.sleep(2.0)
            return claim

        async def settle(self, settlement: Settlement, terms: ClaimTerms) -> list[Row]:
            await asyncio.sleep(1.0)
            raise ValueError("no such table")

    async def work() -> None:
        running = Reading(Failing(1)).rows.to(collect([])).start()
        await asyncio.sleep(0.5)
        with pytest.raises(ValueError, match="no such table"):
            await running.drain()

    run_virtual(work())


class _Deaf(Table):
    """A renewal in progress ignores that it is cancelled, as a driver's may."""

    async def renew(self, rows: Sequence[Row], terms: ClaimTerms) -> list[Row]:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(1.0)
        return []


def test_a_reader_ends_at_once_though_its_renewal_ignores_that_it_is_cancelled() -> None:
    async def story() -> float:
        reading = Reading(_Deaf())
        running = (
            reading.rows.pipe(adaptive_flat_map(lambda _: asyncio.sleep(100.0)))
            .to(collect([]))
            .start()
        )
        await asyncio.sleep(LEASE / 3 + 0.5)
        running.cancel()
        await running.wait()
        return asyncio.get_running_loop().time()

    assert run_virtual(story()) == LEASE / 3 + 0.5
