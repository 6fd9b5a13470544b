"""Pollers of a queue, each a process, which can be told to end where it hurts most.

They are forked from a server that has imported everything, so that one takes milliseconds to
start. What a poller writes is in the table `results` of the same database; what it counted is in
a file when it has ended.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from inspect import iscoroutinefunction
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from operators import adaptive_flat_map, group_by, spread
from sinks import write_table
from sources import read_table
from streams import clock
from streams.faults import Backoff
from streams.limits import Fixed
from streams.pipeline import Pipeline
from streams.table import postgres_sql, sqlite_sql
from streams.table.postgres import PostgresStore
from streams.table.sqlite import SqliteStore

__all__ = ["STEPS", "Orders", "Step", "ended", "pipeline_of", "poll", "started"]

Step = Literal["claiming", "claimed", "handling", "writing", "committed", "renewing"]

STEPS: tuple[Step, ...] = ("claiming", "claimed", "handling", "writing", "committed", "renewing")


@dataclass(frozen=True)
class Orders:
    """What a poller is to do.

    `dies` is the step at whose `nth` time it kills itself, `ahead` how many seconds its clock is
    ahead, `report` a file for what its source counted.
    """

    url: str
    by: str | None = None
    lease: float = 30.0
    batch: int = 10
    attempts: int = 3
    at_once: int = 5
    seconds: float = 0.0
    follow: bool = True
    patience: float = 30.0
    dies: Step | None = None
    nth: int = 3
    ahead: float = 0.0
    report: str | None = None


def pipeline_of(orders: Orders) -> Pipeline:
    """Rows to results. A row with `poison` fails, one with `kill` kills its poller each time.

    A row with `stop`, the name of a file, stops the poller (SIGSTOP) that is the first to make it.
    After one with `fill` the system lets its poller write no file beyond 64 KiB, for a while.
    """
    calls = 0

    async def handler(event: dict[str, Any]) -> dict[str, Any]:
        nonlocal calls
        call = calls = calls + 1
        await asyncio.sleep(orders.seconds)
        if "kill" in event or (orders.dies == "handling" and call == orders.nth):
            os.kill(os.getpid(), signal.SIGKILL)
        if "poison" in event:
            raise ValueError("poison")
        if "stop" in event:
            with suppress(FileExistsError):
                os.close(os.open(event["stop"], os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGSTOP)
        if "fill" in event:
            _let_write(1 << 16)
            asyncio.get_running_loop().call_later(0.3, _let_write, resource.RLIM_INFINITY)
        return {"n": event["n"], "poller": os.getpid()}

    rows = read_table(
        orders.url,
        by=orders.by,
        attempts=orders.attempts,
        backoff=Backoff(0.02, cap=0.02),
        lease=orders.lease,
        batch=orders.batch,
        follow=orders.follow,
        poll=0.05,
        patience=orders.patience,
    )
    work = adaptive_flat_map(handler, Fixed(orders.at_once), on_error="revert")
    worked = rows.pipe(work if orders.by is None else _in_order(orders.by, work))
    return worked.to(write_table(orders.url, "results", columns=["n", "poller"]))


def _let_write(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _in_order(by: str, work: Any) -> Any:
    return lambda source: source.pipe(group_by(by), spread(), work)


def poll(orders: Orders) -> None:
    """Be a poller, to the end."""
    if orders.ahead:
        wall = clock.wall
        clock.wall = lambda: wall() + orders.ahead
    if orders.dies is not None:
        _doom(orders.dies, orders.nth)
    report = asyncio.run(pipeline_of(orders).run())
    if orders.report is not None:
        Path(orders.report).write_text(json.dumps(report.statistics["stages"][0], default=str))


@contextmanager
def started(orders: Orders, count: int = 1) -> Iterator[list[BaseProcess]]:
    """Pollers, which are killed at the end of the block if they have not ended."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest.__main__", __name__])
    pollers: list[BaseProcess] = [
        context.Process(target=poll, args=(orders,), daemon=True) for _ in range(count)
    ]
    for poller in pollers:
        poller.start()
    try:
        yield pollers
    finally:
        for poller in pollers:
            poller.kill()
            poller.join()
            poller.close()


async def ended(poller: BaseProcess) -> int | None:
    """The exit code of a poller that ends soon."""
    await asyncio.to_thread(poller.join, 30)
    return poller.exitcode


def _doom(step: Step, nth: int) -> None:
    """Let the stores of this process kill it at a step of theirs."""
    claims = {
        # By key PostgreSQL claims in a transaction as well, which is broken off then.
        *(sqlite_sql.CLAIM, sqlite_sql.CLAIM_OF_KEYS),
        *(postgres_sql.CLAIM, postgres_sql.CLAIM_OF_KEYS),
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
    method = getattr(store, name)
    left = nth

    def count_down(*arguments: Any) -> None:
        nonlocal left
        if when(*arguments):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    def ending(self: Any, *arguments: Any, **options: Any) -> Any:
        result = method(self, *arguments, **options)
        count_down(*arguments)
        return result

    async def ending_later(self: Any, *arguments: Any, **options: Any) -> Any:
        result = await method(self, *arguments, **options)
        count_down(*arguments)
        return result

    setattr(store, name, ending_later if iscoroutinefunction(method) else ending)
