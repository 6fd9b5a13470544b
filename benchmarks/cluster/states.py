"""Events per second of a core with states that move, against without; and the take-over of many."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock import from_iterable
from penstock.command.cluster.nats import publishing
from penstock.command.pipelines.load import load
from penstock.streams.nats.client.connection import connect
from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.layout import layout_of
from penstock.streams.nats.cluster.publisher import Publisher
from penstock.streams.nats.cluster.view import lag_of
from penstock.streams.state.backend import KeptStage, Unit
from penstock.streams.state.jetstream.moving import MovingJetStream

__all__ = ["main"]

FILE = Path(__file__).parent / "counting.py"
EVENTS = 60_000
KEYS = 10_000
PARTITIONS = 24
RESTORED = 200_000


def events() -> Iterator[dict[str, Any]]:
    for n in range(EVENTS):
        yield {"id": n, "key": n * 7919 % KEYS, "n": n}


def started(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "penstock", *words], stderr=subprocess.DEVNULL)


async def per_core(servers: Servers, name: str, store: str) -> tuple[float, float]:
    """Events per second of one worker's processor time, and of time."""
    words = [store] if store else []
    client = await connect(servers.urls)
    layout = await layout_of(load(str(FILE), words), name, PARTITIONS).prepare(client)
    async with Publisher(client, layout) as publisher:
        await publishing(from_iterable(events()), publisher, layout).run()
    began = time.monotonic()
    worker = started("run", str(FILE), "--on", servers.urls[0], "--name", name, "--", *words)
    for partition in range(PARTITIONS):
        while sum((await lag_of(client, layout, [partition])).values()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    took = time.monotonic() - began
    worker.terminate()
    _, _, used = await asyncio.to_thread(os.wait4, worker.pid, 0)
    worker.returncode = 0
    await client.close()
    return EVENTS / (used.ru_utime + used.ru_stime), EVENTS / took


def take_over(url: str, local: str | None) -> float:
    """Seconds in which the states of a partition are there."""
    backend = MovingJetStream(url, local)
    backend.open()
    began = time.monotonic()
    backend.adopt(0, 1)
    took = time.monotonic() - began
    assert backend.size("counts")[0] == RESTORED
    backend.close()
    return took


def fill(url: str, local: str) -> None:
    backend = MovingJetStream(url, local)
    backend.open()
    backend.declare([KeptStage("counts", "key", 1)])
    backend.adopt(0, 1)
    for first in range(0, RESTORED, 500):
        keys = range(first, first + 500)
        rows = [(b'"user %d"' % key, b"%d" % key, 1, b"", None) for key in keys]
        backend.commit(Unit(partitions={0: Unit({"counts": rows})}))
    backend.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Servers(Path(folder, "servers")) as servers:
        for name, store in (("without", ""), ("with", f"{servers.urls[0]}/counts")):
            core, all_ = asyncio.run(per_core(servers, f"states-{name}", store))
            print(f"{name} states: {core:,.0f} events/s of a core, {all_:,.0f} events/s")
        url, local = f"{servers.urls[0]}/many", str(Path(folder, "local"))
        fill(url, local)
        for name, where in (("with its local copy", local), ("without a copy", None)):
            took = take_over(url, where)
            print(f"take-over of {RESTORED:,} keys {name}: {took:.2f} s, {RESTORED / took:,.0f}/s")
