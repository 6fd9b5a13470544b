"""What an answer costs: processor time for each event that is put into an inbox, or asked about.

`python -m benchmarks answers`: 100 clients, each with one event after another, through a plain
handler. "put" returns when the event is taken in, "put, wait" when it has finished, and "ask" with
its result. "ask, batch" is through a handler of lists, "ask, timeout" with a timeout that does not
pass. Each way runs in a process of its own, all of them in turn, several times; the table has the
medians.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import in_turn, spent
from penstock import Inbox, adaptive_flat_map, batch, for_each, inbox

__all__ = ["WAYS", "measured", "report"]

EVENTS, CLIENTS, ROUNDS = 200_000, 100, 9

Call = Callable[[Inbox[int], int], Awaitable[Any]]


def _plain(value: int) -> int:
    return value


async def _lists(values: list[int]) -> list[int]:
    return values


def _accept(value: object) -> None: ...


def _through(stage: Any, call: Call) -> Callable[[int, Path], None]:
    async def client(box: Inbox[int], count: int) -> None:
        for number in range(count):
            await call(box, number)

    async def whole(count: int) -> None:
        box: Inbox[int] = inbox(CLIENTS)
        async with box.pipe(stage()).to(for_each(_accept)).start():
            clients = [client(box, count // CLIENTS) for _ in range(CLIENTS)]
            await asyncio.gather(*clients)

    return lambda count, folder: asyncio.run(whole(count))


_handler, _batch = partial(adaptive_flat_map, _plain), partial(batch, _lists)

WAYS: dict[str, Callable[[int, Path], None]] = {
    "put": _through(_handler, lambda box, n: box.put(n)),
    "put, wait": _through(_handler, lambda box, n: box.put(n, wait=True)),
    "ask": _through(_handler, lambda box, n: box.ask(n)),
    "ask, timeout": _through(_handler, lambda box, n: box.ask(n, timeout=60)),
    "put, batch": _through(_batch, lambda box, n: box.put(n)),
    "ask, batch": _through(_batch, lambda box, n: box.ask(n)),
}


def measured(way: str, count: int) -> dict[str, float]:
    """The microseconds of processor time for each event."""
    return {"microseconds": spent(WAYS[way], count) / count * 1e6}


def report(count: int = EVENTS, rounds: int = ROUNDS) -> str:
    """The table, from processes of their own."""
    lines = [f"{CLIENTS} clients of an inbox, {count:,} events: µs an event; ask at most 6 more"]
    found = in_turn("benchmarks.answers", list(WAYS), [str(count)], rounds)
    for way, runs in found.items():
        spent = median(one["microseconds"] for one in runs)
        base = median(
            one["microseconds"] for one in found["put, batch" if "batch" in way else "put"]
        )
        more = "" if way in ("put", "put, batch") else f"  {spent - base:6.2f} more than put"
        lines.append(f"  {way:14} {spent:7.2f}{more}")
    return "\n".join(lines)


if __name__ == "__main__":
    chosen, *numbers = sys.argv[1:]
    print(json.dumps(measured(chosen, *map(int, numbers))))
