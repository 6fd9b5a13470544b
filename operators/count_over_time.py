"""Aggregate the rows valid at every instant, and emit each period once no row can change it.

Items:   a `Period` for each stretch of time over which the count, sum, avg, min or max of the rows
         valid over [from, to) stays the same, coalesced, in order of time for each key. An emitted
         period is never corrected: it goes out when its end lies before the watermark. That is the
         one of `event_time` in front; or `lateness` behind the latest beginning; or else, what
         `Watermark` items in the stream say.
Time:    at once, with the item that moves the watermark; behind `event_time` also in silence.
         O(log n) per row.
Memory:  of the last `cache` keys (see Store), and of those with changes that are not committed, the
         end points after the watermark and a number for each row that is open by `id`; for min and
         max a few for each distinct amount of the valid rows. At most 10,000 events wait for a
         commit. Without a store of all keys that have a row (with `include_zero`, ever had one).
Demand:  one more for each row, as it has no result of its own; none while periods wait.
Ends:    with the source. Where the input has ended for good the remaining periods come first; those
         of open rows have no end. A drain leaves them for the next run, which has them only with a
         `store`. With one, a row is done in the commit that writes the counts of its key, and a
         period in the one that takes it away. Without one a row is finished once it is counted, as
         a `drop`: a replay must begin before the oldest valid row.
Errors:  a row that ends where it begins is skipped, and counted as `empty` in the statistics. One
         that ends before it begins, whose ends cannot be compared, that begins before the time of
         its event, or would move the watermark more than `max_ahead` ahead of the wall clock, is an
         error of this stage, which by default ends the pipeline; `on_error="skip"` or `route(sink)`
         go on. A row that begins before the watermark is late: it is not counted but skipped and
         reported, or handled as `late` says.

    source             -a-b-c-w----|     a = [0, 10), b = [2, 5), c = [5, 7), w = Watermark(6)
    count_over_time    -------p----(qr)| p = [0, 2): 1, q = [2, 7): 2, r = [7, 10): 1
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from sys import maxsize
from typing import TYPE_CHECKING, Any, TypeVar, cast

from penstock.streams.base.ahead import MAX_AHEAD, MaxAhead, check_max_ahead
from penstock.streams.base.keys import By, Key, key_name
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import seconds_in
from penstock.streams.execution.handler import called_name
from penstock.streams.failures.policy import OnError, check_policy, routed_by
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, Picture, Placement
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import on_stream
from penstock.streams.state.backend import KeptStage
from penstock.streams.state.held_stage import held_info
from penstock.streams.state.store import Store, check_store

if TYPE_CHECKING:
    from datetime import timedelta

    from penstock.streams.monitoring.counting import CountingStage
    from penstock.streams.temporal.periods.intervals import Period
    from penstock.streams.temporal.periods.tallies import Aggregate

__all__ = ["count_over_time"]

T = TypeVar("T")


@recorded
def count_over_time(
    by: By[T] | None = None,
    aggregate: Aggregate = "count",
    *,
    begin: By[T] = "from",
    end: By[T] = "to",
    of: By[T] | None = None,
    id: By[T] | None = None,
    lateness: float | timedelta | None = None,
    max_ahead: MaxAhead = MAX_AHEAD,
    include_zero: bool = False,
    late: OnError = "skip",
    store: Store | None = None,
    name: str | None = None,
    on_error: OnError = "stop",
) -> Callable[[Flowable[T]], Flowable[Period]]:
    """Aggregate rows that are valid over [begin, end), separately for each key.

    `begin` and `end` are numbers, dates, datetimes or texts in ISO 8601, of one kind for each key;
    an `end` that is None or missing is open. `of` is the amount to sum or compare. With `id` a row
    may come in two parts, which both have its key: one without an end opens it, one without a
    beginning closes it. A part that closes before the watermark is late; its row is counted up to
    the watermark.

    The watermark is that of an `event_time(begin)` in front. `lateness` is a shorthand for one with
    `idle=None`: how many seconds after a row a row that began earlier may still come. With neither,
    only `Watermark` items make periods go out before the end. What moves the watermark, such an
    item or the beginning of a row, may be `max_ahead` seconds ahead of the wall clock, numbers
    being seconds since 1970 and times without a zone of UTC; with None, as far as it likes.

    Without a `store` the counts last as long as the run; `name` identifies the stage in its store,
    and the default is "count_over_time by ...". Raises BuildError for options that do not go
    together, for those that an `event_time` in front has, and inside groups. Source: Snodgrass,
    "Developing Time-Oriented Database Applications in SQL" (1999).

    >>> from penstock import count_over_time, for_each, from_iterable, run
    >>> visits = [{"from": 0, "to": 20}, {"from": 10, "to": 30}]
    >>> periods = from_iterable(visits).pipe(count_over_time())
    >>> report = run(periods.to(for_each(lambda p: print(p.begin, p.end, p.value))))
    0 10 1
    10 20 2
    20 30 1
    """
    # Imported here: it imports much that other pipelines do not need.
    from penstock.streams.event_time.above import with_times
    from penstock.streams.event_time.clock import watermark_behind
    from penstock.streams.event_time.timed_by import timed_by
    from penstock.streams.monitoring.counting import CountingStage
    from penstock.streams.monitoring.object_states import ObjectStates
    from penstock.streams.monitoring.watermarks import timed_by_watermarks
    from penstock.streams.temporal.periods.live_counts import LiveCounts
    from penstock.streams.temporal.periods.reading import Reading
    from penstock.streams.temporal.periods.tallies import tally_maker

    make_tally = tally_maker(aggregate, of is not None, include_zero)
    check_max_ahead("count_over_time", max_ahead)
    check_policy(late, "count_over_time", option="late")
    check_policy(on_error, "count_over_time")
    check_store("count_over_time", store, name)
    key: By[Any] = _all if by is None else by
    Key(key)
    what = "" if by is None else f" by {key_name(by)}"
    shown = f"{aggregate}{'' if of is None else f' of {key_name(of)}'}{what}"
    kept = KeptStage(
        name or f"count_over_time{what}",
        f"{key_name(key)}: {shown} over {key_name(begin)} to {key_name(end)}",
        1,
    )
    read = Reading(begin, end, of, id)

    def first(row: Any) -> Any:
        return read.first(row)

    first.__name__ = first.__qualname__ = key_name(begin)
    own: Callable[[Any], Any] | None = None
    if lateness is not None:
        seconds = seconds_in("count_over_time", lateness=lateness)
        whole = store is None
        own = timed_by(first, seconds, inf, max_ahead, on_error, whole=whole)

    def timed_source(source: Any) -> tuple[Any, list[Any]]:
        options = "lateness= and max_ahead="
        found = with_times("count_over_time", source, own, options)
        if found[1] and (own is not None or max_ahead is MAX_AHEAD):
            return found
        return with_times(
            "count_over_time",
            source,
            lambda source: timed_by_watermarks(source, max_ahead, on_error),
            options,
        )

    def count(source: Any) -> Any:
        source, timed = timed_source(source)
        watermark = watermark_behind(source, timed)

        def make(downstream: Subscriber[Period], run: Run, info: Any) -> CountingStage:
            info.require_no_group(f"count_over_time outside{what and ','}{what}")
            # Without a store nothing may be forgotten.
            kept_in = Store.memory(cache=maxsize) if store is None else store
            commits = kept_in.marks_in(run)
            # Those of the states are called again, and count for nothing.
            counts, again = (LiveCounts(read, make_tally, include_zero) for _ in range(2))
            backend = kept_in.declare(kept)
            states = ObjectStates(info, backend, kept, cast(Any, again), kept_in.cache, run.wall)
            is_stored = store is not None
            clock = partial(watermark, run, info, commits, is_stored)
            options = None, late, on_error, is_stored
            return CountingStage(
                *(downstream, run, info, key, cast(Any, counts), clock, states, commits, *options)
            )

        return source.then(make, info)

    # What is missing of the others is none.
    reads = (by, of, id) if id is not None else (by, begin, of)
    info = held_info(
        "count_over_time",
        shown + ("" if store is None else f", in {store.name}"),
        routed=routed_by(late, on_error),
        delivery=Delivery(absorbs=True) if store is None else Delivery(store=store),
        placement=Placement(by=key, reads=reads),
        picture=Picture(calls=called_name(by, begin, end, of, id)),
        untimed=True,
    )
    return on_stream(count, "count_over_time")


def _all(event: object) -> None:
    """The key where all rows are together."""


_all.__name__ = "all rows"
