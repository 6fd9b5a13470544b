"""Random pipelines for tests of what holds in all of them, and the most events in them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from typing import Any
from unittest.mock import patch

from reactivex import operators as ops

from penstock import (
    Backoff,
    Fixed,
    Pipeline,
    WorkPool,
    adaptive_flat_map,
    batch,
    chunk,
    count_over_time,
    distinct_within,
    for_each,
    from_async_iterable,
    from_iterable,
    group_by,
    latency_histogram,
    lift,
    monitor,
    objective,
    rate_limit,
    retry,
    route,
    spread,
    violations,
    write_jetstream,
)
from penstock import ops as ours
from penstock.streams.base.errors import HoldExceeded
from penstock.streams.protocol.stage_info import MOST_LETTERS
from penstock.streams.runtime.sources import Counts
from penstock.streams.testing import MemorySink, MemorySource
from tests.helpers.accepting_later import AcceptingLater
from tests.unit.streams.nats.client.test_outbox import STORED, Server, refused

__all__ = ["FEATURES", "RandomPipeline"]

FEATURES = (
    "spill",
    "spill with each=",
    "each=",
    "batch",
    "a retry that waits",
    "several sinks",
    "a slow sink",
    "ordered",
    "streams inside",
    "nested groups",
    "letters of handlers",
    "letters of monitor",
    "violations to a sink",
    "letters of violations",
    "letters of count_over_time",
    "late=",
    "letters of offer",
    "letters of write_jetstream",
    "letters from inside a group",
    "a slow sink of letters that holds none",
    "--limit",
)


# Jobs that a pool's worker has at once, and results that wait to go on.
_JOBS, _WINDOW = 4, 1


class Trouble(Exception):
    """The error that handlers raise here."""


class Stream(Server):
    """Stores every other message, and refuses the others for good."""

    def __init__(self) -> None:
        answers = cycle([refused(400, 10111, "rollup not permitted"), STORED])
        super().__init__(lambda _: next(answers))

    async def close(self) -> None: ...


async def _connect(*_: Any, **__: Any) -> Stream:
    return Stream()


class RandomPipeline:
    """A pipeline, its parts, and the most events that were unfinished in it.

    A `large` one has the default bounds, and more events than these admit.
    """

    def __init__(self, rng: random.Random, *, large: bool = False) -> None:
        self.rng = rng
        self.large = large
        self.features: set[str] = set()
        self.peak = self.peak_on_disk = 0
        self.count = 1500 if large else rng.choice([10, 30, 60, 150])
        self.limit = rng.choice([None, None, (1, 1), (2, 20)])
        self._pools: list[tuple[WorkPool, Pipeline]] = []
        # One stage of letters may be the only stage, so that nothing hides what it holds.
        self._routes = rng.choice([1, 1, 20])
        self._sinks_of_letters: list[Any] = []
        self._running: Any = None
        with self._few_letters():
            self.pipeline = self._pipeline()

    @contextmanager
    def _few_letters(self) -> Iterator[None]:
        """Lower the bound of letters, which small pipelines would never reach."""
        most = MOST_LETTERS if self.large else 8
        with (
            patch("penstock.streams.protocol.stage_info.MOST_LETTERS", most),
            patch("penstock.streams.failures.dead_letters.MOST_LETTERS", most),
        ):
            yield

    def look(self, value: Any = None) -> Any:
        if self._running is not None:
            run = self._running._run
            counts = Counts()
            run.nesting.count(counts, Counts())
            on_disk = sum(stage().get("on_disk", 0) for _, stage in run.nesting.stages)
            self.peak = max(self.peak, counts.unfinished - on_disk)
            self.peak_on_disk = max(self.peak_on_disk, on_disk)
        return value

    def key(self, value: Any) -> int:
        while not isinstance(value, int):
            value = value[0] if value else 0
        return value % self.keys

    def half(self, value: Any) -> bool:
        """A predicate that fails on every other event."""
        self.look()
        self._judged += 1
        if self._judged % 2:
            raise Trouble(value)
        return self.key(value) % 2 == 0

    @property
    def most_on_disk(self) -> int:
        """The bound that `draw` prints of what is in temporary files."""
        return sum(stage.on_disk for stage in self.pipeline.describe(self.limit))

    @property
    def most(self) -> int:
        """The bound that `draw` prints, plus what pools hold, for which it prints none."""
        stages = self.pipeline.describe(self.limit)
        unbounded = [stage for stage in stages if stage.holds is None]
        assert {stage.name for stage in unbounded} <= {"offer"}
        most = sum(stage.bounded for stage in stages)
        numbers = self._running.statistics()["stages"]
        for stage in unbounded:
            # A worker may have results that it has not reported yet.
            jobs = max(_JOBS, numbers[stage.number - 1]["peak_in_flight"])
            most += (jobs + _WINDOW) * stage.weight
        return most

    def _pipeline(self) -> Pipeline:
        rng = self.rng
        self.keys = rng.choice([1, 3, 20, 500])
        self._judged = 0
        numbers = range(self.count)
        self._forgets = rng.random() < 0.5
        source: Any = MemorySource(numbers) if self._forgets else from_iterable(numbers)
        stream = source.pipe(ops.map(self.look))
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            stream = stream.pipe(*self._stages())
        if rng.random() < 0.2:
            # There is no working stage: a turn lasts until its event is finished.
            stream = stream.pipe(self._group_by(*self._inside()), spread())
        pipeline = stream.pipe(ops.map(self.look)).to(*self._sinks())
        names = [stage.name for stage in pipeline.describe()]
        if self.limit is not None and "adaptive_flat_map" in names:
            self.features.add("--limit")
        return pipeline

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
                self._opened,
                lambda: (distinct_within(5, by=self.key), self._work()),
                lambda: (rate_limit(200, burst=3),),
                lambda: (self._watched(),),
                lambda: (self._watched(),),
                self._violated,
                self._violated,
                self._counted,
                self._counted,
                self._counted,
                self._offered,
                self._offered,
            ]
        )()

    def _group_by(self, *inside: Any, idle: float | None = None) -> Any:
        buffer = 1024 if self.large else self.rng.choice([1, 2, 5, 30])
        options: dict[str, Any] = {"overflow": "wait"}
        if self.rng.random() < 0.5:
            self.features.add("spill with each=" if inside else "spill")
            share = self.rng.choice([None, 1, buffer])
            options = {"share": share, "spill_events": self.rng.choice([1, 5, 100])}
        if not inside:
            return group_by(self.key, buffer, **options)
        self.features.add("each=")
        if self.rng.random() < 0.2:
            options["max_groups"] = 3

        def each(group: Any) -> Any:
            return group.pipe(*inside)

        idle = idle or self.rng.choice([0.5, 60])
        return group_by(self.key, buffer, each=each, idle=idle, **options)

    def _inside(self) -> tuple[Any, ...]:
        if self.rng.random() < 0.4:
            return self._doubtful()
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

    def _doubtful(self) -> tuple[Any, ...]:
        stage = self._doubted()
        return self.rng.choice(
            [
                (stage,),
                (stage, ops.map(self.look), chunk(3)),
                (chunk(3), stage),
                (group_by(self.key, 3), spread(), stage),
            ]
        )

    def _doubted(self) -> Any:
        inside = "letters from inside a group"
        if self.rng.random() < 0.5:
            return self._watched(inside)
        return distinct_within(5, by=self._half_of_keys, on_error=self._route(inside))

    def _half_of_keys(self, value: Any) -> int:
        return self.half(value) + 2 * self._judged

    def _watched(self, feature: str = "letters of monitor") -> Any:
        options: dict[str, Any] = {}
        if self._routes and self.rng.random() < 0.5:
            self._routes -= 1
            self.features.add("violations to a sink")
            options["on_violation"] = self._sink_of_letters()
        by = self.rng.choice([None, self.key])
        options["on_error"] = self._route(feature)
        return monitor("G p", by, restart=True, p=self.half, **options)

    def _violated(self) -> tuple[Any, ...]:
        by = self.rng.choice([None, self.key])
        dead = self._route("letters of violations")
        stage = violations("G p", by, on_error=dead, restart=True, p=self.half)
        return stage, ops.map(lambda violation: violation.evidence[-1])

    def _counted(self) -> tuple[Any, ...]:
        if self._forgets:
            # What is acknowledged may not be counted.
            return (self._watched(),)
        count = 0

        def row(value: Any) -> dict[str, Any]:
            nonlocal count
            count += 1
            begin = 0 if count % 3 == 1 else count
            return {"from": begin, "to": begin if count % 3 == 2 else begin + 3}

        late = self._route("late=") if self.rng.random() < 0.5 else "skip"
        dead = self._route("letters of count_over_time")
        stage = count_over_time(lateness=0, late=late, on_error=dead)
        return ops.map(row), stage, ops.map(lambda period: period.value)

    def _offered(self) -> tuple[Any, ...]:
        pool = WorkPool(attempts=1)

        async def job(value: Any) -> Any:
            await asyncio.sleep(0.01)
            return (value, self.half(value))

        self._pools.append((pool, pool.work(job, Fixed(_JOBS))))
        options: dict[str, Any] = {
            "ordered": self.rng.random() < 0.5,
            "window": _WINDOW,
            "on_error": self._route("letters of offer"),
        }
        grouped = (group_by(self.key, 5), spread()) if self.rng.random() < 0.5 else ()
        return *grouped, lambda source: pool.offer(source, **options)

    def _sink_of_letters(self) -> Any:
        """A new one, or one that another stage uses too."""
        if self._sinks_of_letters and self.rng.random() < 0.2:
            return self.rng.choice(self._sinks_of_letters)
        kind = self.rng.choice(["at once", "slow", "slow", "patient"])
        if kind == "patient":
            self.features.add("a slow sink of letters that holds none")
        sink = (
            AcceptingLater(1) if kind == "patient" else MemorySink(seconds=0.5 * (kind == "slow"))
        )
        self._sinks_of_letters.append(sink)
        return sink

    def _route(self, feature: str) -> Any:
        if not self._routes:
            return "skip"
        self._routes -= 1
        self.features.add(feature)
        return route(self._sink_of_letters())

    def _grouped(self) -> tuple[Any, ...]:
        apart = (ops.flat_map(lambda v: [v] * 3),) if self.rng.random() < 0.2 else ()
        last = self._batch() if self.rng.random() < 0.5 else self._work()
        return self._group_by(*self._inside()), spread(), *apart, last

    def _nested(self) -> tuple[Any, ...]:
        self.features.add("nested groups")
        if self.rng.random() < 0.5:
            return self._group_by(self._group_by(*self._inside()), spread()), spread(), self._work()
        # What the second groups hold keeps the turns of the first until they are idle: not for
        # long, or a pipeline of a thousand events would take a day of virtual time.
        inside = self._group_by(*self._inside(), idle=0.5)
        return self._group_by(), spread(), inside, spread(), self._work()

    def _gathered(self) -> tuple[Any, ...]:
        return self.rng.choice(
            [
                (chunk(7),),
                (chunk(50, 0.3),),
                (ops.buffer_with_count(5),),
                # It emits empty lists for ever. Letters about them would never get fewer, and so
                # hold the source for ever.
                (ops.buffer_with_time(0.2), ops.filter(lambda values: bool(values))),
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

    def _opened(self) -> tuple[Any, ...]:
        self.features.add("streams inside")
        inside: Any = self.rng.choice([self._listed, self._waited_for])
        return self.rng.choice(
            [
                (ops.flat_map(inside),),
                (ops.flat_map_indexed(lambda value, _: inside(value)),),
                (ours.flat_map(inside, self.rng.choice([1, 2, 20])),),
                (ops.concat_map(inside),),
                (ops.map(inside), ops.merge_all()),
                (ops.map(inside), ops.merge(max_concurrent=2)),
                (ops.map(inside), ops.concat_all()),
                (ops.switch_map(inside),),
                (ops.map(inside), ops.switch_latest()),
                (ops.map(inside), ours.exclusive()),
                (ours.exhaust_map(inside),),
            ]
        )

    def _listed(self, value: Any) -> Any:
        self.look()
        return from_iterable([value] * 3)

    def _waited_for(self, value: Any) -> Any:
        async def items() -> Any:
            for _ in range(3):
                self.look()
                await asyncio.sleep(0.01)
                yield value

        return from_async_iterable(items)

    def _policy(self) -> Any:
        last: Any = "skip" if self.rng.random() < 0.5 else self._route("letters of handlers")
        if self.rng.random() < 0.5:
            self.features.add("a retry that waits")
            return retry(3, Backoff(0.4, cap=1), then=last)
        return last

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

        async def failing(value: Any) -> None:
            await slow(value)
            self.half(value)

        kinds = {
            "slow": lambda: for_each(slow),
            "plain": lambda: for_each(self.look),
            "failing": lambda: for_each(failing, on_error=self._route("letters of handlers")),
            "latency": lambda: latency_histogram(None, report=None, by=repr),
            "objective": lambda: objective("p99 < 10ms", share=0.9, name=f"{self.rng.random()}"),
            "stream": self._stream,
        }
        likely = [
            "slow",
            "slow",
            "failing",
            "failing",
            "stream",
            "stream",
            "latency",
            "objective",
            "plain",
        ]
        names = self.rng.choices(likely, k=self.rng.choice([1, 1, 2, 3]))
        if len(names) > 1:
            self.features.add("several sinks")
        if {"slow", "failing"} & set(names):
            self.features.add("a slow sink")
        return [kinds[name]() for name in names]

    def _stream(self) -> Any:
        dead = self._route("letters of write_jetstream")
        return write_jetstream("s", window=self.rng.choice([1, 20]), on_error=dead)

    async def run(self) -> None:
        with self._few_letters(), patch("penstock.streams.nats.streams.writing.connect", _connect):
            workers = [work.start() for _, work in self._pools]
            self._running = self.pipeline.start(limit=self.limit)
            with suppress(HoldExceeded):
                await self._running.wait()
            for worker in workers:
                await worker.drain()
