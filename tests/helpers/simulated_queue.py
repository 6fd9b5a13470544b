"""A queue and its pollers in virtual time, each poller a coroutine: the truth for replays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from penstock.streams.sql_queue.analytics.replay import Visit
from penstock.streams.testing import run_virtual

__all__ = ["Row", "simulated"]


@dataclass(eq=False)
class Row:
    """`works` are the seconds of each attempt: all but the last one fail, and wait `delays`."""

    came: float
    works: Sequence[float]
    delays: Sequence[float] = ()
    due: float = field(init=False)
    started: float | None = None
    ended: float | None = None
    attempts: int = 0
    owner: str | None = None
    failures: int = 0
    expires: float = float("inf")

    def __post_init__(self) -> None:
        self.due = self.came

    def visit(self) -> Visit:
        return Visit(self.came, self.due, self.started, self.ended, self.attempts, self.owner)


async def _poll(
    rows: list[Row],
    name: str,
    batch: int,
    limit: int,
    cost: Callable[[int], float] | None,
    dies_at: float,
) -> None:
    """Claim, work on what was claimed with `limit` slots, and claim again once a slot is free.

    `rows` are those of the table that have not ended, in the order in which they came.
    """
    now = asyncio.get_running_loop().time
    slots = asyncio.Semaphore(limit)
    tasks: set[asyncio.Task[None]] = set()

    async def work(mine: list[Row]) -> None:
        for_all = cost(len(mine)) if cost else mine[0].works[mine[0].failures]
        await asyncio.sleep(for_all)
        for row in mine:
            row.owner, row.expires = name, float("inf")
            if row.failures < len(row.works) - 1:
                row.started = row.owner = None
                row.due = now() + row.delays[row.failures]
                row.failures += 1
            else:
                row.ended = now()
                rows.remove(row)
        slots.release()

    try:
        async with asyncio.timeout_at(dies_at):
            while True:
                await slots.acquire()
                while not (mine := _claimed(rows, now(), batch, name)):
                    if not rows:
                        return
                    await asyncio.sleep(_until_next(rows, now()))
                parts = [mine] if cost else [[row] for row in mine]
                for number, part in enumerate(parts):
                    if number:
                        await slots.acquire()
                    tasks.add(asyncio.create_task(work(part)))
    except TimeoutError:
        for task in tasks:
            task.cancel()


def _present(rows: list[Row], now: float) -> Iterator[Row]:
    """The rows that have come, and the first that has not."""
    for row in rows:
        yield row
        if row.came > now:
            return


def _claimed(rows: list[Row], now: float, batch: int, name: str) -> list[Row]:
    mine = [
        row
        for row in _present(rows, now)
        if row.due <= now and (row.started is None or row.expires <= now)
    ][:batch]
    for row in mine:
        row.started, row.owner, row.expires = now, name, now + LEASE
        row.attempts += 1
    return mine


LEASE = 600.0


def _until_next(rows: list[Row], now: float) -> float:
    """The seconds until a row may be due. Somebody may have taken it by then."""
    times = [row.due if row.started is None else row.expires for row in _present(rows, now)]
    later = [time for time in times if time > now and time != float("inf")]
    return min(later, default=now + 1.0) - now


def simulated(
    rows: list[Row],
    pollers: int,
    batch: int = 1,
    limit: int = 1,
    cost: Callable[[int], float] | None = None,
    dies_at: float = float("inf"),
) -> list[Visit]:
    """What the table says of `rows` when all are done. The first poller dies at `dies_at`.

    With `cost`, a poller works on all rows of a claim in one call that takes so long.
    """

    unfinished = sorted(rows, key=lambda row: row.came)

    async def story() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(pollers):
                dies = dies_at if number == 0 else float("inf")
                name = f"poller-{number}"
                group.create_task(_poll(unfinished, name, batch, limit, cost, min(dies, 1e9)))

    run_virtual(story(), stall=60.0)
    return [row.visit() for row in rows]
