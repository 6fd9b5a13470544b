"""Read the streams that are a stream's values, one after another.

Items:   the events of the first stream, then those of the second, and so on.
Time:    as soon as they come, or as they are requested.
Memory:  one event of the open stream, one of the source, and two that wait. A plain Observable has
         a buffer of 1,024 besides.
Demand:  one event at a time from the open stream; one of the source when none is open. While the
         open one has no event, two more of the source, so that an error behind them is not late.
Ends:    when the source and its last stream have ended. An event of the source is finished when its
         stream has ended and all its events are; without any it is dropped as "concat_all". An
         event of a stream ends as it comes out, towards both. Cancel returns both. A drain stops
         the source, and reads the open stream to its end.
Errors:  the first one, of the source or of a stream, passes on at once or when the values before it
         have been read; that of a stream fails its event of the source; all others are cancelled,
         and what waits is returned.

    source        --a-----b------|
    concat_all()  ----1-2----3-1-2-|
    a             ----1-2----3|
    b                         -1-2-|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactivex import operators as stock

from penstock.streams.flowable import Flowable
from penstock.streams.rx.combining.flattening import flattened
from penstock.streams.rx.lift import WithStock

__all__ = ["concat_all"]


def concat_all() -> Callable[[Flowable[Any]], Flowable[Any]]:
    """The events of all streams that the stream has as values, one stream after another.

    The values may be streams, Observables, futures or iterables.
    """
    return WithStock(lambda source: flattened("concat_all", source, None, 1), stock.concat_all())
