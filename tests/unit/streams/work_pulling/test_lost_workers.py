"""Which job a master gives up after workers were lost that had several.

The test plays the workers, message by message.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest

from penstock.streams.nats.client.server import Servers
from tests.helpers.nats.stand import Stand


def test_a_job_is_given_up_only_if_it_was_alone_in_all_its_attempts(server: Servers) -> None:
    async def story() -> None:
        results: list[Any] = []
        async with Stand(server, "alone") as stand:
            running = await stand.offer(["a"], results)
            for _ in range(2):
                (job,), is_alone = await stand.take_parcel()
                assert not is_alone
                await stand.report({"asked": [job]})
            for end in "asked", "returned":
                (job,), is_alone = await stand.take_parcel()
                assert is_alone
                # It had not begun when its worker was lost, or its worker returns it.
                if end == "returned":
                    await stand.report({"alone": [job]})
                await stand.report({end: [job]})
                assert await stand.letters() == 0
            for _ in range(3):
                assert await stand.letters() == 0
                (job,), is_alone = await stand.take_parcel()
                assert is_alone
                await stand.report({"alone": [job]})
                await stand.report({"asked": [job]})
            await asyncio.wait_for(running.wait(), 60)
            assert await stand.letters() == 1
            assert results == []

    asyncio.run(story())


@pytest.mark.parametrize("seed", range(6))
def test_jobs_that_end_their_workers_are_given_up_and_no_others(server: Servers, seed: int) -> None:
    """What a worker has is lost if it begins a guilty job, and sometimes what waits is, or one that
    is alone, once less often than it has attempts."""

    async def story() -> None:
        random = Random(seed)
        attempts = random.randint(1, 3)
        guilty = set(random.sample(range(1, 5), random.randint(1, 2)))
        results: list[Any] = []
        alone = Counter[int]()
        async with Stand(server, f"walk-{seed}", attempts) as stand:
            running = await stand.offer(["a", "b", "c", "d"], results)
            left = {1, 2, 3, 4}
            while left:
                beside = [await stand.take_parcel() for _ in left]
                shared = [job for jobs, is_alone in beside for job in jobs if not is_alone]
                if guilty.isdisjoint(number for number, _ in shared):
                    await stand.report({"done": [[*job, job[0]] for job in shared]})
                    left -= {number for number, _ in shared}
                else:
                    await stand.report({"asked": shared})
                for (job,) in [jobs for jobs, is_alone in beside if is_alone]:
                    if random.random() < 0.2:
                        await stand.report({"asked": [job]})
                        continue
                    await stand.report({"alone": [job]})
                    is_lost = alone[job[0]] < attempts - 1 and random.random() < 0.5
                    if job[0] not in guilty and not is_lost:
                        await stand.report({"done": [[*job, job[0]]]})
                        left.discard(job[0])
                        continue
                    await stand.report({"asked": [job]})
                    alone[job[0]] += 1
                    if alone[job[0]] >= attempts:
                        left.discard(job[0])
            await asyncio.wait_for(running.wait(), 60)
            assert sorted(results) == sorted({1, 2, 3, 4} - guilty)
            assert await stand.letters() == len(guilty)

    asyncio.run(story())
