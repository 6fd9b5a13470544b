"""The kata by hand and on libraries in several languages, each as a ratio to by hand in its own.

Programs in other languages are in benchmarks/peers. They are built in build/languages and called
with a case, a file of events and a number of later runs, and print what benchmarks/case.py says.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import ROOT, CaseFailed, Subject, last_line, printed, run_case
from benchmarks.workload import kata_events, write_jsonl

__all__ = ["Program", "Row", "checked", "lines", "programs", "report"]

CASES = {"plain": "plain handler", "yielding": "handler that yields once, at most 64 at once"}
ROUNDS = 3
# Runs in the same process after the first one: `warm` is their median.
LATER = 5

_SOURCES = ROOT / "benchmarks" / "peers"
_BUILD = ROOT / "build" / "languages"


@dataclass(frozen=True)
class Program:
    """The pipes of another language, the one by hand first."""

    language: str
    tools: tuple[str, ...]
    build: Callable[[], list[str]]
    """Makes it and returns the command, to which the name of a pipe is added."""
    pipes: tuple[str, ...] = ("by hand",)

    def missing(self) -> list[str]:
        """The tools that are not installed."""
        return [tool for tool in self.tools if shutil.which(tool) is None]


def _javascript() -> list[str]:
    folder = _BUILD / "rxjs"
    # Node looks for packages beside the file that imports them.
    shutil.copytree(_SOURCES / "rxjs", folder, dirs_exist_ok=True)
    _make(["npm", "install", "--silent", "--no-package-lock"], folder)
    return ["node", "--expose-gc", str(folder / "kata.js")]


def _java() -> list[str]:
    folder = _BUILD / "jvm"
    libraries, classes = folder / "lib", folder / "classes"
    sources = sorted(map(str, (_SOURCES / "jvm").glob("*.java")))
    if not libraries.is_dir():
        where = ["-f", str(_SOURCES / "jvm" / "pom.xml"), f"-DoutputDirectory={libraries}"]
        _make(["mvn", "-q", "-B", "dependency:copy-dependencies", *where])
    _make(["javac", "-d", str(classes), "-cp", f"{libraries}/*", *sources])
    return ["java", "-cp", f"{classes}:{libraries}/*", "Kata"]


def _go() -> list[str]:
    program = str(_BUILD / "go")
    _make(["go", "build", "-o", program, *sorted(map(str, (_SOURCES / "go").glob("*.go")))])
    return [program]


def _rust() -> list[str]:
    program = str(_BUILD / "rust")
    source = str(_SOURCES / "rust" / "kata.rs")
    _make(["rustc", "-O", "--edition", "2024", "-o", program, source])
    return [program]


def _make(command: list[str], folder: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    if done.returncode:
        raise CaseFailed(last_line(done.stderr) or last_line(done.stdout) or command[0])


PROGRAMS = (
    Program("JavaScript", ("node", "npm"), _javascript, ("by hand", "RxJS")),
    Program("Java", ("java", "javac", "mvn"), _java, ("by hand", "Reactor", "RxJava")),
    Program("Go", ("go",), _go),
    Program("Rust", ("rustc",), _rust),
)


@dataclass
class Row:
    """A pipe in a language, and the results of its rounds, or why there are none."""

    language: str
    name: str
    run: Callable[[], dict[str, Any]]
    results: list[dict[str, Any]] = field(default_factory=list)
    failure: str = ""

    def measure(self) -> None:
        """One round more, unless one has failed."""
        if self.failure:
            return
        try:
            self.results.append(checked(self.run()))
        except CaseFailed as failed:
            self.failure = str(failed)

    def first(self, measure: str = "cpu_seconds") -> list[float]:
        """Microseconds per event of the first run of each round."""
        return [one[measure] * 1e6 / one["events"] for one in self.results]

    def warm(self, measure: str = "later") -> list[float]:
        """The same of the later runs, the median of each round."""
        return [median(one[measure]) * 1e6 / one["events"] for one in self.results]


@cache
def _unique(events: int) -> int:
    return len({event["uuid"] for event in kata_events(events)})


def checked(result: dict[str, Any]) -> dict[str, Any]:
    """The result, if it has as many finished events and duplicates as the load."""
    found = result["finished"], result["duplicates"]
    unique = _unique(result["events"])
    expected = unique, result["events"] - unique
    if found != expected:
        raise CaseFailed(f"{found} events finished and duplicates instead of {expected}")
    return result


def lines(rows: Sequence[Row]) -> list[str]:
    """A line for each row of a case; the first row of a language is by hand."""
    by_hand: dict[str, Row] = {}
    found: list[str] = []
    for row in rows:
        yardstick = by_hand.setdefault(row.language, row)
        head = f"  {row.language:<12}{row.name:<20}"
        if not row.results or not yardstick.results:
            found.append(f"{head} - {row.failure or yardstick.failure}")
            continue
        columns = ""
        for mine, theirs in ((row.first(), yardstick.first()), (row.warm(), yardstick.warm())):
            ratio = median(one / other for one, other in zip(mine, theirs, strict=False))
            columns += f"{median(mine):>10.2f}{f'{ratio:.2f} x':>10}"
        if "process_seconds" in row.results[0]:
            first, warm = row.first("process_seconds"), row.warm("later_process")
            columns += f"   {median(first):.2f} and {median(warm):.2f} of all threads"
        found.append(head + columns)
    return found


def programs() -> list[tuple[Program, list[str]]]:
    """The programs that can be built here, with their commands; prints which are left out."""
    _BUILD.mkdir(parents=True, exist_ok=True)
    found: list[tuple[Program, list[str]]] = []
    for program in PROGRAMS:
        if missing := program.missing():
            print(f"  left out: {program.language}, because there is no {' and no '.join(missing)}")
            continue
        try:
            found.append((program, program.build()))
        except CaseFailed as failed:
            print(f"  left out: {program.language}, which cannot be built: {failed}")
    return found


def report(python: Sequence[tuple[Subject, dict[str, int]]], events: int) -> None:
    """Print a table for each case; `python` has how many events each subject gets in each case."""
    built = programs()
    file = _BUILD / "events.jsonl"
    with file.open("wb") as output:
        write_jsonl(kata_events(events), output)
    for case, what in CASES.items():
        rows = [
            _python_row(subject, case, counts[case]) for subject, counts in python if case in counts
        ]
        for program, command in built:
            for pipe in program.pipes:
                words = [*command, pipe.lower().replace(" ", "_"), case, str(file), str(LATER)]
                rows.append(Row(program.language, pipe, partial(printed, words)))
        for _ in range(ROUNDS):
            for row in rows:
                row.measure()
        print(f"  {what}")
        print(f"  {'':<32}{'first':>10}{'by hand':>10}{'warm':>10}{'by hand':>10}")
        print("\n".join(lines(rows)))


def _python_row(subject: Subject, case: str, events: int) -> Row:
    return Row("Python", subject.name, partial(run_case, subject, case, events=events, later=LATER))
