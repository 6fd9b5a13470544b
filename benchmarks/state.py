"""What a state for each key costs: processor time for each event, and the time of results.

`python -m benchmarks state`: a count for each of 10,000 users, from parsed events to a function.
Each way runs in a process of its own, all of them in turn, several times; the table has the
medians. "scan in groups" is the same count by an operator inside `group_by(each=...)`, whose state
ends with the run. By hand nothing is counted, acknowledged or kept in order: a dict, and a dict
whose changes and offset are written to SQLite after each 1,000 events. bytewax with SQLite ends an
epoch each 10 s, its default, or as often as a store commits. The time of a result is from when its
event was due, at 5,000 events/s, without the first second of the run: on the clock, which shows
what else the machine does too, and on one that counts processor time only.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.measure import in_turn, spent
from benchmarks.processor_time import ProcessorTimeLoop
from benchmarks.workload import users
from penstock import (
    Flowable,
    Pipeline,
    Store,
    for_each,
    from_async_iterable,
    from_iterable,
    group_by,
    ops,
    run,
    spread,
    stateful,
)

__all__ = ["WAYS", "measured", "p99", "report"]

EVENTS, KEYS, ROUNDS = 200_000, 10_000, 5
RATE, SECONDS, SKIPPED = 5_000, 10, 1

Events = Iterator[dict[str, Any]]
Accept = Callable[[dict[str, Any]], None]


def _events(count: int, keys: int) -> Events:
    some = users(keys)
    return ({"n": n, "user": some[n % len(some)]} for n in range(count))


def _count(visits: int, event: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    return visits + 1, [event]


def _accept(event: object) -> None: ...


def _pipeline(events: Flowable[dict[str, Any]], store: Store | None, accept: Accept) -> Pipeline:
    counts = () if store is None else (stateful(_count, by="user", start=0, store=store),)
    return events.pipe(*counts).to(for_each(accept))


_STORES: dict[str, Callable[[Path], Store | None]] = {
    "without state": lambda folder: None,
    "in memory": lambda folder: Store.memory(),
    "SQLite": lambda folder: Store(folder / "counts.state"),
    "SQLite, durable": lambda folder: Store(folder / "counts.state", durable=True),
}


def _as_they_come(store: Callable[[Path], Store | None]) -> Callable[[Events, Path], None]:
    def way(events: Events, folder: Path) -> None:
        run(_pipeline(from_iterable(events), store(folder), _accept))

    return way


def _groups(events: Events, folder: Path) -> None:
    def counted(group: Any) -> Any:
        return group.pipe(ops.scan(lambda visits, event: visits + 1, 0))

    groups = group_by("user", each=counted, idle=3600)
    run(from_iterable(events).pipe(groups, spread()).to(for_each(_accept)))


def _dict_by_hand(events: Events, folder: Path) -> None:
    visits: dict[str, int] = {}
    for event in events:
        user = event["user"]
        visits[user] = visits.get(user, 0) + 1
        _accept(event)


def _sqlite_by_hand(events: Events, folder: Path) -> None:
    kept = sqlite3.connect(folder / "by hand", isolation_level=None)
    kept.execute("PRAGMA journal_mode = WAL")
    kept.execute("PRAGMA synchronous = NORMAL")
    kept.execute("CREATE TABLE state (key PRIMARY KEY, value) WITHOUT ROWID")
    visits: dict[str, int] = {}
    changed: dict[str, int] = {}
    for number, event in enumerate(events, 1):
        user = event["user"]
        visits[user] = changed[user] = visits.get(user, 0) + 1
        _accept(event)
        if not number % 1_000:
            kept.execute("BEGIN")
            rows = [(key, json.dumps(value)) for key, value in changed.items()]
            kept.executemany("REPLACE INTO state VALUES (?, ?)", rows)
            kept.execute("REPLACE INTO state VALUES ('the offset', ?)", (number,))
            kept.execute("COMMIT")
            changed.clear()
    kept.close()


def _bytewax(*, keeps: bool, every: float = 0.0) -> Callable[[Events, Path], None]:
    def way(events: Events, folder: Path) -> None:
        from benchmarks.peers.on_bytewax import counts

        counts(events, _count_on_bytewax, _accept_all, folder if keeps else None, every)

    return way


def _count_on_bytewax(visits: int | None, event: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return (visits or 0) + 1, event


def _accept_all(events: list[Any]) -> None:
    for event in events:
        _accept(event)


WAYS: dict[str, Callable[[Events, Path], None]] = {
    **{way: _as_they_come(store) for way, store in _STORES.items()},
    "scan in groups": _groups,
    "by hand, a dict": _dict_by_hand,
    "by hand, SQLite": _sqlite_by_hand,
    "bytewax": _bytewax(keeps=False),
    "bytewax, 10 s": _bytewax(keeps=True, every=10),
    "bytewax, 0.02 s": _bytewax(keeps=True, every=0.02),
}


def measured(way: str, count: int, keys: int) -> dict[str, float]:
    """The microseconds of processor time for each event, and the most memory in MB."""
    seconds = spent(WAYS[way], _events(count, keys))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"microseconds": seconds / count * 1e6, "megabytes": peak}


def p99(way: str, keys: int) -> dict[str, float]:
    """The 99th percentiles of the times of results, in milliseconds, on both clocks."""
    return {
        "milliseconds": _p99(way, keys, asyncio.new_event_loop),
        "processor": _p99(way, keys, ProcessorTimeLoop),
    }


def _p99(way: str, keys: int, make_loop: Callable[[], asyncio.AbstractEventLoop]) -> float:
    times: list[float] = []

    async def due() -> AsyncIterator[dict[str, Any]]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number, event in enumerate(_events(RATE * SECONDS, keys)):
            at = began + number / RATE
            if (pause := at - loop.time()) > 0:
                await asyncio.sleep(pause)
            yield {**event, "at": at}

    def accept(event: dict[str, Any]) -> None:
        times.append(asyncio.get_running_loop().time() - event["at"])

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=make_loop) as runner:
        pipeline = _pipeline(from_async_iterable(due), _STORES[way](Path(folder)), accept)
        runner.run(pipeline.run())
    return quantiles(times[RATE * SKIPPED :], n=100)[98] * 1e3


def report(count: int = EVENTS, keys: int = KEYS, rounds: int = ROUNDS) -> str:
    """The tables, from processes of their own."""
    lines = [f"a state for each of {keys:,} keys, {count:,} events: µs an event"]
    ways = list(WAYS)
    if find_spec("bytewax") is None:
        ways = [way for way in ways if not way.startswith("bytewax")]
        lines.append("  bytewax is left out: it is not installed, and has no wheel for Python 3.13")
    found = in_turn("benchmarks.state", ways, [str(count), str(keys)], rounds)
    base = median(one["microseconds"] for one in found["without state"])
    for way, runs in found.items():
        spent = median(one["microseconds"] for one in runs)
        alone = way.startswith(("by hand", "bytewax", "without"))
        more = "" if alone else f"  {spent - base:6.2f} more"
        peak = max(one["megabytes"] for one in runs)
        lines.append(f"  {way:18} {spent:7.2f}{more:15}  {peak:5.0f} MB")
    lines.append(
        f"the same at {RATE:,} events/s for {SECONDS} s: p99 of the results in ms, "
        "and on a clock of processor time"
    )
    found = in_turn("benchmarks.state", list(_STORES), [str(keys)], rounds)
    for way, runs in found.items():
        columns = ""
        for clock in ("milliseconds", "processor"):
            time_ = median(one[clock] for one in runs)
            more = time_ - median(one[clock] for one in found["without state"])
            columns += f" {time_:7.2f}" + (f"  {more:6.2f} more" if way != "without state" else "")
            columns = columns.ljust(28)
        lines.append(f"  {way:18}{columns}".rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    chosen, *numbers = sys.argv[1:]
    measure: Any = measured if len(numbers) == 2 else p99
    print(json.dumps(measure(chosen, *map(int, numbers))))
