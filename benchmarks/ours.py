"""The figures' jobs on penstock; `penstock run benchmarks/ours.py` is the whole process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from time import monotonic_ns
from typing import Any

import uvloop

from benchmarks import case, workload
from benchmarks.workload import LIMIT, WINDOW_SECONDS, Event, Result
from penstock import (
    Fixed,
    Flowable,
    Report,
    adaptive_flat_map,
    distinct_within,
    from_async_iterable,
    from_iterable,
    group_by,
    latency_histogram,
    read_jsonl,
    spread,
    write_jsonl,
)

Handler = Callable[[Event], Any]

pipeline = (
    read_jsonl()
    .pipe(
        distinct_within(WINDOW_SECONDS, by="uuid"),
        group_by("client_id"),
        spread(),
        adaptive_flat_map(workload.project),
    )
    .to(write_jsonl(), latency_histogram(every=None))
)


def kata(source: Flowable[Event], handler: Handler, limit: int = LIMIT) -> Report:
    """Run the whole kata over `source`."""
    flow = source.pipe(
        distinct_within(WINDOW_SECONDS, by="uuid"),
        group_by("client_id"),
        spread(),
        adaptive_flat_map(handler, Fixed(limit)),
    ).to(latency_histogram(every=1, report=None))
    return uvloop.run(flow.run())


def numbers(report: Report) -> dict[str, Any]:
    statistics = report.statistics
    return {
        "finished": statistics["finished"],
        "duplicates": statistics["dropped"].get("duplicate", 0),
    }


def plain(options: case.Options) -> dict[str, Any]:
    events = workload.kata_events(options.events)
    return case.timed(lambda: numbers(kata(from_iterable(events), workload.project)), len(events))


def yielding(options: case.Options) -> dict[str, Any]:
    events = workload.kata_events(options.events)
    return case.timed(
        lambda: numbers(kata(from_iterable(events), workload.project_yielding)), len(events)
    )


def open_loop(options: case.Options) -> dict[str, Any]:
    """Waiting is counted from the instant at which an event was due, as by hand."""
    # Not for the whole process, which runs this file as its pipeline and counts its own start.
    from benchmarks.latencies import Latencies

    latencies = Latencies()
    slow = workload.slow_handler()

    async def handler(event: Event) -> Result:
        started = monotonic_ns()
        latencies.waiting.append(started - int(event["created"]))
        latencies.service.append(0)
        return await slow(event)

    async def one_by_one() -> AsyncIterator[Event]:
        async for events in workload.arrivals(options.rate, options.seconds):
            for event in events:
                yield event

    def job() -> dict[str, Any]:
        return {**numbers(kata(from_async_iterable(one_by_one), handler)), **latencies.report()}

    return case.timed(job, int(options.rate * options.seconds))


def fairness(options: case.Options) -> dict[str, Any]:
    """How many of the 500 events of one client start before the last of the 99 others."""
    events = workload.one_against_many()
    started: list[int] = []

    async def handler(event: Event) -> Result:
        started.append(event["client_id"])
        return await workload.project_yielding(event)

    def job() -> dict[str, Any]:
        kata(from_iterable(events), handler, limit=4)
        return {"started_before_the_last_other": workload.started_before_the_last_other(started)}

    return case.timed(job, len(events))


def memory_keys(options: case.Options) -> dict[str, Any]:
    """Each event with different keys, at 50,000 per second of stream time."""

    def job() -> dict[str, Any]:
        flow = from_iterable(workload.many_keys(options.events)).pipe(
            distinct_within(WINDOW_SECONDS, by="uuid", time="created"),
            group_by("client_id"),
            spread(),
            adaptive_flat_map(workload.project),
        )
        return numbers(uvloop.run(flow.to(latency_histogram(every=1, report=None)).run()))

    return case.timed(job, options.events)


def memory_slow(options: case.Options) -> dict[str, Any]:
    """1 kB events through a handler that keeps its source waiting, without a window."""
    return _slow(workload.large_events(options.events), workload.slow_handler(0.001, 0.0), options)


def _slow(
    events: Iterable[Any], handler: Callable[[Event], Awaitable[Result]], options: case.Options
) -> dict[str, Any]:
    def job() -> dict[str, Any]:
        flow = from_iterable(events).pipe(
            group_by("client_id"), spread(), adaptive_flat_map(handler, Fixed(256))
        )
        return numbers(uvloop.run(flow.to(latency_histogram(every=1, report=None)).run()))

    return case.timed(job, options.events)


CASES = {
    "plain": plain,
    "yielding": yielding,
    "open_loop": open_loop,
    "fairness": fairness,
    "memory_keys": memory_keys,
    "memory_slow": memory_slow,
}

if __name__ == "__main__":
    case.main(CASES)
