"""A case: what the tests of the rules know about a source or an operator.

All streams are over the numbers 0, 1, 2, ... A case says what the first n of them become.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from penstock import Flowable

__all__ = ["Case", "Numbers", "numbers_up_to"]


class Numbers:
    """0, 1, 2, ... `n` numbers; then the end, or `error`. Counts how often it is open."""

    def __init__(
        self,
        n: int | None = None,
        error: Exception | None = None,
        closing_error: Exception | None = None,
    ) -> None:
        self.n = n
        self.error = error
        self.closing_error = closing_error
        self.opened = self.closed = 0

    def __iter__(self) -> Iterator[int]:
        self.opened += 1
        try:
            for number in count():
                if number == self.n:
                    if self.error is not None:
                        raise self.error
                    return
                yield number
        finally:
            self.closed += 1
            if self.closing_error is not None:
                raise self.closing_error


@dataclass(frozen=True)
class Case:
    """One source, or one operator over `from_iterable`.

    `over(numbers)` is the stream. `outputs(n)` are the values that 0 .. n - 1 become.
    `operator` is the operator between a publisher and a subscriber, None for a source.
    """

    name: str
    over: Callable[[Iterable[int]], Flowable[Any]]
    outputs: Callable[[int], list[Any]]
    operator: Callable[[Any], Any] | None = None
    ordered: bool = True
    """Whether the inputs decide the order of the values."""
    lossless: bool = True
    """Whether values that are not requested yet wait."""
    synchronous: bool = True
    """Whether values come inside `request` (rules 3.10 and 3.11)."""
    waiting_errors: bool = False
    """Whether an error lets what is in flight finish first, as documented."""
    pulls: bool = True
    """Whether the numbers are pulled one by one, and may be endless or raise."""
    calls_in_pool: bool = False
    early: bool = False
    """Whether a value comes before those of the source, and an error waits for it."""
    resumes: bool = False
    """Whether an error of the source is followed by other values."""
    sees_end: bool = True
    """Whether the end is known with the last value; a reader of iterators would have to pull
    ahead of the demand."""

    def of(self, n: int) -> Flowable[Any]:
        """The stream over the first n numbers."""
        return self.over(range(n))

    def seen(self, values: Iterable[Any]) -> list[Any]:
        """Values as a list that can be compared with `wanted`."""
        return list(values) if self.ordered else sorted(values)

    def wanted(self, n: int) -> list[Any]:
        """The expected values of n numbers, to be compared with `seen`."""
        return self.outputs(n) if self.ordered else sorted(self.outputs(n))

    def __str__(self) -> str:
        return self.name


def numbers_up_to(n: int) -> list[Any]:
    return list(range(n))
