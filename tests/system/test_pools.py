"""Workers of a pool that are frozen, while others repeat their jobs, and woken meanwhile."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from pathlib import Path

from penstock import WorkPool, for_each, from_iterable, group_by, spread
from penstock.streams.nats.client.server import Servers
from tests.helpers.system.checker import check
from tests.helpers.system.children import freeze
from tests.helpers.system.fleet import ENVIRONMENT, PATIENCE
from tests.helpers.system.log import Log, entries_of

LEASE = 2.0
CLIENTS, JOBS = 12, 1_800
SENT = {f"client {i}": JOBS // CLIENTS for i in range(CLIENTS)}

WORKER = """
import asyncio
import sys

from penstock import WorkPool
from penstock import Fixed, run
from tests.helpers.system.log import Log

url, name, path, me, lease = sys.argv[1:]
log = Log(path, me)


async def handler(job):
    with log.working(job["client"], job["seq"]):
        await asyncio.sleep(job["seconds"])
    return job


run(WorkPool(url, name, lease=float(lease)).work(handler, Fixed(4)))
"""


def start(url: str, name: str, folder: Path, me: str) -> subprocess.Popen[bytes]:
    file = folder / "worker.py"
    file.write_text(WORKER, encoding="utf-8")
    command = [sys.executable, str(file), url, name, str(folder / "log"), me, str(LEASE)]
    return subprocess.Popen(command, env=ENVIRONMENT)


async def story(
    pool: WorkPool, workers: dict[str, subprocess.Popen[bytes]], hand: Log, chance: random.Random
) -> None:
    """One worker or two are frozen for more than a lease, again and again until all is done."""
    jobs = [
        {"client": client, "seq": seq, "seconds": chance.uniform(0, 0.06)}
        for seq in range(1, JOBS // CLIENTS + 1)
        for client in SENT
    ]
    epic = from_iterable(jobs).pipe(group_by("client"), spread())
    done = pool.offer(epic).to(for_each(lambda job: hand.sink(job["client"], job["seq"])))
    waiting = asyncio.ensure_future(done.run())
    async with asyncio.timeout(PATIENCE):
        while not waiting.done():
            await asyncio.wait([waiting], timeout=chance.uniform(0.2, 1.0))
            frozen = chance.sample(sorted(workers), chance.randint(1, 2))
            for me in frozen:
                freeze(workers[me])
                hand.note("frozen", process=me)
            await asyncio.wait([waiting], timeout=LEASE * chance.uniform(1.0, 1.6))
            for me in frozen:
                hand.note("woken", process=me)
                workers[me].send_signal(signal.SIGCONT)
        await waiting


def test_a_client_has_one_job_at_a_time_although_frozen_workers_wake_while_others_repeat_theirs(
    server: Servers, tmp_path: Path, run_seed: int
) -> None:
    chance = random.Random(run_seed)
    url, name = server.urls[0], f"frozen-{run_seed}"
    hand = Log(tmp_path / "log", "master")
    workers = {me: start(url, name, tmp_path, me) for me in "abc"}
    try:
        asyncio.run(story(WorkPool(url, name, lease=LEASE), workers, hand, chance))
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()
        hand.close()
    verdict = check(entries_of(tmp_path / "log"), SENT)
    print(f"{verdict.starts.total() - JOBS} repeated, {len(verdict.overlaps)} overlapped")
    assert verdict.lost == set()
    assert verdict.repeated == 0
    assert verdict.misordered == []
    # Jobs that a worker had begun when it was frozen end when it wakes; it begins none that it
    # lost.
    assert verdict.overlaps_awake() == []
