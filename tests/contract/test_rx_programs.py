"""The twelve programs of docs/rx.md behind a slow consumer: what they hold, and their memory."""

from __future__ import annotations

import ast
import asyncio
import gc
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import reactivex
from reactivex.subject import Subject

from penstock import (
    Backoff,
    Flowable,
    Running,
    drop_oldest,
    for_each,
    from_async_iterable,
    from_iterable,
)
from penstock import ops as _ops
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.testing import run_virtual

# What reactivex says of its types does not fit a lambda.
ops: Any = _ops

PAGE = Path(__file__).parents[2] / "docs" / "rx.md"

# Seconds that the consumer takes for a value, and that pass between two of a source that does not
# wait for it.
SLOW, FAST = 0.01, 0.003

# Python keeps some of the objects that it has freed: by `WARM` events as many as it ever will.
WARM, ALL = 1_500, 2_500
# Blocks by which the peaks may differ: less than one for each event that goes through between.
NOISE = (ALL - WARM) * 0.9


class Watched:
    """The numbers of a source; looks now and then at what its pipeline holds."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.emitted = 0
        self.running: Running | None = None
        # What feeds the source, unless the source reads the numbers.
        self.begin: Callable[[], None] = lambda: None
        # The most blocks of memory, at the end and at first, and the most unfinished events beyond
        # those that draw prints.
        self.peak = self.peak_when_warm = self.beyond = 0
        gc.collect()
        # A collection looks at what is made from now on.
        gc.freeze()
        self._before = sys.getallocatedblocks()

    def __iter__(self) -> Iterator[int]:
        while self.emitted < self.n:
            self.emitted += 1
            if self.emitted % 100 == 0:
                self.look()
            # Too large to be an object that Python keeps.
            yield self.emitted + 1_000_000

    def look(self) -> None:
        running = self.running
        assert running is not None
        # What is in cycles counts only if it stays.
        gc.collect()
        self.peak = max(self.peak, sys.getallocatedblocks() - self._before)
        if self.emitted <= WARM:
            self.peak_when_warm = self.peak
        most = sum(stage.bounded for stage in all_stages(running.describe()))
        self.beyond = max(self.beyond, running.statistics()["unfinished"] - most)

    async def paced(self) -> AsyncIterator[int]:
        for number in self:
            await asyncio.sleep(2 * SLOW)
            yield number


def retried(numbers: Watched) -> Any:
    def rows() -> Iterator[int]:
        left = 100
        for number in numbers:
            yield number
            left -= 1
            if not left:
                raise OSError("gone")

    return from_iterable(rows).pipe(ops.retry(None, Backoff(FAST)))


def caught(numbers: Watched) -> Any:
    def broken() -> Iterator[int]:
        for number in numbers:
            if numbers.emitted > numbers.n // 2:
                raise OSError("gone")
            yield number

    return from_iterable(broken).pipe(ops.catch(from_iterable(numbers)))


def fed(numbers: Watched) -> Any:
    subject = Subject[int]()
    left = iter(numbers)

    def feed() -> None:
        for number in left:
            subject.on_next(number)
            asyncio.get_running_loop().call_later(FAST, feed)
            return
        subject.on_completed()

    numbers.begin = feed
    return Flowable.of(subject, drop_oldest(100))


def shared(numbers: Watched) -> Any:
    both = from_iterable(numbers).pipe(ops.share())
    return both.pipe(ops.map(str), ops.zip(both))


def slowly(value: int) -> Any:
    return reactivex.timer(FAST).pipe(ops.map(lambda _: value))


PROGRAMS: dict[str, Callable[[Watched], Any]] = {
    "Merge two sources": lambda n: from_iterable(n).pipe(ops.merge(from_iterable(range(n.n)))),
    "Combine the newest values": lambda n: from_iterable(n).pipe(
        ops.combine_latest(from_iterable(range(n.n)))
    ),
    "Windows": lambda n: from_iterable(n).pipe(
        ops.window_with_count(3), ops.flat_map(lambda window: window.pipe(ops.sum()))
    ),
    "Debounce": lambda n: from_async_iterable(n.paced()).pipe(ops.debounce(SLOW)),
    "Retry with back-off": retried,
    "Switch to the newest": lambda n: from_async_iterable(n.paced()).pipe(ops.switch_map(slowly)),
    "Share one reading": shared,
    "A subject, fed by callbacks and threads": fed,
    "Catch": caught,
    "Scan": lambda n: from_iterable(n).pipe(ops.scan(lambda a, b: a + b)),
    "Throttle": lambda n: from_iterable(n).pipe(ops.throttle_first(SLOW / 2)),
    "Group by": lambda n: from_iterable(n).pipe(
        ops.group_by(lambda number: number % 10, 100), ops.spread()
    ),
}


def run(program: Callable[[Watched], Any], n: int) -> Watched:
    numbers = Watched(n)
    received = 0

    async def slow(value: object) -> None:
        nonlocal received
        received += 1
        await asyncio.sleep(SLOW)

    async def story() -> None:
        numbers.running = program(numbers).to(for_each(slow)).start()
        asyncio.get_running_loop().call_later(FAST, numbers.begin)
        await numbers.running.wait()

    try:
        run_virtual(story(), horizon=10_000)
    finally:
        gc.unfreeze()
    assert numbers.emitted == n
    assert received > n / 10
    return numbers


def test_each_program_of_the_page_is_here() -> None:
    titles = re.findall(r"^## (.*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert list(PROGRAMS) == titles[:12]
    assert titles[12:] == ["Schedulers, threads and loops"]


def operators_in(code: ast.AST) -> set[str]:
    """The names of those that code takes from `ops`."""
    return {
        node.attr
        for node in ast.walk(code)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id == "ops"
    }


def on_the_page() -> dict[str, set[str]]:
    """The operators of the first program below each title."""
    parts = re.split(r"^## (.*)", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:25]
    blocks = [re.search(r"```python\n(.*?)```", text, re.DOTALL) for text in parts[1::2]]
    return {
        title: operators_in(ast.parse(block[1])) - {"map"}
        for title, block in zip(parts[::2], blocks, strict=True)
        if block
    }


def here() -> dict[str, set[str]]:
    """The operators of each of PROGRAMS."""
    module = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    (programs,) = (
        node.value
        for node in module.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "PROGRAMS"
    )
    assert isinstance(programs, ast.Dict)
    found: dict[str, set[str]] = {}
    for key, program in zip(programs.keys, programs.values, strict=True):
        assert isinstance(key, ast.Constant)
        code = functions[program.id] if isinstance(program, ast.Name) else program
        found[str(key.value)] = operators_in(code) - {"map"}
    return found


def test_each_program_has_the_operators_of_that_on_the_page() -> None:
    assert here() == on_the_page()


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_behind_a_slow_consumer_a_program_holds_what_draw_prints_and_no_more(name: str) -> None:
    numbers = run(PROGRAMS[name], ALL)
    assert numbers.beyond <= 0
    assert numbers.peak < numbers.peak_when_warm + NOISE
