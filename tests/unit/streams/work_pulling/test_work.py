"""Work pulling across processes, through a server."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.js.errors import NotFoundError

from penstock import Backoff, Fixed, WorkPool, collect, dead_letters, route
from penstock.streams.base.errors import (
    CannotConnect,
    JobFailed,
    PayloadTooLarge,
    PoolBusy,
    StreamDiffers,
)
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.letters import Letter, letters_of
from tests.helpers.servers.wire import Wire
from tests.helpers.until import until

WORKER = """
import asyncio, os, sys
from penstock import WorkPool
from penstock import Fixed, run

url, name, log, limit = sys.argv[1:]
file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

async def work(job):
    os.write(file, f"begun {os.getpid()} {job['n']}\\n".encode())
    if job.get("kills"):
        os.kill(os.getpid(), 9)
    await asyncio.sleep(job.get("seconds", 0.002))
    os.write(file, f"ended {os.getpid()} {job['n']}\\n".encode())
    return job["n"]

run(WorkPool(url, name, lease=1).work(work, Fixed(int(limit))))
"""


class Crowd:
    """Worker processes, and their records."""

    def __init__(self, url: str, name: str, folder: Path) -> None:
        self.log = folder / "log"
        self.log.touch()
        self._file = folder / "worker.py"
        self._file.write_text(WORKER, encoding="utf-8")
        self._arguments = [url, name, str(self.log)]
        self.workers: list[subprocess.Popen[bytes]] = []

    def join(self, limit: int = 4) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(self._file), *self._arguments, str(limit)]
        self.workers.append(subprocess.Popen(command))
        return self.workers[-1]

    def noted(self, what: str) -> Counter[int]:
        """How often which job was begun, or ended."""
        lines = (line.split() for line in self.log.read_text(encoding="utf-8").splitlines())
        return Counter(int(number) for word, _, number in lines if word == what)

    def begun_by(self, worker: subprocess.Popen[bytes]) -> set[int]:
        lines = (line.split() for line in self.log.read_text(encoding="utf-8").splitlines())
        return {int(job) for word, pid, job in lines if (word, int(pid)) == ("begun", worker.pid)}


@contextmanager
def crowd(server: Servers, name: str, folder: Path) -> Generator[Crowd]:
    workers = Crowd(server.urls[0], name, folder)
    try:
        yield workers
    finally:
        for process in workers.workers:
            process.kill()
            process.wait()


async def echo(job: Any) -> Any:
    await asyncio.sleep(0.001)
    return job


async def letters(server: Servers, name: str) -> list[Letter]:
    client = await connect(server.urls)
    stream = f"penstock-work-{name}-dead"
    found = [letter async for letter in letters_of(jetstream(client), stream)]
    await client.close()
    return found


async def has_a_master(server: Servers, name: str) -> bool:
    client = await connect(server.urls)
    try:
        await (await jetstream(client).key_value(f"penstock-work-{name}")).get("master")
    except NotFoundError:
        return False
    finally:
        await client.close()
    return True


async def queued(server: Servers, name: str) -> int:
    client = await connect(server.urls)
    info = await jetstream(client).stream_info(f"penstock-work-{name}")
    await client.close()
    return info.state.messages


def test_results_come_in_the_order_of_the_epic_if_asked_for(server: Servers) -> None:
    async def story() -> None:
        pool = WorkPool(server.urls, "ordered")
        workers = [pool.work(echo, Fixed(3)).start() for _ in range(2)]
        results = [value async for value in pool.offer(range(500), ordered=True)]
        assert results == list(range(500))
        reports = [await worker.drain() for worker in workers]
        assert sum(report.statistics["finished"] for report in reports) == 500
        assert await queued(server, "ordered") == 0

    asyncio.run(story())


def test_workers_join_leave_and_die_while_an_epic_is_under_way(
    server: Servers, tmp_path: Path
) -> None:
    async def story(workers: Crowd) -> None:
        pool = WorkPool(server.urls, "crowd", lease=3)
        results: list[int] = []
        epic = ({"n": n} for n in range(2_000))
        running = pool.offer(epic).to(collect(results)).start()
        dies, leaves = workers.join(), workers.join()
        await until(lambda: bool(workers.begun_by(dies) and workers.begun_by(leaves)))
        workers.join()
        dies.send_signal(signal.SIGKILL)
        leaves.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(leaves.wait) == 0
        await running.wait()
        assert sorted(results) == list(range(2_000))
        # Only jobs that the dead one had begun; the one that left has ended all of its jobs.
        again = {job for job, times in workers.noted("begun").items() if times > 1}
        assert again <= workers.begun_by(dies)

    with crowd(server, "crowd", tmp_path) as workers:
        asyncio.run(story(workers))


def test_an_epic_is_read_only_as_far_as_workers_have_room(server: Servers) -> None:
    async def story() -> None:
        pool = WorkPool(server.urls, "lazy")
        read = 0

        def endless() -> Iterator[int]:
            nonlocal read
            while True:
                read += 1
                yield read

        begun: list[int] = []

        async def hang(job: int) -> None:
            begun.append(job)
            await asyncio.Event().wait()

        epic = pool.offer(endless).to(collect([])).start()
        await asyncio.sleep(0.3)
        assert read == 0
        first = pool.work(hang, Fixed(3)).start()
        await until(lambda: len(begun) == 3)
        second = pool.work(hang, Fixed(4)).start()
        await until(lambda: len(begun) == 7)
        await asyncio.sleep(0.2)
        assert read == len(begun) == 7
        assert await queued(server, "lazy") == 7
        for running in (first, second, epic):
            running.cancel()
            await running.wait()
        assert await queued(server, "lazy") == 0

    asyncio.run(story())


def test_jobs_that_become_slow_do_not_wait_behind_one_worker(
    server: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.streams.work_pulling.jetstream_worker.BEAT", 0.2)

    async def story() -> None:
        pool = WorkPool(server.urls, "slower")
        done: dict[str, int] = {"a": 0, "b": 0}

        def named(name: str) -> Callable[[int], Any]:
            async def work(job: int) -> None:
                if job >= 2_000:
                    await asyncio.sleep(0.2)
                    done[name] += 1

            return work

        workers = [pool.work(named(name), Fixed(1)).start() for name in done]
        await pool.offer(range(2_012)).to(collect([])).run()
        assert sum(done.values()) == 12
        assert min(done.values()) >= 2
        for worker in workers:
            await worker.drain()

    asyncio.run(story())


def test_a_worker_that_waits_for_jobs_has_more_of_them_at_hand(server: Servers) -> None:
    async def story() -> None:
        wire = Wire(server.urls[0], 0.02)
        await wire.lay()
        worker = WorkPool(wire.url, "dry").work(time.sleep, Fixed(1)).start()
        epic = WorkPool(server.urls, "dry").offer([0.002] * 150).to(collect([]))
        stages = (await epic.start().wait()).statistics["stages"]
        assert max(stage.get("peak_in_flight", 0) for stage in stages) > 5
        await worker.drain()
        await wire.remove()

    asyncio.run(story())


def test_a_long_job_is_renewed_and_done_once(server: Servers) -> None:
    async def story() -> None:
        pool = WorkPool(server.urls, "long", lease=1)
        begun: list[int] = []

        async def slow(job: int) -> int:
            begun.append(job)
            await asyncio.sleep(2)
            return job

        workers = [pool.work(slow).start() for _ in range(2)]
        assert [value async for value in pool.offer([1])] == [1]
        assert begun == [1]
        for worker in workers:
            await worker.drain()

    asyncio.run(story())


def test_poison_goes_to_the_dead_letters_after_its_attempts(server: Servers) -> None:
    async def story() -> None:
        pool = WorkPool(server.urls, "poison", attempts=3)
        tried: list[int] = []

        async def picky(job: int) -> int:
            tried.append(job)
            if job == 2:
                raise ValueError("poison")
            return job

        worker = pool.work(picky, backoff=Backoff(0.01)).start()
        report = await pool.offer(range(5), ordered=True).to(collect(results := [])).run()
        assert results == [0, 1, 3, 4]
        assert tried.count(2) == 3
        assert (report.statistics["failed"], report.statistics["finished"]) == (1, 4)
        (letter,) = await letters(server, "poison")
        assert (letter.value, letter.attempts, letter.message) == (2, 3, "ValueError: poison")
        with pytest.raises(JobFailed, match="poison"):
            await pool.offer([2], on_error="stop").to(collect([])).run()
        await worker.drain()

    asyncio.run(story())


def test_a_job_that_kills_its_workers_is_given_up_on(server: Servers, tmp_path: Path) -> None:
    async def story(workers: Crowd) -> None:
        pool = WorkPool(server.urls, "killer", attempts=2, lease=1)
        jobs = [{"n": 0}, {"n": 1, "kills": True}, {"n": 2}]
        results: list[int] = []
        running = pool.offer(jobs).to(collect(results)).start()
        # One before it is alone.
        for _ in range(4):
            workers.join(limit=1)
        report = await running.wait()
        assert sorted(results) == [0, 2]
        assert report.statistics["failed"] == 1
        (letter,) = await letters(server, "killer")
        assert (letter.value["n"], letter.attempts) == (1, 2)
        assert "never heard of again: 2" in letter.message

    with crowd(server, "killer", tmp_path) as workers:
        asyncio.run(story(workers))


def test_jobs_beside_one_that_kills_its_workers_are_done(server: Servers, tmp_path: Path) -> None:
    async def story(workers: Crowd) -> None:
        pool = WorkPool(server.urls, "beside", attempts=2, lease=1)
        jobs = [{"n": n, "kills": n == 1, "seconds": 0.3} for n in range(4)]
        results: list[int] = []
        running = pool.offer(jobs).to(collect(results)).start()
        # At the first the others are beside it.
        for _ in range(4):
            workers.join(limit=4)
        await asyncio.wait_for(running.wait(), 60)
        assert sorted(results) == [0, 2, 3]
        (letter,) = await letters(server, "beside")
        assert (letter.value["n"], letter.attempts) == (1, 2)
        assert sum(worker.poll() is None for worker in workers.workers) >= 1

    with crowd(server, "beside", tmp_path) as workers:
        asyncio.run(story(workers))


def test_what_cancelled_workers_held_is_not_held_against_a_job(server: Servers) -> None:
    async def story() -> None:
        pool = WorkPool(server.urls, "cancelled", attempts=1)
        begun = asyncio.Event()

        async def hang(job: int) -> int:
            begun.set()
            await asyncio.Event().wait()
            return job

        results: list[int] = []
        running = pool.offer(range(3)).to(collect(results)).start()
        for _ in range(3):
            begun.clear()
            worker = pool.work(hang, Fixed(4)).start()
            await asyncio.wait_for(begun.wait(), 60)
            worker.cancel()
            await worker.wait()
        worker = pool.work(echo).start()
        await running.wait()
        assert sorted(results) == [0, 1, 2]
        await worker.drain()

    asyncio.run(story())


def test_an_invalid_parcel_of_jobs_is_reported_and_ends_no_worker(
    server: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        pool = WorkPool(server.urls, "foreign")
        worker = pool.work(echo, Fixed(1)).start()
        results: list[int] = []
        epic = (job for job in range(1_000))
        running = pool.offer(epic).to(collect(results)).start()
        await until(lambda: bool(results))
        client = await connect(server.urls)
        js: Any = jetstream(client)
        for body in (b"not JSON", b"{}", b"3", b"[1]", b'[["1", 0, 2]]', b"[]"):
            for subject in ("nobody", "nobody.1"):
                await js.publish(f"penstock.work.foreign.job.{subject}", body)
        await client.close()
        await asyncio.wait_for(running.wait(), 30)
        assert sorted(results) == list(range(1_000))
        await until(lambda: caplog.text.count("is not a parcel of jobs") == 12)
        await worker.drain()
        assert await queued(server, "foreign") == 0

    asyncio.run(story())


def test_a_busy_pool_says_so_or_lets_the_next_epic_wait(server: Servers) -> None:
    async def story() -> None:
        pool = WorkPool(server.urls, "busy", lease=5)
        results: list[int] = []
        first = pool.offer([1, 2]).to(collect(results)).start()
        await until(lambda: has_a_master(server, "busy"))
        with pytest.raises(PoolBusy, match="'busy' has an epic under way"):
            await WorkPool(server.urls, "busy").offer([3]).to(collect([])).run()
        second = pool.offer([3], when_busy="wait").to(collect(results)).start()
        worker = pool.work(echo, Fixed(1)).start()
        await first.wait()
        await second.wait()
        assert results == [1, 2, 3]
        await worker.drain()

    asyncio.run(story())


def test_a_master_renews_as_often_as_the_leases_of_its_pool_need_it(server: Servers) -> None:
    async def story() -> None:
        for lease, seconds in ((0.5, 0.0), (30.0, 1.2)):
            epic = WorkPool(server.urls, "leases", lease=lease).offer([1]).to(collect([])).start()
            await until(lambda: has_a_master(server, "leases"))
            await asyncio.sleep(seconds)
            assert await has_a_master(server, "leases")
            epic.cancel()
            await epic.wait()

    asyncio.run(story())


def test_an_epic_survives_a_server_that_is_started_again(tmp_path: Path) -> None:
    async def story(servers: Servers) -> None:
        pool = WorkPool(servers.urls, "restarted", lease=5)
        worker = pool.work(echo, Fixed(8)).start()
        results: list[int] = []
        running = pool.offer(range(2_000)).to(collect(results)).start()
        await until(lambda: len(results) > 100)
        await asyncio.to_thread(servers.stop, 0, signal.SIGKILL)
        servers.start(0)
        await asyncio.to_thread(servers.wait)
        await running.wait()
        assert sorted(results) == list(range(2_000))
        await worker.drain()

    with Servers(tmp_path) as servers:
        asyncio.run(story(servers))


class Order(msgspec.Struct):
    number: int


def test_jobs_and_results_may_be_records(server: Servers) -> None:
    async def story() -> None:
        pool = WorkPool(server.urls, "records")

        async def next_one(job: Any) -> Any:
            return Order(job["number"] + 1)

        worker = pool.work(next_one).start()
        results: list[Any] = []
        await pool.offer([Order(1), Order(2)]).to(collect(results)).run()
        assert sorted(result["number"] for result in results) == [2, 3]
        await worker.drain()

    asyncio.run(story())


def test_jobs_and_results_that_cannot_be_sent_fail_by_name(server: Servers, tmp_path: Path) -> None:
    async def story() -> None:
        pool = WorkPool(server.urls, "large", attempts=1)

        async def grow(job: Any) -> Any:
            return {"large": "x" * 2_000_000, "strange": object(), "keys": {1: 2}}.get(job, job)

        worker = pool.work(grow).start()
        file = tmp_path / "letters.jsonl"
        jobs = [1, object(), "y" * 2_000_000, {1: 2}, "large", "strange", "keys", 2]
        offered = pool.offer(jobs, on_error=route(dead_letters(file)))
        await offered.to(collect(results := [])).run()
        assert sorted(results) == [1, 2]
        told = file.read_text(encoding="utf-8")
        assert told.count("not JSON serializable") == 2
        assert told.count("is more than the server takes") == 2
        assert told.count("Dict key must be str") == 2
        with pytest.raises(PayloadTooLarge):
            await pool.offer(jobs[2:3], on_error="stop").to(collect([])).run()
        await worker.drain()

    asyncio.run(story())


def test_mistakes_have_names(server: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        client = await connect(server.urls)
        js: Any = jetstream(client)
        await js.add_stream(name="penstock-work-taken", subjects=["taken.>"])
        pool = WorkPool(server.urls, "taken")
        for pipeline in (pool.offer([1]).to(collect([])), pool.work(echo)):
            with pytest.raises(StreamDiffers, match="is not a queue of this pool"):
                await pipeline.run()
        await client.close()
        pool = WorkPool("nats://127.0.0.1:1", "nowhere")
        for pipeline in (pool.offer([1]).to(collect([])), pool.work(echo)):
            with pytest.raises(CannotConnect, match="No NATS server answered"):
                await pipeline.run()

    for module in ("jetstream_master", "jetstream_worker"):
        monkeypatch.setattr(
            f"penstock.streams.work_pulling.{module}.connect", partial(connect, patience=0.2)
        )
    asyncio.run(story())
