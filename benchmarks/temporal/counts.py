"""Counts over time: of a million intervals, nearly all of whose ends differ, and beside SQL."""

from __future__ import annotations

import random
from decimal import Decimal
from time import process_time

from examples.open_orders import SEQUENCED_QUERY, orders, table_of, timed
from penstock.streams.temporal import sequenced
from penstock.streams.temporal.periods.tallies import Aggregate

__all__ = ["beside_sql", "count_a_million"]

# As many as the author of the query had, which take SQLite several seconds.
ORDERS = 72_591


def count_a_million() -> list[tuple[str, float, int]]:
    """The task, the seconds of a core it took, and how many it may take at most."""
    dice = random.Random(1)
    begins = [dice.random() * 1e6 for _ in range(1_000_000)]
    rows = [
        (begin, begin + dice.random() * 100, dice.randrange(100), dice.random() * 100)
        for begin in begins
    ]
    prices = [(*row, Decimal(row[2] * 100 + int(row[3])) / 100) for row in rows]
    tasks: list[tuple[str, Aggregate, int | None, int]] = [
        ("count", "count", None, 3),
        ("sum of whole numbers", "sum", 2, 3),
        ("sum of floats", "sum", 3, 3),
        ("average of floats", "avg", 3, 4),
        ("sum of decimals", "sum", 4, 5),
        ("max", "max", 3, 3),
    ]
    told: list[tuple[str, float, int]] = []
    for name, aggregate, of, most in tasks:
        table = prices if of == 4 else rows
        before = process_time()
        periods = sequenced(table, aggregate, begin=0, end=1, of=of)
        took = process_time() - before
        told.append((f"{name} of {len(rows):,} intervals in {len(periods):,} periods", took, most))
    return told


def beside_sql() -> tuple[str, float]:
    """The task, and how many times as long the published query takes; at least 100."""
    work_orders = orders(ORDERS)
    database = table_of(work_orders)
    _, quick = timed(lambda: sequenced(work_orders, begin=0, end=1), times=9)
    _, slow = timed(lambda: database.execute(SEQUENCED_QUERY).fetchall())
    return f"count {ORDERS:,} orders: {quick:.3f} s, in SQL on SQLite {slow:.3f} s", slow / quick
