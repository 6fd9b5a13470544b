"""The stream kata: seeded load, a model handler, an observer, and the article's variants.

About 1,000 events per second, each for one of 100 clients, 10 ms of work each; one event of a
client at a time, in order; duplicates of a uuid within ten seconds dropped.

A pipeline of one's own takes part by making an `Observer`, iterating `live(load, observer)`,
reporting each event's way to the observer, and returning its `measured(name)`.

Source: T. Nurkiewicz, "Small scale stream processing kata. Part 1: thread pools" (2016).
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.command.kata.load.events import DUPLICATE_WINDOW, FIRST_CLIENT, Event, Load
from penstock.command.kata.load.feed import Arrivals, feed, live
from penstock.command.kata.load.work import Work
from penstock.command.kata.observe import Measured, Observer
from penstock.command.kata.report.table import table
from penstock.command.kata.solutions.variants import VARIANTS, run_variant

__all__ = [
    "DUPLICATE_WINDOW",
    "FIRST_CLIENT",
    "VARIANTS",
    "Arrivals",
    "Event",
    "Load",
    "Measured",
    "Observer",
    "Work",
    "feed",
    "kata",
    "live",
    "run_variant",
    "table",
]


def kata(
    rate: float = 1000,
    clients: int = 100,
    duplicates: float = 0.01,
    seconds: float = 10,
    handler_ms: float = 10,
    sigma_ms: float = 1,
    seed: int = 1,
    variants: Sequence[str] = VARIANTS,
    pool: int | None = None,
) -> list[Measured]:
    """Run the named variants one after another on the same load, and measure each.

    `pool` is the number of threads in each pool, if not the article's.
    Takes `seconds` and a little more per variant and blocks the calling thread. Raises
    ValueError for a value out of range or an unknown variant, before anything runs.
    """
    unknown = [name for name in variants if name not in VARIANTS]
    if unknown:
        raise ValueError(f"unknown variants: {unknown}; there are {', '.join(VARIANTS)}")
    load = Load(rate, clients, duplicates, seconds, seed)
    work = Work(handler_ms / 1000, sigma_ms / 1000)
    return [run_variant(name, load, work.block, pool=pool) for name in variants]
