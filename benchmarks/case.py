"""One case in a separate process: the convention that every subject follows.

``python -m benchmarks.<module> <case> --events N`` prints one JSON object on standard output:

- ``cpu_seconds``, ``wall_seconds``  of the timed region; set-up and imports are outside,
- ``events``                         that were read, duplicates included,
- ``peak_rss_kb``, ``base_rss_kb``   of the process, at the end and before the timed region,
- ``later``                          CPU seconds of each of `--later` more runs in the same process,
- and anything else that the case returns (percentiles, counts).

The case ``jsonl`` is different: it reads standard input, writes standard output, and is measured
from outside, as a whole process. Cases that a subject cannot do are missing from its table.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Options", "main", "timed"]


@dataclass(frozen=True)
class Options:
    """The options of the command line."""

    events: int
    rate: float
    seconds: float


def timed(job: Callable[[], dict[str, Any]], events: int) -> dict[str, Any]:
    """Run `job` once and add its cost to the dict that it returns."""
    # Otherwise each collection would walk the input again, a cost of the set-up.
    gc.collect()
    gc.freeze()
    base = _rss_kb()
    wall, cpu = time.perf_counter(), time.process_time()
    outcome = job()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "events": events,
        "base_rss_kb": base,
        "peak_rss_kb": _rss_kb(),
        **outcome,
    }


def main(
    cases: Mapping[str, Callable[[Options], dict[str, Any]]],
    jsonl: Callable[[], None] | None = None,
) -> None:
    """Run the case named on the command line."""
    names = [*cases, *(["jsonl"] if jsonl else [])]
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=names)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rate", type=float, default=1_000.0, help="events per second, open loop")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long, open loop")
    parser.add_argument("--later", type=int, default=0, help="more runs, in the same process")
    chosen = parser.parse_args()
    if chosen.case == "jsonl" and jsonl:
        jsonl()
    else:
        options = Options(chosen.events, chosen.rate, chosen.seconds)
        first, *rest = (cases[chosen.case](options) for _ in range(1 + chosen.later))
        print(json.dumps({**first, "later": [run["cpu_seconds"] for run in rest]}))


def _rss_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
