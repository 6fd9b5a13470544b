"""Open a window at each event of another stream, until a stream of its own ends it.

Items:   a stream for each window, whose values leave as they come; an event may be in several
         windows, or in none.
Time:    a window begins when the other stream emits, and ends when its own emits or ends.
Memory:  up to 1,024 unfinished events; then no more are requested until a result leaves, and a
         warning reports this. A plain Observable in place of another stream has a buffer of 1,024
         besides.
Demand:  one event after another, as long as what reads the windows has room for a result. From the
         streams that begin and end windows one event at a time too: the next one after the last has
         come, and while no result waits.
Ends:    as in Rx not with the source, but with the stream that begins windows, when those that are
         open have ended too; and with a drain, which stops all of them. What reads them follows:
         `flat_map`, `switch_map`, `merge_all` and the like, with only operators such as `map`
         between. The members of a window are finished with the next result made of the windows;
         those without a result, and those that come while no window is open, are dropped.
         Events that begin or end a window are dropped as "window_toggle" as they come. Cancel
         returns what is kept.
Errors:  the source's and that of the other stream pass on. HoldExceeded instead of the pause if
         what ends the windows is read from a shared stream, because it might never come.

    source               --1--2--3--4--|
    window_toggle(o, f)  ---a----------|
    o                    ---x----------|
    f(x)                    -----x
    a                       --2--|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactivex import Observable
from reactivex import operators as stock

from penstock.streams.flowable import Flowable
from penstock.streams.rx.lift import as_ours

__all__ = ["window_toggle"]


def window_toggle(
    openings: Observable[Any],
    closing_mapper: Callable[[Any], Observable[Any]],
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Windows that begin when `openings` emits and end when `closing_mapper(value)` emits or ends.

    Inside a window there is no demand: an operator of this library takes the form of reactivex's
    there, or is a BuildError. Raises BuildError where nothing reads the windows.
    """
    return as_ours(stock.window_toggle(openings, closing_mapper))
