"""Schedulers of one queue that are killed at any moment."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path

from penstock.streams.sql_queue import open_store

EVERY, SCHEDULERS, KILLS = 0.1, 3, 12

PIPELINE = """
import sys

from penstock import for_each, Periodic, read_table

job = Periodic({"job": "tick"}, every=float(sys.argv[2]), missed="all")
rows = read_table(sys.argv[1], periodic={"tick": job}, poll=0.1, lease=2.0)
pipeline = rows.to(for_each(lambda row: None))
"""


async def times(url: str) -> list[float]:
    store = open_store(url)
    await store.open()
    found = await store.read("SELECT {seconds}t.{run_at}) FROM {table} AS t ORDER BY t.{id}")
    await store.close()
    return [float(at) for (at,) in found]


def test_each_time_is_enqueued_once_however_often_schedulers_are_killed(
    database: str, tmp_path: Path, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    file = tmp_path / "job.py"
    file.write_text(PIPELINE)
    command = [
        *(sys.executable, "-m", "penstock", "run", str(file), "--report", "none", "--"),
        *(database, str(EVERY)),
    ]
    running = [subprocess.Popen(command) for _ in range(SCHEDULERS)]
    try:
        for _ in range(KILLS):
            time.sleep(draw.random() * 0.6)
            victim = running.pop(draw.randrange(len(running)))
            victim.kill()
            victim.wait()
            running.append(subprocess.Popen(command))
        begun = time.time()
        while not (found := asyncio.run(times(database))) or found[-1] < begun:
            time.sleep(0.1)
    finally:
        for one in running:
            one.kill()
            one.wait()
    steps = [round(at / EVERY) for at in found]
    assert steps == list(range(steps[0], steps[0] + len(steps)))
