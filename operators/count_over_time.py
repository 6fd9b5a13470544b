"""Aggregate the rows valid at every instant, and emit each period once no row can change it.

Items:   a `Period` for each stretch of time over which the count, sum, avg, min or max of the rows
         valid over [from, to) stays the same, coalesced, in order of time for each key. An emitted
         period is never corrected: it goes out when its end lies before the watermark, which
         `Watermark` items move, or `lateness` behind the latest beginning.
Time:    at once, with the item that moves the watermark. No timers. O(log n) per row.
Memory:  the end points after the watermark; a number for each key that has a row (with
         `include_zero`, for each key ever seen) and for each row that is open by `id`; for min and
         max a few for each distinct amount of the valid rows. No events, except those that wait for
         a sink of dead letters.
Demand:  one at a time: the next is requested when all periods of the last have gone.
Ends:    with the source, after the remaining periods; those of open rows have no end. A row is
         finished once it is counted, as a `drop`: the counts are lost with the process, so a replay
         must begin before the oldest valid row.
Errors:  a row that ends where it begins is skipped, and counted as `empty` in the statistics. One
         that ends before it begins, whose ends cannot be compared, or that would move the watermark
         more than `max_ahead` ahead of the wall clock, is an error of this stage, which by default
         ends the pipeline; `on_error="skip"` or `route(sink)` go on. A row that begins before the
         watermark is late: it is not counted but skipped and reported, or handled as `late` says.

    source             -a-b-c-w----|     a = [0, 10), b = [2, 5), c = [5, 7), w = Watermark(6)
    count_over_time    -------p----(qr)| p = [0, 2): 1, q = [2, 7): 2, r = [7, 10): 1
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.streams.base.ahead import MAX_AHEAD, Ahead, MaxAhead, check_max_ahead
from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By, key_name
from penstock.streams.base.validation import is_duration
from penstock.streams.execution.handler import called_name
from penstock.streams.failures.policy import OnError, check_policy, routed_by
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, Picture, Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import on_stream

if TYPE_CHECKING:
    from datetime import timedelta

    from penstock.streams.temporal.periods.intervals import Period
    from penstock.streams.temporal.periods.tallies import Aggregate

__all__ = ["count_over_time"]

T = TypeVar("T")


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
    on_error: OnError = "stop",
) -> Callable[[Flowable[T]], Flowable[Period]]:
    """Aggregate rows that are valid over [begin, end), separately for each key.

    `begin` and `end` are numbers, dates, datetimes or texts in ISO 8601, all of one kind; an `end`
    that is None or missing is open. `of` is the amount to sum or compare. With `id` a row may come
    in two parts: one without an end opens it, one without a beginning closes it. A part that closes
    before the watermark is late; its row is counted up to the watermark. `lateness` is how long
    after a row (in seconds, or the unit of its numbers) a row that began earlier may still come;
    without it, only `Watermark` items make periods go out before the end. What moves the watermark,
    such an item or with `lateness` the beginning of a row, may be `max_ahead` seconds ahead of the
    wall clock, numbers being seconds since 1970 and times without a zone of UTC; with None, as far
    as it likes.

    Raises BuildError for options that do not go together. Source: Snodgrass, "Developing
    Time-Oriented Database Applications in SQL" (1999).
    """
    # Imported here: it imports much that other pipelines do not need.
    from penstock.streams.monitoring.counting import Counting, Reading
    from penstock.streams.temporal.periods.live_counts import LiveCounts
    from penstock.streams.temporal.periods.tallies import tally_maker

    make = tally_maker(aggregate, of is not None, include_zero)
    if lateness is not None and not is_duration(lateness):
        raise BuildError(
            f"count_over_time(lateness={lateness!r}): a number, or a timedelta, that is finite and "
            "cannot be negative is needed"
        )
    check_max_ahead("count_over_time", max_ahead)
    check_policy(late, "count_over_time", option="late")
    check_policy(on_error, "count_over_time")
    detail = f"{aggregate}{'' if of is None else f' of {key_name(of)}'}"
    if by is not None:
        detail += f" by {key_name(by)}"
    read = Reading(by, begin, end, of, id)

    note, routed = "remembers ends of rows", routed_by(late, on_error)
    calls = called_name(by, begin, end, of, id)
    # What is missing of the others is none.
    reads = (by, of, id) if id is not None else (by, begin, of)
    info = StageInfo(
        "count_over_time",
        detail,
        0,
        note,
        routed=routed,
        delivery=Delivery(absorbs=True),
        placement=Placement(reads=reads),
        picture=Picture(calls=calls),
    )

    def count(downstream: Subscriber[Period], run: Run, info: StageInfo) -> Counting:
        counts = LiveCounts(make, include_zero, lateness, Ahead(max_ahead, run.wall))
        return Counting(downstream, run, info, counts, read, late, on_error)

    return on_stream(lambda source: source.then(count, info))
