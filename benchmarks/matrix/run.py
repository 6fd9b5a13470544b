"""One row in a separate process: by hand, with `Fixed`, and with its own limit, alternately."""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from types import FrameType
from typing import Any

import uvloop

from benchmarks.by_hand import half_chunks
from benchmarks.kata_by_hand import Kata
from benchmarks.matrix.rows import HANDLERS, ROWS, Row, own_stage
from benchmarks.workload import CLIENTS, WINDOW_SECONDS, Event, kata_events, project
from penstock import Report, distinct_within, from_iterable, group_by, latency_histogram, spread

__all__ = ["calls", "measure"]

COUNTED = 4_000


def events_of(row: Row, count: int) -> list[Event]:
    """The kata's events, with as many clients as the row has keys."""
    events = kata_events(count)
    if row.keys != len(CLIENTS):
        for number, event in enumerate(events):
            event["client_id"] = number % row.keys
    return events


def ours(row: Row, events: list[Event]) -> float:
    """Run it, and return its final limit; 1 for a plain handler."""
    source = from_iterable(events)
    flow = (source.pipe(own_stage) if row.option == "own stage" else source).pipe(
        distinct_within(WINDOW_SECONDS, by="uuid"), group_by("client_id"), spread()
    )
    for stage in row.working():
        flow = flow.pipe(stage)
    pipeline = flow.to(latency_histogram(every=1, report=None))

    async def whole() -> Report:
        running = pipeline.start()
        if row.option == "recorded":
            running.record()
        return await running.wait()

    done = uvloop.run(whole()).statistics
    assert done["finished"] + done["dropped"].get("duplicate", 0) == len(events), row.name
    limits = [stage["limit"] for stage in done["stages"] if "limit" in stage]
    return float(limits[0]) if limits else 1.0


def by_hand(row: Row, events: list[Event], at_once: int) -> None:
    """The yardstick: workers that await, as many as allowed at once."""
    uvloop.run(Kata(row.by_hand(), at_once).run(half_chunks(events)))


def cpu(job: Callable[[], Any]) -> float:
    gc.collect()
    gc.freeze()
    began = time.process_time()
    job()
    return time.process_time() - began


def measure(row: Row, rounds: int) -> dict[str, float]:
    """Microseconds per event: medians of `rounds`, and of the ratios within a round."""
    # A sample a second is part of the cost of a recorder, and so that takes longer.
    count = HANDLERS[row.handler].events * (10 if row.option == "recorded" else 1)
    events = events_of(row, count)
    # A limit may settle elsewhere in the first run, before anything has run once.
    at_once = row.at_once or max(1, round(median(ours(row, events) for _ in range(3))))
    fixed = row.fixed(at_once)
    taken: list[tuple[float, float, float]] = []
    for _ in range(rounds):
        taken.append(
            (
                cpu(lambda: by_hand(row, events, at_once)),
                cpu(lambda: ours(fixed, events)),
                cpu(lambda: ours(row, events)),
            )
        )
    hand, held, own = (median(times) * 1e6 / count for times in zip(*taken, strict=True))
    return {
        "at once": at_once,
        "by hand": hand,
        "fixed": held,
        "ours": own,
        "ratio": median(c / a for a, _, c in taken),
        "to fixed": median(c / b for _, b, c in taken),
        "calls": calls(row),
    }


def calls(row: Row) -> float:
    """Python functions called per event, resumed coroutines and generators included, but not the
    handler's own, nor those that it calls, nor those that each run calls once.
    """
    few, many = _counted(row, COUNTED), _counted(row, 2 * COUNTED)
    return (many - few) / COUNTED


def _counted(row: Row, size: int) -> int:
    events = events_of(row, size)
    handlers = {sys.modules[part.__module__].__file__ for part in (Row, project)}
    count = 0

    def profile(frame: FrameType | None, kind: str, _: object) -> None:
        nonlocal count
        if kind != "call" or frame is None or frame.f_code.co_filename == __file__:
            return
        while frame is not None and frame.f_code.co_filename not in handlers:
            frame = frame.f_back
        count += frame is None

    sys.setprofile(profile)
    try:
        ours(row, events)
    finally:
        sys.setprofile(None)
    return count


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args(arguments)
    print(json.dumps(measure(ROWS[chosen.row], chosen.rounds)))


if __name__ == "__main__":
    main()
