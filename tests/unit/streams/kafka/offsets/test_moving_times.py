"""Windows and joins whose states move with the partitions of topics, at random moments: against
what each event belongs to by its time."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict
from functools import partial
from typing import Any

import pytest

from penstock import (
    Fixed,
    Flowable,
    Store,
    adaptive_flat_map,
    agg,
    event_time,
    join,
    read_kafka,
    tumbling,
    window,
)
from penstock.streams.event_time import line
from penstock.streams.testing import run_virtual
from tests.helpers.kafka.fleet import Walk
from tests.helpers.kafka.model import Broker, model_of
from tests.helpers.walks import seeds

# Later than all others: it closes what they have opened.
END = 10_000


def read(topic: str, store: Store, config: dict[str, Any]) -> Flowable[Any]:
    reading: Any = read_kafka
    timed: Any = event_time("at", lateness=0, idle=None, max_ahead=None)
    source: Flowable[Any] = reading(topic, "g", offsets=store, retry_after=0.1, config=config)
    return source.pipe(timed)


class Windows(Walk):
    """Counts of each key in windows of ten seconds; each partition has its events in order."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.partitions = draw.randint(1, 4)
        super().__init__(draw, Broker(self.partitions))
        self.events: list[dict[str, int]] = []
        times = [0] * self.partitions
        for _ in range(draw.randint(10, 150)):
            partition = draw.randrange(self.partitions)
            times[partition] += draw.choice([0, 1, 1, 5, 40])
            key = partition + self.partitions * draw.randrange(3)
            self.events.append({"at": times[partition], "key": key})

    def build(self, store: Store, config: dict[str, Any]) -> Flowable[Any]:
        counted: Any = window(tumbling(10), agg.count(), by="key", name="counts", store=store)
        return read("t", store, config).pipe(counted)

    def expected(self) -> Counter[tuple[int, int]]:
        return Counter((one["key"], one["at"] // 10 * 10) for one in self.events)

    async def story(self) -> None:
        def write(event: dict[str, int]) -> None:
            partition = event["key"] % self.partitions
            self.broker.write(json.dumps(event).encode(), partition=partition)

        def is_done() -> bool:
            return len(set(self.found())) >= len(self.expected())

        def last(times: int) -> None:
            for partition in range(self.partitions):
                write({"at": END + times, "key": partition})

        await self.run([partial(write, event) for event in self.events], last, is_done)

    def found(self) -> list[tuple[int, float, int]]:
        return [(one.key, one.start, one.value) for one in self.results() if one.start < END]


@seeds(200)
def test_windows_are_those_of_a_run_without_moves_crashes_and_zombies(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "_LEAD", random.Random(seed).choice([1, 3, 500]))
    walk = Windows(seed)
    with model_of(walk.broker):
        run_virtual(walk.story())
    expected = {(key, start, count) for (key, start), count in walk.expected().items()}
    assert set(walk.found()) == expected


class Joins(Walk):
    """Pairs of two topics with as many partitions; each partition has its events in order."""

    def __init__(self, seed: int) -> None:
        self.chance = draw = random.Random(seed)
        self.partitions = draw.randint(1, 3)
        super().__init__(draw, Broker(self.partitions, u=self.partitions))
        self.within = draw.choice([0, 1, 5, 40])
        self.how: Any = draw.choice(["inner", "left", "outer"])
        self.is_slow = draw.random() < 0.4
        self.keys = self.partitions * draw.randint(1, 3)
        self.rows: dict[str, list[dict[str, int]]] = {"t": [], "u": []}
        self.writes: list[tuple[str, dict[str, int]]] = []
        times = {(topic, n): 0 for topic in "tu" for n in range(self.partitions)}
        ahead = {place: draw.choice([1, 3, 30]) for place in times}
        for n in range(draw.randint(10, 150)):
            topic, key = draw.choice("tu"), draw.randrange(self.keys)
            place = topic, key % self.partitions
            times[place] += draw.randint(0, ahead[place])
            row = {"n": n, "at": times[place], "key": key}
            self.rows[topic].append(row)
            self.writes.append((topic, row))

    def build(self, store: Store, config: dict[str, Any]) -> Flowable[Any]:
        async def work(event: Any) -> Any:
            if self.is_slow:
                await asyncio.sleep(self.chance.choice([0, 0.001, 0.03, 0.4]))
            return event

        left, right = (
            read(topic, store, config).pipe(adaptive_flat_map(work, Fixed(3))) for topic in "tu"
        )
        options: Any = {"how": self.how, "store": store, "name": "rows"}
        return left.pipe(join(right, "key", self.within, **options))

    def expected(self) -> set[tuple[int, int]]:
        left, right = self.rows.values()
        pairs = {
            (one["n"], other["n"])
            for one in left
            for other in right
            if one["key"] == other["key"] and abs(one["at"] - other["at"]) <= self.within
        }
        paired = [{n for n, _ in pairs}, {n for _, n in pairs}]
        if self.how != "inner":
            pairs |= {(one["n"], -1) for one in left if one["n"] not in paired[0]}
        if self.how == "outer":
            pairs |= {(-1, one["n"]) for one in right if one["n"] not in paired[1]}
        return pairs

    def found(self) -> set[tuple[int, int]]:
        pairs = [[-1 if row is None else row["n"] for row in pair] for pair in self.results()]
        return {(left, right) for left, right in pairs if END not in (left, right)}

    async def story(self) -> None:
        def write(topic: str, row: dict[str, int]) -> None:
            body = json.dumps(row).encode()
            self.broker.write(body, topic=topic, partition=row["key"] % self.partitions)

        def is_done() -> bool:
            return len(self.found()) >= len(self.expected())

        def last(times: int) -> None:
            # Each topic has keys of its own there, and so no partners.
            for topic, of in (("t", 1_000), ("u", 2_000)):
                for partition in range(self.partitions):
                    key = partition + self.partitions * of
                    write(topic, {"n": END, "at": END + 100 * times, "key": key})

        await self.run([partial(write, *one) for one in self.writes], last, is_done)


@seeds(700)
def test_pairs_of_two_topics_are_those_of_a_run_without_moves_crashes_and_zombies(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "_LEAD", random.Random(seed).choice([1, 3, 500]))
    walk = Joins(seed)
    with model_of(walk.broker):
        run_virtual(walk.story())
    assert walk.found() == walk.expected()


class WindowsOfPairs(Joins):
    """The results of a join in windows of ten seconds of each key."""

    def build(self, store: Store, config: dict[str, Any]) -> Flowable[Any]:
        def key(pair: Any) -> Any:
            return next(row["key"] for row in pair if row is not None)

        def numbers(pair: Any) -> Any:
            return [-1 if row is None else row["n"] for row in pair]

        counted: Any = window(tumbling(10), agg.list(numbers), by=key, name="counts", store=store)
        return super().build(store, config).pipe(counted)

    def expected(self) -> set[Any]:
        sides = [{row["n"]: row for row in rows} for rows in self.rows.values()]
        windows: dict[Any, list[Any]] = defaultdict(list)
        for pair in super().expected():
            rows = [side[n] for side, n in zip(sides, pair, strict=True) if n >= 0]
            windows[rows[0]["key"], min(row["at"] for row in rows) // 10 * 10].append(pair)
        return {(*place, tuple(sorted(pairs))) for place, pairs in windows.items()}

    def found(self) -> set[Any]:
        return {
            (one.key, one.start, tuple(sorted((left, right) for left, right in one.value)))
            for one in self.results()
            if one.start < END
        }


@seeds(700)
def test_windows_of_pairs_are_those_of_a_run_without_moves_crashes_and_zombies(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "_LEAD", random.Random(seed).choice([1, 3, 500]))
    walk = WindowsOfPairs(seed)
    with model_of(walk.broker):
        run_virtual(walk.story())
    assert walk.found() == walk.expected()
