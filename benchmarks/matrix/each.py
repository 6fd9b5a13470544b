"""Operators inside groups: a count for each key, next to an equivalent dict by hand.

``python -m benchmarks.matrix.each keys``: 300,000 events of as many keys, in a separate process.
With ``--running``, the count after each event, by `scan`, instead of one at the end.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, OrderedDict
from statistics import median
from time import monotonic
from typing import Any

import uvloop
from reactivex import operators as ops

from benchmarks.by_hand import half_chunks
from benchmarks.matrix.run import cpu
from penstock import collect, from_iterable, group_by, spread

__all__ = ["KEYS", "RUNNING_KEYS"]

EVENTS = 300_000
KEYS = (300_000, 3_000)
RUNNING_KEYS = (100, 10_000)
IDLE = 30.0

Event = dict[str, int]


async def by_hand(events: list[Event], done: list[int]) -> None:
    """Count by key; an idle key ends."""
    # When the key ends, and the number of its events.
    groups: OrderedDict[int, list[Any]] = OrderedDict()
    async for chunk in half_chunks(events):
        now = monotonic()
        while groups and next(iter(groups.values()))[0] <= now:
            done.append(groups.popitem(last=False)[1][1])
        due = now + IDLE
        for event in chunk:
            key = event["client_id"]
            group = groups.get(key)
            if group is None:
                groups[key] = [due, 1]
            else:
                group[0] = due
                group[1] += 1
                groups.move_to_end(key)
    done += [counted for _, counted in groups.values()]


async def by_hand_running(events: list[Event], done: list[int]) -> None:
    """The count of the key after each event."""
    counts: dict[int, int] = {}
    async for chunk in half_chunks(events):
        for event in chunk:
            key = event["client_id"]
            counts[key] = counted = counts.get(key, 0) + 1
            done.append(counted)


def ours_running(events: list[Event], done: list[int]) -> None:
    def running(group: Any) -> Any:
        return group.pipe(ops.scan(lambda counted, _: counted + 1, 0))

    grouped = group_by("client_id", each=running, idle=IDLE)
    uvloop.run(from_iterable(events).pipe(grouped, spread()).to(collect(done)).run())


def ours(events: list[Event], done: list[int]) -> None:
    counted = group_by("client_id", each=lambda g: g.pipe(ops.count()), idle=IDLE, buffer=400_000)
    report = uvloop.run(from_iterable(events).pipe(counted, spread()).to(collect(done)).run())
    assert report.statistics["finished"] == len(events)


def measure(keys: int, rounds: int, *, running: bool) -> dict[str, float]:
    """Microseconds per event: medians of `rounds`, and of the ratios within a round."""
    with_hand, with_ours = (by_hand_running, ours_running) if running else (by_hand, ours)
    events: list[Event] = [{"client_id": number % keys} for number in range(EVENTS)]
    taken: list[tuple[float, float]] = []
    for _ in range(rounds):
        wanted: list[int] = []
        counts: list[int] = []

        def hand(into: list[int] = wanted) -> Any:
            return uvloop.run(with_hand(events, into))

        def own(into: list[int] = counts) -> Any:
            return with_ours(events, into)

        taken.append((cpu(hand), cpu(own)))
        assert Counter(counts) == Counter(wanted)
    held, own_time = (median(times) * 1e6 / EVENTS for times in zip(*taken, strict=True))
    return {"by hand": held, "ours": own_time, "ratio": median(b / a for a, b in taken)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("keys", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--running", action="store_true")
    chosen = parser.parse_args()
    print(json.dumps(measure(chosen.keys, chosen.rounds, running=chosen.running)))


if __name__ == "__main__":
    main()
