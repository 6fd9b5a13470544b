"""Read the source once, and again from its start as long as a condition holds.

Items:   those of each reading of the source, unchanged, in order.
Time:    the condition is asked after each reading, in the call in which it has ended; after a
         reading without events perhaps in the next loop iteration.
Memory:  none of its own.
Demand:  requests what is requested of it; what a reading has not answered goes to the next one.
Ends:    when the condition does not hold after a reading. A drain begins no other reading. Each
         event is finished with the reading that it came from.
Errors:  the source's, and the condition's, pass through; a coroutine for an answer is an
         UnfinishedResult.

    source     --1--2|
    condition        true     false
    do_while   --1--2----1--2-|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.streams.flowable import Flowable
from penstock.streams.rx.combining.succession import looping

__all__ = ["do_while"]

T = TypeVar("T")


def do_while(condition: Callable[[Any], bool]) -> Callable[[Flowable[T]], Flowable[T]]:
    """Read the source, and again as long as `condition(source)` is true after a reading.

    Raises BuildError for an async condition, and for a source that cannot begin again, such as
    standard input.
    """
    return looping("do_while", condition, asks_first=False)
