"""The kata on raw reactivex.

What it cannot do: there is no back-pressure, so all of the input is read at once and waits in the
groups; groups exist for ever; one event of a client at a time is `concat_map` inside the group, but
then all clients are processed at once, not 64 (`merge` with a maximum over groups would wait for
whole groups to end); the rotation over clients is missing.
`distinct` remembers every key for ever, so the window is a `filter`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from time import monotonic_ns
from typing import Any

import orjson
import reactivex
import uvloop
from reactivex import operators as ops
from reactivex.scheduler.eventloop import AsyncIOScheduler

from benchmarks import case, workload
from benchmarks.peers.shared import Stamped, Steps, Timed
from benchmarks.workload import Event, Result


def plain_pipe(source: reactivex.Observable[Event], steps: Steps) -> reactivex.Observable[Result]:
    return source.pipe(
        ops.map(steps.stamp),
        ops.filter(steps.is_new),
        ops.group_by(lambda stamped: stamped[1]["client_id"]),
        ops.flat_map(lambda client: client.pipe(ops.map(steps.handle))),
        ops.map(steps.record),
    )


def plain(options: case.Options) -> dict[str, Any]:
    events = workload.kata_events(options.events)

    def job() -> dict[str, Any]:
        steps = Steps()
        plain_pipe(reactivex.from_iterable(events), steps).run()
        return steps.outcome()

    return case.timed(job, len(events))


async def handle(stamped: Stamped) -> Timed:
    started = monotonic_ns()
    result = await workload.project_yielding(stamped[1])
    return started - stamped[0], monotonic_ns() - started, result


def handled(stamped: Stamped) -> reactivex.Observable[Timed]:
    # Deferred: without it every handler would start at once.
    return reactivex.defer(lambda _: reactivex.from_future(asyncio.ensure_future(handle(stamped))))


async def yielding_pipe(events: Iterable[Event], steps: Steps) -> None:
    pipe = reactivex.from_iterable(events).pipe(
        ops.map(steps.stamp),
        ops.filter(steps.is_new),
        ops.group_by(lambda stamped: stamped[1]["client_id"]),
        ops.flat_map(lambda client: client.pipe(ops.concat_map(handled))),
        ops.map(steps.record),
    )
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    pipe.subscribe(
        on_error=ended.set_exception,
        on_completed=lambda: ended.set_result(None),
        scheduler=AsyncIOScheduler(asyncio.get_running_loop()),
    )
    await ended


def yielding(options: case.Options) -> dict[str, Any]:
    events = workload.kata_events(options.events)

    def job() -> dict[str, Any]:
        steps = Steps()
        uvloop.run(yielding_pipe(events, steps))
        return steps.outcome()

    return case.timed(job, len(events))


def jsonl() -> None:
    steps = Steps()
    events = reactivex.from_iterable(sys.stdin.buffer).pipe(ops.map(orjson.loads))
    write, newline = sys.stdout.buffer.write, orjson.OPT_APPEND_NEWLINE
    plain_pipe(events, steps).pipe(
        ops.do_action(lambda result: write(orjson.dumps(result, option=newline))),
    ).run()
    sys.stdout.flush()
    print(steps.outcome(), file=sys.stderr)


if __name__ == "__main__":
    case.main({"plain": plain, "yielding": yielding}, jsonl)
