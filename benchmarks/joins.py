"""What joins and look-ups by event time cost: processor time for each event of both streams.

`python -m benchmarks joins`: two streams of as many events, each in order of time, 5,000 for each
second of it in both together. A join pairs each event with the one of the other stream that has its
key; a look-up finds the row of each event in a table that the other stream keeps up to date. Both
end with a function. Each way runs in a process of its own, all of them in turn, several times; the
table has the medians. By hand the events come in the order of their times, a dict has the last
event of each key, and nothing is counted, acknowledged or late.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from heapq import merge
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import in_turn, spent
from benchmarks.workload import users
from penstock import (
    Flowable,
    Store,
    event_time,
    for_each,
    from_iterable,
    join,
    lookup,
    ops,
    run,
    table,
)

__all__ = ["WAYS", "measured", "report"]

EVENTS, KEYS, ROUNDS = 200_000, 10_000, 5
RATE, WITHIN = 5_000, 1

Events = Iterator[dict[str, Any]]
Streams = tuple[Events, Events]


def _streams(count: int, keys: int) -> Streams:
    """The events of a key come once in each stream for each round of the keys."""
    some = users(keys)

    def stream(later: float) -> Events:
        return (
            {"user": some[n % len(some)], "at": 1.7e9 + later + n * 2 / RATE}
            for n in range(count // 2)
        )

    return stream(0.5), stream(0.0)


def _accept(event: object) -> None: ...


def _timed(events: Events) -> Flowable[dict[str, Any]]:
    return from_iterable(events).pipe(event_time("at", lateness=1))


def _run(stream: Flowable[Any]) -> None:
    run(stream.to(for_each(_accept)))


def _joined(*, stored: bool = False) -> Callable[[Streams, Path], None]:
    def way(streams: Streams, folder: Path) -> None:
        left, right = map(_timed, streams)
        store = Store(folder / "rows.state") if stored else None
        _run(left.pipe(join(right, "user", WITHIN, store=store)))

    return way


def _looked_up(*, stored: bool = False) -> Callable[[Streams, Path], None]:
    def way(streams: Streams, folder: Path) -> None:
        left, right = map(_timed, streams)
        store = Store(folder / "rows.state") if stored else None
        _run(left.pipe(lookup(table(right, "user", WITHIN, store=store), "user")))

    return way


def _merged(streams: Streams, folder: Path) -> None:
    left, right = map(_timed, streams)
    _run(left.pipe(ops.merge(right)))


def _by_hand(streams: Streams, folder: Path) -> None:
    left, right = streams
    last: dict[str, Any] = {}
    rows = ((event["at"], False, event) for event in right)
    events = ((event["at"], True, event) for event in left)
    for _, looks_up, event in merge(rows, events, key=itemgetter(0, 1)):
        if looks_up:
            _accept((event, last.get(event["user"])))
        else:
            last[event["user"]] = event


WAYS: dict[str, Callable[[Streams, Path], None]] = {
    "merged": _merged,
    "join, in memory": _joined(),
    "join, SQLite": _joined(stored=True),
    "lookup, in memory": _looked_up(),
    "lookup, SQLite": _looked_up(stored=True),
    "by hand, a dict": _by_hand,
}


def measured(way: str, count: int, keys: int) -> dict[str, float]:
    """The microseconds of processor time for each event."""
    seconds = spent(WAYS[way], _streams(count, keys))
    return {"microseconds": seconds / count * 1e6}


def report(count: int = EVENTS, keys: int = KEYS, rounds: int = ROUNDS) -> str:
    """The table, from processes of their own."""
    lines = [f"two streams, {keys:,} keys, {count:,} events: µs an event"]
    found = in_turn("benchmarks.joins", list(WAYS), [str(count), str(keys)], rounds)
    base = median(one["microseconds"] for one in found["merged"])
    for way, runs in found.items():
        spent = median(one["microseconds"] for one in runs)
        alone = way in ("merged", "by hand, a dict")
        more = "" if alone else f"  {spent - base:6.2f} more"
        lines.append(f"  {way:24} {spent:7.2f}{more}")
    return "\n".join(lines)


if __name__ == "__main__":
    chosen, *numbers = sys.argv[1:]
    print(json.dumps(measured(chosen, *map(int, numbers))))
