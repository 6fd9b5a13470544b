"""Drop an event whose key was first seen less than `seconds` before.

Items:   the first event of each key, and again the first one `seconds` or more after that, by the
         times at which they were created (`Event.created`), or, with `time` or behind `event_time`,
         at which they happened: so neither back-pressure nor a slow stage above changes the answer.
         Of two events out of order, the second to come is the duplicate. A duplicate does not renew
         the window. Keys are equal as `==` says: 1
         and True are one key (docs/explanation/order.md). A key whose event failed or was returned
         is forgotten, so that a redelivery passes; a duplicate of an event that is still
         unfinished leaves the stream and shares its outcome towards the source: it is dropped when
         the original finishes, skipped when the original is skipped or routed, fails with the same
         error, or is returned with it. With a `store` it is dropped at once, and is done in the
         commit of the original or later, or returned with it.
Time:    at once. No timers.
Memory:  one key and one number for each key of the window, which ends with the largest recent
         time, or with the watermark of `event_time`, and for at most a third as many that have left
         it, at most `max_keys`; beyond those the oldest key is forgotten early, counted as
         `forgotten_early`. A duplicate that comes so late that its original has left the window may
         pass; in event time it does, and the key of a late event is seen at the watermark. One
         small entry for each event that is unfinished. At most `hold` duplicates wait for the end
         of their originals, and the answers about the last `hold` events that callers have asked
         about (`Inbox.ask`) are kept. With a `store` the keys of the window are there, and those of
         the last `cache` keys (see Store) in memory; keys that have left the window are deleted by
         later commits, at most 2,000 by each. At most 10,000 events are unfinished behind the stage
         or wait for a commit.
Demand:  one more for each event dropped, but none while `hold` duplicates wait, or with a `store`
         while 10,000 events do.
Ends:    with the source.
Errors:  a missing or unhashable key is this stage's error, which by default ends the pipeline;
         `on_error="skip"` or `route(sink)` go on. With `time` the errors of `event_time` are
         handled in the same way. HoldExceeded when `hold` duplicates
         wait and a stage below, such as `chunk` without `wait`, keeps events until others come: it
         may be waiting for events that are no longer requested.

    source                --a--b--a--b--------a--|
    distinct_within(10)   --a--b--------------a--|     at ticks 2, 5 and 18
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.streams.base.ahead import MAX_AHEAD, MaxAhead, check_max_ahead
from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By, Key, key_name
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import (
    given,
    is_positive,
    require_count,
)
from penstock.streams.event_time.above import with_times
from penstock.streams.execution.handler import called_name
from penstock.streams.failures.policy import OnError, check_policy, routed_by
from penstock.streams.keyed.distinct import DistinctStage, EventTimes
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, Picture, Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import on_stream

if TYPE_CHECKING:
    from penstock.streams.state.store import Store

__all__ = ["distinct_within"]

T = TypeVar("T")

# The default of `hold`.
_HOLD = 1024

# Times are exact to microseconds; the sum of two floats such as 0.1 and 0.2 is off by less.
_HALF_A_MICROSECOND = 0.5e-6


@recorded
def distinct_within(
    seconds: float,
    by: By[T],
    time: By[T] | None = None,
    max_keys: int | None = None,
    *,
    on_error: OnError = "stop",
    hold: int = _HOLD,
    max_ahead: MaxAhead = MAX_AHEAD,
    store: Store | None = None,
    name: str | None = None,
) -> Callable[[Flowable[T]], Flowable[T]]:
    """Let a key pass once in `seconds`, by the times at which its events were created.

    `by` is the key: a name, an index or a function. A name is an item of a mapping, or an attribute
    of any other object. `hold` duplicates may wait for the end of unfinished events. A duplicate
    that a caller asks about (`Inbox.ask`) gets the answer about the first event with its key, if
    that is one of the last `hold` events that were asked about.

    Behind an `event_time` the times at which the events happened count. `time` with its `max_ahead`
    is short for one directly in front of this stage, without lateness and with `idle=None`. Such a
    window ends with the watermark.

    With a `store` the keys are remembered from run to run: the key of an event is written in the
    commit that makes the event done (docs/explanation/state.md). `name` identifies the stage in the
    store; the default is "distinct_within by ...". Raises BuildError when `seconds` is not
    positive, `max_keys` or `hold` is below 1 or given with a store, `max_ahead` is given without
    `time`, or `time` behind an `event_time`.

    >>> from penstock import distinct_within, for_each, from_iterable, run
    >>> orders = from_iterable([{"id": 1}, {"id": 1}, {"id": 2}])
    >>> report = run(orders.pipe(distinct_within(10, by="id")).to(for_each(print)))
    {'id': 1}
    {'id': 2}
    >>> report.statistics["dropped"]
    {'duplicate': 1}
    """
    if not is_positive(seconds):
        swapped = isinstance(seconds, str) and is_positive(by)
        hint = f"; did you mean distinct_within({by!r}, by={seconds!r})?" if swapped else ""
        raise BuildError(f"distinct_within(seconds={seconds!r}): must be positive seconds{hint}")
    require_count("distinct_within", hold=hold, **given(max_keys=max_keys))
    check_policy(on_error, "distinct_within")
    check_max_ahead("distinct_within", max_ahead, has_time=time is not None)
    if store is not None:
        from penstock.streams.state.store import check_store

        check_store("distinct_within", store, name)
        _check_bounds(max_keys, hold)
    elif name is not None:
        raise BuildError(f"distinct_within(name={name!r}): give it together with store")
    key = Key(by)
    own: Callable[[Any], Any] | None = None
    if time is not None:
        from penstock.streams.event_time.timed_by import timed_by

        own = timed_by(time, 0.0, inf, max_ahead, on_error)
    detail = f"{seconds:g} s by {key_name(by)}"
    note = "remembers keys of the window" + ("" if max_keys is None else f", at most {max_keys:,}")

    routed = routed_by(on_error)
    picture = Picture(calls=called_name(by))
    placement = Placement(by=by, reads=(by,), seconds=seconds, untouched=not callable(by))
    # Times that floats cannot hold are off by less.
    seconds -= min(_HALF_A_MICROSECOND, seconds / 2)
    if store is not None:
        described = {"routed": routed, "placement": placement, "picture": picture}
        return _stored(seconds, by, store, name, on_error, own, detail, described)

    info = StageInfo(
        *("distinct_within", detail, hold, note),
        routed=routed,
        placement=placement,
        picture=picture,
    )

    @on_stream
    def operator(source: Flowable[T]) -> Flowable[T]:
        source, timed = with_times("distinct_within", source, own, "time= and max_ahead=")

        def attach(downstream: Subscriber[T], run: Run) -> None:
            if run.overrides.is_unique(source, by):
                source.attach(downstream, run)
                return
            info = run.placed(flowable.info)
            faults = KeyFaults(on_error, run, info, by)
            times: EventTimes | None = None
            if timed:
                from penstock.streams.event_time.passed import PassedTime

                times = PassedTime(run, info, timed)
            stage = DistinctStage(
                downstream, run, info, key, times, seconds, max_keys, hold, faults
            )
            run.add_stage(info, stage.statistics)
            source.attach(stage, run)

        flowable: Flowable[T] = Flowable(attach, info, source, passes=True)
        return flowable

    return operator


def _stored(
    seconds: float,
    by: By[Any],
    store: Store,
    name: str | None,
    on_error: OnError,
    own: Callable[[Any], Any] | None,
    detail: str,
    described: dict[str, Any],
) -> Callable[[Any], Any]:
    """The operator that remembers its keys in a store."""
    from orjson import loads

    from penstock.streams.event_time.passed import PassedTime
    from penstock.streams.state.backend import KeptStage
    from penstock.streams.state.distinct import StoredDistinctStage, TimesOfKeys
    from penstock.streams.state.held_stage import held_info

    kept = KeptStage(name or f"distinct_within by {key_name(by)}", key_name(by), 1)

    def read(source: Any) -> Any:
        source, timed = with_times("distinct_within", source, own, "time= and max_ahead=")

        def make(downstream: Subscriber[Any], run: Run, info: StageInfo) -> StoredDistinctStage:
            info.require_no_group("distinct_within(store=) outside")
            commits = store.marks_in(run)
            backend, cache = store.declare(kept), store.cache
            states = TimesOfKeys(info, backend, kept, loads, None, None, {}, cache, run.wall)
            faults = KeyFaults(on_error, run, info, by)
            times = PassedTime(run, info, timed, commits) if timed else None
            return StoredDistinctStage(
                *(downstream, run, info, by, times, seconds, states, commits, faults, _HOLD)
            )

        return source.then(make, info, passes=True)

    info = held_info(
        "distinct_within",
        f"{detail}, in {store.name}",
        delivery=Delivery(store=store, takes_again=True),
        **described,
    )
    return on_stream(read, "distinct_within")


def _check_bounds(max_keys: int | None, hold: int) -> None:
    from penstock.streams.state.held_stage import MOST_HELD

    if max_keys is not None or hold != _HOLD:
        raise BuildError(
            "distinct_within(store=): max_keys= and hold= bound what is in memory without a store. "
            f"With one, Store(cache=) keys are in memory, and at most {MOST_HELD:,} events wait"
        )
