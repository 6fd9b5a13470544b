"""Monitors of random streams by the times of events: they find what looking at every key after each
event finds, whatever is slow, and with crashes at any moments."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock import (
    Fixed,
    Pipeline,
    Store,
    adaptive_flat_map,
    event_time,
    from_iterable,
    monitor,
    ops,
    read_jsonl,
    violations,
)
from penstock.streams.state.memory import Memory
from penstock.streams.temporal import Violation
from penstock.streams.testing import MemorySink, run_virtual
from penstock.streams.testing.crash import run_until_crash
from tests.helpers.plain_watch import PlainWatch
from tests.helpers.walks import seeds

FORMULAS = [
    "G(a -> X b)", "!b W a", "F c", "G(a -> F b)",
    "G(a -> F[<=4s] b)", "G(a -> G[<=3s] !c)", "G(a -> !c U[<=5s] b)",
    "G(a -> F[<=4s] b) & G(c -> X !c)", "G(a -> F[<=4s] b) & G(c -> G[<=6s] !b)",
]  # fmt: skip


class Story:
    """Events of a few keys with times out of order, and a pipeline with a monitor."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.formula = chance.choice(FORMULAS)
        self.is_timed = "[<=" in self.formula
        self.lateness = chance.choice([0, 0, 2, 5])
        self.is_slow = chance.random() < 0.6
        self.splits = chance.random() < 0.3
        self.is_monitor = chance.random() < 0.5
        # Its own option, in place of event_time.
        self.is_short = self.is_timed and not self.is_slow and chance.random() < 0.3
        self.options: dict[str, Any] = {
            "by": "key",
            "mode": chance.choice(["ltl3", "ltl3", "rv"]),
            "evidence": chance.choice([0, 2, "full", "letters"]),
            "restart": chance.random() < 0.5,
            **{name: {"what": name} for name in "abc"},
        }
        keys = chance.randint(1, 3)
        time, self.events = 0, list[dict[str, Any]]()
        for n in range(chance.randint(1, 40)):
            time += chance.choice([0, 0, 1, 1, 2, 7])
            at = max(0, time - chance.choice([0, 0, 0, 1, 3, 8]))
            what, key = chance.choice("aabbcd"), chance.randrange(keys)
            self.events.append({"n": n, "at": at, "key": key, "what": what})
        self.forgets: dict[str, Any] = {}
        if self.is_timed and not self.lateness and not self.is_slow:
            # At least the longest bound.
            self.forgets["idle"] = chance.choice([None, 6, 6, 10])
            self.forgets["max_keys"] = chance.choice([None, 1, 2])
        self.results: list[Any] = []
        self.passed: list[Any] = []

    def expected(self, idle: Any = None, max_keys: Any = None) -> list[str]:
        options = (self.options[name] for name in ("mode", "evidence", "restart"))
        watch = PlainWatch(self.formula, *options, idle, max_keys)
        for event in self.events:
            watch.take(event["key"], event, {event["what"]}, event["at"], self.lateness)
        watch.end()
        return sorted(map(told, watch.found))

    def pipeline(self, source: Any, store: Store | None, seed: int) -> Pipeline:
        moods = random.Random(seed)

        async def work(event: Any) -> Any:
            if moods.random() < 0.7:
                await asyncio.sleep(moods.choice([0, 0.001, 0.01, 0.3]))
            return event

        stages: list[Any] = []
        options = dict(self.options)
        if store is None:
            options |= self.forgets
        if self.is_short:
            options |= {"time": "at", "lateness": self.lateness, "max_ahead": None}
        else:
            stages.append(event_time("at", self.lateness, idle=None, max_ahead=None))
        if self.is_slow:
            stages.append(adaptive_flat_map(work, Fixed(3), ordered=True))
        if self.splits:
            stages.append(ops.flat_map(lambda event: [event]))
        options |= {"store": store, "name": "watch"}
        found, passed = MemorySink(seconds=moods.choice([0, 0.004])), MemorySink()
        found.accepted, passed.accepted = self.results, self.passed
        if self.is_monitor:
            stages.append(monitor(self.formula, on_violation=found, **options))
            return source.pipe(*stages).to(passed)
        return source.pipe(*stages, violations(self.formula, **options)).to(found)

    def found(self) -> list[str]:
        return sorted(told(one) for _, one in self.results)


def told(violation: Violation[Any]) -> str:
    # What happened, also where the event that has shown it is another.
    return repr(replace(violation, evidence=tuple(map(str, violation.evidence))))


@seeds(300)
def test_violations_are_those_of_looking_at_every_key(seed: int) -> None:
    story = Story(seed)
    run_virtual(story.pipeline(from_iterable(story.events), None, seed).run())
    assert story.found() == story.expected(**story.forgets)
    assert not story.is_monitor or len(story.passed) == len(story.events)


@seeds(300)
def test_violations_are_the_same_with_crashes(seed: int, tmp_path: Path) -> None:
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
    # Some may have been told of again.
    assert sorted(set(story.found())) == sorted(set(story.expected()))
