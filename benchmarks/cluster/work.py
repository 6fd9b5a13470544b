"""Work pulling: empty jobs per second, and the gain of a second worker process."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from penstock import WorkPool, for_each, from_iterable
from penstock.streams.nats.client.server import Servers
from penstock.streams.pipelines.pipeline import new_event_loop

__all__ = ["main"]

EMBEDDED, EMPTY, BUSY = 200_000, 100_000, 400
CPU_SECONDS = 0.005
ROUNDS = 3


def main() -> None:
    """Print the figures."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        embedded = runner.run(_embedded())
    print(f"empty jobs, in one process              {embedded:10,.0f} a second")
    with tempfile.TemporaryDirectory() as folder, Servers(Path(folder)) as servers:
        url = servers.urls[0]
        empty, mine = _measure(url, "empty", 1, EMPTY, 0)
        print(
            f"empty jobs, a server and a worker       {empty:10,.0f} a second, "
            f"{mine * 1e6:.1f} µs of the master's processor each"
        )
        ratios: list[float] = []
        bounds: list[float] = []
        for _ in range(ROUNDS):
            alone, together = _bare(1), _bare(2)
            bounds.append(together / alone)
            print(f"5 ms of processor, bare, one, then two  {alone:10,.0f} and {together:,.0f}")
            one, _ = _measure(url, "one", 1, BUSY, CPU_SECONDS)
            two, _ = _measure(url, "two", 2, 2 * BUSY, CPU_SECONDS)
            ratios.append(two / one)
            print(f"5 ms of processor, one worker, then two {one:10,.0f} and {two:,.0f} a second")
        print(
            f"a second worker process                 {median(ratios):10.2f} times as much (want "
            f"1.8; a second process that does nothing else: {median(bounds):.2f})"
        )


def _bare(count: int) -> float:
    """Jobs per second of so many processes that do nothing else."""
    command = [sys.executable, "-m", "benchmarks.cluster.burn", str(CPU_SECONDS), str(BUSY)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    return sum(float(process.communicate()[0]) for process in processes)


async def _embedded() -> float:
    pool = WorkPool()
    worker = pool.work(lambda job: job).start()
    began = time.perf_counter()
    await pool.offer(range(EMBEDDED)).to(for_each(_nothing)).run()
    rate = EMBEDDED / (time.perf_counter() - began)
    await worker.drain()
    return rate


def _nothing(_: object) -> None:
    return


def _measure(url: str, name: str, workers: int, jobs: int, seconds: float) -> tuple[float, float]:
    """Jobs per second once all workers take part, and the master's CPU seconds for each."""
    runner = asyncio.Runner(loop_factory=new_event_loop)
    with _workers(url, name, workers, seconds), runner:
        # Until all workers take part, and are at full speed.
        while len(runner.run(_epic(url, name, jobs // 4))[1]) < workers:
            pass
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        rate, _ = runner.run(_epic(url, name, jobs))
        return rate, (resource.getrusage(resource.RUSAGE_SELF).ru_utime - before) / jobs


async def _epic(url: str, name: str, jobs: int) -> tuple[float, set[int]]:
    """Jobs per second, and who did them."""
    times: list[float] = []
    done_by: set[int] = set()

    def note(worker: int) -> None:
        times.append(time.perf_counter())
        done_by.add(worker)

    epic = WorkPool(url, name, lease=5).offer(from_iterable(range(jobs)))
    await epic.to(for_each(note)).run()
    return (jobs - 1) / (times[-1] - times[0]), done_by


@contextmanager
def _workers(url: str, name: str, count: int, seconds: float) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.cluster.puller", url, name, str(seconds)]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
