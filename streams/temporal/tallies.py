"""What is said of the rows that are valid at an instant: how many, their sum, the least, ...

A tally is told ahead of time which rows enter and leave at which point, and then crosses the
points in order. It is exact: what comes out at an instant is what the plain aggregate over the
rows valid then would be, correctly rounded, whatever has entered and left before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from heapq import heappop, heappush
from typing import Any, Literal

from streams.errors import BuildError

__all__ = ["Aggregate", "Tally", "tally_maker"]

Aggregate = Literal["count", "sum", "avg", "min", "max"]


class Tally:
    """Counts rows, and is the base of what does more.

    `pending` has what changes at each point that was not crossed yet. Entering and leaving
    take O(1), crossing O(log rows) for each row that does so.
    """

    pending: dict[Any, Any]

    def __init__(self) -> None:
        self.rows: int = 0
        self.pending = {}

    def enter(self, at: Any, amount: Any) -> None:
        """A row is valid from `at` on."""
        self.pending[at] = self.pending.get(at, 0) + 1

    def leave(self, at: Any, amount: Any) -> None:
        """A row is valid no more from `at` on."""
        self.pending[at] = self.pending.get(at, 0) - 1

    def cross(self, at: Any) -> None:
        """Go on to `at`, which must come after the points crossed so far."""
        self.rows += self.pending.pop(at)

    @property
    def value(self) -> Any:
        """What is said of the rows valid now, of which there is at least one."""
        return self.rows


class _Sum(Tally):
    """Keeps the sum as an int or a fraction, since rounded ones would add up to no zero."""

    def __init__(self) -> None:
        super().__init__()
        self._sum: int | Fraction = 0
        self._floats = self._decimals = self._fractions = 0

    def enter(self, at: Any, amount: Any) -> None:
        self.pending.setdefault(at, []).append((1, amount))

    def leave(self, at: Any, amount: Any) -> None:
        self.pending.setdefault(at, []).append((-1, amount))

    def cross(self, at: Any) -> None:
        for sign, amount in self.pending.pop(at):
            self.rows += sign
            self._floats += sign * isinstance(amount, float)
            self._decimals += sign * isinstance(amount, Decimal)
            self._fractions += sign * isinstance(amount, Fraction)
            self._sum += sign * (amount if isinstance(amount, int) else Fraction(amount))

    @property
    def value(self) -> Any:
        if self._floats or self._decimals:
            return self._plain(self._sum)
        # Of what is left; a number that is none may have left.
        return self._sum if self._fractions else int(self._sum)

    def _plain(self, exact: int | Fraction) -> Any:
        if self._floats:
            return float(exact)
        return Decimal(exact.numerator) / Decimal(exact.denominator)


class _Average(_Sum):
    @property
    def value(self) -> Any:
        exact = Fraction(self._sum, self.rows)
        return self._plain(exact) if self._decimals else float(exact)


class _Least(Tally):
    """A heap of the amounts; those that have left are taken out when they come to its top."""

    sign = 1

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[Any] = []
        self._left: Counter[Any] = Counter()

    def enter(self, at: Any, amount: Any) -> None:
        self.pending.setdefault(at, ([], []))[0].append(self.sign * amount)

    def leave(self, at: Any, amount: Any) -> None:
        self.pending.setdefault(at, ([], []))[1].append(self.sign * amount)

    def cross(self, at: Any) -> None:
        entering, leaving = self.pending.pop(at)
        self.rows += len(entering) - len(leaving)
        self._left.update(leaving)
        for amount in entering:
            heappush(self._heap, amount)
        while self._heap and self._left[self._heap[0]]:
            self._left[heappop(self._heap)] -= 1
        if not self._heap:
            self._left.clear()

    @property
    def value(self) -> Any:
        return self.sign * self._heap[0]


class _Greatest(_Least):
    sign = -1


_TALLIES: dict[str, Callable[[], Tally]] = {
    "count": Tally,
    "sum": _Sum,
    "avg": _Average,
    "min": _Least,
    "max": _Greatest,
}


def tally_maker(aggregate: Aggregate, has_amounts: bool, include_zero: bool) -> Callable[[], Tally]:
    """What makes a tally for each key. BuildError for options that do not go together."""
    if aggregate not in _TALLIES:
        raise BuildError(f"aggregate={aggregate!r}: use one of {', '.join(_TALLIES)}")
    if has_amounts == (aggregate == "count"):
        what = "counts rows: leave of= away" if has_amounts else "needs of=, the field it is of"
        raise BuildError(f"aggregate={aggregate!r} {what}")
    if include_zero and aggregate != "count":
        raise BuildError(
            f"include_zero=True with aggregate={aggregate!r}: only a count of no rows is 0"
        )
    return _TALLIES[aggregate]
