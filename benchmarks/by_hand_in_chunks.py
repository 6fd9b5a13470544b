"""The kata by hand without workers: a chunk of events goes through each step as a whole.

The lower bound for a plain handler in Python, but not the same job: it does not yield to the loop,
has no demand, and cannot call an async handler.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import uvloop
from orjson import OPT_APPEND_NEWLINE as NEWLINE
from orjson import dumps

from benchmarks import case, workload
from benchmarks.by_hand import READ_SIZE, parsed
from benchmarks.kata_by_hand import BUFFER, InlineKata
from benchmarks.workload import Event


def chunks(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Lazily, BUFFER events at a time."""
    events = iter(events)
    while chunk := list(islice(events, BUFFER)):
        yield chunk


def plain(options: case.Options) -> dict[str, Any]:
    events = workload.kata_events(options.events)

    def job() -> dict[str, Any]:
        kata = InlineKata(workload.project)
        finished = sum(len(kata(chunk)) for chunk in chunks(events))
        return {
            "finished": finished,
            "duplicates": kata.window.duplicates,
            **kata.latencies.report(),
        }

    return case.timed(job, len(events))


async def jsonl() -> None:
    """Standard input to standard output. Reads and writes leave the loop free, in a thread."""
    loop = asyncio.get_running_loop()
    kata = InlineKata(workload.project)
    bad = 0
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
        results = kata(events)
        # Joining a list is slower: orjson gives each result a kilobyte to grow in and shrinks it
        # afterwards, and malloc cannot use the gaps until all of the list is gone.
        output = bytearray()
        for result in results:
            output += dumps(result, option=NEWLINE)
        while output:
            sent = await loop.run_in_executor(None, os.write, 1, output)
            del output[:sent]
    print(kata.latencies.report(), f"{bad} bad lines", file=sys.stderr)


CASES = {"plain": plain}

if __name__ == "__main__":
    case.main(CASES, lambda: uvloop.run(jsonl()))
