"""Pair the events of two streams that have one key and happened within some seconds of each other.

Items:   `(left, right)` for each pair, when the second of the two comes. With `how="left"` also
         `(left, None)` for each event of this stream without a partner, with `how="outer"` besides
         `(None, right)`. The pairs of one event are in the order of their partners' times.
Time:    by the times that `event_time` gave the events. What has no partner leaves when the
         watermark has passed its time by `within`, in the order of times; silence moves that too.
         A result has the lesser time of its events, and the watermark below is `within` less.
Memory:  the events of both streams for `within` seconds of event time, for as long as they are
         ahead of the watermark besides: those of the last `cache` keys (see Store), and of keys
         with changes that are not committed. Without a store all of them. An event of a key with n
         such partners makes n pairs, which wait for demand. 64 events of each stream wait in front.
Demand:  reads both streams whether or not events of the other come, up to 64 of each ahead; one
         that is ahead of the other in event time is not requested until that has come as far. None
         while 10,000 events wait for a commit, or results for demand.
Ends:    when both streams have ended. Where the input has ended for good all events leave first; a
         drain leaves them for the next run, which has them only with a `store`. Cancel cancels
         both streams.
Errors:  a late event, whose time was passed by more than `within` when it was emitted, is skipped
         and reported, or handled as `late` says. A missing or unhashable key, an event without a
         time and, with a store, one that JSON does not keep as it is are errors of this stage,
         which by default end the pipeline; `on_error="skip"` or `route(sink)` go on. The first
         error of a stream ends it, and the other stream is cancelled.

    left, by time                             --1a----------4b-------------|
    right, by time                            ------2a-----------------9c--|
    join(right, key, within=3, how="left")    ------(1a, 2a)-----------(4b, None)--|

An event is done when it is kept, and with a store in the commit that writes it; a pair with the
second of its events, which is committed no earlier than the first. See
docs/how-to/joins.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from sys import maxsize
from typing import Any, Literal, TypeVar, overload

from reactivex import Observable

from penstock.streams.base.ahead import MAX_AHEAD
from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By, Key, key_name
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import is_text, seconds_in
from penstock.streams.event_time.above import Timed, times_for, with_times
from penstock.streams.event_time.clock import watermark_behind
from penstock.streams.event_time.timed_by import IDLE, require_one_stream, timed_by
from penstock.streams.execution.handler import called_name
from penstock.streams.failures.policy import OnError, check_policy, routed_by
from penstock.streams.joins.join_stage import JoinStage
from penstock.streams.joins.rows import PairedRows
from penstock.streams.joins.sides import MergedSides
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, Picture, Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.inputs import as_stream
from penstock.streams.rx.combining.several import several
from penstock.streams.rx.lift import on_stream
from penstock.streams.stages.stream import Stream
from penstock.streams.state.backend import KeptStage
from penstock.streams.state.held_stage import held_info
from penstock.streams.state.store import Store, check_store
from penstock.streams.windows.states import WindowStates

__all__ = ["join"]

T = TypeVar("T")
U = TypeVar("U")

# Whether events without a partner are results, on the left and on the right.
_KEEPS = {"inner": (False, False), "left": (True, False), "outer": (True, True)}


@overload
def join(
    other: Observable[U],
    by: By[Any],
    within: float | timedelta,
    *,
    how: Literal["inner"] = "inner",
    time: By[Any] | None = None,
    lateness: float | timedelta | None = None,
    late: OnError = "skip",
    store: Store | None = None,
    name: str | None = None,
    on_error: OnError = "stop",
) -> Callable[[Flowable[T]], Flowable[tuple[T, U]]]: ...


@overload
def join(
    other: Observable[U],
    by: By[Any],
    within: float | timedelta,
    *,
    how: Literal["left"],
    time: By[Any] | None = None,
    lateness: float | timedelta | None = None,
    late: OnError = "skip",
    store: Store | None = None,
    name: str | None = None,
    on_error: OnError = "stop",
) -> Callable[[Flowable[T]], Flowable[tuple[T, U | None]]]: ...


@overload
def join(
    other: Observable[U],
    by: By[Any],
    within: float | timedelta,
    *,
    how: Literal["outer"],
    time: By[Any] | None = None,
    lateness: float | timedelta | None = None,
    late: OnError = "skip",
    store: Store | None = None,
    name: str | None = None,
    on_error: OnError = "stop",
) -> Callable[[Flowable[T]], Flowable[tuple[T | None, U | None]]]: ...


@recorded
def join(
    other: Observable[Any],
    by: By[Any],
    within: float | timedelta,
    *,
    how: Literal["inner", "left", "outer"] = "inner",
    time: By[Any] | None = None,
    lateness: float | timedelta | None = None,
    late: OnError = "skip",
    store: Store | None = None,
    name: str | None = None,
    on_error: OnError = "stop",
) -> Callable[[Flowable[Any]], Flowable[tuple[Any, Any]]]:
    """Pair each event with those of `other` that have its key, and happened at most `within`
    seconds (or a timedelta) before or after it.

    `by` is a name, an index or a function, and reads the key of both streams. Keys are texts,
    numbers, or tuples of them; an event with the key None has no partner, and leaves at once. Each
    pair within the bound is a result: an event may be in several. `how` says what becomes of one
    without a partner: "inner" drops it, "left" emits `(left, None)`, "outer" those of both.

    An `event_time` must be in front, directly behind each source of both streams; `time` with its
    `lateness` is short for one with the same field at the end of both. A late event is paired as
    long as its partner was not over when it was emitted: the pairs do not depend on which stream is
    read faster. `late` says what becomes of one that can have no partner any more.

    A result happened at the lesser time of its events. So a `window`, a timer or another join may
    be directly behind; its watermark is `within` behind that of the join, and no result is late
    there. An `event_time` behind the join gives other times.

    Without a `store` the events last as long as the run. With one they are kept as JSON, and must
    be plain: dicts with texts as keys, lists, texts, numbers and None. `name` identifies the stage
    in its store; the default is "join by ...". Raises BuildError for wrong options, and unless
    there is one of `event_time` and `time`.

    >>> from penstock import event_time, for_each, from_iterable, join, run
    >>> orders = from_iterable([{"order": n, "at": n} for n in (1, 2)]).pipe(event_time("at"))
    >>> payments = from_iterable([{"order": 2, "at": 8}]).pipe(event_time("at"))
    >>> paid = orders.pipe(join(payments, by="order", within=60, how="left"))
    >>> report = run(paid.to(for_each(print)))
    ({'order': 2, 'at': 2}, {'order': 2, 'at': 8})
    ({'order': 1, 'at': 1}, None)
    """
    streams = [as_stream("join", other)]
    seconds = seconds_in("join", within=within)
    Key(by)
    if not (is_text(how) and how in _KEEPS):
        raise BuildError(f'join({how=}): it is "inner", "left" or "outer"')
    check_store("join", store, name)
    check_policy(late, "join", option="late")
    check_policy(on_error, "join")
    if lateness is not None and time is None:
        raise BuildError(
            f"join({lateness=}): give it to the event_time(field, lateness) in front, or with "
            "time=field"
        )
    times: Callable[[Any], Any] | None = None
    if time is not None:
        late_by = seconds_in("join", lateness=lateness or 0.0)
        times = timed_by(time, late_by, IDLE, MAX_AHEAD, on_error)
    what = f"by {key_name(by)} within {seconds:g} s"
    # Kept events go on only with the same bound.
    kept = KeptStage(name or f"join by {key_name(by)}", f"{what}, {how}", 1)
    info = held_info(
        "join",
        f"{how}, {what}" + ("" if store is None else f", in {store.name}"),
        routed=routed_by(late, on_error),
        placement=Placement(by=by, reads=(by,)),
        delivery=Delivery(store="memory" if store is None else store),
        picture=Picture(calls=called_name(by)),
        merges=True,
    )

    def timed_side(side: Any, which: str) -> tuple[Any, Any]:
        for stream in side.chain():
            stream.info.require_no_group(f"join outside, by {key_name(by)}")
        if times is not None:
            require_one_stream("join(time=)", side)
        side, timed = with_times("join", side, times, "time= and lateness=")
        if not timed:
            raise BuildError(
                f"join(...) needs the times of events: {times_for(side, f' of {which}')}, or give "
                'time=field; time="start" is when a window begins'
            )
        return side, timed

    def read(source: Any) -> Any:
        left, left_timed = timed_side(source, "the stream in front of it")
        right, right_timed = timed_side(streams[0], "its other stream")
        timed = list(dict.fromkeys([*left_timed, *right_timed]))
        results = Timed(of_results=True)

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
            rows: Any = PairedRows(seconds, _KEEPS[how])
            states = WindowStates(*(info, own.declare(kept), kept, rows, own.cache, run.wall))
            is_stored = store is not None
            clock = partial(watermark_behind(left, timed, right), run, info, commits, is_stored)
            options = late, on_error, is_stored
            stage = JoinStage(
                *(results, seconds, downstream, run, info, (by, by), rows, clock, states, commits),
                *options,
            )
            return MergedSides(stage, run, info, streams, prefetch)

        return several(left, [right], make, info._replace(timed=results))

    return on_stream(read, "join")
