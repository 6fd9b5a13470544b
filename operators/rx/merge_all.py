"""Read the streams that are a stream's values, several at once.

Items:   the events of the streams; those of one stream stay in order.
Time:    as soon as they come, or as they are requested. The next stream is opened when none of the
         open ones has an event, so streams that need not wait are read one after another.
Memory:  one event of each open stream, up to `max_concurrent` of the source, and two that wait. A
         plain Observable has a buffer of 1,024 besides.
Demand:  one event at a time from each open stream; one of the source while fewer are open. While
         all are open and none has an event, two more, so that an error behind them is not late.
Ends:    when the source and all streams have ended. An event of the source is finished when its
         stream has ended and all its events are; without any it is dropped as "merge_all". An event
         of a stream ends as it comes out, towards both. Cancel cancels all, and returns both. A
         drain stops the source, and reads the open streams to their ends.
Errors:  the first one, of the source or of a stream, passes on at once or when the values before it
         have been read; that of a stream fails its event of the source; all others are cancelled,
         and what waits is returned.

    source       --a-----b--------|
    merge_all()  ----1-2---1-3-2----|
    a            ----1-2-----3|
    b                  ----1---2----|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactivex import operators as stock

from penstock.streams.flowable import Flowable
from penstock.streams.rx.combining.flat_map import MOST_OPEN
from penstock.streams.rx.combining.flattening import flattened
from penstock.streams.rx.lift import WithStock

__all__ = ["merge_all"]


def merge_all(max_concurrent: int = MOST_OPEN) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """The events of all streams that the stream has as values, `max_concurrent` read at once.

    The values may be streams, Observables, futures or iterables. Raises BuildError for a
    `max_concurrent` below 1.
    """
    return WithStock(
        lambda source: flattened("merge_all", source, None, max_concurrent), stock.merge_all()
    )
