from __future__ import annotations

import asyncio

import pytest

from penstock.streams.testing import Leaked, VirtualTimeLoop
from penstock.streams.testing.plugin import Run


def test_run_returns_the_result_and_time_goes_on_between_calls(
    run: Run, virtual_loop: VirtualTimeLoop
) -> None:
    assert run(asyncio.sleep(2, "slept")) == "slept"
    run(asyncio.sleep(3))
    assert virtual_loop.time() == 5.0


def test_run_fails_if_the_coroutine_leaves_a_task(run: Run) -> None:
    left: list[asyncio.Task[None]] = []

    async def story() -> None:
        left.append(asyncio.create_task(asyncio.sleep(9)))

    async def clean_up() -> None:
        left[0].cancel()

    with pytest.raises(Leaked, match="task"):
        run(story())
    run(clean_up())
