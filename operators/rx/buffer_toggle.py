"""Begin a list at each event of another stream, until a stream of its own ends it.

Items:   a list for each event of the other stream; an event may be in several, or in none.
Time:    a list begins when the other stream emits, and leaves when its own emits or ends.
Memory:  up to 1,024 unfinished events; then no more are requested until a list leaves, and a
         warning reports this. A plain Observable in place of another stream has a buffer of 1,024
         besides.
Demand:  one event after another, as long as a list is requested. From the streams that begin and
         end lists one event at a time too: the next one after the last has come, and while no list
         waits.
Ends:    as in Rx not with the source, but with the stream that begins lists, when those that are
         open have ended too; and with a drain, which stops all of them. The events of a list are
         finished with it; those that were in one already, with the next list; those that come while
         no list is open are dropped. Events that begin or end a list are dropped as "buffer_toggle"
         as they come. Cancel returns what is kept.
Errors:  the source's and that of the other stream pass on. HoldExceeded instead of the pause if
         what ends the lists is read from a shared stream, because it might never come.

    source               --1--2--3--4--|
    buffer_toggle(o, f)  --------a-----|
    o                    ---x----------|
    f(x)                    -----x
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from reactivex import Observable
from reactivex import operators as stock

from penstock.streams.flowable import Flowable
from penstock.streams.rx.lift import as_ours

__all__ = ["buffer_toggle"]

T = TypeVar("T")


def buffer_toggle(
    openings: Observable[Any],
    closing_mapper: Callable[[Any], Observable[Any]],
) -> Callable[[Flowable[T]], Flowable[list[T]]]:
    """Lists from when `openings` emits until `closing_mapper(value)` emits or ends."""
    return as_ours(stock.buffer_toggle(openings, closing_mapper))
