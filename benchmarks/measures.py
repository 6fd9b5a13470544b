"""What it costs to measure latencies: processor time for each event that reaches the sinks.

`python -m benchmarks measures`: events of 100 clients in memory, through a plain handler, into a
sink that only accepts them, and beside it what the row says. Each row runs in a process of its own,
all of them in turn, several times; the table has the medians.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import in_turn, spent
from penstock import (
    Sink,
    adaptive_flat_map,
    for_each,
    from_iterable,
    latency_histogram,
    objective,
)

__all__ = ["WAYS", "measured", "report"]

EVENTS, KEYS, MANY_KEYS, ROUNDS = 200_000, 100, 50_000, 9


def _plain(value: dict[str, int]) -> dict[str, int]:
    return value


def _accept(value: object) -> None: ...


def _beside(*sinks: Sink[Any], keys: int = KEYS) -> Callable[[int, Path], None]:
    def whole(count: int, folder: Path) -> None:
        # As many events of each key, in an order that does not repeat in a list.
        events = [{"client": number * 7_919 % keys} for number in range(count)]
        pipeline = from_iterable(events).pipe(adaptive_flat_map(_plain))
        asyncio.run(pipeline.to(for_each(_accept), *sinks).run())

    return whole


def _histogram(**options: Any) -> Sink[Any]:
    return latency_histogram(None, report=None, **options)


WAYS: dict[str, Callable[[int, Path], None]] = {
    "nothing": _beside(),
    "latency_histogram": _beside(_histogram()),
    "latency_histogram, stage": _beside(_histogram(stage=2)),
    "latency_histogram, by": _beside(_histogram(by="client")),
    f"latency_histogram, by, {MANY_KEYS:,} keys": _beside(_histogram(by="client"), keys=MANY_KEYS),
    "objective, events": _beside(objective("total < 1s", share=0.99)),
    "objective, p99": _beside(objective("p99 < 1s", share=0.99)),
    "objective, stage": _beside(objective("service < 1s", share=0.99, stage=2)),
    "objective, where": _beside(
        objective("total < 1s", share=0.99, where=lambda event: event["client"] < KEYS // 2)
    ),
}


def measured(way: str, count: int) -> dict[str, float]:
    """The microseconds of processor time for each event."""
    return {"microseconds": spent(WAYS[way], count) / count * 1e6}


def report(count: int = EVENTS, rounds: int = ROUNDS) -> str:
    """The table, from processes of their own."""
    lines = [f"latencies of {count:,} events of {KEYS} keys in memory: µs an event"]
    found = in_turn("benchmarks.measures", list(WAYS), [str(count)], rounds)
    base = median(one["microseconds"] for one in found["nothing"])
    for way, runs in found.items():
        spent = median(one["microseconds"] for one in runs)
        more = "" if way == "nothing" else f"  {spent - base:6.2f} more"
        lines.append(f"  {way:36} {spent:7.2f}{more}")
    return "\n".join(lines)


if __name__ == "__main__":
    chosen, *numbers = sys.argv[1:]
    print(json.dumps(measured(chosen, *map(int, numbers))))
