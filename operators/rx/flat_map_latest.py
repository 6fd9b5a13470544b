"""Make a stream of each value, and read the newest of these streams: another name of `switch_map`.

Items:   the events of each value's stream until the next value comes.
Time:    as soon as they come, or as they are requested.
Memory:  one event of the open stream, and one of the source.
Demand:  as `switch_map` does.
Ends:    as `switch_map` does.
Errors:  as `switch_map` does.

    source              --a-----b------|
    flat_map_latest(f)  ----1-2----1-2---|
    f(a)                ----1-2-X
    f(b)                        ---1-2---|      X: cancelled
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from reactivex import operators as stock

from penstock.streams.flowable import Flowable
from penstock.streams.rx.lift import WithStock
from penstock.streams.rx.switching import switched

__all__ = ["flat_map_latest"]

T = TypeVar("T")


def flat_map_latest(mapper: Callable[[T], Any]) -> Callable[[Flowable[T]], Flowable[Any]]:
    """The events of the stream that `mapper` returns for the newest value."""
    return WithStock(
        lambda source: switched("flat_map_latest", source, mapper), stock.flat_map_latest(mapper)
    )
