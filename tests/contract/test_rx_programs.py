"""The twelve programs of docs/rx.md behind a slow consumer: what they hold, and their memory.

The code is that of the page. Only its sources go on for longer, and what would be in its list goes
to a consumer that takes its time.
"""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from reactivex import Observable
from reactivex import operators as stock
from reactivex.subject import Subject

import penstock
from penstock import Flowable, Pipeline, Running, for_each, from_async_iterable, from_iterable
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.testing import run_virtual

PAGE = Path(__file__).parents[2] / "docs" / "rx.md"

# How many values the sources have together, in three runs. The first one imports what is needed.
BEFORE, FEW, MANY = 100, 1_000, 3_000

# Seconds that the consumer takes for a value.
SLOW = 0.01

# Seconds between the values of a source, for the programs of which nothing would come if it had all
# of them at once.
PACES = {"Switch to the newest": 2 * SLOW, "Throttle": 30}

# Blocks of memory of an event whose value is in a temporary file.
SPILLED = 2

# The program whose source is a thread.
THREADED = "A subject, fed by callbacks and threads"


class Consumer:
    """Takes its time; looks now and then at what the pipeline holds."""

    def __init__(self, seconds: float) -> None:
        self.received = 0
        self.running: Running | None = None
        # The most blocks of memory besides those of spilled events, and the most unfinished events
        # beyond those that draw prints.
        self.peak = self.beyond = 0
        self._before = sys.getallocatedblocks()
        self._seconds = seconds

    async def __call__(self, value: object) -> None:
        self.received += 1
        if self.received % 25 == 0:
            self._look()
        await asyncio.sleep(self._seconds)

    def _look(self) -> None:
        running = self.running
        assert running is not None
        # What is in cycles counts only if it stays.
        gc.collect()
        statistics = running.statistics()
        on_disk = sum(stage.get("on_disk", 0) for stage in statistics["stages"])
        blocks = sys.getallocatedblocks() - self._before - SPILLED * on_disk
        self.peak = max(self.peak, blocks)
        most = sum(stage.bounded for stage in all_stages(running.describe()))
        self.beyond = max(self.beyond, statistics["unfinished"] - on_disk - most)


def programs() -> dict[str, str]:
    """The first program below each title of the page."""
    parts = re.split(r"^## (.*)", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    blocks = [re.search(r"```python\n(.*?)```", text, re.DOTALL) for text in parts[1::2]]
    return {
        title: block[1]
        for title, block in zip(parts[::2], blocks, strict=True)
        if block is not None
    }


PROGRAMS = programs()


def longer(
    items: Iterable[Any] | Callable[[], Iterable[Any]], count: int
) -> Callable[[], Iterator[Any]]:
    """Each item many times, `count` or more together; none is the same object as another."""
    begin = items if callable(items) else lambda: items
    times = count if callable(items) else -(-count // len(list(items)))

    def many() -> Iterator[Any]:
        for item in begin():
            yield from (item + type(item)(1_000_000 + i) for i in range(times))

    return many


def stream_of(items: Any, count: int, pace: float) -> Flowable[Any]:
    many = longer(items, count)

    async def paced() -> AsyncIterator[Any]:
        for item in many():
            await asyncio.sleep(pace)
            yield item

    return from_async_iterable(paced) if pace else from_iterable(many)


def keeping_up(consumer: Consumer, count: int) -> Iterator[int]:
    """Numbers for a thread, at most 50 of which wait for the consumer."""
    for number in range(count):
        until = time.monotonic() + 60
        while number > consumer.received + 50:
            assert time.monotonic() < until, f"only {consumer.received} were received"
            time.sleep(0.0005)
        yield 1_000_000 + number


def run(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> Consumer:
    """Run a program of the page, whose sources have `count` values each or more."""
    gc.collect()
    consumer = Consumer(0 if name == THREADED else SLOW)
    start, of = Pipeline.start, Flowable.of

    def started(pipeline: Pipeline, **options: Any) -> Running:
        consumer.running = start(pipeline, **options)
        return consumer.running

    async def consumed(stream: Flowable[Any]) -> list[Any]:
        await stream.to(for_each(consumer)).start().wait()
        return []

    def repeated(observable: Observable[Any], on_overflow: Any) -> Flowable[Any]:
        if not isinstance(observable, Subject):
            observable = observable.pipe(stock.repeat(count // 3))
        return of(observable, on_overflow)

    monkeypatch.setattr(Pipeline, "start", started)
    monkeypatch.setattr(Flowable, "to_list", consumed)
    monkeypatch.setattr(Flowable, "of", staticmethod(repeated))
    monkeypatch.setattr(
        penstock, "from_iterable", partial(stream_of, count=count, pace=PACES.get(name, 0))
    )
    monkeypatch.setattr(penstock, "collect", lambda into: for_each(consumer))
    names: dict[str, Any] = {"__name__": name}
    if name == THREADED:
        names["range"] = lambda _: keeping_up(consumer, count)
    else:
        monkeypatch.setattr(asyncio, "run", partial(run_virtual, horizon=1e6))
    # A collection looks at what is made from now on.
    gc.freeze()
    try:
        exec(compile(PROGRAMS[name], f"{PAGE.name}: {name}", "exec"), names)
    finally:
        gc.unfreeze()
    return consumer


def test_the_page_shows_twelve_programs() -> None:
    assert len(PROGRAMS) == 12


@pytest.mark.parametrize("name", PROGRAMS)
def test_behind_a_slow_consumer_a_program_holds_what_draw_prints_and_no_more(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = list[Consumer]()
    for count in (BEFORE, FEW, MANY):
        with monkeypatch.context() as patched:
            consumer = run(name, count, patched)
        assert consumer.received > count / 5
        assert consumer.beyond <= 0
        runs.append(consumer)
    _, few, many = runs
    # Less than a block for each value that the second run has more than the first.
    assert many.peak < few.peak + 0.9 * (many.received - few.received)
