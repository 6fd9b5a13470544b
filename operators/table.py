"""Describe a table that a stream keeps up to date, for `lookup`: the rows of each key.

Items:   a `Table`, not a stream. A row is valid from its time until that of the next row of
         its key. One that comes late is valid from the watermark at which it came. A row whose key
         is None is in no table.
Time:    by the times of the rows, which an `event_time` in front gives, or `time`.
Memory:  the newest row of each key, and those that were replaced as long as an event may need them:
         until the watermark is `keep` seconds past the time of the next.
Demand:  none of its own: `lookup` reads the stream, up to 64 rows ahead.
Ends:    with the run; with a `store` the rows are there in the next one.
Errors:  BuildError when it is made, for wrong options and rows without times. What is wrong with a
         row is an error of the `lookup`.

    prices, by time         --1a----------5b--|
    events, by time         ------2x---4y----6z--|
    lookup(table(prices))   --------------(24)-6--|     (x, a), (y, a), (z, b)
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from reactivex import Observable

from penstock.streams.base.ahead import MAX_AHEAD
from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By, Key
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import seconds_in
from penstock.streams.event_time.above import times_for, with_times
from penstock.streams.event_time.timed_by import require_one_stream, timed_by
from penstock.streams.joins.table import Table
from penstock.streams.rx.combining.inputs import as_stream
from penstock.streams.state.store import Store, check_store

__all__ = ["table"]

T = TypeVar("T")

# Seconds without a row after which a table is not waited for. Chosen: most rows of most tables are
# old, and the events that wait for them are not.
_IDLE = 1.0


@recorded
def table(
    stream: Observable[T],
    by: By[T],
    keep: float | timedelta | None = None,
    *,
    time: By[T] | None = None,
    store: Store | None = None,
) -> Table[T]:
    """A table of the rows of a stream by their key `by` (a name, an index or a function).

    Each row is valid from its time on until that of the next of its key. The times are those which
    an `event_time` in front gives, or those in the field `time`, which is short for one at the end
    of the stream, with `idle=1`: events wait until the table has come as far as they, or has had no
    row for so many seconds although rows were requested. A row that was replaced is kept until the
    watermark is `keep` seconds (or a timedelta) past the time of the next, for late events.

    With a `store` the rows are kept from run to run, as JSON: they must be plain. Each `lookup`
    reads the stream, and keeps the table for itself; two share one reading by `ops.share()`.

    >>> from penstock import event_time, for_each, from_iterable, lookup, run, table
    >>> rows = from_iterable([{"user": "ann", "at": 0, "plan": "free"}])
    >>> plans = table(rows, by="user", time="at")
    >>> clicks = from_iterable([{"user": "ann", "at": 5}, {"user": "bob", "at": 6}])
    >>> found = clicks.pipe(event_time("at"), lookup(plans, by="user"))
    >>> report = run(found.to(for_each(lambda pair: print(pair[0]["user"], pair[1]))))
    ann {'user': 'ann', 'at': 0, 'plan': 'free'}
    bob None
    """
    rows: Any = as_stream("table", stream)
    Key(by)
    seconds = 0.0 if keep is None else seconds_in("table", keep=keep)
    check_store("table", store, None)
    own = None if time is None else timed_by(time, 0.0, _IDLE, MAX_AHEAD, "stop")
    if own is not None:
        require_one_stream("table(time=)", rows)
    rows, timed = with_times("table", rows, own, "time=")
    if not timed:
        raise BuildError(
            "table(...) needs the times from which its rows are valid: "
            f"{times_for(rows, ' of its stream')}, or give time=field"
        )
    return Table(rows, by, seconds, timed, store)
