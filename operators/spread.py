"""Rotate fairly over groups: after one event of a group, every other group gets one.

Items:   the events of all groups, round-robin over the groups that have work; an event of a
         group leaves only when the group's previous event has ended its turn. Over a plain
         stream of iterables or async iterables: their items, one iterable after the other in
         rotation.
Time:    at once; no timers. Over plain iterables a free feeder gets its group before the others go
         on, however long the source and the steps above compute, including a plain handler of
         `adaptive_flat_map`: the order depends on the groups alone. If they wait for something,
         such as an async handler for the network or `batch` for more events, the others are not
         held up, and a group joins the rotation when it comes. The same holds for an async
         iterable: one whose next item is there in the next loop iteration keeps its place; one that
         waits longer leaves the rotation until the item comes.
Memory:  one entry for each group with work; over iterables, `feeders` open iterators (1,024 where
         no number is given), and one item of each async one.
Demand:  takes an event out of a group only for a unit of demand. An iterable is requested when
         a feeder is free and there is demand, an item of it when it is next in the rotation. While
         async iterables are waited for, each open one is asked for one item.
Ends:    when the source has completed and every group is empty. Cancel closes open iterators and
         returns what waits. An async iterator is closed by `aclose`, at its end and on cancel; the
         run waits for that.
Errors:  an iterable that raises is this stage's error: its event fails, the pipeline stops. So is a
         value that is a single event instead of a list of them: a mapping, a text, bytes, a number.
         For a source that is known to give mappings, such as read_jsonl, building the pipeline
         fails.
Source:  over iterables, the job spreader of "Spreading jobs to reduce worker contention"
         (FreshBooks Dev Blog, 30 June 2010).

    groups          A = a1 a2 a3   B = b1   C = c1 c2 c3
    spread(1)       a1 a2 a3 b1 c1 c2 c3 |
    spread(2)       a1 b1 a2 c1 a3 c2 c3 |
    spread(3)       a1 b1 c1 a2 c2 a3 c3 |
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any, TypeVar, cast, overload

from penstock.streams.base.errors import BuildError
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import given, require_count
from penstock.streams.groups.grouped import Group, Grouped
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Picture, Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import check_demand
from penstock.streams.stages.time_slice import slices_made

__all__ = ["spread"]

T = TypeVar("T")

_MOST_OPEN = 1024


class _Spread:
    """The operator; a class, so that the element type is inferred for groups and iterables."""

    def __init__(self, feeders: int | None) -> None:
        self._feeders = feeders

    @overload
    def __call__(self, source: Flowable[Group[Any, T]], /) -> Flowable[T]: ...

    @overload
    def __call__(self, source: Flowable[Iterable[T]], /) -> Flowable[T]: ...

    @overload
    def __call__(self, source: Flowable[AsyncIterable[T]], /) -> Flowable[T]: ...

    def __call__(self, source: Flowable[Any], /) -> Flowable[Any]:
        check_demand("spread", source)
        feeders = self._feeders
        detail = "" if feeders is None else f"{feeders:,} feeder{'s'[: feeders > 1]}"

        is_grouped = isinstance(cast(object, source), Grouped)
        groups = cast("Grouped[Any, Any]", source) if is_grouped else None
        if groups is None and source.values is Mapping:
            from penstock.streams.rx.combining.spreader import not_iterables

            raise BuildError(not_iterables(f"the single events of {source.chain()[0].info}"))
        if isinstance(source, _Spreading) and isinstance(source.above, Grouped):
            raise BuildError(
                "spread() straight after spread(): the first has taken the groups apart already; "
                "leave one of the two out"
            )

        def attach(downstream: Subscriber[Any], run: Run) -> None:
            info = run.placed(flowable.info)
            if groups is not None:
                groups.rotate(downstream, run, feeders, info)
            else:
                # Imported here: most pipelines spread the groups of `group_by`.
                from penstock.streams.rx.combining.spreader import Spreader

                spreader = Spreader(downstream, run, info, feeders or _MOST_OPEN)
                run.add_stage(info, spreader.statistics)
                with slices_made(run) as spreader.above:
                    source.attach(spreader, run)

        bound = 0 if groups is not None else feeders or _MOST_OPEN
        keeps = groups is None or feeders is not None
        untouched = groups is not None
        info = StageInfo(
            "spread",
            detail,
            bound,
            placement=Placement(keeps=keeps, untouched=untouched),
            picture=Picture(feeders=feeders),
        )
        turns = groups is not None or source.turns
        flowable = _Spreading(
            attach, info, groups or source, turns=turns, spreads=True, passes=is_grouped
        )
        return flowable


class _Spreading(Flowable[Any]):
    """The operator that `spread` returns."""


@recorded
def spread(feeders: int | None = None) -> _Spread:
    """Rotate over the groups of `group_by`, or over a plain stream of iterables, async ones too.

    `feeders` groups are worked on at a time and the next is opened when one runs empty, which is
    the job spreader; None rotates over all. A live group is empty when none of its events waits and
    its turn is not held. Raises BuildError when `feeders` is below 1, and over a source of single
    events.

    >>> from penstock import for_each, from_iterable, run, spread
    >>> jobs = from_iterable([["a1", "a2"], ["b1", "b2"]]).pipe(spread())
    >>> report = run(jobs.to(for_each(print)))
    a1
    b1
    a2
    b2
    """
    require_count("spread", **given(feeders=feeders))
    return _Spread(feeders)
