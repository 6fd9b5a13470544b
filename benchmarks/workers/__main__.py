"""``python -m benchmarks.workers``: worker processes, next to one process and to `in_processes`.

Each row alternates its subjects in fresh processes. A model made of the measured shares, the
processor time an event of the parent and of the workers, predicts two workers on the cores that are
here, which is compared with what was measured, and then more of them on eight cores. The same jobs
written by hand, without penstock, show what a parent and two processes cost at least in Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import ROOT

ROUNDS = 5
# (name, microseconds of processor time in the handler, events, from a file)
JOBS = (
    ("plain", 0, 400_000, False),
    ("20 us", 20, 100_000, False),
    ("0.2 ms, as in penstock kata --cpu-ms 0.2", 200, 20_000, False),
    ("2 ms", 2_000, 2_000, False),
    ("README, from a file", 0, 400_000, True),
)
SUBJECTS = (
    ("one process", "one", 1),
    ("2 workers", "workers", 2),
    ("2 with the sinks", "sinks", 2),
    ("in_processes(2)", "pool", 2),
    ("by hand, 2", "hand", 2),
)
# A call in another process costs so much that fewer of them tell as much.
MOST_OF_A_POOL = 5_000
MODEL = (1, 2, 4, 8)
CORES = 8


@dataclass(frozen=True)
class Model:
    """Seconds of processor time an event, in the parent and in a worker, and of one process."""

    parent: float
    worker: float
    alone: float

    def gain(self, workers: int, cores: int) -> float:
        """How many times as fast as one process so many workers are.

        The parent and the workers work at the same time, as far as there are cores for them.
        """
        at_once = min(cores, workers + 1)
        slowest = max(self.parent, self.worker / workers, (self.parent + self.worker) / at_once)
        return self.alone / slowest


def run_case(how: str, processes: int, microseconds: int, events: int, path: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.workers.case", how, str(processes)]
    command += [str(microseconds), str(events), *([path] if path else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def busy_seconds() -> float:
    """The processor seconds that this machine has used, by whomever; 0 where that is unknown."""
    try:
        first = Path("/proc/stat").read_text().splitlines()[0].split()
    except OSError:
        return 0.0
    user, nice, system = (int(number) for number in first[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def seconds_of(run: dict[str, Any]) -> float:
    return float(run["wall_seconds"] / run["events"])


def row(name: str, microseconds: int, events: int, path: str) -> None:
    runs: dict[str, list[dict[str, Any]]] = {subject: [] for subject, _, _ in SUBJECTS}
    began, busy, own = time.perf_counter(), busy_seconds(), 0.0
    for _ in range(ROUNDS):
        for subject, how, processes in SUBJECTS:
            most = min(events, MOST_OF_A_POOL) if how == "pool" and not path else events
            # What a call costs by hand is seen where the handler does nothing.
            # The file that the README's job writes is one.
            if (how in ("pool", "sinks") and path) or (how == "hand" and microseconds):
                continue
            run = run_case(how, processes, microseconds, most, path)
            own += run["parent_seconds"] + run["others_seconds"]
            runs[subject].append(run)
    taken = time.perf_counter() - began
    others = max(0.0, busy_seconds() - busy - own) / taken
    print(f"{name} ({events:,} events; other processes used {others:.2f} cores meanwhile)")
    print(
        f"  {'':<18}{'events/s':>12}{'ratio':>9}{'min-max':>14}{'parent us':>12}{'others us':>12}"
    )
    alone = [seconds_of(run) for run in runs["one process"]]
    for subject, measured in runs.items():
        if not measured:
            continue
        seconds = [seconds_of(run) for run in measured]
        ratios = [one / mine for one, mine in zip(alone, seconds, strict=True)]
        parent, rest = (
            median(run[part] / run["events"] * 1e6 for run in measured)
            for part in ("parent_seconds", "others_seconds")
        )
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
        print(
            f"  {subject:<18}{1 / median(seconds):>12,.0f}{median(ratios):>7.2f} x{spread:>14}"
            f"{parent:>12.2f}{rest:>12.2f}"
        )
    two = runs["2 workers"]
    model = Model(
        median(run["parent_seconds"] / run["events"] for run in two),
        median(run["others_seconds"] / run["events"] for run in two),
        median(run["parent_seconds"] / run["events"] for run in runs["one process"]),
    )
    measured_gain = median(one / seconds_of(run) for one, run in zip(alone, two, strict=True))
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    predicted = model.gain(2, here)
    print(
        f"  the model says {predicted:.2f} x for 2 workers on {here} cores, "
        f"{abs(predicted / measured_gain - 1):.0%} from what was measured; on {CORES} cores: "
        + ", ".join(f"{n} workers {model.gain(n, CORES):.1f} x" for n in MODEL)
    )


def start_up() -> None:
    """How long a run of one event takes with workers, less without."""
    times = {
        processes: median(
            run_case("workers" if processes else "one", max(1, processes), 0, 1, "")["wall_seconds"]
            for _ in range(ROUNDS)
        )
        for processes in (0, 1, 2, 4)
    }
    print("start-up, first event and end, in milliseconds more than one process")
    for processes in (1, 2, 4):
        print(f"  {processes} workers {1000 * (times[processes] - times[0]):.0f} ms")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "events.jsonl")
        for name, microseconds, events, from_file in JOBS:
            if from_file:
                command = [sys.executable, "-m", "benchmarks.workload", "--events", str(events)]
                with source.open("wb") as lines:
                    subprocess.run(
                        command, cwd=ROOT, stdout=lines, stderr=subprocess.DEVNULL, check=True
                    )
            row(name, microseconds, events, str(source) if from_file else "")
    start_up()


if __name__ == "__main__":
    main()
