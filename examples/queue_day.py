"""A queue with a day behind it, to look at with `penstock queue`.

    python -m examples.queue_day [day.db] [--seed 1]

Makes a SQLite file with a queue of mails and bills that two pollers have worked on for thirty
hours, up to now: many come by day and none by night, a bill takes four times as long as a mail,
and one in thirty fails at first. The same seed gives the same day.
"""

from __future__ import annotations

import argparse
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from heapq import heappop, heappush
from random import Random
from typing import Any

from penstock.streams.sql_queue.schema import Layout
from penstock.streams.sql_queue.sqlite.statements import CREATE

HOURS, POLLERS, BACKOFF = 30, 2, 60.0
SECONDS = {"mail": 20.0, "bill": 80.0}  # the mean time of work

INSERT = """INSERT INTO queue
    (payload, status, run_at, enqueued, started, finished, attempts, owner, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""


def arrivals(rng: Random, begin: float, end: float) -> Iterator[tuple[float, str]]:
    """When work comes, and of which kind: for sixteen hours, then none for eight."""
    at = begin
    while (at := at + rng.expovariate(1 / 31)) < end:
        if (end - at) / 3600 % 24 < 16:
            yield at, "bill" if rng.random() < 0.6 else "mail"


def day(rng: Random, now: float) -> list[tuple[Any, ...]]:
    """The rows, worked on in the order of their ids, each by the first poller that is free."""
    rows = [[at, at, kind, 0] for at, kind in arrivals(rng, now - HOURS * 3600, now)]
    done: dict[int, tuple[Any, ...]] = {}
    free = [(rows[0][0], f"worker-{n}") for n in range(1, POLLERS + 1)]
    waiting = [(row[1], number) for number, row in enumerate(rows)]
    while waiting:
        at, owner = heappop(free)
        due = [entry for entry in waiting if entry[0] <= at] or [min(waiting)]
        entry = min(due, key=lambda one: one[1])
        waiting.remove(entry)
        run_at, number = entry
        enqueued, _, kind, attempts = rows[number]
        start = max(at, run_at)
        end = start + rng.gammavariate(4, SECONDS[kind] / 4)
        payload = f'{{"type":"{kind}","n":{number}}}'
        attempts += 1
        if start > now:
            done[number] = (payload, 0, run_at, enqueued, None, None, attempts - 1, None, None)
        elif end > now:
            done[number] = (payload, 9, run_at, enqueued, start, None, attempts, owner, None)
        elif rng.random() < 1 / 30 and attempts < 5:
            rows[number] = [enqueued, end + BACKOFF, kind, attempts]
            heappush(waiting, (end + BACKOFF, number))
        else:
            done[number] = (payload, 1, run_at, enqueued, start, end, attempts, owner, None)
        heappush(free, (end, owner))
    return [done[number] for number in sorted(done)]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Make a queue with a day behind it.")
    parser.add_argument("file", nargs="?", default="day.db")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    names = Layout().names()
    with closing(sqlite3.connect(options.file)) as db, db:
        db.execute("DROP TABLE IF EXISTS queue")
        for statement in CREATE:
            db.execute(statement.format_map(names))
        db.executemany(INSERT, day(Random(options.seed), time.time()))


if __name__ == "__main__":
    main()
