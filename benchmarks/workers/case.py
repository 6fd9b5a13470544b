"""One run: ``python -m benchmarks.workers.case HOW N MICROSECONDS EVENTS [FILE]``.

HOW is ``one`` (process), ``workers``, ``sinks`` (workers that open the sink too, for events from
memory), ``pool`` (`in_processes`), or ``hand``, which is written by hand without penstock.

Prints, as JSON, the seconds that it took and the processor seconds of the parent and of all other
processes, from before the first process is started. With a file of JSON lines it runs the job of
the README from that file into another, else it gets its events from memory.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks.workers.by_hand import from_file, from_memory, run_by_hand
from penstock import (
    Pipeline,
    adaptive_flat_map,
    distinct_within,
    for_each,
    from_iterable,
    group_by,
    in_processes,
    latency_histogram,
    read_jsonl,
    run,
    spread,
    write_jsonl,
)

SECONDS = int(sys.argv[3]) / 1e6
# Of the README's job.
WINDOW = 10


def handler(event: dict[str, Any]) -> dict[str, Any]:
    """Use so much of the processor."""
    if SECONDS:
        end = time.thread_time() + SECONDS
        while time.thread_time() < end:
            pass
    return {"uuid": event["uuid"], "client_id": event["client_id"]}


def values(events: int) -> list[dict[str, Any]]:
    return [{"uuid": f"{n:032x}", "client_id": n % 1000} for n in range(events)]


def pipeline(how: str, processes: int, events: int, path: str | None, output: str) -> Pipeline:
    """The job, of which `finished` counts the results."""
    work = in_processes(processes)(handler) if how == "pool" else handler
    keyed = group_by("client_id"), spread(), adaptive_flat_map(work)
    if path is not None:
        stream = read_jsonl(path).pipe(distinct_within(WINDOW, by="uuid"), *keyed)
        return stream.to(write_jsonl(output), latency_histogram(every=1, report=None))
    sink = for_each(bool, in_workers=how == "sinks")
    return from_iterable(values(events)).pipe(*keyed).to(sink)


def by_penstock(
    how: str, processes: int, events: int, path: str | None, output: str
) -> Callable[[], int]:
    """The run, which returns how many events it has read."""
    job = pipeline(how, processes, events, path, output)

    def run_it() -> int:
        report = run(job, workers=processes if how in ("workers", "sinks") else None)
        assert report.statistics["unfinished"] == report.statistics["failed"] == 0
        return int(report.statistics["in"])

    return run_it


def by_hand(
    how: str, processes: int, events: int, path: str | None, output: str
) -> Callable[[], int]:
    """The same, without penstock."""
    chunks = from_memory(values(events)) if path is None else from_file(path, WINDOW)

    def run_it() -> int:
        with open(os.devnull if path is None else output, "wb") as file:
            run_by_hand(handler, processes, chunks, None if path is None else file)
        return events

    return run_it


def main() -> None:
    how, processes, events = sys.argv[1], int(sys.argv[2]), int(sys.argv[4])
    path = sys.argv[5] if len(sys.argv) > 5 else None
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "output")
        work = by_hand if how == "hand" else by_penstock
        job = work(how, processes, events, path, output)
        # As `penstock run` does it, alone or with workers.
        gc.freeze()
        gc.set_threshold(20_000)
        began, used = time.perf_counter(), time.process_time()
        count = job()
        seconds = time.perf_counter() - began
    parent = time.process_time() - used
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = {
        "events": count,
        "wall_seconds": seconds,
        "parent_seconds": parent,
        "others_seconds": others.ru_utime + others.ru_stime,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
