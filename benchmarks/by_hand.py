"""The kata by hand on asyncio and uvloop, as efficient as possible: the baseline's cases.

``python -m benchmarks.by_hand jsonl < events.jsonl > done.jsonl`` is the whole process; the pipe
itself is in benchmarks/kata_by_hand.py.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Any

import uvloop
from orjson import OPT_APPEND_NEWLINE as NEWLINE
from orjson import JSONDecodeError, dumps, loads

from benchmarks import case, workload
from benchmarks.kata_by_hand import BUFFER, InlineKata, Kata
from benchmarks.workload import Event, Result

READ_SIZE = 1 << 16


def chunks(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Lazily, BUFFER events at a time."""
    events = iter(events)
    while chunk := list(islice(events, BUFFER)):
        yield chunk


async def half_chunks(events: Iterable[Event]) -> AsyncIterator[list[Event]]:
    """Lazily, as many as certainly fit when `Kata` asks."""
    events = iter(events)
    while chunk := list(islice(events, BUFFER // 2)):
        yield chunk


async def whole(events: list[Event]) -> AsyncIterator[list[Event]]:
    """All of a short list at once."""
    yield events


def plain(options: case.Options) -> dict[str, Any]:
    events = workload.kata_events(options.events)

    def job() -> dict[str, Any]:
        kata = Kata(workload.project_at_once)
        uvloop.run(kata.run(half_chunks(events)))
        return outcome(kata)

    return case.timed(job, len(events))


def yielding(options: case.Options) -> dict[str, Any]:
    events = workload.kata_events(options.events)

    def job() -> dict[str, Any]:
        kata = Kata(workload.project_yielding)
        uvloop.run(kata.run(half_chunks(events)))
        return outcome(kata)

    return case.timed(job, len(events))


def open_loop(options: case.Options) -> dict[str, Any]:
    def job() -> dict[str, Any]:
        kata = Kata(workload.slow_handler(), stamped=True)
        uvloop.run(kata.run(workload.arrivals(options.rate, options.seconds)))
        return outcome(kata)

    return case.timed(job, int(options.rate * options.seconds))


def fairness(options: case.Options) -> dict[str, Any]:
    """How many of the 500 events of one client start before the last of the 99 others."""
    events = workload.one_against_many()
    started: list[int] = []

    async def handler(event: Event) -> Result:
        started.append(event["client_id"])
        return await workload.project_yielding(event)

    def job() -> dict[str, Any]:
        uvloop.run(Kata(handler, limit=4).run(whole(events)))
        return {"started_before_the_last_other": workload.started_before_the_last_other(started)}

    return case.timed(job, len(events))


def memory_keys(options: case.Options) -> dict[str, Any]:
    """Each event with different keys, at 50,000 per second of stream time."""

    def job() -> dict[str, Any]:
        kata = InlineKata(workload.project)
        finished = 0
        for chunk in chunks(workload.many_keys(options.events)):
            finished += len(kata(chunk, now=int(chunk[0]["created"] * 1e9)))
        return {"finished": finished}

    return case.timed(job, options.events)


def memory_slow(options: case.Options) -> dict[str, Any]:
    """1 kB events through a handler that keeps its source waiting, without a window."""

    def job() -> dict[str, Any]:
        kata = Kata(workload.slow_handler(0.001, 0.0), limit=256, distinct=False)
        uvloop.run(kata.run(half_chunks(workload.large_events(options.events))))
        return outcome(kata)

    return case.timed(job, options.events)


def outcome(kata: Kata) -> dict[str, Any]:
    times = kata.latencies.report()
    return {
        "finished": times["waiting"]["count"],
        "duplicates": kata.window.duplicates,
        **times,
    }


async def jsonl() -> None:
    """Standard input to standard output. Reads and writes leave the loop free, in a thread."""
    loop = asyncio.get_running_loop()
    output = bytearray()
    bad = 0

    async def handler(event: Event) -> Result:
        nonlocal output
        result = workload.project(event)
        # Joining a list is slower: orjson gives each result a kilobyte to grow in and shrinks it
        # afterwards, and malloc cannot use the gaps until all of the list is gone.
        output += dumps(result, option=NEWLINE)
        return result

    async def write() -> None:
        nonlocal output
        ready, output = output, bytearray()
        while ready:
            sent = await loop.run_in_executor(None, os.write, 1, ready)
            del ready[:sent]

    async def source() -> AsyncIterator[list[Event]]:
        nonlocal bad
        rest = b""
        reading = loop.run_in_executor(None, os.read, 0, READ_SIZE)
        ended = False
        while not ended:
            chunk = await reading
            ended = not chunk
            *lines, rest = (rest + chunk).split(b"\n")
            if ended:
                lines.append(rest)
            else:
                reading = loop.run_in_executor(None, os.read, 0, READ_SIZE)
            events, broken = parsed(lines)
            bad += broken
            yield events
            await write()

    kata = Kata(handler)
    await kata.run(source())
    await write()
    print(kata.latencies.report(), f"{bad} bad lines", file=sys.stderr)


def parsed(lines: list[bytes]) -> tuple[list[Event], int]:
    """The events, and how many lines were not JSON."""
    events: list[Event] = []
    bad = 0
    append = events.append
    for line in lines:
        try:
            append(loads(line))
        except JSONDecodeError:
            bad += bool(line.strip())
    return events, bad


CASES = {
    "plain": plain,
    "yielding": yielding,
    "open_loop": open_loop,
    "fairness": fairness,
    "memory_keys": memory_keys,
    "memory_slow": memory_slow,
}

if __name__ == "__main__":
    case.main(CASES, lambda: uvloop.run(jsonl()))
