"""Cases in fresh processes, alternated; medians and spread; a plain-text table of ratios.

Alternation (A B A B …) makes a slow minute of the machine affect every subject alike, and a ratio
is the median of the ratios of the rounds, each against the first subject in the same round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

__all__ = [
    "ROOT",
    "CaseFailed",
    "Runs",
    "Subject",
    "alternate",
    "in_turn",
    "last_line",
    "printed",
    "run_case",
    "run_whole",
    "spent",
    "table",
]

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_SECONDS = 120


class CaseFailed(Exception):
    """A case ended with an error; the message is the end of its standard error."""


@dataclass(frozen=True)
class Subject:
    """A program that does the jobs: a module that follows benchmarks/case.py."""

    name: str
    module: str
    rounds: int
    """The rounds in which it takes part; fewer for the slow ones."""
    whole_process: tuple[str, ...] = ()
    """Arguments to Python for the job from standard input to output, if not the case `jsonl`."""
    pure: bool = False
    """Whether penstock runs from its sources although its extension modules are there."""

    def environment(self) -> dict[str, str]:
        """That of its processes."""
        return {**os.environ, "PENSTOCK_PURE": "1"} if self.pure else dict(os.environ)

    def exists(self) -> bool:
        """Whether its module has been written."""
        return ROOT.joinpath(*self.module.split(".")).with_suffix(".py").exists()


@dataclass
class Runs:
    """The results of the rounds of one subject, or why there are none."""

    subject: Subject
    results: list[dict[str, Any]] = field(default_factory=list)
    failure: str = ""

    def per_event(self, measure: str = "cpu_seconds") -> list[float]:
        """Microseconds per event, one value per round."""
        return [run[measure] * 1e6 / run["events"] for run in self.results]


def run_case(subject: Subject, case: str, **options: float) -> dict[str, Any]:
    """The result that `case` printed, with the peak of the whole process."""
    flags = [part for name, value in options.items() for part in (f"--{name}", f"{value}")]
    command = [sys.executable, "-m", subject.module, case, *flags]
    return printed(command, subject.environment())


def printed(command: Sequence[str], environment: dict[str, str] | None = None) -> dict[str, Any]:
    """The JSON object that a program prints."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CaseFailed(f"longer than {TIMEOUT_SECONDS} s") from None
    if done.returncode:
        raise CaseFailed(last_line(done.stderr) or f"exit status {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def run_whole(subject: Subject, source: Path, events: int, expected: int) -> dict[str, Any]:
    """A whole process from `source` on standard input to standard output, start to end."""
    arguments = subject.whole_process or ("-m", subject.module, "jsonl")
    output = source.with_suffix(".out")
    with source.open("rb") as stdin, output.open("wb") as stdout:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=subject.environment(),
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
        )
        # wait4 returns this child's own usage; getrusage would add up all children.
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise CaseFailed(f"exit status {process.returncode}")
    finished = output.read_bytes().count(b"\n")
    if finished != expected:
        raise CaseFailed(f"{finished:,} results instead of {expected:,}")
    return {
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "wall_seconds": wall,
        "events": events,
        "peak_rss_kb": usage.ru_maxrss,
        "finished": finished,
    }


def alternate(subjects: Sequence[Subject], run: Any) -> list[Runs]:
    """Call `run(subject)` for one subject after the other, as many rounds as each takes part."""
    everybody = [Runs(subject) for subject in subjects]
    for number in range(max(subject.rounds for subject in subjects)):
        for runs in everybody:
            if number < runs.subject.rounds and not runs.failure:
                try:
                    runs.results.append(run(runs.subject))
                except CaseFailed as failed:
                    runs.failure = str(failed)
    return everybody


def table(title: str, everybody: Sequence[Runs]) -> str:
    """CPU per event, its spread and its ratio to the first subject's; rate and memory."""
    lines = [
        title,
        f"  {'':<18}{'CPU µs/event':>13}{'min-max':>16}{'ratio':>8}{'min-max':>14}"
        f"{'events/s':>12}{'peak MB':>9}",
    ]
    yardstick = everybody[0].per_event()
    for runs in everybody:
        if runs.failure:
            lines.append(f"  {runs.subject.name:<18} - {runs.failure}")
            continue
        cpu = runs.per_event()
        # Each round is paired with the yardstick's round at the same time; see the module's page.
        ratios = [mine / theirs for mine, theirs in zip(cpu, yardstick, strict=False)]
        rate = median(run["events"] / run["wall_seconds"] for run in runs.results)
        peak = max(run["peak_rss_kb"] for run in runs.results) / 1024
        ratio, ratio_spread = (
            (f"{median(ratios):.2f} x", f"{min(ratios):.2f}-{max(ratios):.2f}")
            if ratios
            else ("", "")
        )
        lines.append(
            f"  {runs.subject.name:<18}{median(cpu):>13.2f}{f'{min(cpu):.2f}-{max(cpu):.2f}':>16}"
            f"{ratio:>8}{ratio_spread:>14}{rate:>12,.0f}{peak:>9.0f}"
        )
    return "\n".join(lines)


def last_line(output: bytes) -> str:
    """The last one that is not empty, or nothing."""
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def spent(way: Callable[[T, Path], None], events: T) -> float:
    """The seconds of processor time that a way takes with these events, and with a folder."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        way(events, Path(folder))
        return time.process_time() - began


def in_turn(
    module: str, ways: list[str], options: list[str], rounds: int
) -> dict[str, list[dict[str, float]]]:
    """What each way of a module measures in each round, in a process of its own."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, runs in found.items():
            command = [sys.executable, "-m", module, way, *options]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
            runs.append(json.loads(done.stdout))
    return found
