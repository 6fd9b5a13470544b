"""The figure ``table``: rows per second of each, and our ratio to the peers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from benchmarks.measure import ROOT, Subject, alternate, run_case
from tests.helpers.servers.postgres import Postgres

__all__ = ["table"]

ROWS = 20_000
# The peers take much longer per row.
PEERS_ROWS = 2_000
POLLERS = 4
POLLED_ROWS = 100_000
LEFT_ROWS = 20_000
# Single runs differ by more than the ratio differs from 1.
ROUNDS = 5

OURS = "benchmarks.table.ours"
PRIORITY = "benchmarks.table.on_priority"
CASES = {"plain": 20_000, "keyed": 10_000, "results": 0}
PEERS = {
    "postgresql": (Subject("procrastinate", "benchmarks.table.on_procrastinate", 3),),
    "sqlite": (
        Subject("litequeue", "benchmarks.table.on_litequeue", 3),
        Subject("huey", "benchmarks.table.on_huey", 3),
    ),
}


def table() -> None:
    """7. a table as a queue, rows/s: 20,000 (keyed 10,000), and 3 x the peers or more"""
    print(table.__doc__)
    for kind in PEERS:
        with _database(kind) as empty:
            _claim_work_finish(kind, empty)
            _pollers(kind, empty)
            _left(kind, empty)
            _ranked(kind, empty)


@contextmanager
def _database(kind: str) -> Iterator[Callable[[], None]]:
    """A database, whose URL every process gets; the function empties it."""
    if kind == "postgresql":
        server = Postgres()
        os.environ["BENCHMARK_DATABASE"] = server.url

        def empty() -> None:
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute("DROP SCHEMA public CASCADE")
                connection.execute("CREATE SCHEMA public")

        try:
            yield empty
        finally:
            server.stop()
        return
    with tempfile.TemporaryDirectory() as folder:

        def renew() -> None:
            for file in Path(folder).iterdir():
                file.unlink()
            os.environ["BENCHMARK_DATABASE"] = f"sqlite:///{folder}/work.db"

        yield renew


def _claim_work_finish(kind: str, empty: Callable[[], None]) -> None:
    subjects = [Subject(case, OURS, 3) for case in CASES] + list(PEERS[kind])

    def run(who: Subject) -> dict[str, Any]:
        empty()
        ours = who.module == OURS
        return run_case(who, who.name if ours else "plain", events=ROWS if ours else PEERS_ROWS)

    yardstick = 0.0
    for runs in alternate(subjects, run):
        name = runs.subject.name
        if runs.failure:
            print(f"  {kind:<12}{name:<16} - {runs.failure}")
            continue
        rates = [result["events"] / result["wall_seconds"] for result in runs.results]
        rate = median(rates)
        yardstick = yardstick or rate
        wanted = CASES.get(name, 0)
        note = f"wanted {wanted:,}" if wanted else ""
        if runs.subject.module != OURS:
            note = f"penstock is {yardstick / rate:.1f} x as fast"
        spread = f"{min(rates):,.0f}-{max(rates):,.0f}"
        print(f"  {kind:<12}{name:<16}{rate:>10,.0f}/s {spread:>18}   {note}")


def _pollers(kind: str, empty: Callable[[], None]) -> None:
    """One poller and several of the same queue, alternately: none gets a row twice."""
    ones, several = [], []
    for _ in range(ROUNDS):
        ones.append(_polled(1, empty))
        several.append(_polled(POLLERS, empty))
    ratios = [many / one for one, many in zip(ones, several, strict=True)]
    print(
        f"  {kind:<12}{f'{POLLERS} processes':<16}{median(several):>10,.0f}/s "
        f"{'each row once':>18}   {median(ratios):.2f} x one process "
        f"({min(ratios):.2f}-{max(ratios):.2f})"
    )


def _left(kind: str, empty: Callable[[], None]) -> None:
    """How long rows wait without and beside a slow key, whose rows are left in the table."""
    for count in (0, LEFT_ROWS):
        empty()
        found = run_case(Subject("left", OURS, 1), "left", events=count, rate=100, seconds=20)
        times = found["milliseconds"]
        half, most = (times[int(len(times) * part)] for part in (0.5, 0.99))
        name = f"{count:,} rows left"
        print(f"  {kind:<12}{name:<16}   others wait {half:,.0f} ms, p99 {most:,.0f} ms")


def _ranked(kind: str, empty: Callable[[], None]) -> None:
    """Rows per second that claims take of a million that wait, with priorities and without."""
    rates: dict[str, list[float]] = {"none": [], "one priority": [], "ten priorities": []}
    for _ in range(3):
        for case, found in rates.items():
            empty()
            result = run_case(Subject(case, PRIORITY, 1), case, events=0)
            found.append(result["events"] / result["wall_seconds"])
    for case in ("one priority", "ten priorities"):
        rate, found = median(rates[case]), rates[case]
        # The best of each, since other programs only add to the time.
        ratio = max(found) / max(rates["none"])
        print(
            f"  {kind:<12}{case:<16}{rate:>10,.0f}/s {f'{min(found):,.0f}-{max(found):,.0f}':>18}"
            f"   {ratio:.2f} x without, wanted 0.8"
        )


def _polled(count: int, empty: Callable[[], None]) -> float:
    """Rows per second that a number of pollers finish of a queue that was full."""
    empty()
    run_case(Subject("fill", OURS, 1), "fill", events=POLLED_ROWS)
    command = [sys.executable, "-m", OURS, "poll"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    polls = [subprocess.Popen(command, cwd=ROOT, text=True, **pipes) for _ in range(count)]
    for poll in polls:
        assert poll.stdout is not None
        poll.stdout.readline()
    for poll in polls:
        assert poll.stdin is not None
        poll.stdin.write("\n")
        poll.stdin.flush()
    results = [json.loads(poll.communicate()[0]) for poll in polls]
    assert sum(result["finished"] for result in results) == POLLED_ROWS, results
    worked = [result for result in results if result["finished"]]
    begin = min(result["started"] for result in worked)
    return POLLED_ROWS / (max(result["ended"] for result in worked) - begin)
