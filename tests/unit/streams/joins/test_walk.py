"""Joins of random pairs of streams: against each event with each other one, and with crashes at any
moments.

The oracle knows nothing of lists, demand, handlers and states: it has each event with the greatest
time before it in its stream, and makes the pairs from their definition.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock import (
    Fixed,
    Flowable,
    Pipeline,
    Store,
    adaptive_flat_map,
    event_time,
    from_iterable,
    join,
    ops,
    read_jsonl,
    read_kafka,
)
from penstock.streams.event_time import line
from penstock.streams.state.backend import Row
from penstock.streams.state.memory import Memory
from penstock.streams.testing import MemorySink, run_virtual
from penstock.streams.testing.crash import run_until_crash
from tests.helpers.kafka.model import Broker, model_of
from tests.helpers.walks import seeds


class Emitted(NamedTuple):
    """A row with the watermark of its stream when it was emitted, -inf if it was not late."""

    row: dict[str, Any]
    watermark: float


class Side:
    """Events with times out of order, and the stages in front of the join."""

    def __init__(self, chance: random.Random, keys: int, partitions: int = 1) -> None:
        self.lateness = float(chance.choice([0, 0, 2, 5]))
        self.is_slow = chance.random() < 0.4
        self.filters = chance.random() < 0.3
        steps = chance.choice([[0, 0, 1, 1, 2, 7], [0, 1], [0, 30]])
        time, self.events = 0.0, list[dict[str, Any]]()
        for n in range(chance.choice([0, 3, chance.randint(1, 30)])):
            time += chance.choice(steps)
            late = chance.choice([0, 0, 0, 1, 3, 8, 20])
            key = chance.choice([*range(keys), None] if chance.random() < 0.1 else range(keys))
            event = {"n": n, "at": max(0.0, time - late), "key": key}
            event["partition"] = chance.randrange(partitions)
            self.events.append(event)

    def emitted(self) -> list[Emitted]:
        before: dict[int, float] = defaultdict(lambda: -inf)
        found = list[Emitted]()
        for row in self.events:
            place = row["partition"]
            if not (self.filters and row["n"] % 5 == 3):
                found.append(Emitted(row, before[place] if row["at"] < before[place] else -inf))
            before[place] = max(before[place], row["at"] - self.lateness)
        return found

    def stream(self, source: Flowable[Any], moods: random.Random) -> Flowable[Any]:
        async def work(event: Any) -> Any:
            if moods.random() < 0.7:
                await asyncio.sleep(moods.choice([0, 0.001, 0.01, 0.3]))
            return event

        stages: list[Any] = [event_time("at", self.lateness, idle=None, max_ahead=None)]
        if self.is_slow:
            stages.append(adaptive_flat_map(work, Fixed(3)))
        if self.filters:
            stages.append(ops.filter(lambda event: event["n"] % 5 != 3))
        return source.pipe(*stages)


class Story:
    """Two streams, how they are joined, and what has come out."""

    def __init__(self, seed: int, partitions: int = 1) -> None:
        self.seed = seed
        self.chance = chance = random.Random(seed)
        keys = chance.randint(1, 3)
        self.left, self.right = Side(chance, keys), Side(chance, keys, partitions)
        self.within = float(chance.choice([0, 1, 3, 10, 40]))
        self.how: Any = chance.choice(["inner", "left", "outer"])
        self.results: list[Any] = []

    def expected(self) -> list[tuple[int, int]]:
        left, right = (
            [one for one in side.emitted() if one.row["at"] + self.within >= one.watermark]
            for side in (self.left, self.right)
        )
        pairs = [
            (one.row["n"], other.row["n"])
            for one in left
            for other in right
            if one.row["key"] == other.row["key"] is not None
            and abs(one.row["at"] - other.row["at"]) <= self.within
            and max(one.watermark, other.watermark)
            <= min(one.row["at"], other.row["at"]) + self.within
        ]
        paired = [{n for n, _ in pairs}, {n for _, n in pairs}]
        if self.how != "inner":
            pairs += [(one.row["n"], -1) for one in left if one.row["n"] not in paired[0]]
        if self.how == "outer":
            pairs += [(-1, one.row["n"]) for one in right if one.row["n"] not in paired[1]]
        return sorted(pairs)

    def pipeline(
        self, left: Flowable[Any], right: Flowable[Any], store: Store | None, seed: int
    ) -> Pipeline:
        moods = random.Random(seed)
        joined = join(
            self.right.stream(right, moods),
            by="key",
            within=self.within,
            how=self.how,
            store=store,
            name="rows",
        )
        sink = MemorySink(seconds=moods.choice([0, 0.004]))
        sink.accepted = self.results
        return self.left.stream(left, moods).pipe(joined).to(sink)

    def found(self) -> list[tuple[int, int]]:
        return sorted(
            (-1 if left is None else left["n"], -1 if right is None else right["n"])
            for _, (left, right) in self.results
        )


@seeds(1000)
def test_pairs_are_those_of_their_definition(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "_LEAD", random.Random(seed).choice([1, 3, 500]))
    story = Story(seed)
    left, right = (from_iterable(side.events) for side in (story.left, story.right))
    run_virtual(story.pipeline(left, right, None, seed).run())
    assert story.found() == story.expected()


@seeds(1500)
def test_pairs_are_the_same_with_crashes(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_files(Story, seed, tmp_path, monkeypatch)


@seeds(500)
def test_pairs_with_a_stream_of_several_partitions_are_the_same_with_crashes(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_partitions(Story, seed, tmp_path, monkeypatch)


def check_files(
    kind: type[Story], seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both streams are files, and crashes change nothing."""
    monkeypatch.setattr(line, "_LEAD", random.Random(seed).choice([1, 3, 500]))
    story = kind(seed)
    paths = [
        written(story.left, folder / "left.jsonl"),
        written(story.right, folder / "right.jsonl"),
    ]

    def sources(store: Store) -> list[Flowable[Any]]:
        return [read_jsonl(path, position=store) for path in paths]

    assert check_with_crashes(story, sources, bool) == []


def check_partitions(
    kind: type[Story], seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right stream is a topic with several partitions, and crashes change nothing."""
    # So that partitions and streams wait for each other.
    monkeypatch.setattr(line, "_LEAD", random.Random(seed).choice([1, 3, 500]))
    partitions = random.Random(seed).randint(2, 4)
    story, broker = kind(seed, partitions), Broker(partitions)
    path = written(story.left, folder / "left.jsonl")
    for event in story.right.events:
        broker.write(json.dumps(event).encode(), partition=event["partition"])
    read: Any = read_kafka

    def sources(store: Store) -> list[Flowable[Any]]:
        right = read("t", "g", offsets=store, follow=False)
        return [read_jsonl(path, position=store), right]

    def crashed() -> None:
        for member in broker.clients:
            member.kill()

    with model_of(broker):
        assert check_with_crashes(story, sources, crashed) == []


def written(side: Side, path: Path) -> Path:
    """The path of a file with the events of a side."""
    text = "".join(json.dumps(event) + "\n" for event in side.events)
    path.write_text(text, encoding="utf-8")
    return path


def check_with_crashes(
    story: Any,
    sources: Callable[[Store], list[Flowable[Any]]],
    has_crashed: Callable[[], object],
) -> list[Row]:
    """Run it until it has ended; returns what is left in the store."""
    seed = story.seed
    chance = random.Random(seed)
    backend = Memory()
    # As over a network.
    backend.reads_in_thread = chance.random() < 0.5
    every, cache = chance.choice([0.0, 0.02, 0.3]), chance.choice([1, 1000])
    store = Store.of(backend, "memory", every=every, cache=cache)
    crashed = 0
    while True:
        left, right = sources(store)
        pipeline = story.pipeline(left, right, store, seed + crashed)
        if run_until_crash(pipeline.run(), chance.randint(1, 60 + 5 * crashed)) is not None:
            break
        has_crashed()
        crashed += 1
        assert crashed < 200, "it gets no further"
    assert sorted(set(story.found())) == story.expected()
    return list(backend.scan("rows"))
