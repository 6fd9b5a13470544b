from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from reactivex import operators as rx

from penstock import (
    Fixed,
    Flowable,
    adaptive_flat_map,
    collect,
    for_each,
    from_async_iterable,
    from_iterable,
    group_by,
    read_jsonl,
    spread,
)
from penstock.streams.testing import VirtualTimeLoop
from penstock.streams.testing.plugin import Run

COUNT = 2000


def takes_a_millisecond(value: Any) -> Any:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.advance(0.001)
    return value


async def at_once() -> AsyncIterator[int]:
    for number in range(COUNT):
        yield number


def generated() -> Iterator[int]:
    yield from range(COUNT)


def of_seven(value: Any) -> int:
    return int(value) % 7


def latest(_: Any, value: Any) -> Any:
    return value


def twice(value: Any) -> list[Any]:
    return [value, value]


def endless(_: Any) -> Iterator[int]:
    # A test that fails should end.
    return generated()


async def never_waits(value: Any) -> Any:
    return value


SOURCES: dict[str, Flowable[Any]] = {
    "a list": from_iterable(list(range(COUNT))),
    "a generator": from_iterable(generated),
    "an async generator": from_async_iterable(at_once),
}
STAGES: dict[str, tuple[Any, ...]] = {
    "none": (),
    "spread": (group_by(of_seven), spread()),
    "spread into a lifted one": (group_by(of_seven), spread(), rx.take(COUNT)),
    "a plain handler": (group_by(of_seven), spread(), adaptive_flat_map(lambda n: n)),
    "a lifted one": (rx.scan(latest),),
    "one that holds": (rx.buffer_with_count(3),),
    "lists": (rx.flat_map(twice),),
    "an endless list": (rx.take(1), rx.flat_map(endless)),
    "an async iterator": (rx.take(1), adaptive_flat_map(lambda _: at_once())),
    "lists that are spread": (rx.take(2), rx.map(endless), spread()),
    "an async handler": (adaptive_flat_map(never_waits, Fixed(1)),),
}


async def longest_wait(flow: Flowable[Any], sink: str) -> float:
    """The longest time between two loop iterations, in seconds."""
    loop = asyncio.get_running_loop()
    times = [loop.time()]
    if sink == "for_each":
        running = flow.to(for_each(takes_a_millisecond)).start()
    else:
        running = flow.pipe(rx.map(takes_a_millisecond)).to(collect([])).start()
    async with running:
        while running.statistics()["state"] == "running":
            await asyncio.sleep(0)
            times.append(loop.time())
    return max(after - before for before, after in pairwise(times))


@pytest.mark.parametrize("sink", ["for_each", "collect"])
@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("source", SOURCES)
def test_a_source_that_never_waits_yields_to_the_loop(
    run: Run, source: str, stages: str, sink: str
) -> None:
    flow = SOURCES[source].pipe(*STAGES[stages])
    assert run(longest_wait(flow, sink)) < 0.05


@pytest.mark.parametrize("stages", ["none", "a lifted one", "lists"])
def test_a_file_yields_to_the_loop(run: Run, tmp_path: Path, stages: str) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text('{"n": 1}\n' * COUNT)
    flow = read_jsonl(file).pipe(*STAGES[stages])
    assert run(longest_wait(flow, "for_each")) < 0.05


def test_async_handlers_that_never_wait_share_one_slice(run: Run) -> None:
    async def handler(value: int) -> int:
        return int(takes_a_millisecond(value))

    async def story() -> float:
        flow = from_iterable(range(COUNT)).pipe(adaptive_flat_map(handler, Fixed(20)))
        return await longest_wait(flow, "collect")

    # One step of each worker, and as many events as fit into the slice.
    assert run(story()) < 0.06


def test_a_reader_that_never_waits_yields_to_the_loop(run: Run) -> None:
    seen: list[int] = []

    async def story() -> None:
        asyncio.get_running_loop().call_soon(seen.append, -1)
        async for value in from_iterable(range(COUNT)):
            seen.append(takes_a_millisecond(value))

    run(story())
    assert 0 < seen.index(-1) < 50
