"""An event that comes alone waits only for its handler, and a slot for no event that is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Fixed,
    adaptive_flat_map,
    for_each,
    from_iterable,
    group_by,
    retry,
    spread,
)
from penstock.streams.testing import ManualPublisher
from penstock.streams.testing.plugin import Run
from tests.helpers.futures import count_futures


class Iterations:
    """Counts the iterations of the running loop, by a callback that sets itself again in each."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_soon(self._again)

    def _again(self) -> None:
        self.count += 1
        self._next = self._loop.call_soon(self._again)

    def end(self) -> None:
        self._next.cancel()

    async def of(self, begin: Callable[[], None], has_ended: Callable[[], bool]) -> int:
        """How many from a call of `begin` until `has_ended`."""
        start = self.count
        ended: list[int] = []
        begin()
        for _ in range(50):
            if has_ended():
                ended.append(self.count - start)
                break
            await asyncio.sleep(0)
        return ended[0]


def plain(value: int) -> int:
    return value


async def at_once(value: int) -> int:
    return value


async def one_turn(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def a_future(value: int) -> int:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    loop.call_soon(future.set_result, None)
    await future
    return value


async def by_hand(handler: Any) -> int:
    """The iterations that one call takes in a task that waits for it."""
    queue: asyncio.Queue[int] = asyncio.Queue()
    done: list[int] = []

    async def work() -> None:
        while True:
            done.append(await handler(await queue.get()))

    task = asyncio.ensure_future(work())
    iterations = Iterations()
    await asyncio.sleep(0)
    count = await iterations.of(lambda: queue.put_nowait(0), lambda: done == [0])
    iterations.end()
    task.cancel()
    return count


async def in_pipeline(handler: Any, is_grouped: bool, **options: Any) -> int:
    """The iterations from an event's arrival in an idle pipeline to its acceptance by the sink."""
    publisher = ManualPublisher[int]()
    accepted: list[int] = []
    groups = (group_by(lambda n: n % 2), spread()) if is_grouped else ()
    flow = publisher.pipe(*groups, adaptive_flat_map(handler, **options))
    async with flow.to(for_each(accepted.append)).start():
        await asyncio.sleep(1)
        # The first one starts what stays.
        publisher.send(0)
        await asyncio.sleep(1)
        iterations = Iterations()
        await asyncio.sleep(0)
        count = await iterations.of(lambda: publisher.send(1), lambda: accepted == [0, 1])
        iterations.end()
        publisher.complete()
    return count


OPTIONS: dict[str, dict[str, Any]] = {
    "fixed": {"limit": Fixed(64)},
    "default": {},
    "between": {"limit": (64, 1000)},
    "ordered": {"ordered": True},
    "timeout": {"timeout": 9},
    "retry": {"on_error": retry(2)},
}


@pytest.mark.parametrize("is_grouped", [False, True], ids=["straight", "grouped"])
@pytest.mark.parametrize(
    ("handler", "options"),
    [
        pytest.param(handler, options, id=f"{handler.__name__}-{name}")
        for handler in (plain, at_once, one_turn, a_future)
        for name, options in OPTIONS.items()
        # Nothing can interrupt a plain handler.
        if handler is not plain or name != "timeout"
    ],
)
def test_an_event_that_passes_an_idle_pipeline_needs_no_iteration_but_its_handlers_own(
    run: Run, handler: Any, options: dict[str, Any], is_grouped: bool
) -> None:
    async def story() -> tuple[int, int]:
        # A plain one is called at once.
        enough = 0 if handler is plain else await by_hand(handler)
        return await in_pipeline(handler, is_grouped, **options), enough

    needed, enough = run(story())
    assert needed == enough


@pytest.mark.parametrize("limit", [Fixed(4), Fixed(64), None], ids=["4", "64", "default"])
def test_a_slot_does_not_sleep_while_each_call_that_ends_lets_the_next_one_of_its_key_begin(
    run: Run, limit: Any
) -> None:
    async def futures() -> int:
        """How many the pipeline makes for 1,000 events of 4 keys."""
        count = count_futures()
        calls = adaptive_flat_map(one_turn, limit)
        flow = from_iterable(range(1_000)).pipe(group_by(lambda n: n % 4), spread(), calls)
        await flow.to(for_each(lambda _: None)).run()
        return count()

    assert run(futures()) < 30
