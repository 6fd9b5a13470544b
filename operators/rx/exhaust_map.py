"""Read a stream made of a value to its end, and drop the values that come meanwhile.

Items:   the events of the streams that are read.
Time:    as soon as they come, or as they are requested.
Memory:  one event of the open stream, and one of the source. A plain Observable has a buffer of
         1,024 besides.
Demand:  one event at a time from the open stream, and the next one of the source while there is
         demand that the open stream does not meet. A slow reader holds back both: to go on with the
         newest value, wrap the source with `latest()`.
Ends:    when the source and the open stream have ended. An event of the source is finished when its
         stream has ended and all its events are; one that comes while another's stream is open, or
         whose stream is empty, is dropped under the operator's name. Cancel returns what is open. A
         drain stops the source, and reads the open stream to its end.
Errors:  the first one, of the source, the function or the open stream, passes on at once; the event
         of the source fails with it.

    source          --a-----b------c------|
    exhaust_map(f)  ----1-2----3-----1-2----|
    f(a)            ----1-2----3|
    f(c)                             1-2----|      f(b) is not called

It is `exhaustMap` of RxJS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from reactivex import compose
from reactivex import operators as stock

from penstock.streams.base.recorded import recorded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage_info import Delivery, Placement, StageInfo
from penstock.streams.rx.combining.flattening import Inner
from penstock.streams.rx.combining.switching import Exclusive, switched
from penstock.streams.rx.lift import WithStock

__all__ = ["exclusive", "exhaust_map"]

T = TypeVar("T")
S = TypeVar("S")


@recorded
def exhaust_map(project: Callable[[T], Inner[S]]) -> Callable[[Flowable[T]], Flowable[S]]:
    """The events of the streams that `project` returns for values that come while none is read.

    It may return a stream, an Observable or a future, and is not called for a value that is
    dropped.
    """
    streams: Any = stock.map(cast("Any", project))
    return WithStock(
        lambda source: switched("exhaust_map", source, project, Exclusive),
        compose(streams, stock.exclusive()),
    )


@recorded
def exclusive() -> Callable[[Flowable[Any]], Flowable[Any]]:
    """`exhaust_map` of the values themselves: streams, Observables or futures."""
    info = StageInfo(
        "exclusive", "", 2, delivery=Delivery(makes=True), placement=Placement(opens=True)
    )
    return WithStock(lambda source: source.then(Exclusive, info), stock.exclusive())
