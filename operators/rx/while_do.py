"""Read the source from its start as long as a condition holds, which may be never.

Items:   those of each reading of the source, unchanged, in order.
Time:    the condition is asked before each reading (`do_while`: but the first), in the call in
         which the one before has ended; after a reading without events perhaps in the next loop
         iteration.
Memory:  none of its own.
Demand:  requests what is requested of it; what a reading has not answered goes to the next one.
Ends:    when the condition does not hold; after that nothing is read. A drain begins no other
         reading. Each event is finished with the reading that it came from.
Errors:  the source's, and the condition's, pass through; a coroutine for an answer is an
         UnfinishedResult.

    condition  true      true      false
    source     --1--2|
    while_do   --1--2----1--2------|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.streams.base.recorded import recorded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.rx.combining.succession import looping

__all__ = ["do_while", "while_do"]

T = TypeVar("T")


@recorded
def while_do(condition: Callable[[Any], bool]) -> Callable[[Flowable[T]], Flowable[T]]:
    """Read the source as long as `condition(source)` is true; asked before each reading.

    Raises BuildError for an async condition, and for a source that cannot begin again, such as
    standard input.
    """
    return looping("while_do", condition, asks_first=True)


@recorded
def do_while(condition: Callable[[Any], bool]) -> Callable[[Flowable[T]], Flowable[T]]:
    """`while_do` that reads the source once before it asks the condition."""
    return looping("do_while", condition, asks_first=False)
