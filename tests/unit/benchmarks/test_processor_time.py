"""The clock of processor time, on which latencies are measured on a busy machine."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.processor_time import ProcessorTimeLoop


def test_the_clock_jumps_over_waits() -> None:
    async def hours() -> float:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(7200)
        return asyncio.get_running_loop().time() - began

    with asyncio.Runner(loop_factory=ProcessorTimeLoop) as runner:
        assert runner.run(hours()) >= 7200


def test_a_call_in_a_thread_has_its_result_or_its_error() -> None:
    async def calls() -> int:
        found = await asyncio.to_thread(int, "7")
        with pytest.raises(ValueError, match="invalid literal"):
            await asyncio.to_thread(int, "seven")
        return found

    with asyncio.Runner(loop_factory=ProcessorTimeLoop) as runner:
        assert runner.run(calls()) == 7
