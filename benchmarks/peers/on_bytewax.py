"""The kata on bytewax, whose engine is Rust; one worker. And a count for each user, with a state,
and one for each user and window.

What it cannot do: its steps are plain functions, so there is no handler that awaits and no second
case; the rotation over clients is missing. One worker processes one event after the other, which
keeps every order; keyed state, which keeps it with several workers, costs more and is left out in
its favour. Its keyed state has no window, so the duplicates are a step over whole batches.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from time import monotonic_ns
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as of
import orjson
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import TestingSource, cluster_main

from benchmarks import case, workload
from benchmarks.peers.shared import Stamped, Steps, Timed
from benchmarks.workload import Event

BATCH = 1_024
READ_SIZE = 1 << 16


class Lines(DynamicSource[bytes], StatelessSourcePartition[bytes]):
    """The lines of standard input."""

    def __init__(self) -> None:
        self._rest = b""
        self._ended = False

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Lines:
        return self

    def next_batch(self) -> list[bytes]:
        if self._ended:
            raise StopIteration
        chunk = os.read(0, READ_SIZE)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if not chunk:
            self._ended = True
            lines = [self._rest] if self._rest else []
        return lines


class Each(DynamicSink[Any], StatelessSinkPartition[Any]):
    """Calls a function with each batch of results."""

    def __init__(self, accept: Callable[[list[Any]], None]) -> None:
        self._accept = accept

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Each:
        return self

    def write_batch(self, items: list[Any]) -> None:
        self._accept(items)


def kata(events: Any, steps: Steps, flow: Dataflow, accept: Callable[[list[Any]], None]) -> None:
    def unseen(batch: list[Event]) -> list[Stamped]:
        now = monotonic_ns()
        return [(now, event) for event in steps.window.unseen(batch, now)]

    fresh = op.flat_map_batch("distinct", events, unseen)
    clients = op.key_on("client", fresh, lambda stamped: str(stamped[1]["client_id"]))
    handled = op.key_rm("results", op.map_value("handle", clients, steps.handle))
    op.output("out", handled, Each(accept))
    cluster_main(flow, [], 0)


def plain(options: case.Options) -> dict[str, Any]:
    events = workload.kata_events(options.events)

    def job() -> dict[str, Any]:
        steps = Steps()

        def accept(batch: list[Timed]) -> None:
            for timed in batch:
                steps.record(timed)

        flow = Dataflow("kata")
        kata(op.input("in", flow, TestingSource(events, BATCH)), steps, flow, accept)
        return steps.outcome()

    return case.timed(job, len(events))


def counts(
    events: Iterable[Event],
    count: Callable[[int | None, Event], tuple[int, Event]],
    accept: Callable[[list[Any]], None],
    folder: Path | None,
    every: float,
) -> None:
    """A state for each user, kept in SQLite if there is a folder for it: each `every` seconds."""
    flow = Dataflow("counts")
    source: Any = TestingSource(events, BATCH)
    users = op.key_on("user", op.input("in", flow, source), itemgetter("user"))
    op.output("out", op.key_rm("results", op.stateful_map("count", users, count)), Each(accept))
    if folder is None:
        cluster_main(flow, [], 0)
    else:
        init_db_dir(folder, 1)
        kept = RecoveryConfig(str(folder))
        cluster_main(flow, [], 0, epoch_interval=timedelta(seconds=every), recovery_config=kept)


def windows(
    events: Iterable[Event],
    length: timedelta,
    every: timedelta,
    late: timedelta,
    accept: Callable[[list[Any]], None],
) -> None:
    """The counts of users in windows of a length, one of which begins each so often."""
    flow = Dataflow("windows")
    source: Any = TestingSource(events, BATCH)
    clock = of.EventClock(lambda event: datetime.fromtimestamp(event["at"], UTC), late)
    first = datetime.fromtimestamp(0, UTC)
    shape: Any = of.TumblingWindower(length, first)
    if every < length:
        shape = of.SlidingWindower(length, every, first)
    counted = of.count_window(
        *("count", op.input("in", flow, source), clock, shape, itemgetter("user"))
    )
    op.output("out", op.key_rm("results", counted.down), Each(accept))
    cluster_main(flow, [], 0)


def jsonl() -> None:
    steps = Steps()
    dumps, newline = orjson.dumps, orjson.OPT_APPEND_NEWLINE
    write = sys.stdout.buffer.write

    def accept(batch: list[Timed]) -> None:
        for timed in batch:
            write(dumps(steps.record(timed), option=newline))

    flow = Dataflow("kata")
    lines = op.input("in", flow, Lines())
    kata(op.map("parse", lines, orjson.loads), steps, flow, accept)
    sys.stdout.flush()
    print(steps.outcome(), file=sys.stderr)


if __name__ == "__main__":
    case.main({"plain": plain}, jsonl)
