"""Counts over time: of a million intervals, nearly all of whose ends differ, and beside SQL."""

from __future__ import annotations

import random
from time import process_time

from examples.open_orders import SEQUENCED_QUERY, orders, table_of, timed
from penstock.streams.temporal import sequenced
from penstock.streams.temporal.periods.tallies import Aggregate

__all__ = ["beside_sql", "count_a_million"]

# As many as the author of the query had, which take SQLite several seconds.
ORDERS = 72_591


def count_a_million() -> list[tuple[str, float]]:
    """The task, and the seconds it took; at most 3."""
    dice = random.Random(1)
    begins = [dice.random() * 1e6 for _ in range(1_000_000)]
    rows = [
        (begin, begin + dice.random() * 100, dice.randrange(100), dice.random() * 100)
        for begin in begins
    ]
    tasks: list[tuple[str, Aggregate, int | None]] = [
        ("count", "count", None),
        ("sum of whole numbers", "sum", 2),
        ("sum of floats", "sum", 3),
        ("max", "max", 3),
    ]
    told: list[tuple[str, float]] = []
    for name, aggregate, of in tasks:
        before = process_time()
        periods = sequenced(rows, aggregate, begin=0, end=1, of=of)
        took = process_time() - before
        told.append((f"{name} of {len(rows):,} intervals in {len(periods):,} periods", took))
    return told


def beside_sql() -> tuple[str, float]:
    """The task, and how many times as long the published query takes; at least 100."""
    work_orders = orders(ORDERS)
    database = table_of(work_orders)
    _, quick = timed(lambda: sequenced(work_orders, begin=0, end=1), times=9)
    _, slow = timed(lambda: database.execute(SEQUENCED_QUERY).fetchall())
    return f"count {ORDERS:,} orders: {quick:.3f} s, in SQL on SQLite {slow:.3f} s", slow / quick
