"""How a master handles the report of a worker whose jobs went to another meanwhile.

The test plays the workers, message by message.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Running
from penstock.streams.nats.client.server import Servers
from tests.helpers.nats.stand import Job, Stand

FIRST, AGAIN, NEXT = (1, 0), (1, 1), (2, 0)


def done(job: Job, value: Any) -> dict[str, list[Any]]:
    return {"done": [[*job, value]]}


def failed(job: Job) -> dict[str, list[Any]]:
    return {"failed": [[*job, "ValueError", "no", 3]]}


async def repeated(stand: Stand, results: list[Any]) -> Running:
    """Job 1 went out a second time, to another worker; job 2 is of the same client."""
    running = await stand.offer(["a1", "a2"], results)
    assert await stand.take() == FIRST
    await stand.report({"asked": [FIRST]})
    assert await stand.take() == AGAIN
    return running


async def ended(stand: Stand, running: Running) -> None:
    """Job 2 is done, and the epic is over."""
    assert await stand.take() == NEXT
    await stand.report(done(NEXT, "second"))
    await asyncio.wait_for(running.wait(), 60)


def test_the_next_job_of_a_client_waits_for_the_repetition_not_for_a_late_report(
    server: Servers,
) -> None:
    async def story() -> None:
        results: list[Any] = []
        async with Stand(server, "late-done") as stand:
            running = await repeated(stand, results)
            await stand.report(done(FIRST, "late"))
            assert await stand.queued() == 0
            await stand.report(done(AGAIN, "current"))
            await ended(stand, running)
            assert results == ["current", "second"]

    asyncio.run(story())


def test_a_late_failure_changes_nothing(server: Servers) -> None:
    async def story() -> None:
        results: list[Any] = []
        async with Stand(server, "late-failure") as stand:
            running = await repeated(stand, results)
            await stand.report(failed(FIRST))
            assert await stand.queued() == 0
            await stand.report(done(AGAIN, "current"))
            assert await stand.letters() == 0
            await ended(stand, running)
            assert results == ["current", "second"]

    asyncio.run(story())


@pytest.mark.parametrize(
    "end",
    [{"asked": [AGAIN]}, {"returned": [AGAIN]}, failed(AGAIN)],
    ids=["lost", "returned", "failed"],
)
def test_a_late_result_counts_once_the_repetition_has_ended_without_one(
    server: Servers, end: dict[str, list[Any]]
) -> None:
    async def story() -> None:
        results: list[Any] = []
        async with Stand(server, f"late-{next(iter(end))}", attempts=2) as stand:
            running = await repeated(stand, results)
            await stand.report(done(FIRST, "late"))
            await stand.report(end)
            assert await stand.letters() == 0
            await ended(stand, running)
            assert results == ["late", "second"]

    asyncio.run(story())
