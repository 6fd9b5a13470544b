"""What open live pages cost a pipeline of 5,000 events per second, and how large and fast one is.

``python -m benchmarks.page``: one run, in which ten pages are closed and open by turns, so that
each pair has the same process and nearly the same time. The pages are read by another process, as
browsers would. Then headless Chromium opens a page of the same pipeline several times, each time
with an empty cache, and reports its size and when it was first painted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import selectors
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

import uvloop

from benchmarks.measure import ROOT
from penstock import Fixed, Flowable, adaptive_flat_map, for_each, group_by, spread
from penstock.streams.pipelines.running import Running

__all__ = ["PAGES", "measure", "painted", "report"]

# Pairs of a time without pages and one with them, in seconds each.
PAGES, RATE, SECONDS, ROUNDS = 10, 5_000, 4.0, 15
# Events come in lists of so many seconds.
_TICK = 0.01
# After pages were opened or closed, until that is over.
_SETTLING = 0.5
_CLIENTS = 100
# Times that Chromium opens the page.
_OPENED = 9


async def work(event: dict[str, int]) -> dict[str, int]:
    await asyncio.sleep(0.005)
    return event


async def load() -> AsyncIterator[dict[str, int]]:
    """Events at an even rate."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    number = 0
    while True:
        due = int((loop.time() - began) * RATE)
        while number < due:
            yield {"n": number, "client": number % _CLIENTS}
            number += 1
        await asyncio.sleep(_TICK)


def start() -> Running:
    """The pipeline whose pages are opened."""
    stream = Flowable.from_async_iterable(load).pipe(
        group_by("client"), spread(), adaptive_flat_map(work, Fixed(64))
    )
    return stream.to(for_each(lambda _: None)).start()


async def serve() -> None:
    """Serve the page until standard input ends; prints its address."""
    running = start()
    async with running, running.serve(0) as serving:
        print(serving.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        running.cancel()


async def run(rounds: int, seconds: float) -> dict[str, Any]:
    """The shares of a core without pages and with ten, by pairs, and bytes of each page."""
    running = start()
    async with running, running.serve(0) as serving:
        readers = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.page", "--read", serving.url),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        pairs: list[tuple[float, float]] = []
        rates: list[float] = []
        for _ in range(rounds):
            none, _ = await _measured(running, readers, 0, seconds)
            ten, rate = await _measured(running, readers, PAGES, seconds)
            pairs.append((none, ten))
            rates.append(rate)
        assert readers.stdin is not None
        assert readers.stdout is not None
        readers.stdin.write(b"end\n")
        output = await readers.stdout.read()
        await readers.wait()
        running.cancel()
    return {
        "pairs": pairs,
        "rate": median(rates),
        "bytes": int(output.split()[-1]) / PAGES / rounds,
    }


async def _measured(
    running: Running, readers: asyncio.subprocess.Process, pages: int, seconds: float
) -> tuple[float, float]:
    """The share of a core, and the events per second, while so many pages are open."""
    assert readers.stdin is not None
    assert readers.stdout is not None
    readers.stdin.write(f"{pages}\n".encode())
    # They are connected.
    await readers.stdout.readline()
    await asyncio.sleep(_SETTLING)
    done = running.statistics()["finished"]
    began, before = time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    cpu, wall = time.process_time() - before, time.perf_counter() - began
    return cpu / wall, (running.statistics()["finished"] - done) / wall


def read(url: str) -> None:
    """Read the stream of as many pages as each line of standard input says; prints when they are
    open, and at the line "end" how many bytes there were."""
    place = urlsplit(url)
    watched = selectors.DefaultSelector()
    watched.register(sys.stdin, selectors.EVENT_READ)
    pages: list[socket.socket] = []
    count = 0
    while True:
        for key, _ in watched.select():
            if isinstance(key.fileobj, socket.socket):
                count += len(key.fileobj.recv(1 << 16))
                continue
            line = sys.stdin.readline()
            for page in pages:
                watched.unregister(page)
                page.close()
            if line == "end\n":
                print(count)
                return
            pages = [_opened(place.hostname or "", place.port or 0) for _ in range(int(line))]
            for page in pages:
                watched.register(page, selectors.EVENT_READ)
            print("open", flush=True)


def _opened(host: str, port: int) -> socket.socket:
    page = socket.create_connection((host, port))
    page.sendall(f"GET /stream HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    page.recv(1 << 16)
    return page


def measure(rounds: int = ROUNDS, seconds: float = SECONDS) -> dict[str, Any]:
    """What `run` has found, in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.page", "--run"]
    words += ["--rounds", str(rounds), "--seconds", f"{seconds:g}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


_FIRST_PAINT = "first-contentful-paint"
# All that is loaded: the document, and what it names, but not the stream, which goes on.
_LOADED = """
[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .filter((one) => !one.name.endsWith("/stream"))
  .reduce((sum, one) => sum + one.encodedBodySize, 0)
"""


def painted(times: int = _OPENED) -> tuple[int, list[float]] | None:
    """Bytes of the page, and seconds until its first paint, each time; None without Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    words = [sys.executable, "-m", "benchmarks.page", "--serve"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=ROOT, **pipes) as served, sync_playwright() as playwright:
        assert served.stdin is not None
        assert served.stdout is not None
        url = served.stdout.readline().strip()
        # Its own sandbox needs rights that containers do not have.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        size, seconds = 0, list[float]()
        for _ in range(times):
            # Of a context of its own, which has an empty cache.
            page = browser.new_page()
            page.goto(url)
            page.wait_for_selector(".stage")
            page.wait_for_function(f"performance.getEntriesByName('{_FIRST_PAINT}').length")
            entry = f"performance.getEntriesByName('{_FIRST_PAINT}')[0].startTime"
            seconds.append(page.evaluate(entry) / 1000)
            size = page.evaluate(_LOADED)
            page.close()
        browser.close()
        served.stdin.close()
    return size, seconds


def report(rounds: int = ROUNDS, seconds: float = SECONDS) -> None:
    """Print what they cost, and how large and fast a page is."""
    found = measure(rounds, seconds)
    costs = [ten - none for none, ten in found["pairs"]]
    low, _, high = quantiles(costs, n=4)
    print(f"  {'':<24}{'of a core':>12}")
    print(f"  {'no page open':<24}{median(none for none, _ in found['pairs']):>12.2%}")
    print(f"  {f'{PAGES} pages open':<24}{median(ten for _, ten in found['pairs']):>12.2%}")
    print(
        f"  {'the pages':<24}{median(costs):>12.2%}   (median of {rounds} pairs, the middle half "
        f"from {low:.2%} to {high:.2%}; asked: < 1 %)"
    )
    print(f"  {found['rate']:,.0f} events/s; {found['bytes'] / 1000:,.1f} kB read by each page")
    opened = painted()
    if opened is None:
        print("  the page itself was not opened, because Chromium is not installed")
        return
    size, seconds = opened
    print(f"  {'size of the page':<24}{size / 1000:>9,.1f} kB   (asked: at most 200 kB)")
    print(
        f"  {'first paint, loopback':<24}{median(seconds):>10.3f} s   (median of {len(seconds)}, "
        f"from {min(seconds):.3f} to {max(seconds):.3f}; asked: < 0.3 s)"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--read", metavar="URL")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    chosen = parser.parse_args(arguments)
    if chosen.read is not None:
        read(chosen.read)
    elif chosen.serve:
        uvloop.run(serve())
    elif chosen.run:
        print(json.dumps(uvloop.run(run(chosen.rounds, chosen.seconds))))
    else:
        report(chosen.rounds, chosen.seconds)


if __name__ == "__main__":
    main()
