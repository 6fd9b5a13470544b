"""Cut a stream into windows, each of which has a stream of its own that ends it.

Items:   a stream for each window, whose values leave as they come; a window may have none.
Time:    a window ends, and the next begins, when its own stream emits or ends.
Memory:  up to 1,024 unfinished events; then no more are requested until a result leaves, and a
         warning reports this. A plain Observable in place of another stream has a buffer of 1,024
         besides.
Demand:  one event after another, as long as what reads the windows has room for a result, and one
         of each stream that ends a window.
Ends:    with the source, which ends the open window. What reads them follows: `flat_map`,
         `switch_map`, `merge_all` and the like, with only operators such as `map` between. The
         members of a window are finished with the next result made of the windows; those
         without a result are dropped at the end. An event that ends a window is dropped as
         "window_when". A drain finishes what has come. Cancel returns what is kept.
Errors:  the source's and that of the other stream pass on. HoldExceeded instead of the pause if
         what ends the windows is read from a shared stream, because it might never come. A
         PenstockError if ten requested windows in a row end as soon as they begin.

    source          --1--2--3--4--|
    window_when(f)  a------b------|
    f()             -------x
    a               --1--2-|
    b                      -3--4--|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactivex import Observable
from reactivex import operators as stock

from penstock.streams.flowable import Flowable
from penstock.streams.rx.lift import as_ours

__all__ = ["window_when"]


def window_when(
    closing_mapper: Callable[[], Observable[Any]],
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Windows that end when the stream that `closing_mapper()` returns for each emits or ends.

    Inside a window there is no demand: an operator of this library takes the form of reactivex's
    there, or is a BuildError. Raises BuildError where nothing reads the windows.
    """
    return as_ours(stock.window_when(closing_mapper))
