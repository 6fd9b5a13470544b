"""Windows of random streams: against a list of all events, and with crashes at any moments.

The oracle knows nothing of lists, demand, handlers and states: it has each event with the greatest
time before it in its partition, and makes the windows from their definition.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Callable
from math import floor, inf
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Fixed,
    Pipeline,
    Store,
    adaptive_flat_map,
    agg,
    event_time,
    from_iterable,
    ops,
    read_jsonl,
    read_kafka,
    session,
    sliding,
    tumbling,
    window,
)
from penstock.streams.event_time import line
from penstock.streams.state.memory import Memory
from penstock.streams.testing import MemorySink, run_virtual
from penstock.streams.testing.crash import run_until_crash
from tests.helpers.kafka.model import Broker, model_of
from tests.helpers.walks import seeds


class Story:
    """Events with times out of order, and a pipeline with windows of them."""

    def __init__(self, seed: int, partitions: int = 1) -> None:
        self.random = chance = random.Random(seed)
        self.seed = seed
        self.lateness = float(chance.choice([0, 0, 2, 5]))
        self.length = float(chance.choice([1, 4, 10]))
        self.every = float(chance.choice([self.length, self.length, 1, 3]))
        self.every = min(self.every, self.length)
        self.gap = float(chance.choice([1, 3, 6]))
        self.is_session = chance.random() < 0.3
        self.is_slow = chance.random() < 0.6
        self.filters = chance.random() < 0.3
        self.splits = chance.random() < 0.3
        keys = chance.randint(1, 3)
        time, self.events = 0.0, list[dict[str, Any]]()
        for n in range(chance.randint(1, 40)):
            time += chance.choice([0, 0, 1, 1, 2, 7])
            late = chance.choice([0, 0, 0, 1, 3, 8])
            event = {"n": n, "at": max(0.0, time - late), "key": chance.randrange(keys)}
            event["partition"] = chance.randrange(partitions)
            self.events.append(event)
        self.results: list[Any] = []

    # What is right.

    def expected(self) -> list[tuple[Any, ...]]:
        before: dict[int, float] = defaultdict(lambda: -inf)
        kept = list[tuple[dict[str, Any], float]]()
        for event in self.events:
            place = event["partition"]
            if not (self.filters and event["n"] % 5 == 3):
                kept.append((event, before[place]))
            before[place] = max(before[place], event["at"] - self.lateness)
        return sorted(self._sessions(kept) if self.is_session else self._windows(kept))

    def _windows(self, kept: list[tuple[dict[str, Any], float]]) -> list[tuple[Any, ...]]:
        found: dict[Any, list[int]] = defaultdict(list)
        for event, before in kept:
            at = event["at"]
            last = floor(at / self.every)
            for place in range(last - int(self.length), last + 1):
                begin = place * self.every
                if begin <= at < begin + self.length and begin + self.length > before:
                    found[event["key"], begin, begin + self.length].append(event["n"])
        return [(*key, len(ns), sum(ns)) for key, ns in found.items()]

    def _sessions(self, kept: list[tuple[dict[str, Any], float]]) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, float, float, list[int]]] = []
        for event, before in kept:
            begin, end, ns = event["at"], event["at"] + self.gap, [event["n"]]
            if begin < before:
                continue
            for one in list(found):
                if one[0] == event["key"] and one[1] < end and begin < one[2]:
                    found.remove(one)
                    begin, end, ns = min(begin, one[1]), max(end, one[2]), ns + one[3]
            found.append((event["key"], begin, end, ns))
        return [(key, begin, end, len(ns), sum(ns)) for key, begin, end, ns in found]

    # What is done.

    def pipeline(self, source: Any, store: Store | None, seed: int) -> Pipeline:
        moods = random.Random(seed)

        async def work(event: Any) -> Any:
            if moods.random() < 0.7:
                await asyncio.sleep(moods.choice([0, 0.001, 0.01, 0.3]))
            return event

        stages: list[Any] = [event_time("at", self.lateness, idle=None, max_ahead=None)]
        if self.is_slow:
            stages.append(adaptive_flat_map(work, Fixed(3)))
        if self.filters:
            stages.append(ops.filter(lambda event: event["n"] % 5 != 3))
        if self.splits:
            stages.append(ops.flat_map(lambda event: [event]))
        shape: Any = tumbling(self.length)
        if self.every < self.length:
            shape = sliding(self.length, every=self.every)
        if self.is_session:
            shape = session(self.gap)
        value = {"count": agg.count(), "sum": agg.sum("n")}
        stages.append(window(shape, value, by="key", store=store, name="windows"))
        sink = MemorySink(seconds=moods.choice([0, 0.004]))
        sink.accepted = self.results
        return source.pipe(*stages).to(sink)

    def found(self) -> list[tuple[Any, ...]]:
        return sorted(
            (one.key, one.start, one.end, one.value["count"], one.value["sum"])
            for _, one in self.results
        )


@seeds(300)
def test_windows_are_those_of_their_definition(seed: int) -> None:
    story = Story(seed)
    run_virtual(story.pipeline(from_iterable(story.events), None, seed).run())
    assert story.found() == story.expected()


@seeds(300)
def test_windows_are_the_same_with_crashes(seed: int, tmp_path: Path) -> None:
    story = Story(seed)
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in story.events), encoding="utf-8")
    check_with_crashes(story, lambda store: read_jsonl(path, position=store), bool)


@seeds(150)
def test_windows_of_several_partitions_are_the_same_with_crashes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that partitions wait for each other.
    monkeypatch.setattr(line, "_LEAD", 3)
    partitions = random.Random(seed).randint(2, 4)
    story, broker = Story(seed, partitions), Broker(partitions)
    for event in story.events:
        broker.write(json.dumps(event).encode(), partition=event["partition"])
    read: Any = read_kafka

    def crashed() -> None:
        for member in broker.clients:
            member.kill()

    with model_of(broker):
        check_with_crashes(
            story, lambda store: read("t", "g", offsets=store, follow=False), crashed
        )


def check_with_crashes(
    story: Story, source: Callable[[Store], Any], has_crashed: Callable[[], object]
) -> None:
    seed = story.seed
    chance = random.Random(seed)
    backend = Memory()
    # As over a network.
    backend.reads_in_thread = chance.random() < 0.5
    every, cache = chance.choice([0.0, 0.02, 0.3]), chance.choice([1, 1000])
    store = Store.of(backend, "memory", every=every, cache=cache)
    crashed = 0
    while True:
        pipeline = story.pipeline(source(store), store, seed + crashed)
        if run_until_crash(pipeline.run(), chance.randint(1, 60 + 5 * crashed)) is not None:
            break
        has_crashed()
        crashed += 1
        assert crashed < 200, "it gets no further"
    assert sorted(set(story.found())) == story.expected()
    assert not list(backend.scan("windows"))
