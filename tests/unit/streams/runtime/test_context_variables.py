from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import pytest

from penstock import (
    Fixed,
    adaptive_flat_map,
    batch,
    collect,
    for_each,
    from_iterable,
    in_threads,
    inbox,
)
from penstock.streams.testing.plugin import Run

REQUEST: ContextVar[str] = ContextVar("REQUEST", default="none")


async def seen_and_changed(number: int) -> str:
    seen = REQUEST.get()
    REQUEST.set(f"set for {number}")
    await asyncio.sleep(0)
    return seen


async def seen_and_changed_before_an_error(number: int) -> str:
    if (seen := await seen_and_changed(number)) == "none" and number % 2:
        raise ValueError
    return seen


async def seen_and_changed_by_an_iterator(number: int) -> AsyncIterator[str]:
    yield await seen_and_changed(number)


async def all_seen_and_changed(numbers: list[int]) -> list[str]:
    return [await seen_and_changed(number) for number in numbers]


@pytest.mark.parametrize(
    "stage",
    [
        adaptive_flat_map(seen_and_changed),
        adaptive_flat_map(seen_and_changed, Fixed(3), timeout=60),
        adaptive_flat_map(seen_and_changed, Fixed(1)),
        adaptive_flat_map(seen_and_changed_before_an_error, Fixed(2), on_error="skip"),
        adaptive_flat_map(seen_and_changed_by_an_iterator),
        batch(all_seen_and_changed, 1),
    ],
)
def test_a_call_does_not_see_what_another_call_has_set(run: Run, stage: Any) -> None:
    assert set(run(from_iterable(range(9)).pipe(stage).to_list())) == {"none"}


def test_a_call_of_a_sink_does_not_see_what_another_call_has_set(run: Run) -> None:
    seen: list[str] = []

    async def store(number: int) -> None:
        seen.append(await seen_and_changed(number))

    run(from_iterable(range(3)).to(for_each(store)).run())
    assert seen == ["none"] * 3


def test_a_plain_function_below_does_not_see_what_a_call_has_set(run: Run) -> None:
    stream = from_iterable(range(3)).pipe(adaptive_flat_map(seen_and_changed))
    assert run(stream.map(lambda _: REQUEST.get()).to_list()) == ["none"] * 3


@pytest.mark.parametrize("wait", [False, True])
def test_a_handler_runs_in_the_context_of_the_start_and_not_of_a_put(run: Run, wait: bool) -> None:
    async def request(number: int) -> None:
        REQUEST.set(f"request {number}")
        await hooks.put(number, wait=wait)

    async def handle(number: int) -> str:
        return REQUEST.get()

    def handle_at_once(seen: str) -> tuple[str, str]:
        return seen, REQUEST.get()

    hooks = inbox(1)

    async def story() -> list[tuple[str, str]]:
        REQUEST.set("start")
        seen: list[tuple[str, str]] = []
        stages = adaptive_flat_map(handle, Fixed(2)), adaptive_flat_map(handle_at_once)
        async with hooks.pipe(*stages).to(collect(seen)).start() as running:
            await asyncio.gather(*[asyncio.create_task(request(n)) for n in range(6)])
            await running.drain()
        return seen

    assert run(story()) == [("start", "start")] * 6


def test_a_handler_in_threads_begins_with_the_context_of_the_start(run: Run) -> None:
    def seen_and_changed_in_a_thread(number: int) -> str:
        seen = REQUEST.get()
        REQUEST.set(f"set for {number}")
        return seen

    async def story() -> list[str]:
        REQUEST.set("start")
        stage = adaptive_flat_map(in_threads(1)(seen_and_changed_in_a_thread))
        return await from_iterable(range(3)).pipe(stage).to_list()

    assert run(story()) == ["start"] * 3


def test_a_plain_handler_runs_in_the_context_of_the_start_and_not_of_a_put(run: Run) -> None:
    async def request(number: int) -> None:
        REQUEST.set(f"request {number}")
        await hooks.put(number)
        hooks.put_nowait(number)

    def handle(number: int) -> str:
        return REQUEST.get()

    hooks = inbox(10)

    async def story() -> list[str]:
        REQUEST.set("start")
        seen: list[str] = []
        async with hooks.pipe(adaptive_flat_map(handle)).to(collect(seen)).start() as running:
            await asyncio.gather(*[asyncio.create_task(request(n)) for n in range(3)])
            await running.drain()
        return seen

    assert run(story()) == ["start"] * 6
