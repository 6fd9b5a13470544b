"""Cut a stream into windows, at each event of another stream.

Items:   a stream for each window, whose values leave as they come; a window may have none.
Time:    one window ends and the next begins when the other stream emits.
Memory:  up to 1,024 unfinished events; then no more are requested until a result leaves, and a
         warning reports this. A plain Observable in place of another stream has a buffer of 1,024
         besides.
Demand:  one event after another, as long as what reads the windows has room for a result. From the
         other stream one event at a time too: the next one after the last has come, and while no
         result waits.
Ends:    with the source, or with the other stream, which ends the open window; then the source is
         cancelled. What reads them follows: `flat_map`, `switch_map`, `merge_all` and the like,
         with only operators such as `map` between. The members of a window are finished with the
         next result made of the windows; those without a result are dropped at the end. An
         event of the other stream is dropped as "window" as it comes. A drain stops both, and
         finishes what has come. Cancel returns what is kept.
Errors:  the source's and that of the other stream pass on. HoldExceeded instead of the pause if
         what ends the windows is read from a shared stream, because it might never come.

    source          --1--2--3--4--|
    window(other)   a------b------|
    other           -------x------|
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

__all__ = ["window"]


def window(
    boundaries: Observable[Any],
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Windows between the events of `boundaries`, a stream or an Observable.

    Inside a window there is no demand: an operator of this library takes the form of reactivex's
    there, or is a BuildError. Raises BuildError where nothing reads the windows.
    """
    return as_ours(stock.window(boundaries))
