"""A work pool whose jobs are asked for one by one, as Akka's ask: the epic is an inbox."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Fixed, Inbox, WorkPool, distinct_within, for_each, inbox
from penstock.streams.base.errors import AnswerTimeout, JobFailed
from penstock.streams.nats.client.server import Servers
from penstock.streams.testing.plugin import Run


async def double(job: int) -> int:
    await asyncio.sleep(0.01)
    if job < 0:
        raise ValueError(job)
    return 2 * job


def asked(pool: WorkPool, box: Inbox[int]) -> Any:
    stream = box.pipe(distinct_within(60, by=abs))
    return pool.offer(stream, on_error="skip").to(for_each(lambda result: None))


def test_a_caller_gets_the_result_of_its_job_from_whichever_worker_did_it(run: Run) -> None:
    async def story() -> None:
        pool = WorkPool()
        box: Inbox[int] = inbox(100)
        workers = [pool.work(double, Fixed(4)).start() for _ in range(3)]
        async with asked(pool, box).start():
            answers = await asyncio.gather(*(box.ask(job) for job in range(200)))
            assert answers == [2 * job for job in range(200)]
            assert await box.ask(7) == 14
            with pytest.raises(ValueError, match="-300"):
                await box.ask(-300)
            asking = asyncio.create_task(box.ask(500))
            await asyncio.sleep(0.005)
            # The one that has the job.
            workers[0].cancel()
            workers[1].cancel()
            assert await asking == 1000
        assert workers[2].statistics()["finished"] > 0
        await workers[2].drain()

    run(story())


def test_without_workers_a_caller_waits_as_long_as_it_says(run: Run) -> None:
    async def story() -> None:
        pool = WorkPool()
        box: Inbox[int] = inbox(100)
        async with asked(pool, box).start():
            with pytest.raises(AnswerTimeout):
                await box.ask(1, timeout=5)
            worker = pool.work(double).start()
            # It went on, and was done once there was a worker.
            assert await box.ask(1) == 2
        await worker.drain()

    run(story())


def test_a_caller_gets_the_result_of_its_job_from_a_worker_on_another_machine(
    server: Servers,
) -> None:
    async def story() -> None:
        here, there = (WorkPool(server.urls[0], "asked", attempts=2) for _ in range(2))
        box: Inbox[int] = inbox(100)
        workers = [there.work(double, Fixed(4)).start() for _ in range(2)]
        async with asked(here, box).start():
            answers = await asyncio.gather(*(box.ask(job, timeout=30) for job in range(200)))
            assert answers == [2 * job for job in range(200)]
            assert await box.ask(7) == 14
            with pytest.raises(JobFailed, match="ValueError: -300"):
                await box.ask(-300)
            workers[0].cancel()
            answers = await asyncio.gather(*(box.ask(job, timeout=30) for job in range(500, 550)))
            assert answers == [2 * job for job in range(500, 550)]
        await workers[1].drain()

    asyncio.run(story())
