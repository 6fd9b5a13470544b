"""Describe a table that a stream keeps up to date, for `lookup`: the rows of each key.

Items:   a `Table`, not a stream. A row is valid from its time until that of the next row of
         its key. One that comes late is valid from the watermark at which it came. A row whose key
         is None is in no table.
Time:    by the times of the rows, which an `event_time` in front gives, or `time`. With
         `whole=True` the newest row that has come, without times.
Memory:  the newest row of each key, and those that were replaced as long as an event may need them:
         until the watermark is `keep` seconds past the time of the next.
Demand:  none of its own: `lookup` reads the stream, up to 64 rows ahead, or 1,000 with
         `whole=True`.
Ends:    with the run; with a `store` the rows are there in the next one.
Errors:  BuildError when it is made, for wrong options, rows without times, and with `whole=True` a
         source that does not say which rows were there at the start. What is wrong with a
         row is an error of the `lookup`.

    prices, by time         --1a----------5b--|
    events, by time         ------2x---4y----6z--|
    lookup(table(prices))   --------------(24)-6--|     (x, a), (y, a), (z, b)
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar, cast

from reactivex import Observable

from penstock.streams.base.ahead import MAX_AHEAD
from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By, Key
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import seconds_in
from penstock.streams.event_time.above import times_for, with_times
from penstock.streams.event_time.timed_by import require_one_stream, timed_by
from penstock.streams.joins.table import Table
from penstock.streams.joins.whole import require_whole
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
    whole: bool = False,
) -> Table[T]:
    """A table of the rows of a stream by their key `by` (a name, an index or a function).

    Each row is valid from its time on until that of the next of its key. The times are those which
    an `event_time` in front gives, or those in the field `time`, which is short for one at the end
    of the stream, with `idle=1`: events wait until the table has come as far as they, or has had no
    row for so many seconds although rows were requested. A row that was replaced is kept until the
    watermark is `keep` seconds (or a timedelta) past the time of the next, for late events.

    With a `store` the rows are kept from run to run, as JSON: they must be plain. Each `lookup`
    reads the stream, and keeps the table for itself; two share one reading by `ops.share()`.

    With `whole=True` each process has all rows, also where several share the events: of a
    `read_kafka` it reads all partitions, of a `read_jetstream` all messages, from the first one in
    each run, and commits or acknowledges nothing. Other sources have to end, as a file does. Events
    wait for the rows that were there at the start; then each gets the newest row, at once. The rows
    are in memory. They need no times, and the options `keep`, `time` and `store` are refused.

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
    if not isinstance(cast(object, whole), bool):
        raise BuildError(f"table(whole={whole!r}): give True or False")
    if whole:
        given = {"keep": keep, "time": time, "store": store}
        for option, value in given.items():
            if value is not None:
                raise BuildError(
                    f"table(whole=True, {option}=...): a table that is read whole has the newest "
                    "rows, in memory: leave out one of both"
                )
        require_whole(rows)
        return Table(rows, by, 0.0, None, None, True)
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
