"""Make a stream of each value, and read the newest of these streams.

Items:   the events of each value's stream until the next value comes.
Time:    as soon as they come, or as they are requested. The next value is taken as soon as it
         comes, as long as events are requested.
Memory:  one event of the open stream, and one of the source. A plain Observable has a buffer of
         1,024 besides.
Demand:  one event at a time from the open stream, and the next one of the source while there is
         demand that the open stream does not meet. A slow reader holds back both: to go on with the
         newest value, wrap the source with `latest()`.
Ends:    when the source and the last stream have ended. When the next value comes, the stream of
         the one before is cancelled, and its events that have not been passed on are returned. An
         event of the source is finished when its stream has ended or was cancelled, and all that
         came of it is finished; if nothing came of it, it is dropped as "switch_map". Cancel
         returns both. A drain stops the source, and reads the open stream to its end.
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

from penstock.streams.flowable import Flowable
from penstock.streams.rx.combining.flattening import Inner
from penstock.streams.rx.combining.switching import switched
from penstock.streams.rx.lift import WithStock

__all__ = ["switch_map"]

T = TypeVar("T")
S = TypeVar("S")


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
