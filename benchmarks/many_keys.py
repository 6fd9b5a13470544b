"""What a state costs where there are many keys, read at random: SQLite next to RocksDB.

`python -m benchmarks many_keys`: a count for each of 100,000 and of 1,000,000 users, with 10,000 of
them in memory (`Store(cache=)`), so that nearly each event reads its key from the store and writes
it back: the worst case. The store has all keys before the time begins. Each way runs in a process
of its own, all of them in turn.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import in_turn
from penstock import Store, for_each, from_iterable, run, stateful

__all__ = ["report"]

EVENTS, ROUNDS, CACHE = 200_000, 3, 10_000

_STORES: dict[str, Callable[[Path], str]] = {
    "SQLite": lambda folder: str(folder / "counts.state"),
    "RocksDB": lambda folder: f"rocks:///{folder}/counts",
}


def _count(visits: int, user: str) -> tuple[int, list[str]]:
    return visits + 1, [user]


def _run(path: str, events: Iterable[str]) -> None:
    counts: Any = stateful(_count, str, start=0, name="counts", store=Store(path, cache=CACHE))
    run(from_iterable(events).pipe(counts).to(for_each(lambda user: None)))


def measured(way: str, keys: int) -> dict[str, float]:
    """The microseconds of each event, on the clock and of the processor, and the megabytes on
    disk."""
    draw = random.Random(keys)
    names = [f"{draw.getrandbits(128):032x}" for _ in range(keys)]
    events = draw.choices(names, k=EVENTS)
    with tempfile.TemporaryDirectory() as folder:
        path = _STORES[way](Path(folder))
        _run(path, names)
        began, spent = time.perf_counter(), time.process_time()
        _run(path, events)
        began, spent = time.perf_counter() - began, time.process_time() - spent
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    micro = 1e6 / EVENTS
    return {"clock": began * micro, "processor": spent * micro, "megabytes": size / 1e6}


def report(rounds: int = ROUNDS) -> str:
    """The table, from processes of their own."""
    lines = [f"{EVENTS:,} events with random keys, {CACHE:,} in memory: µs an event"]
    for keys in (100_000, 1_000_000):
        found = in_turn("benchmarks.many_keys", list(_STORES), [str(keys)], rounds)
        for way, runs in found.items():
            clock, processor, size = (
                median(one[what] for one in runs) for what in ("clock", "processor", "megabytes")
            )
            lines.append(
                f"  {keys:9,} keys  {way:8} {clock:7.1f} on the clock  {processor:7.1f} of the "
                f"processor  {size:5.0f} MB"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
