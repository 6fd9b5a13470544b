"""How many work orders were open, at every instant: a sweep, and the same in SQL.

    python examples/open_orders.py [rows]

The orders are invented, but the last three periods have the published counts: 394, 210 and 138.
They are counted by `sequenced`, by `count_over_time` as a stream, and by a sequenced
query in SQL on SQLite: end points, elementary spans, the rows that cover each, their count, and
adjacent periods of one count joined.

Source: D. Souflis, "What was the number of X during that month?" (2013), on the table WorkOrder of
AdventureWorks, where the query took more than half a minute on 72,591 rows.
"""

from __future__ import annotations

import random
import sqlite3
import sys
from collections.abc import Callable
from datetime import date, timedelta
from time import process_time
from typing import TypeVar

from penstock import collect, count_over_time, from_iterable, run
from penstock.streams.temporal import Period, sequenced

T = TypeVar("T")

# The published counts follow from how many of the last orders end on each day.
FIRST, LAST = date(2001, 7, 4), date(2004, 7, 13)
ENDING = {date(2004, 7, 14): 184, date(2004, 7, 16): 72, date(2004, 7, 18): 138}

SEQUENCED_QUERY = """
with point (at) as (
  select start_date from work_order
  union select coalesce(end_date, '3000-01-01') from work_order
), span (lo, hi) as (
  select a.at, min(b.at) from point a join point b on a.at < b.at group by a.at
), state (lo, hi, n) as (
  select lo, hi, count(*) from span
  join work_order on start_date <= lo and hi <= coalesce(end_date, '3000-01-01')
  group by lo, hi
)
select first.lo, min(last.hi), first.n
from state first join state last on first.lo <= last.lo and first.n = last.n
where not exists (select * from state where hi = first.lo and n = first.n)
  and not exists (select * from state where lo = last.hi and n = last.n)
group by first.lo, first.n
order by first.lo
"""
PLAIN_QUERY = """
select count(*) from work_order
where not (coalesce(end_date, '3000-01-01') <= :begin or start_date >= :end)
"""


def orders(rows: int) -> list[tuple[str, str]]:
    """(start, end) of invented orders, in order of their starts."""
    dice = random.Random(1)
    made = [(LAST, end) for end, number in ENDING.items() for _ in range(number)]
    for _ in range(rows - len(made)):
        start = FIRST + timedelta(dice.randrange((LAST - FIRST).days))
        made.append((start, min(LAST, start + timedelta(dice.randint(1, 14)))))
    return sorted((start.isoformat(), end.isoformat()) for start, end in made)


def timed(function: Callable[[], T], times: int = 1) -> tuple[T, float]:
    """The result of `function`, and the CPU seconds of its quickest run."""
    took: list[float] = []
    for _ in range(times):
        before = process_time()
        result = function()
        took.append(process_time() - before)
    return result, min(took)


def table_of(work_orders: list[tuple[str, str]]) -> sqlite3.Connection:
    """A database in memory with the rows."""
    database = sqlite3.connect(":memory:")
    database.execute("create table work_order (start_date text, end_date text)")
    database.executemany("insert into work_order values (?, ?)", work_orders)
    return database


def main(rows: int = 5_000) -> None:
    work_orders = orders(rows)
    database = table_of(work_orders)
    swept, quick = timed(lambda: sequenced(work_orders, begin=0, end=1), times=9)
    asked, slow = timed(lambda: database.execute(SEQUENCED_QUERY).fetchall())
    live: list[Period] = []
    run(
        from_iterable(work_orders)
        .pipe(count_over_time(begin=0, end=1, lateness=0))
        .to(collect(live))
    )
    same = [(one.begin.isoformat(), one.end.isoformat(), one.value) for one in swept] == asked

    for period in swept[-3:]:
        ends = {"begin": period.begin.isoformat(), "end": period.end.isoformat()}
        (plain,) = database.execute(PLAIN_QUERY, ends).fetchone()
        print(f"{period.begin} to {period.end}: {period.value} open, {plain} by a plain query")
    print(f"the stream agrees: {live == swept}, and so does the sequenced query: {same}")
    print(f"{rows:,} rows: {quick:.3f} s, in SQL {slow:.3f} s, {slow / quick:,.0f} times as long")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
