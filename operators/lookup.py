"""Pair each event with the row of a table that was valid when the event happened.

Items:   `(event, row)`, one for each event: with the row of its key in the `table` that was valid
         at its time, or `(event, None)` if there was none. In the order of times, but for those
         that wait for a row; without times, with the newest row and in order.
Time:    when the watermark of both streams has passed the time of the event: then all rows up to it
         have come. Without a row by then it waits up to `wait` seconds of event time for one that
         comes late. Silence moves the watermark, and a silent table is not waited for. Without
         times at once.
Memory:  the table (see there), and the events that wait: those of the last `cache` keys (see
         Store), and of keys with changes that are not committed. Without a store all of them. 64
         events and 64 rows wait in front.
Demand:  reads both streams whether or not something of the other comes, up to 64 of each ahead, and
         takes rows first; with times, what is ahead of the other is not requested until that has
         come as far. None while 10,000 events wait for a commit, or results for demand.
Ends:    when both streams have ended. Where the input has ended for good, events that wait leave
         first; a drain leaves them for the next run, which has them only with a store of the table.
         Cancel cancels both streams.
Errors:  a late event, whose time was passed by more than the `keep` of the table when it was
         emitted, is skipped and reported, or handled as `late` says. A missing or unhashable key,
         what has no time and, with a store, what JSON does not keep as it is are errors of this
         stage, of events and of rows alike; by default they end the pipeline, `on_error="skip"` or
         `route(sink)` go on. The first error of a stream ends it, and the other is cancelled.

    table, by time          --1a----------5b--|
    events, by time         ------2x---4y----6z--|
    lookup(table, key)      --------------(24)-6--|     (x, a), (y, a), (z, b)

An event is done when it is kept, and with a store in the commit that writes it; its result is
committed when all sinks have accepted it. See docs/how-to/joins.md.

With `whole=True` the table has all its rows in memory, and events are in order, each with the
newest row. None is requested before the rows of the start have come; a drain that comes earlier
leaves all to the next run. It ends when the events have ended: then the table is read no more.

What an event finds in a `database_table`, and when, is described there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from sys import maxsize
from typing import Any, TypeVar, cast, overload

from penstock.streams.base.ahead import MAX_AHEAD
from penstock.streams.base.errors import BuildError, describe
from penstock.streams.base.keys import By, Key, key_name
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import seconds_in
from penstock.streams.event_time.above import times_for, with_times
from penstock.streams.event_time.clock import watermark_behind
from penstock.streams.event_time.timed_by import IDLE, require_one_stream, timed_by
from penstock.streams.execution.handler import called_name
from penstock.streams.failures.policy import OnError, check_policy, routed_by
from penstock.streams.joins.database_table import DatabaseTable
from penstock.streams.joins.lookup_stage import LookupStage
from penstock.streams.joins.sides import MergedSides, TableFirst
from penstock.streams.joins.table import Table
from penstock.streams.joins.versions import VersionedRows
from penstock.streams.joins.whole import as_read_whole
from penstock.streams.joins.whole_stage import ROWS_AHEAD, WholeStage
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, Picture, Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.several import several
from penstock.streams.rx.lift import on_stream
from penstock.streams.stages.stream import Stream
from penstock.streams.state.backend import KeptStage
from penstock.streams.state.held_stage import held_info
from penstock.streams.state.store import Store, check_store
from penstock.streams.windows.states import WindowStates

__all__ = ["lookup"]

T = TypeVar("T")
U = TypeVar("U")


@overload
def lookup(
    table: Table[U],
    by: By[T],
    *,
    as_of: By[T] | None = None,
    wait: float | timedelta = 0.0,
    late: OnError = "skip",
    name: str | None = None,
    on_error: OnError = "stop",
) -> Callable[[Flowable[T]], Flowable[tuple[T, U | None]]]: ...


@overload
def lookup(
    table: DatabaseTable, by: By[T], *, on_error: OnError = "stop"
) -> Callable[[Flowable[T]], Flowable[tuple[T, dict[str, Any] | None]]]: ...


@recorded
def lookup(
    table: Table[Any] | DatabaseTable,
    by: By[Any],
    *,
    as_of: By[Any] | None = None,
    wait: float | timedelta = 0.0,
    late: OnError = "skip",
    name: str | None = None,
    on_error: OnError = "stop",
) -> Callable[[Flowable[Any]], Flowable[tuple[Any, Any]]]:
    """Pair each event with the row of a `table` that has its key `by` (a name, an index or a
    function) and was valid at its time.

    That is the time which an `event_time` in front gives it, or the one in the field `as_of`, which
    is short for one directly in front. So what an event finds does not depend on which stream is
    read faster. With neither of them each event gets the newest row there is, at once.

    An event for which there is no row waits up to `wait` seconds of event time (or a timedelta) for
    one that comes late. An event with the key None has no row. `late` says what becomes of one that
    comes when rows of its time may be gone: see `keep` of the table.

    The table's `store` keeps the events that wait, too: they must be plain as its rows are. `name`
    identifies the stage there; the default is "lookup by ...". Results have no times of their own.
    Raises BuildError for wrong options.

    In a `table` with `whole=True` each event finds the newest row of its key, once those that were
    there at the start have come; in a `database_table`, the row as it is now. The other options but
    `on_error` are for tables whose rows have times.

    >>> from penstock import event_time, for_each, from_iterable, lookup, run, table
    >>> rows = from_iterable([{"user": "ann", "at": 0, "plan": "free"}])
    >>> plans = table(rows, by="user", time="at")
    >>> clicks = from_iterable([{"user": "ann", "at": 5}, {"user": "bob", "at": 6}])
    >>> found = clicks.pipe(event_time("at"), lookup(plans, by="user"))
    >>> report = run(found.to(for_each(lambda pair: print(pair[0]["user"], pair[1]))))
    ann {'user': 'ann', 'at': 0, 'plan': 'free'}
    bob None
    """
    Key(by)
    check_policy(on_error, "lookup")
    is_whole = isinstance(cast(object, table), Table) and cast(Table[Any], table).whole
    if is_whole or isinstance(table, DatabaseTable):
        what = "table(whole=True)" if is_whole else "database_table"
        given = {"as_of": as_of is not None, "wait": wait != 0, "late": late != "skip"}
        for option, is_given in {**given, "name": name is not None}.items():
            if is_given:
                raise BuildError(
                    f"lookup({option}=...) is for tables of streams whose rows have times: a "
                    f"{what} has the rows as they are now, and no state"
                )
        if isinstance(table, DatabaseTable):
            return _in_database(table, by, on_error)
        return _in_whole(table, by, on_error)
    if not isinstance(cast(object, table), Table):
        raise BuildError(
            f"lookup({describe(table, 80)}): give a table(stream, by), whose rows have times, or a "
            "database_table(url, table, by, ttl=)"
        )
    seconds = seconds_in("lookup", wait=wait)
    store: Store | None = table.store
    check_store("lookup", store, name)
    check_policy(late, "lookup", option="late")
    times = (
        None if as_of is None else timed_by(as_of, 0.0, IDLE, MAX_AHEAD, on_error, option="as_of")
    )
    keys = key_name(by), key_name(table.by)
    what = f"by {keys[0]}" + ("" if keys[0] == keys[1] else f" in {keys[1]}")
    kept = KeptStage(name or f"lookup by {keys[0]}", what, 1)
    info = held_info(
        "lookup",
        what
        + (f", waits {seconds:g} s" if seconds else "")
        + ("" if store is None else f", in {store.name}"),
        routed=routed_by(late, on_error),
        placement=Placement(by=by, reads=(by,)),
        delivery=Delivery(store="memory" if store is None else store),
        picture=Picture(calls=called_name(by)),
        untimed=True,
        merges=True,
    )

    def read(source: Any) -> Any:
        for stream in (*source.chain(), *table.stream.chain()):
            stream.info.require_no_group(f"lookup outside, by {key_name(by)}")
        if times is not None:
            require_one_stream("lookup(as_of=)", source)
        source, timed = with_times("lookup", source, times, "as_of=")
        if seconds and not timed:
            raise BuildError(
                f"lookup({wait=}) waits in the time of events: {times_for(source)}, or give "
                "as_of=field"
            )
        is_timed = bool(timed)
        timed = list(dict.fromkeys([*timed, *table.timed]))

        def make(
            downstream: Subscriber[Any],
            run: Run,
            info: StageInfo,
            *,
            streams: Sequence[Stream[Any]],
            prefetch: int,
        ) -> MergedSides:
            # Without a store nothing may be forgotten.
            own = Store.memory(cache=maxsize) if store is None else store
            commits = own.marks_in(run)
            rows: Any = VersionedRows(seconds, table.keep, now=not is_timed)
            states = WindowStates(*(info, own.declare(kept), kept, rows, own.cache, run.wall))
            is_stored = store is not None
            watermark = watermark_behind(source, timed, table.stream)
            clock = partial(watermark, run, info, commits, is_stored)
            bys = by, table.by
            options = states, commits, late, on_error, is_stored, is_timed
            stage = LookupStage(downstream, run, info, bys, rows, clock, *options)
            return TableFirst(stage, run, info, streams, prefetch)

        return several(source, [table.stream], make, info)

    return on_stream(read, "lookup")


def _in_whole(
    table: Table[Any], by: By[Any], on_error: OnError
) -> Callable[[Flowable[Any]], Flowable[tuple[Any, Any]]]:
    keys = key_name(by), key_name(table.by)
    info = StageInfo(
        "lookup",
        f"by {keys[0]}" + ("" if keys[0] == keys[1] else f" in {keys[1]}") + ", the whole table",
        ROWS_AHEAD,
        "the newest row of each key is in memory",
        routed=routed_by(on_error),
        placement=Placement(by=by, reads=(by,)),
        picture=Picture(calls=called_name(by)),
        delivery=Delivery(absorbs_inputs=True),
        untimed=True,
        inputs=(as_read_whole(table.stream),),
    )
    reading = table.stream.chain()[0].info.delivery.whole

    def read(source: Any) -> Any:
        for stream in (*source.chain(), *table.stream.chain()):
            stream.info.require_no_group(f"lookup outside, by {keys[0]}")

        def make(
            downstream: Subscriber[Any],
            run: Run,
            info: StageInfo,
            *,
            streams: Sequence[Stream[Any]],
            prefetch: int,
        ) -> WholeStage:
            options = downstream, run, info, (by, table.by), on_error, reading
            return WholeStage(*options, streams=streams, prefetch=prefetch)

        return several(source, [table.stream], make, info)

    return on_stream(read, "lookup")


def _in_database(
    table: DatabaseTable, by: By[Any], on_error: OnError
) -> Callable[[Flowable[Any]], Flowable[tuple[Any, Any]]]:
    # Imported here: most pipelines read or write no database.
    from penstock.streams.joins.database_stage import MOST_WAITING, DatabaseStage

    key = key_name(by)
    info = StageInfo(
        "lookup",
        (f"by {key}" if key == table.by else f"by {key} in {table.by}") + f" of {table.name}",
        MOST_WAITING,
        f"keeps {table.cache:,} rows for {table.ttl:g} s",
        routed=routed_by(on_error),
        placement=Placement(by=by, reads=(by,)),
        picture=Picture(calls=called_name(by)),
    )

    def read(source: Any) -> Any:
        for stream in source.chain():
            stream.info.require_no_group(f"lookup outside, by {key}")

        def make(downstream: Subscriber[Any], run: Run, info: StageInfo) -> DatabaseStage:
            return DatabaseStage(downstream, run, info, by, table, on_error)

        return source.then(make, info)

    return on_stream(read, "lookup")
