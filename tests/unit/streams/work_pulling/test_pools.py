"""Work pools on servers, as the command shows them and their dead letters."""

from __future__ import annotations

import asyncio
import json
import sys

from penstock import Backoff, Fixed, WorkPool, collect
from penstock.streams.nats.client.server import Servers


async def penstock(*words: str) -> tuple[int, str, str]:
    """The status, output and errors of the command."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "penstock", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return process.returncode or 0, output.decode(), errors.decode()


def test_a_pool_is_seen_and_its_dead_letters_are_offered_again(server: Servers) -> None:
    url = server.urls[0]
    on = ("--on", url, "--pool", "seen")

    async def story() -> None:
        begun, looked = asyncio.Event(), asyncio.Event()
        poisonous = True

        async def handler(job: int) -> int:
            if job == 3:
                begun.set()
                await looked.wait()
            if job == 2 and poisonous:
                raise ValueError("poison")
            return 10 * job

        pool = WorkPool(url, "seen", attempts=2)
        worker = pool.work(handler, Fixed(1), backoff=Backoff(0.001)).start()
        results: list[int] = []
        epic = pool.offer([1, 2, 3], ordered=True).to(collect(results)).start()
        await begun.wait()
        _, during, _ = await penstock("status", *on)
        assert "work pool seen: epic " in during
        assert "1 job done" in during
        assert "1 failed, 1 out, 1 dead letter" in during
        assert "1 worker with room for " in during
        assert "% busy" in during

        looked.set()
        await epic.wait()
        assert results == [10, 30]
        _, after, _ = await penstock("status", "--on", url)
        assert "work pool seen: no epic under way, 1 dead letter\n" in after

        _, listed, _ = await penstock("dead-letters", "list", *on)
        letter = json.loads(listed)
        assert (letter["value"], letter["message"], letter["attempts"]) == (
            2,
            "ValueError: poison",
            2,
        )
        status, output, errors = await penstock("dead-letters", "replay", *on)
        assert (status, output) == (3, ""), errors
        assert "1 job offered again, 1 failed again" in errors

        poisonous = False
        status, output, errors = await penstock("dead-letters", "replay", *on)
        assert (status, output) == (0, "20\n"), errors
        assert await penstock("dead-letters", "list", *on) == (0, "", "")
        await worker.drain()

    asyncio.run(story())


def test_a_pool_that_is_not_there_is_named(server: Servers) -> None:
    async def story() -> None:
        status, _, errors = await penstock("status", "--on", server.urls[0], "--pool", "nowhere")
        assert status == 2
        assert "the servers have no work pool 'nowhere'" in errors

    asyncio.run(story())
