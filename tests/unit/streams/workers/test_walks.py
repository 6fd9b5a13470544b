"""What holds with any number of workers, whatever happens to them: seeded random walks.

On virtual time; each message takes its own time, so that those of one worker overtake those of
another. Workers are killed, or frozen for a while, the limit is changed, the source is paused, the
pipeline is drained or cancelled.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

from penstock import (
    Fixed,
    Sink,
    adaptive_flat_map,
    distinct_within,
    from_iterable,
    group_by,
    ops,
    spread,
)
from penstock.streams.pipelines.running import Report, Running
from penstock.streams.testing import MemorySink
from penstock.streams.testing.loop import run_virtual
from tests.helpers.local_workers import LocalCrew, random_delay
from tests.helpers.walks import seeds

Event = tuple[int, int]


class Trouble(Exception):
    """What the handler raises."""


class Walk:
    """One pipeline, what is done to it, and what is seen meanwhile."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.keys = draw.choice([1, 2, 5, 20])
        self.sent = [(n % self.keys, n) for n in range(draw.choice([20, 150, 600]))]
        self.limit = draw.choice([1, 2, 3, 7, 50])
        self.most = self.limit
        self.ordered = draw.random() < 0.5
        self.window = draw.choice([2, 256])
        self.share = draw.choice([None, 1, 3])
        self.failing = draw.choice([0.0, 0.0, 0.05])
        self.in_flight: dict[Event, object] = {}
        """The calls in workers that are alive."""
        self.last: dict[int, int] = {}
        self.began: Counter[Event] = Counter()
        self.faults: list[str] = []
        self.killed = 0
        self.end = "completed"
        self.crew = LocalCrew(draw.choice([2, 3]), random_delay(seed, draw.choice([0, 1e-3, 0.02])))
        self.sink = MemorySink(seconds=draw.choice([0, 0, 0.002]))
        self.sinks: list[Sink[Any]] = [self.sink]

    async def handler(self, event: Event) -> Event:
        key, number = event
        if any(other[0] == key for other in self.in_flight):
            self.faults.append(f"{event} began while another event of its key was in flight")
        self.in_flight[event] = call = object()
        if len(self.in_flight) > self.most:
            self.faults.append(f"{len(self.in_flight)} calls, and the limit is {self.most}")
        if not self.began[event]:
            if number < self.last.get(key, -1):
                self.faults.append(f"{event} began after {self.last[key]}")
            self.last[key] = number
        self.began[event] += 1
        try:
            await asyncio.sleep(self.draw.choice([0, 0.001, 0.01]))
        finally:
            if self.in_flight.get(event) is call:
                del self.in_flight[event]
        if self.draw.random() < self.failing:
            raise Trouble(event)
        return event

    def kill(self) -> None:
        worker = self.draw.choice(self.crew.alive)
        for event in self.crew.values(worker):
            self.in_flight.pop(event, None)
        self.killed += 1
        self.crew.kill(worker)

    async def disturb(self, running: Running) -> None:
        draw = self.draw
        for _ in range(draw.choice([0, 1, 4])):
            await asyncio.sleep(draw.uniform(0, 0.1))
            match draw.choice(["kill", "kill", "freeze", "limit", "pause", "drain", "cancel"]):
                case "kill" if self.crew.alive:
                    self.kill()
                case "freeze" if self.crew.alive:
                    worker = draw.choice(self.crew.alive)
                    self.crew.freeze(worker)
                    await asyncio.sleep(draw.choice([0.1, 3, 6]))
                    self.crew.thaw(worker)
                case "limit":
                    # Those that are in flight may finish.
                    limit = draw.choice([1, 4, 9])
                    self.most = max(limit, self.most)
                    running.retune(Fixed(limit))
                    await asyncio.sleep(0.1)
                    self.most = max(limit, len(self.in_flight))
                case "pause":
                    running.pause()
                    await asyncio.sleep(draw.uniform(0, 0.1))
                    running.resume()
                case "drain" if draw.random() < 0.3:
                    self.end = "drained"
                    running.begin_drain(1000, by_signal=True)
                case "cancel" if draw.random() < 0.2:
                    self.end = "cancelled"
                    running.cancel()
                    return
                case _:
                    pass

    async def run(self) -> Report:
        stream = from_iterable(self.sent).pipe(
            distinct_within(1000, by=lambda event: event[1]),
            group_by(lambda event: event[0], buffer=self.draw.choice([5, 60]), share=self.share),
            spread(),
            ops.filter(lambda event: event[1] % 10 != 9),
            adaptive_flat_map(
                self.handler,
                limit=Fixed(self.limit),
                ordered=self.ordered,
                on_error="skip",
                window=self.window,
            ),
            ops.map(lambda event: event),
        )
        async with stream.to(*self.sinks).start(workers=self.crew) as running:
            await self.disturb(running)
            return await running.wait()


@seeds(100)
def test_every_event_ends_once_in_its_order_and_within_the_limit(seed: int) -> None:
    walk = Walk(seed)
    report = run_virtual(walk.run())
    numbers, results = report.statistics, walk.sink.values
    assert walk.faults == []
    assert len(set(results)) == len(results)
    assert set(results) <= {event for event in walk.sent if event[1] % 10 != 9}
    for key in range(walk.keys):
        of_key = [event for event in results if event[0] == key]
        assert of_key == sorted(of_key)
    if walk.ordered and not walk.killed:
        assert results == sorted(results, key=lambda event: event[1])
    ended = numbers["finished"] + numbers["failed"] + numbers["returned"]
    assert numbers["in"] == ended + sum(numbers["dropped"].values())
    assert numbers["unfinished"] == 0
    assert numbers["finished"] == len(results)
    if walk.end == "completed":
        assert report.outcome == "completed"
        assert numbers["in"] == len(walk.sent)
        assert numbers["returned"] == 0
    elif walk.end == "drained":
        assert numbers["returned"] == 0
    if not walk.killed:
        assert max(walk.began.values(), default=0) <= 1


@seeds(100)
def test_every_event_that_is_acknowledged_is_in_the_sinks_of_the_workers(seed: int) -> None:
    walk = Walk(seed)
    walk.ordered = False
    walk.sink.in_workers = True
    here = MemorySink()
    if seed % 2:
        walk.sinks.append(here)
    report = run_virtual(walk.run())
    numbers, results = report.statistics, walk.sink.values
    assert walk.faults == []
    for sink in walk.sinks:
        assert isinstance(sink, MemorySink)
        for key in range(walk.keys):
            # Those that a killed worker has written may come again, and what had failed may not.
            of_key = list(dict.fromkeys(event for event in sink.values if event[0] == key))
            assert of_key == sorted(of_key) or (walk.killed and walk.failing)
    ended = numbers["finished"] + numbers["failed"] + numbers["returned"]
    assert numbers["in"] == ended + sum(numbers["dropped"].values())
    assert numbers["unfinished"] == 0
    # What was written when the pipeline was cancelled may not be known to the parent.
    assert numbers["finished"] <= len(set(results))
    if walk.end != "cancelled":
        assert numbers["returned"] == 0
        assert numbers["failed"] or numbers["finished"] == len(set(results))
    if not walk.killed:
        assert len(set(results)) == len(results)
        assert walk.sink.closed <= walk.crew.started
