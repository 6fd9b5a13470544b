"""The kata on aiostream.

What it cannot do: there are no groups, so order per client needs a lock per client around the
handler (asyncio's locks are first come, first served), and an event that waits for its client's
lock takes one of the 64 places; the rotation over clients is missing. A plain handler processes one
event after the other, which keeps every order.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from time import monotonic_ns
from typing import Any

import orjson
import uvloop
from aiostream import pipe, stream

from benchmarks import case, workload
from benchmarks.peers.shared import Stamped, Steps, Timed


def plain(options: case.Options) -> dict[str, Any]:
    events = workload.kata_events(options.events)

    async def run(steps: Steps) -> None:
        await (
            stream.iterate(events)
            | pipe.map(steps.stamp)
            | pipe.filter(steps.is_new)
            | pipe.map(steps.handle)
            | pipe.map(steps.record)
        )

    def job() -> dict[str, Any]:
        steps = Steps()
        uvloop.run(run(steps))
        return steps.outcome()

    return case.timed(job, len(events))


def yielding(options: case.Options) -> dict[str, Any]:
    events = workload.kata_events(options.events)
    turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def handle(stamped: Stamped) -> Timed:
        async with turns[stamped[1]["client_id"]]:
            started = monotonic_ns()
            result = await workload.project_yielding(stamped[1])
            return started - stamped[0], monotonic_ns() - started, result

    async def run(steps: Steps) -> None:
        await (
            stream.iterate(events)
            | pipe.map(steps.stamp)
            | pipe.filter(steps.is_new)
            | pipe.map(handle, ordered=False, task_limit=workload.LIMIT)
            | pipe.map(steps.record)
        )

    def job() -> dict[str, Any]:
        steps = Steps()
        uvloop.run(run(steps))
        return steps.outcome()

    return case.timed(job, len(events))


async def jsonl() -> None:
    steps = Steps()
    write, newline = sys.stdout.buffer.write, orjson.OPT_APPEND_NEWLINE
    await (
        stream.iterate(sys.stdin.buffer)
        | pipe.map(orjson.loads)
        | pipe.map(steps.stamp)
        | pipe.filter(steps.is_new)
        | pipe.map(steps.handle)
        | pipe.map(steps.record)
        | pipe.map(lambda result: write(orjson.dumps(result, option=newline)))
    )
    sys.stdout.flush()
    print(steps.outcome(), file=sys.stderr)


if __name__ == "__main__":
    case.main({"plain": plain, "yielding": yielding}, lambda: uvloop.run(jsonl()))
