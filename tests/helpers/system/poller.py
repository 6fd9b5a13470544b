"""A poller of a table for the fault runs: its work, and where it fails.

`pollers.py` starts it as a process, by `penstock run`.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, Literal

from orjson import loads

from penstock import Snooze, adaptive_flat_map, for_each, group_by, read_table, spread, write_table
from penstock.streams.base import clock
from penstock.streams.pipelines.pipeline import Pipeline
from penstock.streams.sql_queue.postgres import statements as postgres_sql
from penstock.streams.sql_queue.postgres.claims import PostgresStore
from penstock.streams.sql_queue.sqlite import statements as sqlite_sql
from penstock.streams.sql_queue.sqlite import table as sqlite_table
from penstock.streams.sql_queue.sqlite.claims import SqliteStore
from tests.helpers.system.log import Log

__all__ = ["LEASE", "STEPS", "Orders", "Step", "pipeline_of"]

LEASE = 1.5
_FILLED = 0.3
"""Seconds for which a disk is full."""

Step = Literal["claiming", "claimed", "handling", "writing", "committed", "renewing"]

STEPS: tuple[Step, ...] = ("claiming", "claimed", "handling", "writing", "committed", "renewing")


@dataclass(frozen=True)
class Orders:
    """The orders of a poller.

    `by` says whether it keeps the order of each client; `results`, whether results go into a table
    of the same database, or only into the log. Handlers take up to `seconds`. `dies` is the step
    at whose `nth` time it kills itself. `ahead` is the error of its clock in seconds, from the
    `ahead_from`th event on, or the start. `locked_for` is how many seconds it waits for a lock of
    the file, if not the usual time. `beside`: the queue is kept beside a user's table. `ranked`:
    rows have several priorities. `share` is
    how many events of a client are held, beyond which its rows are left in the table. A handler
    that is cancelled `lingers` for so many seconds.
    """

    url: str
    by: bool = True
    results: bool = False
    lease: float = LEASE
    attempts: int = 3
    seconds: float = 0.03
    follow: bool = True
    patience: float = 60.0
    dies: Step | None = None
    nth: int = 1
    ahead: float = 0.0
    ahead_from: int = 0
    locked_for: float | None = None
    beside: bool = False
    share: int | None = None
    ranked: bool = False
    lingers: float = 0.0


def pipeline_of(log: str, name: str, orders: str) -> Pipeline:
    """The pipeline of the poller `name`, whose orders are JSON.

    An event may say that it `snoozes` in half of its calls, or that it `kills` its poller, `blocks`
    it for more than a lease, or `fills` its disk for a while: the `pages` that a file of SQLite may
    have, or the bytes of any of its `files`.
    """
    return _Poller(Log(log, name), Orders(**loads(orders))).pipeline()


class _Poller:
    def __init__(self, log: Log, orders: Orders) -> None:
        self._log = log
        self._orders = orders
        self._calls = 0
        self._connections: list[sqlite3.Connection] = []

    def pipeline(self) -> Pipeline:
        orders = self._orders
        if orders.dies is not None:
            _doom(orders.dies, orders.nth)
        if orders.locked_for is not None:
            sqlite_table._PATIENCE = orders.locked_for
        if not orders.ahead_from:
            _set_clock(orders.ahead)
        self._know_connections()
        for store in (SqliteStore, PostgresStore):
            _after(store, "open", lambda *_: self._log.note("there"))
        rows = read_table(
            orders.url,
            beside=orders.beside,
            by="client" if orders.by else None,
            lease=orders.lease,
            attempts=orders.attempts,
            batch=100,
            poll=0.1,
            follow=orders.follow,
            patience=orders.patience,
        )
        in_order = (
            rows.pipe(group_by("client", share=orders.share), spread()) if orders.by else rows
        )
        worked = in_order.pipe(adaptive_flat_map(self._handler))
        if orders.results:
            return worked.to(
                write_table(orders.url, "results", columns=["client", "seq", "padding"])
            )
        return worked.to(for_each(self._arrived))

    def _arrived(self, event: dict[str, Any]) -> None:
        self._log.sink(event["client"], event["seq"])

    async def _handler(self, event: dict[str, Any]) -> dict[str, Any]:
        orders = self._orders
        if event.get("snoozes") and random.random() < 0.5:
            raise Snooze(random.uniform(0, 0.2))
        self._calls += 1
        if self._calls == orders.ahead_from:
            _set_clock(orders.ahead)
        with self._log.working(event["client"], event["seq"]):
            if event.get("kills"):
                os._exit(7)
            if event.get("blocks"):
                _block(2.5 * orders.lease)
            if orders.dies == "handling" and self._calls == orders.nth:
                os.kill(os.getpid(), signal.SIGKILL)
            self._fill(event.get("fills"))
            try:
                await asyncio.sleep(random.uniform(0, orders.seconds))
            except asyncio.CancelledError:
                await asyncio.sleep(orders.lingers)
                raise
        if orders.results:
            # On its way: the table shows whether it arrived.
            self._arrived(event)
        return event

    def _know_connections(self) -> None:
        connect: Any = sqlite3.connect

        def known(*arguments: Any, **options: Any) -> sqlite3.Connection:
            self._connections.append(connect(*arguments, **{**options, "check_same_thread": False}))
            return self._connections[-1]

        sqlite3.connect = known  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]

    def _fill(self, what: str | None) -> None:
        if what is None:
            return
        loop = asyncio.get_running_loop()
        if what == "files":
            # More than the log will need.
            _let_write(1 << 17)
            loop.call_later(_FILLED, _let_write, resource.RLIM_INFINITY)
        else:
            # Not below the present size.
            self._let_have(1)
            loop.call_later(_FILLED, self._let_have, 1_000_000)

    def _let_have(self, pages: int) -> None:
        for db in self._connections:
            with suppress(sqlite3.ProgrammingError):  # Closed in the meantime.
                db.execute(f"PRAGMA max_page_count = {pages}")


def _block(seconds: float) -> None:
    time.sleep(seconds)


def _let_write(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _set_clock(ahead: float) -> None:
    wall = clock.wall
    clock.wall = lambda: wall() + ahead


def _doom(step: Step, nth: int) -> None:
    """Let the stores of this process kill it at one of their steps."""
    claims = {
        # By key PostgreSQL claims in a transaction as well, which is broken off then.
        *(sqlite_sql.CLAIM, sqlite_sql.CLAIM_OF_KEYS, sqlite_sql.CLAIM_URGENT_OF_KEYS),
        *(postgres_sql.CLAIM, postgres_sql.CLAIM_OF_KEYS, postgres_sql.CLAIM_URGENT_OF_KEYS),
    }
    names = {"claimed": "claim", "writing": "_write", "committed": "settle", "renewing": "renew"}
    for store in (SqliteStore, PostgresStore):
        if step == "claiming":
            _end_after(store, "_all", nth, lambda _, text, *rest: text in claims)
        elif step in names:
            _end_after(store, names[step], nth)


def _end_after(
    store: type[Any], name: str, nth: int, when: Callable[..., bool] = lambda *_: True
) -> None:
    left = nth

    def count_down(*arguments: Any) -> None:
        nonlocal left
        if when(*arguments):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    _after(store, name, count_down)


def _after(store: type[Any], name: str, then: Callable[..., None]) -> None:
    """Have a store call `then` after one of its methods, with the same arguments."""
    method = getattr(store, name)

    def done(self: Any, *arguments: Any, **options: Any) -> Any:
        result = method(self, *arguments, **options)
        then(*arguments)
        return result

    async def done_later(self: Any, *arguments: Any, **options: Any) -> Any:
        result = await method(self, *arguments, **options)
        then(*arguments)
        return result

    setattr(store, name, done_later if iscoroutinefunction(method) else done)
