"""Random pipelines for tests of what holds in all of them, and the most that is in them at once."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

from reactivex import operators as ops

from operators import (
    adaptive_flat_map,
    batch,
    chunk,
    distinct_within,
    group_by,
    rate_limit,
    spread,
)
from sinks import for_each, latency_histogram
from streams import Backoff, Fixed, Pipeline, from_iterable, lift, retry, route
from streams.errors import HoldExceeded
from streams.testing import MemorySink, MemorySource

__all__ = ["FEATURES", "RandomPipeline"]

FEATURES = (
    "each=",
    "batch",
    "a retry that waits",
    "several sinks",
    "a slow sink",
    "ordered",
    "nested groups",
)


class Trouble(Exception):
    """What handlers raise here."""


class RandomPipeline:
    """A pipeline, what it was made of, and the most events that were unfinished in it.

    A `large` one has the bounds that are there by default, and more events than these let in.
    """

    def __init__(self, rng: random.Random, *, large: bool = False) -> None:
        self.rng = rng
        self.large = large
        self.features: set[str] = set()
        self.peak = 0
        self.count = 1500 if large else rng.choice([10, 30, 60, 150])
        self.dead = MemorySink(seconds=rng.choice([0, 0.5]))
        self._running: Any = None
        self.pipeline = self._pipeline()

    def look(self, value: Any = None) -> Any:
        if self._running is not None:
            (source,) = self._running._run.sources
            numbers = source.statistics()
            ended = sum(numbers[name] for name in ("finished", "failed", "returned"))
            self.peak = max(self.peak, numbers["in"] - ended - sum(numbers["dropped"].values()))
        return value

    def key(self, value: Any) -> int:
        while not isinstance(value, int):
            value = value[0] if value else 0
        return value % self.keys

    def _pipeline(self) -> Pipeline:
        rng = self.rng
        self.keys = rng.choice([1, 3, 20, 500])
        numbers = range(self.count)
        source: Any = MemorySource(numbers) if rng.random() < 0.5 else from_iterable(numbers)
        stream = source.pipe(ops.map(self.look))
        for _ in range(rng.randint(1, 3)):
            stream = stream.pipe(*self._stages())
        return stream.pipe(ops.map(self.look)).to(*self._sinks())

    def _stages(self) -> tuple[Any, ...]:
        rng = self.rng
        return rng.choice(
            [
                self._grouped,
                self._grouped,
                self._nested,
                self._nested,
                lambda: (self._work(),),
                lambda: (self._work(),),
                lambda: (self._batch(),),
                self._gathered,
                self._taken_apart,
                lambda: (distinct_within(5, by=self.key), self._work()),
                lambda: (rate_limit(200, burst=3),),
            ]
        )()

    def _group_by(self, *inside: Any) -> Any:
        buffer = 1024 if self.large else self.rng.choice([1, 2, 5, 30])
        if not inside:
            return group_by(self.key, buffer)
        self.features.add("each=")
        options = {"max_groups": 3} if self.rng.random() < 0.2 else {}

        def each(group: Any) -> Any:
            return group.pipe(*inside)

        return group_by(self.key, buffer, each=each, idle=self.rng.choice([0.5, 60]), **options)

    def _inside(self) -> tuple[Any, ...]:
        return self.rng.choice(
            [
                (),
                (ops.count(),),
                (ops.pairwise(),),
                (chunk(3),),
                (ops.buffer_with_count(4), ops.flat_map(lambda values: values)),
                (ops.flat_map(lambda value: [value, value]), ops.delay(0.5)),
                (ops.scan(lambda total, _: total + 1, 0),),
                (rate_limit(50),),
            ]
        )

    def _grouped(self) -> tuple[Any, ...]:
        last = self._batch() if self.rng.random() < 0.5 else self._work()
        apart = (ops.flat_map(lambda v: [v] * 3),) if self.rng.random() < 0.2 else ()
        return self._group_by(*self._inside()), spread(), *apart, last

    def _nested(self) -> tuple[Any, ...]:
        self.features.add("nested groups")
        if self.rng.random() < 0.5:
            return self._group_by(self._group_by(*self._inside()), spread()), spread(), self._work()
        return self._group_by(), spread(), self._group_by(*self._inside()), spread(), self._work()

    def _gathered(self) -> tuple[Any, ...]:
        return self.rng.choice(
            [
                (chunk(7),),
                (chunk(50, 0.3),),
                (ops.buffer_with_count(5),),
                (ops.buffer_with_time(0.2),),
                (ops.delay(0.3),),
                (lift(ops.count(), hold=2000),),
            ]
        )

    def _taken_apart(self) -> tuple[Any, ...]:
        several: Any = lambda value: [value] * 5  # noqa: E731
        return self.rng.choice(
            [
                (ops.flat_map(several),),
                (lift(ops.flat_map(several), holds=False),),
                (ops.map(several), spread(self.rng.choice([None, 1, 4]))),
            ]
        )

    def _policy(self) -> Any:
        policies: list[Any] = ["skip", route(self.dead)]
        if self.rng.random() < 0.5:
            self.features.add("a retry that waits")
            return retry(3, Backoff(0.4, cap=1), then=self.rng.choice(policies))
        return self.rng.choice(policies)

    def _work(self) -> Any:
        seconds = self.rng.choice([0.01, 0.3])
        fails = self.rng.choice([0, 0, 3, 7])
        calls = 0

        def outcome(value: Any) -> Any:
            nonlocal calls
            self.look()
            calls += 1
            if fails and calls % fails == 0:
                raise Trouble(value)
            return value

        async def later(value: Any) -> Any:
            self.look()
            await asyncio.sleep(seconds * (1 + self.key(value) % 3))
            return outcome(value)

        async def several(value: Any) -> Any:
            for n in range(3):
                await asyncio.sleep(seconds)
                yield (value, n)
            outcome(value)

        ordered = self.rng.random() < 0.4
        if ordered:
            self.features.add("ordered")
        handler: Any = self.rng.choice([outcome, later, later, several])
        return adaptive_flat_map(
            handler,
            self.rng.choice([None, Fixed(1), Fixed(4), Fixed(50)]),
            ordered=ordered,
            on_error=self._policy(),
            window=256 if self.large else self.rng.choice([1, 5, 256]),
        )

    def _batch(self) -> Any:
        self.features.add("batch")
        calls = 0

        async def handler(values: list[Any]) -> list[Any]:
            nonlocal calls
            self.look()
            calls += 1
            await asyncio.sleep(0.1)
            self.look()
            if calls % 5 == 0:
                raise Trouble(values)
            return values

        size = self.rng.choice([1, 3, 40])
        return batch(handler, size, parallel=self.rng.choice([1, 3]), on_error=self._policy())

    def _sinks(self) -> list[Any]:
        async def slow(value: Any) -> None:
            self.look()
            await asyncio.sleep(0.02)

        kinds = {
            "slow": lambda: for_each(slow),
            "plain": lambda: for_each(self.look),
            "latency": lambda: latency_histogram(None, report=None),
        }
        names = self.rng.choices(sorted(kinds), k=self.rng.choice([1, 1, 2, 3]))
        if len(names) > 1:
            self.features.add("several sinks")
        if "slow" in names:
            self.features.add("a slow sink")
        return [kinds[name]() for name in names]

    async def run(self) -> None:
        self._running = self.pipeline.start()
        with suppress(HoldExceeded):
            await self._running.wait()
