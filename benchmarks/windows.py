"""What windows by event time cost: processor time for each event.

`python -m benchmarks windows`: counts for each of some users, from parsed events to a function. The
events are in order of time, 5,000 for each second of it; windows are of 60 seconds. Each way runs
in a process of its own, all of them in turn, several times; the table has the medians. By hand a
dict has the counts of the open windows, and nothing is counted, acknowledged or late.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import in_turn, spent
from benchmarks.workload import users
from penstock import (
    Store,
    agg,
    event_time,
    for_each,
    from_iterable,
    run,
    session,
    sliding,
    tumbling,
    window,
)

__all__ = ["WAYS", "measured", "report"]

EVENTS, ROUNDS = 200_000, 5
KEYS = (10_000, 100)
RATE, LENGTH = 5_000, 60

Events = Iterator[dict[str, Any]]


def _events(count: int, keys: int) -> Events:
    some = users(keys)
    return ({"user": some[n % len(some)], "at": 1.7e9 + n / RATE} for n in range(count))


def _accept(event: object) -> None: ...


def _through(*stages: Any) -> None:
    events, *others = stages
    run(from_iterable(events).pipe(*others).to(for_each(_accept)))


def _timed() -> Any:
    return event_time("at", lateness=1)


def _windows(shape: Any, *, stored: bool = False) -> Callable[[Events, Path], None]:
    def way(events: Events, folder: Path) -> None:
        store = Store(folder / "windows.state") if stored else None
        _through(events, _timed(), window(shape, agg.count(), by="user", store=store))

    return way


def _by_hand(events: Events, folder: Path) -> None:
    counts: Counter[tuple[float, str]] = Counter()
    latest = closed = 0.0
    for event in events:
        start = event["at"] // LENGTH * LENGTH
        counts[start, event["user"]] += 1
        latest = max(latest, event["at"])
        if closed + LENGTH <= latest - 1:
            closed = (latest - 1) // LENGTH * LENGTH
            for window_ in [one for one in counts if one[0] + LENGTH <= closed]:
                _accept((window_, counts.pop(window_)))
    for window_ in counts.items():
        _accept(window_)


def _bytewax(every: float) -> Callable[[Events, Path], None]:
    def way(events: Events, folder: Path) -> None:
        from benchmarks.peers.on_bytewax import windows

        lengths = (timedelta(seconds=one) for one in (LENGTH, every, 1))
        windows(events, *lengths, lambda results: [_accept(one) for one in results])

    return way


WAYS: dict[str, Callable[[Events, Path], None]] = {
    "without windows": lambda events, folder: _through(events),
    "event_time alone": lambda events, folder: _through(events, _timed()),
    "tumbling, in memory": _windows(tumbling(LENGTH)),
    "tumbling, SQLite": _windows(tumbling(LENGTH), stored=True),
    "sliding 60/1, in memory": _windows(sliding(LENGTH, every=1)),
    "session, in memory": _windows(session(gap=LENGTH)),
    "by hand, a dict": _by_hand,
    "bytewax, tumbling": _bytewax(LENGTH),
    "bytewax, sliding 60/1": _bytewax(1),
}


def measured(way: str, count: int, keys: int) -> dict[str, float]:
    """The microseconds of processor time for each event."""
    seconds = spent(WAYS[way], _events(count, keys))
    return {"microseconds": seconds / count * 1e6}


def report(count: int = EVENTS, rounds: int = ROUNDS) -> str:
    """The tables, from processes of their own."""
    lines: list[str] = []
    for keys in KEYS:
        lines.append(f"counts in windows, {keys:,} keys, {count:,} events: µs an event")
        # A result for each key and second would be most of the work.
        ways = [way for way in WAYS if keys == KEYS[-1] or "sliding" not in way]
        if find_spec("bytewax") is None:
            ways = [way for way in ways if not way.startswith("bytewax")]
            lines.append(
                "  bytewax is left out: it is not installed, and has no wheel for Python 3.13"
            )
        found = in_turn("benchmarks.windows", ways, [str(count), str(keys)], rounds)
        base = median(one["microseconds"] for one in found["without windows"])
        for way, runs in found.items():
            spent = median(one["microseconds"] for one in runs)
            alone = way.startswith(("by hand", "bytewax", "without"))
            more = "" if alone else f"  {spent - base:6.2f} more"
            lines.append(f"  {way:24} {spent:7.2f}{more}")
    return "\n".join(lines)


if __name__ == "__main__":
    chosen, *numbers = sys.argv[1:]
    print(json.dumps(measured(chosen, *map(int, numbers))))
