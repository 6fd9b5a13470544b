"""``python -m benchmarks.matrix [word …]``: the rows whose names have all these words, or all."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks.matrix.each import KEYS, RUNNING_KEYS
from benchmarks.matrix.rows import ROWS
from benchmarks.measure import ROOT

__all__ = ["table"]

HEADING = (
    f"{'':<36}{'at once':>8}{'by hand':>9}{'Fixed':>8}{'ours':>8}{'ratio':>8}{'to Fixed':>10}"
    f"{'calls':>8}"
)


def table(words: list[str], rounds: int) -> None:
    """Print a line per row: CPU microseconds per event, ratios, Python calls per event."""
    print(HEADING)
    for number, row in enumerate(ROWS):
        if not all(word in row.name for word in words):
            continue
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.matrix.run", f"{number}", "--rounds", f"{rounds}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            print(f"{row.name:<36} - {last[-1]}", flush=True)
            continue
        figures = json.loads(done.stdout)
        print(
            f"{row.name:<36}{figures['at once']:>8.0f}{figures['by hand']:>9.2f}"
            f"{figures['fixed']:>8.2f}{figures['ours']:>8.2f}{figures['ratio']:>6.2f} x"
            f"{figures['to fixed']:>8.2f} x{figures['calls']:>8.1f}",
            flush=True,
        )


def each(operator: str, numbers: tuple[int, ...], rounds: int, *options: str) -> None:
    """A line for each number of keys, counted by an operator inside groups."""
    for keys in numbers:
        command = "-m", "benchmarks.matrix.each", f"{keys}", "--rounds", f"{rounds}", *options
        done = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        figures = json.loads(done.stdout)
        print(
            f"{f'each={operator}, {keys:,} keys':<36}{'':>8}{figures['by hand']:>9.2f}{'':>8}"
            f"{figures['ours']:>8.2f}{figures['ratio']:>6.2f} x",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.matrix", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="word")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    table(chosen.words, chosen.rounds)
    if all(word in "each=count, keys" for word in chosen.words):
        each("count", KEYS, chosen.rounds)
    if all(word in "each=scan, keys" for word in chosen.words):
        each("scan", RUNNING_KEYS, chosen.rounds, "--running")


if __name__ == "__main__":
    main()
