"""One run: ``python -m benchmarks.workers.case (one|workers|pool) N MICROSECONDS EVENTS [FILE]``.

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
from typing import Any

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


def handler(event: dict[str, Any]) -> dict[str, Any]:
    """Use so much of the processor."""
    if SECONDS:
        end = time.thread_time() + SECONDS
        while time.thread_time() < end:
            pass
    return {"uuid": event["uuid"], "client_id": event["client_id"]}


def pipeline(how: str, processes: int, events: int, path: str | None, output: str) -> Pipeline:
    """The job, of which `finished` counts the results."""
    work = in_processes(processes)(handler) if how == "pool" else handler
    keyed = group_by("client_id"), spread(), adaptive_flat_map(work)
    if path is not None:
        stream = read_jsonl(path).pipe(distinct_within(10, by="uuid"), *keyed)
        return stream.to(write_jsonl(output), latency_histogram(every=1, report=None))
    values = [{"uuid": f"{n:032x}", "client_id": n % 1000} for n in range(events)]
    return from_iterable(values).pipe(*keyed).to(for_each(bool))


def main() -> None:
    how, processes, events = sys.argv[1], int(sys.argv[2]), int(sys.argv[4])
    path = sys.argv[5] if len(sys.argv) > 5 else None
    with tempfile.TemporaryDirectory() as folder:
        job = pipeline(how, processes, events, path, os.path.join(folder, "output"))
        # As `penstock run` does it, alone or with workers.
        gc.freeze()
        gc.set_threshold(20_000)
        began, used = time.perf_counter(), time.process_time()
        report = run(job, workers=processes if how == "workers" else None)
        seconds = time.perf_counter() - began
    parent = time.process_time() - used
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert report.statistics["unfinished"] == report.statistics["failed"] == 0
    result = {
        "events": report.statistics["in"],
        "wall_seconds": seconds,
        "parent_seconds": parent,
        "others_seconds": others.ru_utime + others.ru_stime,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
