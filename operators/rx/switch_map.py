"""Read the newest of several streams: those that are a stream's values, or are made of them.

Items:   the events of each stream until the next one comes.
Time:    as soon as they come, or as they are requested. The next stream is taken as soon as it
         comes, as long as events are requested.
Memory:  one event of the open stream, and one of the source. A plain Observable has a buffer of
         1,024 besides.
Demand:  one event at a time from the open stream, and the next one of the source while there is
         demand that the open stream does not meet. A slow reader holds back both: to go on with the
         newest value, wrap the source with `latest()`.
Ends:    when the source and the last stream have ended. When the next stream comes, the one before
         is cancelled, and its events that have not been passed on are returned. An event of the
         source is finished when its stream has ended or was cancelled, and all that came of it is
         finished; if nothing came of it, it is dropped under the operator's name. Cancel returns
         both. A drain stops the source, and reads the open stream to its end.
Errors:  the first one, of the source, the function or the open stream, passes on at once; the event
         of the source fails with it.

    source         --a-----b------|
    switch_map(f)  ----1-2----1-2---|
    f(a)           ----1-2-X
    f(b)                   ---1-2---|      X: cancelled
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from reactivex import operators as stock

from penstock.streams.base.recorded import recorded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage_info import Delivery, Placement, StageInfo
from penstock.streams.rx.combining.flattening import Inner
from penstock.streams.rx.combining.switching import Switching, switched
from penstock.streams.rx.lift import WithStock

__all__ = ["flat_map_latest", "switch_latest", "switch_map", "switch_map_indexed"]

T = TypeVar("T")
S = TypeVar("S")


@recorded
def switch_map(
    project: Callable[[T], Inner[S]] | None = None,
) -> Callable[[Flowable[T]], Flowable[S]]:
    """The events of the stream that `project` returns for the newest value.

    It may return a stream, an Observable or a future. Without `project` the values are streams.
    """
    return WithStock(
        lambda source: switched("switch_map", source, project),
        stock.switch_map(cast("Any", project)),
    )


@recorded
def switch_map_indexed(
    project: Callable[[T, int], Inner[S]] | None = None,
) -> Callable[[Flowable[T]], Flowable[S]]:
    """`switch_map` with a `project` of a value and its index, from 0 for each reader."""
    return WithStock(
        lambda source: switched("switch_map_indexed", source, project, indexed=True),
        stock.switch_map_indexed(cast("Any", project)),
    )


@recorded
def flat_map_latest(mapper: Callable[[T], Inner[S]]) -> Callable[[Flowable[T]], Flowable[S]]:
    """Another name of `switch_map`."""
    return WithStock(
        lambda source: switched("flat_map_latest", source, mapper), stock.flat_map_latest(mapper)
    )


@recorded
def switch_latest() -> Callable[[Flowable[Any]], Flowable[Any]]:
    """`switch_map` of the values themselves: streams, Observables or futures."""
    info = StageInfo(
        "switch_latest", "", 2, delivery=Delivery(makes=True), placement=Placement(opens=True)
    )
    return WithStock(lambda source: source.then(Switching, info), stock.switch_latest())
