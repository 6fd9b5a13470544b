"""What open live pages cost a pipeline of 5,000 events per second: CPU of its process.

``python -m benchmarks.page``: runs with no page open and with ten, alternated. The pages are read
by another process, as browsers would.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import uvloop

from benchmarks.measure import ROOT
from penstock import Fixed, Flowable, adaptive_flat_map, for_each, group_by, spread

__all__ = ["PAGES", "measure", "report"]

PAGES, RATE, SECONDS, ROUNDS = 10, 5_000, 13.0, 5
# Events come in lists of so many seconds.
_TICK = 0.01
# Until the readers are there.
_CONNECTING = 3.0
_CLIENTS = 100


async def work(event: dict[str, int]) -> dict[str, int]:
    await asyncio.sleep(0.005)
    return event


async def load(seconds: float) -> AsyncIterator[dict[str, int]]:
    """Events at an even rate."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    number = 0
    while loop.time() < began + seconds:
        due = int((loop.time() - began) * RATE)
        while number < due:
            yield {"n": number, "client": number % _CLIENTS}
            number += 1
        await asyncio.sleep(_TICK)


async def run(pages: int, seconds: float) -> dict[str, Any]:
    """One run, in which so many pages are open: seconds of CPU, and bytes of each page."""
    stream = Flowable.from_async_iterable(lambda: load(seconds)).pipe(
        group_by("client"), spread(), adaptive_flat_map(work, Fixed(64))
    )
    running = stream.to(for_each(lambda _: None)).start()
    async with running, running.serve(0) as serving:
        readers = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.page", "--read", serving.url),
            *("--pages", str(pages)),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert readers.stdout is not None
        # They are connected.
        await readers.stdout.readline()
        done = running.statistics()["finished"]
        began, before = time.perf_counter(), time.process_time()
        await asyncio.sleep(seconds - _CONNECTING)
        cpu, wall = time.process_time() - before, time.perf_counter() - began
        finished = running.statistics()["finished"] - done
    read = int(await readers.stdout.read())
    await readers.wait()
    return {"core": cpu / wall, "rate": finished / wall, "bytes": read / max(pages, 1)}


def read(url: str, pages: int) -> None:
    """Read the stream of so many pages until the server closes it; prints when it has begun."""
    place = urlsplit(url)
    watched = selectors.DefaultSelector()
    for _ in range(pages):
        page = socket.create_connection((place.hostname or "", place.port or 0))
        page.sendall(f"GET /stream HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
        page.recv(1 << 16)
        watched.register(page, selectors.EVENT_READ)
    print("begun", flush=True)
    count = 0
    while watched.get_map():
        for key, _ in watched.select():
            assert isinstance(key.fileobj, socket.socket)
            data = key.fileobj.recv(1 << 16)
            count += len(data)
            if not data:
                watched.unregister(key.fileobj)
    print(count)


def measure(rounds: int = ROUNDS, seconds: float = SECONDS) -> dict[str, float]:
    """The share of a core without pages and with ten, and of what they cost, by pairs."""
    taken: list[tuple[dict[str, Any], ...]] = []
    for _ in range(rounds):
        taken.append(tuple(_in_a_process(pages, seconds) for pages in (0, PAGES)))
    return {
        "none": median(none["core"] for none, _ in taken),
        "ten": median(ten["core"] for _, ten in taken),
        "cost": median(ten["core"] - none["core"] for none, ten in taken),
        "rate": median(ten["rate"] for _, ten in taken),
        "bytes": median(ten["bytes"] for _, ten in taken),
    }


def _in_a_process(pages: int, seconds: float) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.page", "--run", f"{seconds:g}", "--pages"]
    done = subprocess.run([*words, str(pages)], cwd=ROOT, capture_output=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def report(rounds: int = ROUNDS, seconds: float = SECONDS) -> None:
    """Print what they cost."""
    found = measure(rounds, seconds)
    print(f"  {'':<24}{'of a core':>12}")
    print(f"  {'no page open':<24}{found['none']:>12.2%}")
    print(f"  {f'{PAGES} pages open':<24}{found['ten']:>12.2%}")
    print(f"  {'the pages':<24}{found['cost']:>12.2%}   (median of {rounds} pairs; asked: < 1 %)")
    print(f"  {found['rate']:,.0f} events/s; {found['bytes'] / 1000:,.0f} kB read by each page")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--run", type=float, metavar="SECONDS")
    parser.add_argument("--read", metavar="URL")
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    chosen = parser.parse_args(arguments)
    if chosen.read is not None:
        read(chosen.read, chosen.pages)
    elif chosen.run is not None:
        print(json.dumps(uvloop.run(run(chosen.pages, chosen.run))))
    else:
        report(chosen.rounds, chosen.seconds)


if __name__ == "__main__":
    main()
