"""Counts over time of random streams: against `sequenced`, and with crashes at any moments.

The oracle knows nothing of lists, demand, handlers and states: it has each row with the watermark
when it was emitted, and gives those that were in time to the offline function.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from math import inf
from pathlib import Path
from typing import Any

from penstock import (
    Fixed,
    Pipeline,
    Store,
    adaptive_flat_map,
    count_over_time,
    event_time,
    from_iterable,
    ops,
    read_jsonl,
)
from penstock.streams.state.memory import Memory
from penstock.streams.temporal.periods.counts import sequenced
from penstock.streams.temporal.periods.intervals import Period
from penstock.streams.testing import MemorySink, run_virtual
from penstock.streams.testing.crash import run_until_crash
from tests.helpers.walks import seeds


class Story:
    """Rows that begin out of order, whole or in two parts, and a pipeline that counts them."""

    def __init__(self, seed: int) -> None:
        self.random = chance = random.Random(seed)
        self.lateness = chance.choice([0, 0, 2, 5])
        self.aggregate: Any = chance.choice(["count", "count", "sum", "min", "max"])
        self.include_zero = self.aggregate == "count" and chance.random() < 0.3
        self.has_parts = chance.random() < 0.4
        # Handlers would bring the two parts of a row out of order.
        self.is_slow = not self.has_parts and chance.random() < 0.6
        self.filters = chance.random() < 0.3
        self.splits = chance.random() < 0.3
        # With the operator's own options there is no event_time.
        self.is_short = chance.random() < 0.3
        keys = chance.randint(1, 3)
        time, self.events = 0, list[dict[str, Any]]()
        begun: dict[int, tuple[int, int]] = {}
        for n in range(chance.randint(1, 40)):
            time += chance.choice([0, 0, 1, 1, 2, 7])
            at = max(0, time - chance.choice([0, 0, 0, 1, 3, 8]))
            event = {"n": n, "at": at, "key": chance.randrange(keys), "of": chance.randint(-3, 3)}
            if begun and chance.random() < 0.5:
                id, (begin, key) = begun.popitem()
                at = max(at, begin)
                event |= {"at": at, "key": key, "id": id, "to": at}
            elif self.has_parts and chance.random() < 0.6:
                begun[n] = at, event["key"]
                event |= {"id": n, "from": at}
            else:
                length = chance.choice([0, 1, 4, 9, None])
                event |= {"from": at, "to": None if length is None else at + length, "id": n}
            self.events.append(event)
        self.results: list[Any] = []

    # What is right.

    def expected(self) -> list[Period]:
        watermark, rows = -inf, defaultdict[Any, dict[int, tuple[int, Any, int]]](dict)
        for event in self.events:
            if not (self.filters and event["n"] % 5 == 3):
                mine, id = rows[event["key"]], event["id"]
                if event.get("from") is None:
                    if id in mine:
                        # Counted up to the watermark, if it ends before that.
                        end = max(event["to"], watermark)
                        mine[id] = mine[id][0], end, mine[id][2]
                elif event["from"] >= watermark:
                    mine[id] = event["from"], event.get("to"), event["of"]
            watermark = max(watermark, event["at"] - self.lateness)
        of = None if self.aggregate == "count" else 2
        found: list[Period] = []
        for key, of_key in rows.items():
            for one in sequenced(
                of_key.values(),
                self.aggregate,
                begin=0,
                end=1,
                of=of,
                include_zero=self.include_zero,
            ):
                found.append(Period(key, one.begin, one.end, one.value))
        return sorted(found, key=in_order)

    # What is done.

    def pipeline(self, source: Any, store: Store | None, seed: int) -> Pipeline:
        moods = random.Random(seed)

        async def work(event: Any) -> Any:
            if moods.random() < 0.7:
                await asyncio.sleep(moods.choice([0, 0.001, 0.01, 0.3]))
            return event

        stages: list[Any] = []
        # A shorthand is directly in front of the counts.
        is_short = self.is_short and not (self.is_slow or self.filters)
        if not is_short:
            stages.append(event_time("at", self.lateness, idle=None, max_ahead=None))
        if self.is_slow:
            stages.append(adaptive_flat_map(work, Fixed(3)))
        if self.filters:
            stages.append(ops.filter(lambda event: event["n"] % 5 != 3))
        if self.splits:
            stages.append(ops.flat_map(lambda event: [event]))
        options: dict[str, Any] = {"lateness": self.lateness} if is_short else {}
        if self.has_parts:
            options["id"] = "id"
        if self.aggregate != "count":
            options["of"] = "of"
        counts = count_over_time(
            "key",
            self.aggregate,
            include_zero=self.include_zero,
            store=store,
            name="counts",
            on_error="skip",
            **options,
        )
        sink = MemorySink(seconds=moods.choice([0, 0.004]))
        sink.accepted = self.results
        return source.pipe(*stages, counts).to(sink)

    def found(self) -> list[Period]:
        return sorted((one for _, one in self.results), key=in_order)


def in_order(period: Period) -> Any:
    return period.key, period.begin


@seeds(300)
def test_counts_are_those_of_all_rows_that_were_in_time(seed: int) -> None:
    story = Story(seed)
    run_virtual(story.pipeline(from_iterable(story.events), None, seed).run())
    assert story.found() == story.expected()
    ends = defaultdict[Any, list[Any]](list)
    for _, one in story.results:
        ends[one.key].append(one.begin)
    assert all(begins == sorted(begins) for begins in ends.values())


@seeds(300)
def test_counts_are_the_same_with_crashes(seed: int, tmp_path: Path) -> None:
    story = Story(seed)
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in story.events), encoding="utf-8")
    chance = random.Random(seed)
    backend = Memory()
    # As over a network.
    backend.reads_in_thread = chance.random() < 0.5
    every, cache = chance.choice([0.0, 0.02, 0.3]), chance.choice([1, 1000])
    store = Store.of(backend, "memory", every=every, cache=cache)
    crashed = 0
    while True:
        pipeline = story.pipeline(read_jsonl(path, position=store), store, seed + crashed)
        if run_until_crash(pipeline.run(), chance.randint(1, 60 + 5 * crashed)) is not None:
            break
        crashed += 1
        assert crashed < 200, "it gets no further"
    found: list[Period] = []
    for one in story.found():
        if one not in found[-1:]:
            found.append(one)
    assert found == story.expected()
    assert story.include_zero or not list(backend.scan("counts"))
