"""What a state for each key costs, in processor time for each event.

`python -m benchmarks state`: a count for each of 10,000 users, from parsed events to a function.
Each way runs in a process of its own, all of them in turn, several times; the table has the
medians. "scan in groups" is the same count by an operator inside `group_by(each=...)`, whose state
ends with the run. By hand nothing is counted, acknowledged or kept in order: a dict, and a dict
whose changes and offset are written to SQLite after each 1,000 events.
"""

from __future__ import annotations

import json
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import ROOT
from penstock import Store, for_each, from_iterable, group_by, ops, run, spread, stateful

__all__ = ["WAYS", "measured", "report"]

EVENTS, KEYS, ROUNDS = 200_000, 10_000, 5

Events = Iterator[dict[str, Any]]


def _events(count: int, keys: int) -> Events:
    """Events of random users; their texts are shared, as those of a parser are not kept."""
    users = [f"user {number}" for number in range(keys)]
    some = random.Random(1).choices(users, k=100_000)
    return ({"n": n, "user": some[n % len(some)]} for n in range(count))


def _count(visits: int, event: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    return visits + 1, [event]


def _accept(event: object) -> None: ...


def _without(events: Events, folder: Path) -> None:
    run(from_iterable(events).to(for_each(_accept)))


def _memory(events: Events, folder: Path) -> None:
    _run(events, Store.memory())


def _sqlite(events: Events, folder: Path) -> None:
    _run(events, Store(folder / "counts.state"))


def _durable(events: Events, folder: Path) -> None:
    _run(events, Store(folder / "counts.state", durable=True))


def _run(events: Events, store: Store) -> None:
    counts = stateful(_count, by="user", start=0, store=store)
    run(from_iterable(events).pipe(counts).to(for_each(_accept)))


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


WAYS: dict[str, Callable[[Events, Path], None]] = {
    "without state": _without,
    "scan in groups": _groups,
    "in memory": _memory,
    "SQLite": _sqlite,
    "SQLite, durable": _durable,
    "by hand, a dict": _dict_by_hand,
    "by hand, SQLite": _sqlite_by_hand,
}


def measured(way: str, count: int, keys: int) -> dict[str, float]:
    """The microseconds of processor time for each event, and the most memory in MB."""
    events = _events(count, keys)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        WAYS[way](events, Path(folder))
        seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"microseconds": seconds / count * 1e6, "megabytes": peak}


def report(count: int = EVENTS, keys: int = KEYS, rounds: int = ROUNDS) -> str:
    """The table, from processes of their own."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, runs in found.items():
            command = [sys.executable, "-m", "benchmarks.state", way, str(count), str(keys)]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
            runs.append(json.loads(done.stdout))
    lines = [f"a state for each of {keys:,} keys, {count:,} events: µs an event"]
    base = median(one["microseconds"] for one in found["without state"])
    for way, runs in found.items():
        spent = median(one["microseconds"] for one in runs)
        more = "" if way.startswith(("by hand", "without")) else f"  {spent - base:6.2f} more"
        peak = max(one["megabytes"] for one in runs)
        lines.append(f"  {way:18} {spent:7.2f}{more:15}  {peak:5.0f} MB")
    return "\n".join(lines)


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
