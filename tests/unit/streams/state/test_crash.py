"""A pipeline that crashes at any moments ends with the states of one that does not.

The pipelines are random: stages with state, one after another, with a list or a duplicate between
them, handlers of all speeds, failed attempts, several sinks; the input is a file whose position is
kept in the store.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import (
    Backoff,
    Fixed,
    Pipeline,
    Store,
    adaptive_flat_map,
    group_by,
    ops,
    read_jsonl,
    retry,
    spread,
    stateful,
)
from penstock.streams.state.codec import key_in
from penstock.streams.state.memory import Memory
from penstock.streams.testing import MemorySink, run_virtual
from penstock.streams.testing.crash import run_until_crash
from tests.helpers.walks import seeds


class Trouble(Exception):
    pass


class Story:
    """One random pipeline over a file, in a store."""

    def __init__(self, seed: int, path: Path, results: list[Any]) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.path = path
        self.results = results
        every, cache = self.random.choice([0.0, 0.02, 0.3]), self.random.choice([1, 3, 1000])
        backend = Memory()
        # As over a network.
        backend.reads_in_thread = self.random.random() < 0.5
        self.store = Store.of(backend, "memory", every=every, cache=cache)
        self.keys = self.random.randint(1, 4)
        self.count = self.random.randint(1, 40)
        self.features = {
            name: self.random.random() < chance
            for name, chance in {
                "second": 0.5,
                "lists": 0.3,
                "several": 0.4,
                "retries": 0.3,
                "groups": 0.4,
                "skips": 0.3,
                "changes in place": 0.4,
                "goes": 0.3,
                "slow sink": 0.3,
                "two sinks": 0.3,
            }.items()
        }
        lines = [{"n": n, "key": f"k{n % self.keys}"} for n in range(self.count)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    def step(self) -> Callable[[Any, Any], Any]:
        features = self.features

        def count(state: Any, event: Any) -> Any:
            results = [dict(event)]
            if features["several"]:
                results = [dict(event, part=part) for part in range(event["n"] % 3)]
            if features["changes in place"]:
                state = state or {"seen": []}
                if features["skips"] and event["n"] % 7 == 3:
                    state["seen"].append("never")
                    raise Trouble(event)
                state["seen"].append(event["n"])
                if features["goes"] and len(state["seen"]) == 3:
                    return None, results
                return state, results
            if features["skips"] and event["n"] % 7 == 3:
                raise Trouble(event)
            state = (state or 0) + event["n"] + 1
            if features["goes"] and state % 5 == 0:
                return None, results
            return state, results

        return count

    def handler(self, seed: int) -> Callable[[Any], Any]:
        moods = random.Random(seed)
        failed: set[Any] = set()

        async def work(event: Any) -> Any:
            if moods.random() < 0.8:
                await asyncio.sleep(moods.choice([0, 0.001, 0.01, 0.05]))
            mark = (event["n"], event.get("part"))
            if self.features["retries"] and event["n"] % 4 == 1 and mark not in failed:
                failed.add(mark)
                raise Trouble(event)
            return event

        return work

    def pipeline(self, seed: int) -> Pipeline:
        features, store = self.features, self.store
        stages: list[Any] = [
            stateful(self.step(), by="key", store=store, name="first", on_error="skip")
        ]
        if features["lists"]:
            stages += [ops.buffer_with_count(2), ops.flat_map(lambda events: events)]
        if features["groups"]:
            stages += [group_by("key"), spread()]
        policy: Any = retry(3, Backoff(0.01)) if features["retries"] else "stop"
        stages.append(adaptive_flat_map(self.handler(seed), Fixed(3), on_error=policy))
        if features["second"]:

            def total(state: int, event: Any) -> Any:
                return state + event["n"] + 1, [dict(event)]

            by: Any = lambda event: event["n"] % 2  # noqa: E731
            stages.append(stateful(total, by=by, start=0, store=store, name="second"))
        sink = MemorySink(seconds=0.004 if features["slow sink"] else 0)
        sink.accepted = self.results
        sinks = [sink, MemorySink(seconds=0.002)] if features["two sinks"] else [sink]
        return read_jsonl(self.path, position=store).pipe(*stages).to(*sinks)

    def states(self) -> dict[str, dict[Any, Any]]:
        backend = self.store._open()
        return {
            stage.name: {key_in(row.key): json.loads(row.state) for row in backend.scan(stage.name)}
            for stage in backend.stages()
        }


@seeds(120)
def test_states_are_those_of_a_run_without_a_crash(seed: int, tmp_path: Path) -> None:
    whole = Story(seed, tmp_path / "whole.jsonl", [])
    run_virtual(whole.pipeline(seed).run())
    story = Story(seed, tmp_path / "in.jsonl", [])
    crashes = random.Random(seed)
    crashed = 0
    while (
        run_until_crash(story.pipeline(seed + crashed).run(), crashes.randint(1, 60 + 5 * crashed))
        is None
    ):
        crashed += 1
        assert crashed < 200, "it gets no further"
    assert story.states() == whole.states()
    seen = Counter(json.dumps(value, sort_keys=True) for _, value in story.results)
    wanted = Counter(json.dumps(value, sort_keys=True) for _, value in whole.results)
    assert not wanted - seen
    assert set(seen) == set(wanted)
