"""Keep a state for each key, from event to event and from run to run.

Items:   the results that `step(state, event)` returns with the key's new state, in order; and those
         of `on_timer`, when a timer is due.
Time:    at once. Timers use the wall clock; one that was due between two runs fires once, at the
         start of the next. With `clock="event"` they use the watermark of the `event_time` in
         front, and fire in the order of time. None fires without demand.
Memory:  the states of `cache` keys (see Store), and of keys with changes that are not committed. At
         most 10,000 events are unfinished behind the stage or wait for a commit.
Demand:  one more for each event without a result; none while 10,000 events wait, which a warning
         reports when none of them has ended for five seconds.
Ends:    with the source, after the last results; timers that are not due are kept for the next run.
         Where the input has ended for good those in event time fire first, each once.
         Cancel returns the events whose results were not sent, and their changes are not committed.
Errors:  passes the source's on. A missing or unhashable key, an error of `step`, `on_timer` or
         `migrate`, a stored state that is not of its `type`, and a return value that is not a pair
         are errors of this stage, and leave the state as it was; by default they end the pipeline,
         `on_error="skip"` or `route(sink)` go on. A store that cannot be opened is CannotOpen, and
         one with states of other stages BuildError; one that cannot be written ends the run.

    source                   --a--b--a--a--|
    stateful(count, "user")  --1--1--2--3--|

A state is committed in one transaction with the mark that its event is done, after all sinks have
accepted the results; then the event is acknowledged to its source. See docs/explanation/state.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar, overload

from orjson import loads

from penstock.streams.base.errors import BuildError, describe
from penstock.streams.base.keys import By, Key, key_name
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import (
    LEAST,
    given,
    is_async,
    is_count,
    require_parameters,
    seconds_in,
)
from penstock.streams.event_time.above import timed_above
from penstock.streams.event_time.clock import watermark_behind
from penstock.streams.execution.handler import called_name, handler_name
from penstock.streams.failures.policy import OnError, check_policy, routed_by
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, Picture, Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import on_stream
from penstock.streams.state.backend import KeptStage
from penstock.streams.state.codec import FORM, decoder, encoded
from penstock.streams.state.context import Context
from penstock.streams.state.held_stage import held_info
from penstock.streams.state.stage import ByEventTime, StatefulStage
from penstock.streams.state.states import States
from penstock.streams.state.store import Store, check_store

__all__ = ["Context", "stateful"]

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")

Answer = tuple[S | None, Iterable[R]]


@overload
def stateful(
    step: Callable[[S, T], Answer[S, R]] | Callable[[S, T, Context], Answer[S, R]],
    by: By[T],
    *,
    start: S,
    on_timer: Callable[[S, str, Context], Answer[S, R]] | None = None,
    ttl: float | timedelta | None = None,
    name: str | None = None,
    version: int = 1,
    migrate: Mapping[int, Callable[[Any], Any]] | None = None,
    type: Any = None,
    store: Store | None = None,
    on_error: OnError = "stop",
) -> Callable[[Flowable[T]], Flowable[R]]: ...


@overload
def stateful(
    step: Callable[[S | None, T], Answer[S, R]] | Callable[[S | None, T, Context], Answer[S, R]],
    by: By[T],
    *,
    start: None = None,
    on_timer: Callable[[S | None, str, Context], Answer[S, R]] | None = None,
    ttl: float | timedelta | None = None,
    name: str | None = None,
    version: int = 1,
    migrate: Mapping[int, Callable[[Any], Any]] | None = None,
    type: Any = None,
    store: Store | None = None,
    on_error: OnError = "stop",
) -> Callable[[Flowable[T]], Flowable[R]]: ...


@recorded
def stateful(
    step: Any,
    by: By[Any],
    *,
    start: Any = None,
    on_timer: Any = None,
    ttl: float | timedelta | None = None,
    name: str | None = None,
    version: int = 1,
    migrate: Mapping[int, Callable[[Any], Any]] | None = None,
    type: Any = None,
    store: Store | None = None,
    on_error: OnError = "stop",
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Call `step` with each event and the state of its key; keep the new state, emit the results.

    `step(state, event)`, or `step(state, event, ctx)`, returns the new state and an iterable of
    results; the state None deletes the key with its timers. The state of a new key is `start`.
    `ctx` has the `key`, the `time` of the event, `timer(name, at= or after=, clock=)`,
    `cancel(name)` and, behind `event_time`, the `watermark`.
    When a timer is due, `on_timer(state, name, ctx)` is called once, and returns the same as
    `step`. Both are plain functions without side effects: they are called again for events that
    were not done when the process died. A state may be changed in place.

    `by` is a name, an index or a function. Keys are texts, numbers, None, or tuples of them. States
    are stored as JSON, so a tuple comes back as a list; `type` is their class, if they are msgspec
    Structs, pydantic models or dataclasses. With `ttl` a key is deleted when neither function was
    called for it for that many seconds (or a timedelta). Without a `store` the states last as long
    as the run.

    `name` identifies the stage in its store; the default is "stateful by ...". When the form of the
    states changes, raise `version`; `migrate` has, by version, the function that converts a state
    to the next version. It is called when a key is read. Raises BuildError for wrong options and
    for an async function.

    >>> from penstock import for_each, from_iterable, run, stateful
    >>> def visit(count, event):
    ...     return count + 1, [(event["user"], count + 1)]
    >>> visits = from_iterable([{"user": "ann"}, {"user": "bob"}, {"user": "ann"}])
    >>> report = run(visits.pipe(stateful(visit, by="user", start=0)).to(for_each(print)))
    ('ann', 1)
    ('bob', 1)
    ('ann', 2)
    """
    for what, function in given(step=step, on_timer=on_timer).items():
        _check_function(what, function)
    Key(by)
    ends_after = None if ttl is None else seconds_in("stateful", LEAST, ttl=ttl)
    steps = _migrations(version, migrate)
    _check_start(start)
    check_store("stateful", store, name)
    check_policy(on_error, "stateful")
    decode = decoder(type)
    kept = KeptStage(name or f"stateful by {key_name(by)}", key_name(by), version)
    kept_timers = KeptStage(f"{kept.name} (event time)", kept.by, 1)
    calls = step, not _takes_two(step), on_timer
    takes_times = calls[1] or on_timer is not None

    def read(source: Any) -> Any:
        timed = timed_above([one.info for one in source.chain()]) if takes_times else []

        def make(downstream: Subscriber[Any], run: Run, info: StageInfo) -> StatefulStage:
            info.require_no_group(f"stateful outside, by {key_name(by)}")
            own = Store.memory(every=0.0) if store is None else store
            commits = own.marks_in(run)
            options = kept, decode, start, ends_after, steps, own.cache, run.wall
            states = States(info, own.declare(kept), *options)
            by_event_time = None
            if timed:
                watermark = watermark_behind(source, timed)
                clock = partial(watermark, run, info, commits, store is not None)
                timers = None
                if on_timer is not None:
                    backend, no_steps = own.declare(kept_timers), dict[int, Any]()
                    timers = States(
                        *(info, backend, kept_timers, loads, None, None),
                        *(no_steps, own.cache, run.wall),
                    )
                by_event_time = ByEventTime(clock, timers)
            return StatefulStage(
                downstream, run, info, by, *calls, states, commits, on_error, by_event_time
            )

        return source.then(make, info)

    detail = f"by {key_name(by)}" + ("" if store is None else f", in {store.name}")
    info = held_info(
        "stateful",
        detail,
        routed=routed_by(on_error),
        placement=Placement(by=by, reads=(by,)),
        delivery=Delivery(store="memory" if store is None else store),
        picture=Picture(calls=called_name(step)),
    )
    return on_stream(read, "stateful")


def _migrations(version: Any, migrate: Any) -> dict[int, Callable[[Any], Any]]:
    """The functions of `migrate` by the version before. Raises BuildError."""
    if is_count(version) and (migrate is None or issubclass(migrate.__class__, Mapping)):
        steps: dict[int, Any] = dict(migrate or {})
        if all(map(callable, steps.values())) and set(steps) == set(range(1, version)):
            return steps
    raise BuildError(
        f"stateful(version={version!r}, migrate={migrate!r}): version= is a whole number of at "
        "least 1, and migrate= has a function for each version before it, such as {1: function} "
        "for version=2"
    )


def _check_start(start: Any) -> None:
    try:
        encoded(start)
    except TypeError as error:
        raise BuildError(f"stateful(start={describe(start)}): {error}; {FORM}") from error


def _check_function(what: str, function: Any) -> None:
    if not callable(function):
        raise BuildError(f"stateful({what}={function!r}): a function is needed")
    if is_async(function):
        raise BuildError(
            f"stateful({what}={handler_name(function)}): it is async, and the next event of a key "
            "would wait for it. Make it a plain function, and await in adaptive_flat_map before or "
            "after it"
        )
    if what == "on_timer" or not _takes_two(function):
        of = "a state, an event and a context" if what == "step" else "a state, a name, a context"
        require_parameters(function, f"stateful({what}={handler_name(function)})", 3, of)


def _takes_two(function: Any) -> bool:
    """Whether it can be called without a context, as far as its parameters are known."""
    try:
        require_parameters(function, "", 2)
    except BuildError:
        return False
    return True
