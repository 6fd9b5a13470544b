"""Split a stream into one stream per key; each key's events stay in order.

Items:   the groups of the keys that have events, to be read by `spread()` directly after: the two
         share the keyed queues. Without `each` a group exists only while it holds an event or a
         turn; a later event of the key opens a new one. `each` runs operators inside every group (a
         `Group`, which is a Flowable with a `.key`), with its own state. It is in memory, and ends
         with the group, at the latest with the run; `stateful` has one that survives a restart
         (docs/explanation/state.md). Keys are equal as `==` says: 1, 1.0 and True are one key
         (docs/explanation/order.md).
Time:    no timers, except one that ends the groups that have been empty for `idle` seconds.
Memory:  `buffer` events over all groups, including those held by the operators of `each`, and one
         small queue per live group, with its operators if there is `each`. Of these events `share`
         of one key may wait, besides those that its operators hold. With `overflow="spill"` the
         values of up to `spill_events` more events, in `spill_bytes` bytes, are in a temporary
         file, in order; each such event keeps about 200 bytes in memory, and the handler gets a
         copy of its value. When operators hold so much that nothing else fits, and there is demand,
         the longest idle groups are closed, as many as hold a sixteenth of the buffer: their
         operators emit what they hold, perhaps a result of only a part of the group's events. Such
         groups are counted as `closed_early`.
Demand:  reads ahead up to `buffer` events, and up to `spill_events` more while keys are over their
         share, so that such a key does not hold up the others; a warning names it. A source that
         knows the key, `read_table(by=)`, reads no more of it from half of the share on, until no
         more than a quarter waits. With `overflow="wait"`, and when the file is full, the source
         waits when the buffer is full. With `route(sink)` events of a key beyond its share are dead
         letters.
Ends:    completes when the source has and every group is empty. Cancel returns waiting events to
         the source; drain lets them be processed, those on disk too.
Errors:  a missing or unhashable key is this stage's error, which by default ends the pipeline and
         names the event; `on_error="skip"` or `route(sink)` go on. An error of an operator inside
         a group (`each=`) ends the pipeline. HoldExceeded when the buffer is full and closing
         groups frees nothing. KeyOverShare is the error of what `overflow=route(sink)` routes.
         If a value cannot be pickled, or the file cannot be written, events wait as with
         `overflow="wait"`, and a warning says so once; SpillBroken if a value cannot be read back.

    source            --a1--b1--a2--|
    group_by(key)     --A---B-------|     A = a1 a2, B = b1
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NoReturn, TypeVar, overload

from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By, Key, key_name
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import given, is_positive, require_count, require_parameters
from penstock.streams.execution.handler import called_name
from penstock.streams.failures.policy import (
    OnError,
    OverflowPolicy,
    check_overflow,
    check_policy,
    check_share,
    routed_by,
)
from penstock.streams.groups.grouped import Group, Grouped, described
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.keyed.overflow import Overflow
from penstock.streams.keyed.stage import KeyedStage
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, Picture, Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import on_stream

__all__ = ["group_by"]

# The buffer where another process bounds what comes: all of it.
_ALL = 1 << 20

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)


@overload
def group_by(
    by: Callable[[T], K],
    buffer: int = ...,
    each: None = ...,
    *,
    share: int | None = ...,
    overflow: OverflowPolicy = ...,
    spill_events: int = ...,
    spill_bytes: int = ...,
    on_error: OnError = ...,
) -> Callable[[Flowable[T]], Flowable[Group[K, T]]]: ...


@overload
def group_by(
    by: str | int,
    buffer: int = ...,
    each: None = ...,
    *,
    share: int | None = ...,
    overflow: OverflowPolicy = ...,
    spill_events: int = ...,
    spill_bytes: int = ...,
    on_error: OnError = ...,
) -> Callable[[Flowable[T]], Flowable[Group[Any, T]]]: ...


@overload
def group_by(
    by: By[T],
    buffer: int = ...,
    *,
    each: Callable[[Group[Any, T]], Flowable[R]],
    idle: float,
    max_groups: int | None = ...,
    share: int | None = ...,
    overflow: OverflowPolicy = ...,
    spill_events: int = ...,
    spill_bytes: int = ...,
    on_error: OnError = ...,
) -> Callable[[Flowable[T]], Flowable[Group[Any, R]]]: ...


@recorded
def group_by(
    by: By[Any],
    buffer: int = 4096,
    each: Callable[[Any], Flowable[Any]] | None = None,
    idle: float = 0,
    max_groups: int | None = None,
    *,
    share: int | None = None,
    overflow: OverflowPolicy = "spill",
    spill_events: int = 100_000,
    spill_bytes: int = 2**30,
    on_error: OnError = "stop",
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Group events by the key `by`: a name, an index or a function.

    A name is an item of a mapping, or an attribute of any other object. `each=lambda group:
    group.pipe(...)` runs operators on each group's own stream; its state ends when the group has
    been empty for `idle` seconds, which must then be given, or is the least recently used empty one
    above `max_groups` or when the buffer is full. The function is called for every group, until it
    has returned the group's count or list (`ops.count()`, `ops.to_list()`) twice in succession
    without reading the key; it is not called again then. It may also be called while the pipeline
    is built, to see its operators. `share` is the most events of a key that wait in memory, besides
    those inside `each`, by default a quarter of `buffer`, and `overflow` says what happens to more:
    "spill", "wait" or `route(sink)`. `spill_events` and `spill_bytes` bound the file, for all keys
    together. Raises BuildError for a `buffer`, a `share`, `spill_events` or `spill_bytes` below 1,
    a `share` above the buffer, `each` without `idle`, and `idle` or `max_groups` without `each`.

    >>> from penstock import adaptive_flat_map, collect, from_iterable, group_by, run, spread
    >>> names = []
    >>> flow = from_iterable(["ann 1", "bob 1", "ann 2"]).pipe(
    ...     group_by(lambda text: text[:3]), spread(), adaptive_flat_map(str.upper)
    ... )
    >>> report = run(flow.to(collect(names)))
    >>> [name for name in names if name.startswith("ANN")]
    ['ANN 1', 'ANN 2']
    """
    require_count(
        "group_by",
        buffer=buffer,
        spill_events=spill_events,
        spill_bytes=spill_bytes,
        **given(max_groups=max_groups),
    )
    share = check_share(share, buffer)
    check_overflow(overflow)
    if each is None and (idle or max_groups is not None):
        raise BuildError(
            "group_by(idle=, max_groups=) say how long the state of each= lives; without each= "
            "a group ends when it is empty. Leave them out."
        )
    if each is not None and not is_positive(idle):
        raise BuildError(
            "group_by(each=...) needs idle=: the seconds after which an empty group's state ends"
        )
    require_parameters(each, "group_by(each=...)", 1, "a group")
    check_policy(on_error, "group_by")
    key = Key(by)
    # A result of a group's operators may derive from all events that fit.
    gathers = 1 if each is None else buffer
    most = "" if max_groups is None else f", at most {max_groups:,}"
    if overflow == "spill":
        note = f"{share:,} of a key, {spill_events:,} more on disk"
    else:
        note = "" if overflow == "wait" else f"{share:,} of a key, more are routed"
    if each is not None:
        note = ", ".join(filter(None, (note, f"keeps empty groups for {idle:g} s{most}")))
    info = StageInfo(
        "group_by",
        key_name(by),
        buffer,
        note,
        gathers=gathers,
        routed=routed_by(on_error, overflow),
        spills=spill_events if overflow == "spill" else 0,
        policy=on_error,
        delivery=Delivery(inside=None if each is None else partial(_inside, each)),
        placement=Placement(
            by=by,
            reads=(by,),
            keeps=each is not None,
            untouched=each is None and not callable(by),
            has_share=True,
        ),
        picture=Picture(calls=called_name(by)),
    )

    def beyond(run: Run, info: StageInfo) -> Overflow:
        policy = "wait" if run.overrides.is_bounded else overflow
        return Overflow(run, info, share, policy, spill_events, spill_bytes)

    @on_stream
    def operator(source: Flowable[Any]) -> Flowable[Any]:
        if each is not None:
            for stage in _inside(each, source.values):
                if stage.delivery.store is not None:
                    stage.require_no_group(f"{stage.name} outside")

        def rotate(
            downstream: Subscriber[Any], run: Run, feeders: int | None, spread: StageInfo
        ) -> None:
            info = run.placed(grouped.info)
            faults = KeyFaults(on_error, run, info, by)
            most = _ALL if run.overrides.is_bounded else buffer
            common = downstream, run, info, key, most, faults, beyond(run, info), feeders
            if each is None:
                stage = KeyedStage(*common)
            else:
                # Imported here: few pipelines need it.
                from penstock.streams.groups.substreams import Substreams

                stage = Substreams(*common, each, idle, max_groups)
            run.add_stage(info, stage.group_statistics)
            run.add_keyed(info, stage.set_share)
            run.add_stage(spread, stage.spread_statistics)
            # The stage reads the source; `spread`, which is being attached, reads the stage.
            run.attaching = info
            source.attach(stage, run)

        grouped: Grouped[Any, Any] = Grouped(rotate, info, source, beyond)
        return grouped

    return operator


def _inside(each: Callable[[Any], Flowable[Any]], values: Any = None) -> list[StageInfo]:
    """The stages that `each` makes of a group, none if it cannot do without a real key.

    Raises BuildError for stages that are refused with any key, or that read what values of this
    type do not have.
    """
    group = Group[Any, Any](None, _refuse, described(StageInfo("group_by")))
    try:
        stages = _made_of(group, each)
    except Exception as error:
        if isinstance(error, BuildError) and not group.is_key_read:
            raise
        # With a real group it is called again, and its error is reported.
        return []
    if values is not None:
        # It went well as long as nothing was known of the values.
        _made_of(Group(None, _refuse, described(StageInfo("group_by")), values), each)
    return stages


def _made_of(group: Group[Any, Any], each: Callable[[Any], Flowable[Any]]) -> list[StageInfo]:
    return [stage.info for stage in each(group).chain() if stage is not group]


def _refuse(downstream: Subscriber[Any], run: Run) -> NoReturn:
    raise NotImplementedError("this group is only there to be described")
