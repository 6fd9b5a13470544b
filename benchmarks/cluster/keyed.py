"""Order per key over several workers: throughput with a kill, take-over, hand-over, one worker."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from penstock import from_async_iterable, from_iterable
from penstock.command.cluster.nats import publishing
from penstock.command.pipelines.load import load
from penstock.streams.delivery.view import View
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.layout import Layout, layout_of, token
from penstock.streams.nats.cluster.publisher import Publisher
from penstock.streams.nats.cluster.view import lag_of, look
from penstock.streams.pipelines.pipeline import Engine

__all__ = ["main"]

FILE = Path(__file__).parent / "pipeline.py"
KEYS = 200
PARTITIONS = 24
LEASE = 2.0


def events(count: int) -> Iterator[dict[str, Any]]:
    for n in range(count):
        yield {"id": n, "key": n % KEYS, "n": n}


class Bench:
    """One pipeline on some servers, its workers, and a way to feed it."""

    def __init__(
        self, urls: list[str], name: str, seconds: float, log: str = "", batch: int | None = None
    ) -> None:
        self.urls = urls
        self.name = name
        self.words = [str(seconds), *([log] if log else [])]
        self.layout: Layout = layout_of(load(str(FILE), self.words), name, PARTITIONS, batch=batch)
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, count: int) -> None:
        for _ in range(count):
            words = ["run", str(FILE), "--on", ",".join(self.urls), "--name", self.name]
            words += ["--lease", str(LEASE), "--report", "none", "--", *self.words]
            self.workers.append(subprocess.Popen([sys.executable, "-m", "penstock", *words]))

    async def prepare(self) -> None:
        client = await connect(self.urls)
        self.layout = await self.layout.prepare(client)
        await client.close()

    async def settled(self, count: int) -> None:
        client = await connect(self.urls)
        roster = await self.layout.roster(client, LEASE)
        while True:
            members = (await roster.members()).values()
            shares = [len(member["partitions"]) for member in members]
            if len([share for share in shares if share]) == count and sum(shares) == PARTITIONS:
                break
            await asyncio.sleep(0.05)
        await client.close()

    async def feed(self, count: int, rate: float | None = None) -> None:
        client = await connect(self.urls)

        async def paced() -> AsyncIterator[dict[str, Any]]:
            assert rate is not None
            began = time.monotonic()
            for n, event in enumerate(events(count)):
                ahead = began + n / rate - time.monotonic()
                if ahead > 0.01:
                    await asyncio.sleep(ahead)
                yield event

        source = from_iterable(events(count)) if rate is None else from_async_iterable(paced)
        async with Publisher(client, self.layout) as publisher:
            await publishing(source, publisher, self.layout).run()
        await client.close()

    async def look(self) -> View:
        client = await connect(self.urls)
        view = await look(client, self.layout)
        await client.close()
        return view

    async def stored(self, count: int) -> None:
        """Wait until `count` events are stored."""
        client = await connect(self.urls)
        js = jetstream(client)
        while (await js.stream_info(self.layout.stream)).state.messages < count:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await client.close()

    async def finished(self) -> None:
        client = await connect(self.urls)
        # One partition after the other: repeated requests for all would burden the servers.
        for partition in range(PARTITIONS):
            while sum((await lag_of(client, self.layout, [partition])).values()):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await client.close()

    def stop(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()


@contextmanager
def bench(
    servers: Servers, name: str, seconds: float, log: str = "", batch: int | None = None
) -> Iterator[Bench]:
    one = Bench(servers.urls, name, seconds, log, batch)
    try:
        yield one
    finally:
        one.stop()


async def with_a_kill(servers: Servers, count: int) -> float:
    """Events per second through three workers, of which one is killed in the middle."""
    with bench(servers, "kill", 0.001) as one:
        await one.prepare()
        one.start(3)
        await one.settled(3)
        began = time.monotonic()
        feeding = asyncio.create_task(one.feed(count))
        await one.stored(count // 2)
        one.workers[0].kill()
        await feeding
        await one.finished()
        return count / (time.monotonic() - began)


async def silence(servers: Servers, folder: Path, how: signal.Signals) -> float:
    """The longest time in seconds for which no worker processes a partition of one that leaves."""
    log = folder / f"log-{how.name}"
    with bench(servers, f"silence-{how.name}", 0.001, str(log)) as one:
        await one.prepare()
        one.start(3)
        await one.settled(3)
        feeding = asyncio.create_task(one.feed(6000, 1000))
        await asyncio.sleep(2)
        view = await one.look()
        at = time.time()
        one.workers[0].send_signal(how)
        await feeding
        await one.finished()
        client = await connect(one.urls)
        partition = await partitions_of_keys(jetstream(client), one.layout)
        await client.close()
        assert view.lag
        return longest(log, partition, one.workers[0].pid, at)


async def partitions_of_keys(js: Any, layout: Layout) -> dict[str, int]:
    found: dict[str, int] = {}
    for partition in range(PARTITIONS):
        info = await js.stream_info(layout.stream, subjects_filter=layout.subject(partition))
        for subject in info.state.subjects or {}:
            found[subject.rpartition(".")[2]] = partition
    return found


def longest(log: Path, partition: dict[str, int], victim: int, at: float) -> float:
    last: dict[int, float] = {}
    mine: set[int] = set()
    found = 0.0
    for line in sorted(log.read_text(encoding="utf-8").splitlines()):
        when, pid, key = line.split()
        place = partition[token(int(key))]
        if float(when) < at:
            if int(pid) == victim:
                mine.add(place)
        elif place in mine:
            found = max(found, float(when) - last[place])
        last[place] = float(when)
    return found


async def in_process(seconds: float, count: int) -> float:
    """Events per second of the same pipeline in this process."""
    pipeline = load(str(FILE), [str(seconds)])
    began = time.monotonic()
    async with pipeline.start(engine=Engine(from_iterable(events(count)), "stop")):
        pass
    return count / (time.monotonic() - began)


async def one_worker(servers: Servers, seconds: float, count: int, batch: int, turn: int) -> float:
    """Events per second of one worker whose events are stored already."""
    name = f"one-{seconds * 1000:g}-{batch}-{turn}"
    with bench(servers, name, seconds, batch=batch) as one:
        await one.prepare()
        await one.feed(count)
        a_message = count / (await one.look()).stored
        one.start(1)
        await one.settled(1)
        left = (await one.look()).unfinished
        began = time.monotonic()
        await one.finished()
        return left * a_message / (time.monotonic() - began)


def against_one_process(
    servers: Servers, seconds: float, count: int, batch: int, rounds: int
) -> str:
    """One worker, compared with one process without servers."""
    alone: list[float] = []
    there: list[float] = []
    for turn in range(rounds):
        alone.append(asyncio.run(in_process(seconds, count)))
        there.append(asyncio.run(one_worker(servers, seconds, count, batch, turn)))
    part = median(a / b for a, b in zip(there, alone, strict=True))
    return (
        f"one worker, {seconds * 1000:g} ms handler, {batch} events per message: "
        f"{median(there):,.0f} events/s, {100 * part:.0f} % of {median(alone):,.0f} in one process"
    )


def main() -> None:
    """Print the figures."""
    uvloop.install()
    # As on the command line.
    gc.freeze()
    gc.set_threshold(20_000)
    with tempfile.TemporaryDirectory() as folder, Servers(Path(folder), 3) as servers:
        rate = asyncio.run(with_a_kill(servers, 30_000))
        print(f"three servers, three workers, 1 ms, one killed: {rate:,.0f} events/s (want 4,000)")
        over = asyncio.run(silence(servers, Path(folder), signal.SIGKILL))
        print(f"take-over: {over:.2f} s of silence, {over / LEASE:.2f} x the lease (want 1.2)")
        hand = asyncio.run(silence(servers, Path(folder), signal.SIGTERM))
        print(f"hand-over: {hand:.2f} s of silence (want 0.5)")
        print(against_one_process(servers, 0.0, 1_000_000, 128, 3), "(want 40 %)")
        print(against_one_process(servers, 0.0, 150_000, 1, 1))
        print(against_one_process(servers, 0.010, 200_000, 128, 1), "(want 90 %)")
        print(against_one_process(servers, 0.010, 100_000, 1, 1), "(want 90 %)")
