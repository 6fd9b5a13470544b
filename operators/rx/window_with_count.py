"""Cut a stream into windows of `count` events.

Items:   a stream for each window, which begins with the first of its values.
Time:    a window begins when its first event is due, which may be before that comes; its values
         leave as they come.
Memory:  up to 1,024 events that are not finished, or `count` or `skip` if that is more.
Demand:  one event after another, as long as what reads the windows has room for a result.
Ends:    with the source, which ends the open windows. What reads them follows: `flat_map`,
         `switch_map`, `merge_all` and the like, with only operators such as `map` between. The
         members of a window are finished with the next result made of the windows; those
         without a result are dropped at the end. Cancel returns them.
Errors:  the source's passes on. HoldExceeded if more events than that wait for a result.

    source                --1--2--3--4--5--|
    window_with_count(2)  a-----b-----c----|
    a                     --1--2|
    b                           ---3--4|
    c                                 --5--|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactivex import operators as stock

from penstock.streams.flowable import Flowable

__all__ = ["window_with_count"]


def window_with_count(
    count: int, skip: int | None = None
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Windows of `count` events, of which one begins every `skip` events (None: every `count`).

    Inside a window there is no demand: an operator of this library takes the form of reactivex's
    there, or is a BuildError. Raises BuildError where nothing reads the windows.
    """
    windows: Any = stock.window_with_count(count, skip)
    operator: Callable[[Flowable[Any]], Flowable[Any]] = windows
    return operator
