"""``python -m benchmarks [figure …]``: all figures, or those named, as plain-text tables.

A subject joins by a line in SUBJECTS and a module that follows benchmarks/case.py. The library's
own is benchmarks/ours.py; its pipeline for the whole process is `penstock run` of that same file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from benchmarks.measure import ROOT, CaseFailed, Subject, alternate, run_case, run_whole, table

BY_HAND = Subject("by hand", "benchmarks.by_hand", rounds=9)
IN_CHUNKS = Subject("in chunks", "benchmarks.by_hand_in_chunks", rounds=9)
OURS = Subject(
    "penstock",
    "benchmarks.ours",
    rounds=9,
    whole_process=("-m", "penstock", "run", "benchmarks/ours.py"),
)
AWAITING_PEERS = (
    Subject("reactivex", "benchmarks.peers.on_reactivex", rounds=2),
    Subject("aiostream", "benchmarks.peers.on_aiostream", rounds=2),
)
BYTEWAX = Subject("bytewax", "benchmarks.peers.on_bytewax", rounds=5)
HAS_BYTEWAX = find_spec("bytewax") is not None
PEERS = (BYTEWAX, *AWAITING_PEERS) if HAS_BYTEWAX else AWAITING_PEERS

EVENTS = 200_000
# They take about 25 times as long per event, so they get fewer events.
AWAITING_PEERS_EVENTS = 10_000
OPEN_SECONDS = 4.0
SWEEP_SECONDS = 3.0
SWEEP_STEP = 250
SWEEP = range(3_000, 6_500, SWEEP_STEP)
HELD_P99_MICROSECONDS = 50_000
KEYS = (1_000_000, 10_000_000)
LARGE_EVENTS = (100_000, 1_000_000)


def mine() -> tuple[Subject, ...]:
    return (BY_HAND, OURS) if OURS.exists() else (BY_HAND,)


@cache
def forms() -> tuple[Subject, ...]:
    """By hand, and penstock compiled and pure; only pure where nothing is compiled."""
    names = ("compiled", "pure") if is_compiled() else ("pure",)
    ours = (replace(OURS, name=f"penstock {name}", pure=name == "pure") for name in names)
    return (BY_HAND, *ours) if OURS.exists() else (BY_HAND,)


def is_compiled() -> bool:
    # In a separate process: a child starts with the peak of the parent that forked it.
    asked = "from penstock.streams.base.compiled import form; print(form())"
    done = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, check=True)
    return done.stdout.strip() == b"compiled"


def plain() -> None:
    """1. parsed events in memory, plain handler; compiled at most 1.1 x by hand"""
    everybody = alternate(
        (*forms(), IN_CHUNKS, *PEERS), lambda who: run_case(who, "plain", events=EVENTS)
    )
    print(table(f"{plain.__doc__} ({EVENTS:,} events)", everybody))


def yielding() -> None:
    """2. events in memory, a handler that awaits sleep(0), 64 at once: compiled at most 0.9"""

    def run(who: Subject) -> dict[str, float]:
        events = AWAITING_PEERS_EVENTS if who in AWAITING_PEERS else EVENTS
        return run_case(who, "yielding", events=events)

    everybody = alternate((*forms(), *AWAITING_PEERS), run)
    print(table(f"{yielding.__doc__} ({EVENTS:,} events)", everybody))
    print(f"  reactivex and aiostream: {AWAITING_PEERS_EVENTS:,} events; bytewax cannot await.")


def whole_process() -> None:
    """3. whole process, JSON lines from standard input to standard output; compiled at most 1.28"""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "events.jsonl")
        # In a separate process: a child starts with the peak of the parent that forked it.
        command = [sys.executable, "-m", "benchmarks.workload", "--events", str(EVENTS)]
        with source.open("wb") as lines:
            written = subprocess.run(
                command, cwd=ROOT, stdout=lines, stderr=subprocess.PIPE, check=True
            )
        unique = int(written.stderr.split()[0])
        everybody = alternate(
            (*forms(), IN_CHUNKS, *PEERS), lambda who: run_whole(who, source, EVENTS, unique)
        )
    print(table(f"{whole_process.__doc__} ({EVENTS:,} lines)", everybody))


def open_loop() -> None:
    """4. open loop, handler of 10 ms, 64 at once: waiting at 1,000/s, and the highest rate held"""
    print(open_loop.__doc__)
    print(f"  {'':<18}{'p50 ms':>9}{'p99 ms':>9}{'highest rate with p99 < 50 ms':>32}")
    subjects = [replace(who, rounds=3) for who in forms()]
    for runs in alternate(
        subjects, lambda who: run_case(who, "open_loop", rate=1_000, seconds=OPEN_SECONDS)
    ):
        name, failure = runs.subject.name, runs.failure
        try:
            rate = 0 if failure else highest_rate(runs.subject)
        except CaseFailed as failed:
            failure = str(failed)
        if failure:
            print(f"  {name:<18} - {failure}")
            continue
        p50, p99 = (
            median(run["waiting"][percentile] for run in runs.results) / 1000
            for percentile in ("p50", "p99")
        )
        print(f"  {name:<18}{p50:>9.2f}{p99:>9.2f}{rate:>30,}/s")


def highest_rate(who: Subject) -> int:
    """By bisection, to SWEEP_STEP; 0 if not even the lowest rate is held."""
    low, high = -1, len(SWEEP)
    while high - low > 1:
        middle = (low + high) // 2
        result = run_case(who, "open_loop", rate=SWEEP[middle], seconds=SWEEP_SECONDS)
        if result["waiting"]["p99"] < HELD_P99_MICROSECONDS:
            low = middle
        else:
            high = middle
    return SWEEP[low] if low >= 0 else 0


def fairness() -> None:
    """5. fairness: of 500 events of one client, started before the last of 99 others, at most 4"""
    print(fairness.__doc__)
    for who in mine():
        try:
            print(
                f"  {who.name:<18}{run_case(who, 'fairness')['started_before_the_last_other']:>6}"
            )
        except CaseFailed as failed:
            print(f"  {who.name:<18} - {failed}")


def memory() -> None:
    """6. memory: growth of the peak during the run, in MB; flat means the same in both columns"""
    print(memory.__doc__)
    jobs = (("memory_keys", "different keys", KEYS), ("memory_slow", "1 kB events", LARGE_EVENTS))
    # Two at a time: the load on the machine changes how long they take, not how much they hold.
    with ThreadPoolExecutor(max_workers=2) as pool:
        runs = {
            (case, who, count): pool.submit(growth, who, case, count)
            for case, _, counts in jobs
            for who in mine()
            for count in reversed(counts)
        }
    for case, what, counts in jobs:
        heads = [f"{count:,} {what}" for count in counts]
        print(f"  {'':<18}{''.join(f'{head:>28}' for head in heads)}")
        for who in mine():
            cells = (runs[case, who, count].result() for count in counts)
            print(f"  {who.name:<18}{''.join(f'{cell:>28}' for cell in cells)}")


def matrix() -> None:
    """9. CPU µs and Python calls per event for every handler, limit and option"""
    # In separate processes, as it imports the library.
    from benchmarks.matrix.__main__ import table as figure

    print(matrix.__doc__)
    figure([], rounds=5)


def queue_table() -> None:
    """7. a table of a database as a queue"""
    # It needs the packages of its peers, which the other figures do not.
    from benchmarks.table.figure import table as figure

    figure()


def temporal() -> None:
    """8. monitors, workflow paths and counts over time, next to their bounds"""
    from benchmarks.temporal.figure import table as figure

    print(temporal.__doc__)
    figure()


def live_pages() -> None:
    """10. ten open live pages at 5,000 events/s: less than 1 % of a core; size and first paint"""
    from benchmarks.page import report

    print(live_pages.__doc__)
    report()


def start() -> None:
    """11. start-up: a run of the README's pipeline with three events, at most 1.44 x its imports"""
    from benchmarks.start import report

    print(start.__doc__)
    print(report())


def languages() -> None:
    """12. CPU µs per event in other languages and their libraries, next to by hand in each"""
    from benchmarks.languages import CASES, report

    print(f"{languages.__doc__} ({EVENTS:,} events)")
    all_events = dict.fromkeys(CASES, EVENTS)
    few = {"plain": EVENTS, "yielding": AWAITING_PEERS_EVENTS}
    python = [(who, all_events) for who in forms()]
    python += [(BYTEWAX, {"plain": EVENTS})] if HAS_BYTEWAX else []
    report([*python, *((who, few) for who in AWAITING_PEERS)], EVENTS)
    print(f"  reactivex and aiostream: {AWAITING_PEERS_EVENTS:,} events that yield.")


def state() -> None:
    """a state for each key, in memory and in SQLite, next to by hand"""
    from benchmarks.state import report

    print(report())


def many_keys() -> None:
    """a state for each of many keys, read at random: SQLite next to RocksDB"""
    from benchmarks.many_keys import report

    print(report())


def windows() -> None:
    """windows by event time, in memory and in SQLite, next to by hand"""
    from benchmarks.windows import report

    print(report())


def joins() -> None:
    """joins and look-ups of two streams by event time, in memory and in SQLite, next to by hand"""
    from benchmarks.joins import report

    print(report())


def answers() -> None:
    """answers to callers of an inbox, next to put"""
    from benchmarks.answers import report

    print(report())


def measures() -> None:
    """latencies of events, by key and by stage, and objectives, next to none"""
    from benchmarks.measures import report

    print(report())


def growth(who: Subject, case: str, count: int) -> str:
    try:
        result = run_case(who, case, events=count)
    except CaseFailed as failed:
        return f"- {failed}"
    return f"{(result['peak_rss_kb'] - result['base_rss_kb']) / 1024:.1f}"


FIGURES: dict[str, Callable[[], None]] = {
    "plain": plain,
    "yielding": yielding,
    "jsonl": whole_process,
    "open_loop": open_loop,
    "fairness": fairness,
    "memory": memory,
    "table": queue_table,
    "temporal": temporal,
    "state": state,
    "many_keys": many_keys,
    "windows": windows,
    "joins": joins,
    "answers": answers,
    "measures": measures,
    "matrix": matrix,
    "page": live_pages,
    "start": start,
    "languages": languages,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("figures", nargs="*", metavar="figure", help=", ".join(FIGURES))
    chosen = parser.parse_args().figures or list(FIGURES)
    if unknown := set(chosen) - set(FIGURES):
        parser.error(f"no figure {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    if not OURS.exists():
        print("benchmarks/ours.py is missing: the tables are without penstock itself.\n")
    if not HAS_BYTEWAX:
        print("bytewax is left out: it is not installed, and has no wheel for Python 3.13 on.\n")
    start = time.perf_counter()
    for name in chosen:
        FIGURES[name]()
        print(flush=True)
    print(f"{time.perf_counter() - start:.0f} s, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
