"""Drop an event whose key was first seen less than `seconds` before.

Items:   the first event of each key, and again the first one `seconds` or more after that, by the
         times at which they were created (`Event.created`), or by `time`: so neither back-pressure
         nor a slow stage above changes the answer. Of two events out of order, the second to come
         is the duplicate. A duplicate does not renew the window. Keys are equal as `==` says: 1
         and True are one key (docs/explanation/order.md). A key whose event failed or was returned
         is forgotten, so that a redelivery passes; a duplicate of an event that is still
         unfinished leaves the stream and shares its outcome towards the source: it is dropped when
         the original finishes, skipped when the original is skipped or routed, fails with the same
         error, or is returned with it. With a `store` it is dropped at once, and is done in the
         commit of the original or later, or returned with it.
Time:    at once. No timers.
Memory:  one key and one number for each key of the window, which ends with the largest recent
         time, and for at most a third as many that have left it, at most `max_keys`; beyond
         those the oldest key is forgotten early, counted as `forgotten_early`. A duplicate that
         comes so late that its original has left the window may pass. One small entry for each
         event that is unfinished. At most `hold` duplicates wait for the end of their originals.
         With a `store` the keys of the window are there, and those of the last `cache` keys (see
         Store) in memory; keys that have left the window are deleted by later commits, at most
         2,000 by each. At most 10,000 events are unfinished behind the stage or wait for a commit.
Demand:  one more for each event dropped, but none while `hold` duplicates wait, or with a `store`
         while 10,000 events do.
Ends:    with the source.
Errors:  a missing key or time, an unhashable key, an unreadable time or one that is more than
         `max_ahead` ahead of the wall clock is this stage's error, which by default ends the
         pipeline; `on_error="skip"` or `route(sink)` go on. HoldExceeded when `hold` duplicates
         wait and a stage below, such as `chunk` without `wait`, keeps events until others come: it
         may be waiting for events that are no longer requested.

    source                --a--b--a--b--------a--|
    distinct_within(10)   --a--b--------------a--|     at ticks 2, 5 and 18
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from orjson import loads

from penstock.streams.base.ahead import MAX_AHEAD, Ahead, MaxAhead, check_max_ahead
from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By, Key, key_name
from penstock.streams.base.validation import (
    given,
    is_positive,
    require_count,
)
from penstock.streams.execution.handler import called_name
from penstock.streams.failures.policy import OnError, check_policy, routed_by
from penstock.streams.keyed.distinct import DistinctStage
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, Picture, Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import on_stream
from penstock.streams.state.backend import KeptStage
from penstock.streams.state.distinct import StoredDistinctStage, TimesOfKeys
from penstock.streams.state.held_stage import MOST_HELD, require_no_group
from penstock.streams.state.store import Store, check_store

__all__ = ["distinct_within"]

T = TypeVar("T")

# The default of `hold`.
_HOLD = 1024

# Times are exact to microseconds; the sum of two floats such as 0.1 and 0.2 is off by less.
_HALF_A_MICROSECOND = 0.5e-6


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

    `by` is the key and `time` the event's own time in place of that, each a name, an index or a
    function. A name is an item of a mapping, or an attribute of any other object. A time is a
    number of seconds, an ISO 8601 text or a datetime; without a zone it is UTC. `hold` duplicates
    may wait for the end of unfinished events. A `time` more than `max_ahead` seconds ahead of the
    wall clock is an error; with None it may be any.

    With a `store` the keys are remembered from run to run: the key of an event is written in the
    commit that makes the event done (docs/explanation/state.md). `name` identifies the stage in the
    store; the default is "distinct_within by ...". Raises BuildError when `seconds` is not
    positive, `max_keys` or `hold` is below 1 or given with a store, or `max_ahead` is given without
    `time`.
    """
    if not is_positive(seconds):
        swapped = isinstance(seconds, str) and is_positive(by)
        hint = f"; did you mean distinct_within({by!r}, by={seconds!r})?" if swapped else ""
        raise BuildError(f"distinct_within(seconds={seconds!r}): must be positive seconds{hint}")
    require_count("distinct_within", hold=hold, **given(max_keys=max_keys))
    check_policy(on_error, "distinct_within")
    check_max_ahead("distinct_within", max_ahead, has_time=time is not None)
    if store is not None:
        check_store("distinct_within", store, name)
        _check_bounds(max_keys, hold)
    elif name is not None:
        raise BuildError(f"distinct_within(name={name!r}): give it together with store")
    key = Key(by)
    time_key = None if time is None else Key(time)
    detail = f"{seconds:g} s by {key_name(by)}"
    note = "remembers keys of the window" + ("" if max_keys is None else f", at most {max_keys:,}")

    routed = routed_by(on_error)
    picture = Picture(calls=called_name(by, time))
    untouched = not (callable(by) or callable(time))
    placement = Placement(by=by, reads=(by, time), seconds=seconds, untouched=untouched)
    # Times that floats cannot hold are off by less.
    seconds -= min(_HALF_A_MICROSECOND, seconds / 2)
    if store is not None:
        kept = KeptStage(name or f"distinct_within by {key_name(by)}", key_name(by), 1)

        def make(downstream: Subscriber[Any], run: Run, info: StageInfo) -> StoredDistinctStage:
            require_no_group(info, "distinct_within(store=) outside")
            commits = store.marks_in(run)
            backend, cache = store.declare(kept), store.cache
            states = TimesOfKeys(info, backend, kept, loads, None, None, {}, cache, run.wall)
            faults = KeyFaults(on_error, run, info, by, time)
            ahead = Ahead(max_ahead, run.wall)
            return StoredDistinctStage(
                *(downstream, run, info, by, time, seconds, states, commits, faults, ahead)
            )

        info = StageInfo(
            "distinct_within",
            f"{detail}, in {store.name}",
            MOST_HELD,
            "events that are unfinished, or wait for their commit",
            routed=routed,
            placement=placement,
            delivery=Delivery(store=store, takes_again=True),
            picture=picture,
        )
        return on_stream(lambda source: source.then(make, info, passes=True), "distinct_within")

    info = StageInfo(
        *("distinct_within", detail, hold, note),
        routed=routed,
        placement=placement,
        picture=picture,
    )

    @on_stream
    def operator(source: Flowable[T]) -> Flowable[T]:
        def attach(downstream: Subscriber[T], run: Run) -> None:
            if run.overrides.is_unique(source, by):
                source.attach(downstream, run)
                return
            info = run.placed(flowable.info)
            faults = KeyFaults(on_error, run, info, by, time)
            ahead = Ahead(max_ahead, run.wall)
            stage = DistinctStage(
                downstream, run, info, key, time_key, seconds, max_keys, hold, faults, ahead
            )
            run.add_stage(info, stage.statistics)
            source.attach(stage, run)

        flowable: Flowable[T] = Flowable(attach, info, source, passes=True)
        return flowable

    return operator


def _check_bounds(max_keys: int | None, hold: int) -> None:
    if max_keys is not None or hold != _HOLD:
        raise BuildError(
            "distinct_within(store=): max_keys= and hold= bound what is in memory without a store. "
            f"With one, Store(cache=) keys are in memory, and at most {MOST_HELD:,} events wait"
        )
