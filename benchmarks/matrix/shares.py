"""One key with most of the events, beside 100 others: what each `overflow` of `group_by` costs.

``python -m benchmarks.matrix.shares``: microseconds of the processor per event, in turn, for events
of three fields and for larger ones; `wait` is the measure of the others.
"""

from __future__ import annotations

import argparse
import logging
from functools import partial
from statistics import median
from typing import Any

import uvloop

from benchmarks.matrix.run import cpu
from penstock import (
    Fixed,
    adaptive_flat_map,
    collect,
    for_each,
    from_iterable,
    group_by,
    route,
    spread,
)

EVENTS = 60_000
SIZES = {"three fields": 0, "2 kB of text": 2000}


def run(events: list[dict[str, Any]], overflow: Any) -> None:
    """Read all events, most of which are of key 0."""

    async def work(event: dict[str, Any]) -> None: ...

    stream = from_iterable(events).pipe(
        group_by("key", share=256, overflow=overflow), spread(), adaptive_flat_map(work, Fixed(64))
    )
    uvloop.run(stream.to(collect([])).run())


def measure(size: int, rounds: int) -> dict[str, list[float]]:
    """Microseconds per event of each policy, by rounds."""
    text = "x" * size
    # Nineteen in twenty are of one key, so that what is over its share leaves the buffer.
    keys = (0 if n % 20 else 1 + n % 100 for n in range(EVENTS))
    events = [{"key": key, "n": n, "text": text + str(n)} for n, key in enumerate(keys)]
    taken: dict[str, list[float]] = {"wait": [], "spill": [], "route": []}
    for _ in range(rounds):
        for name, times in taken.items():
            overflow: Any = route(for_each(lambda letter: None)) if name == "route" else name
            times.append(cpu(partial(run, events, overflow)) * 1e6 / EVENTS)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    # The key is named each time.
    logging.disable(logging.ERROR)
    print(f"{'overflow':<14}{'events':<16}{'us/event':>9}{'to wait':>9}")
    for what, size in SIZES.items():
        taken = measure(size, rounds)
        for name, times in taken.items():
            ratio = median(a / b for a, b in zip(times, taken["wait"], strict=True))
            print(f"{name:<14}{what:<16}{median(times):>9.2f}{ratio:>9.2f}")


if __name__ == "__main__":
    main()
