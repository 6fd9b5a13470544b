"""Timers in event time of random streams: against their definition, and with crashes anywhere.

The oracle knows nothing of lists, demand, handlers and states: it has each event with the watermark
before it, and the sum of what happened before each timer.
"""

from __future__ import annotations

import asyncio
import json
import random
from math import inf
from pathlib import Path
from typing import Any

from penstock import (
    Fixed,
    Pipeline,
    Store,
    adaptive_flat_map,
    event_time,
    for_each,
    from_iterable,
    inbox,
    ops,
    read_jsonl,
    stateful,
)
from penstock.streams.state.memory import Memory
from penstock.streams.testing import MemorySink, run_virtual
from penstock.streams.testing.crash import run_until_crash
from tests.helpers.walks import seeds


def step(state: Any, event: Any, ctx: Any) -> Any:
    assert ctx.time == event["at"]
    for name, due in event["timers"].items():
        ctx.timer(name, at=due, clock="event")
    for name in event["cancels"]:
        ctx.cancel(name)
    return [*(state or ()), [event["n"], event["at"], event["before"]]], ()


def on_timer(state: Any, name: str, ctx: Any) -> Any:
    if name.endswith("+"):
        ctx.timer(name[:-1], after=2, clock="event")
    before = [n for n, at, passed in state if at < ctx.time and passed < ctx.time]
    return state, [[ctx.key, name, ctx.time, sum(before)]]


class Story:
    """Events with times out of order, of which each sets timers of its own."""

    def __init__(self, seed: int) -> None:
        self.random = chance = random.Random(seed)
        self.lateness = float(chance.choice([0, 0, 2, 5]))
        self.is_slow = chance.random() < 0.6
        self.filters = chance.random() < 0.3
        self.splits = chance.random() < 0.3
        self.has_clock = chance.random() < 0.3
        keys = chance.randint(1, 3)
        time, before, self.events = 0.0, -1e9, list[dict[str, Any]]()
        for n in range(chance.randint(1, 30)):
            time += chance.choice([0, 0, 1, 1, 2, 7])
            at = time - chance.choice([0, 0, 0, 1, 3, 8])
            event = {"n": n, "at": at, "key": chance.randrange(keys), "before": before}
            chain = chance.choice(["", "", "+"])
            event["timers"] = {
                f"{n}.{place}{chain}": at + chance.choice([-3, 0, 0.5, 1, 4, 20])
                for place in range(chance.choice([0, 1, 2]))
            }
            event["cancels"] = self._cancelled(event) if chance.random() < 0.3 else []
            self.events.append(event)
            before = max(before, at - self.lateness)
        self.results: list[Any] = []

    def _cancelled(self, event: dict[str, Any]) -> list[str]:
        """Timers that cannot have fired before the event, because it is earlier and not late."""
        if self.is_slow or event["at"] < event["before"]:
            return []
        others = [one["timers"] for one in self.events if one["key"] == event["key"]]
        return [name for one in others for name, due in one.items() if due > event["at"]]

    @property
    def kept(self) -> list[dict[str, Any]]:
        return [one for one in self.events if not (self.filters and one["n"] % 5 == 3)]

    def expected(self) -> list[Any]:
        found: list[Any] = []
        cancelled = {name for event in self.kept for name in event["cancels"]}
        for event in self.kept:
            for name, due in event["timers"].items():
                if name in cancelled:
                    continue
                found.append(self._fired(event["key"], name, due))
                if name.endswith("+"):
                    found.append(self._fired(event["key"], name[:-1], due + 2))
        return sorted(found)

    def _fired(self, key: Any, name: str, due: float) -> Any:
        before = [
            one["n"]
            for one in self.kept
            if one["key"] == key and one["at"] < due and one["before"] < due
        ]
        return [key, name, due, sum(before)]

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
        ttl = 1000 if self.has_clock else None
        stages.append(
            stateful(step, by="key", on_timer=on_timer, ttl=ttl, store=store, name="timers")
        )
        if self.splits:
            stages.append(adaptive_flat_map(work, Fixed(3)))
        sink = MemorySink(seconds=moods.choice([0, 0.004]))
        sink.accepted = self.results
        return source.pipe(*stages).to(sink)

    def found(self) -> list[Any]:
        return sorted(one for _, one in self.results)


@seeds(300)
def test_timers_fire_once_after_all_that_happened_before(seed: int) -> None:
    story = Story(seed)
    run_virtual(story.pipeline(from_iterable(story.events), None, seed).run())
    assert story.found() == story.expected()


@seeds(300)
def test_timers_fire_the_same_with_crashes(seed: int, tmp_path: Path) -> None:
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
    found = story.found()
    assert [one for n, one in enumerate(found) if one not in found[:n]] == story.expected()
    assert not list(backend.scan("timers (event time)"))


@seeds(300)
def test_silence_makes_timers_fire_by_the_clock(seed: int) -> None:
    chance = random.Random(seed)
    lateness, idle = chance.choice([0.0, 2.0]), chance.choice([3.0, 6.0])
    events: list[tuple[float, float, float]] = []
    clock = time = 0.0
    for _ in range(chance.randint(1, 8)):
        clock += chance.choice([0.5, 1, 2.5, 8.25, 20.5])
        time += chance.choice([-2, 0, 1, 4, 15])
        events.append((clock, time, time + chance.choice([0.25, 3, 9.75, 30])))
    found: list[tuple[float, str]] = []

    async def main() -> None:
        loop, box = asyncio.get_running_loop(), inbox(1000)
        began = loop.time()

        def set_timer(state: Any, event: Any, ctx: Any) -> Any:
            ctx.timer(event["name"], at=event["due"], clock="event")
            return 1, ()

        def due(state: Any, name: str, ctx: Any) -> Any:
            return 1, [name]

        stage: Any = stateful(set_timer, by="key", on_timer=due)
        timed = event_time("at", lateness, idle, max_ahead=None)
        sink = for_each(lambda name: found.append((round(loop.time() - began, 3), name)))
        running = box.pipe(timed, stage).to(sink).start()
        for number, (when, at, timer) in enumerate(events):
            await asyncio.sleep(began + when - loop.time())
            await box.put({"key": 1, "at": at, "name": str(number), "due": timer})
        await asyncio.sleep(200)
        running.cancel()

    run_virtual(main())
    assert sorted(found) == sorted(_by_definition(events, lateness, idle))


def _by_definition(
    events: list[tuple[float, float, float]], lateness: float, idle: float
) -> list[tuple[float, str]]:
    """When the timer of each event fires: each event has a second, a time and that of its timer."""
    fired: list[tuple[float, str]] = []
    pending: dict[str, float] = {}
    greatest = watermark = -inf
    for number, (when, at, due) in enumerate(events):
        greatest = max(greatest, at)
        watermark = max(watermark, greatest - lateness)
        pending[str(number)] = due
        following = events[number + 1][0] if number + 1 < len(events) else inf
        for name, timer in list(pending.items()):
            reached = when
            if timer > watermark:
                # By silence.
                reached = max(when + idle, when + timer + lateness - greatest)
            if reached < following:
                fired.append((round(reached, 3), name))
                del pending[name]
        if following - when >= idle and following < inf:
            watermark = max(watermark, greatest + following - when - lateness)
    return fired
