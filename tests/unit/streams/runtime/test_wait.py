"""How long something waits is counted, and said when it takes more than five seconds."""

from __future__ import annotations

import asyncio

import pytest

from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.wait import Wait
from penstock.streams.testing import run_virtual


def test_waits_are_counted_and_one_of_more_than_five_seconds_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        said = iter(["first", "", "third"])
        wait = Wait(Run(), StageInfo("stage"), lambda: next(said))
        for seconds in (4.0, 6.0, 7.0, 8.0):
            wait.begin()
            await asyncio.sleep(seconds / 2)
            # It has begun already.
            wait.begin()
            await asyncio.sleep(seconds / 2)
            wait.end()
            await asyncio.sleep(10)
        assert wait.seconds == 25.0
        wait.begin()
        await asyncio.sleep(1)
        assert wait.seconds == 26.0
        wait.end()

    run_virtual(story())
    assert [record.message for record in caplog.records] == ["first", "third"]
