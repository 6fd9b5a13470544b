"""What is said of the rows that are valid at an instant: how many, their sum, the least, ...

A tally is told ahead of time which rows enter and leave at which point, and then crosses the
points in order. It is exact: what comes out at an instant is what the plain aggregate over the
rows valid then would be, correctly rounded, whatever has entered and left before.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, Literal

from streams.errors import BuildError

__all__ = ["Aggregate", "Tally", "tally_maker"]

# Not worth being tidied up.
_FEW = 8

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
            return _rounded(exact)
        return Decimal(exact.numerator) / Decimal(exact.denominator)


class _Average(_Sum):
    @property
    def value(self) -> Any:
        exact = Fraction(self._sum, self.rows)
        return self._plain(exact) if self._decimals else _rounded(exact)


def _rounded(exact: int | Fraction) -> float:
    """The nearest float, which beyond the largest one is infinity."""
    try:
        return float(exact)
    except OverflowError:
        return inf if exact > 0 else -inf


class _Least(Tally):
    """A heap of the amounts of valid rows, each once.

    Those that have left are taken out when they come to its top, or when they are more than the
    others: it never holds many more than twice the amounts that are valid.
    """

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[Any] = []
        # How many valid rows have each amount.
        self._valid: dict[Any, int] = {}

    def enter(self, at: Any, amount: Any) -> None:
        self.pending.setdefault(at, ([], []))[0].append(self._turned(amount))

    def leave(self, at: Any, amount: Any) -> None:
        self.pending.setdefault(at, ([], []))[1].append(self._turned(amount))

    def cross(self, at: Any) -> None:
        entering, leaving = self.pending.pop(at)
        self.rows += len(entering) - len(leaving)
        valid, heap = self._valid, self._heap
        for amount in entering:
            if amount not in valid:
                heappush(heap, amount)
            valid[amount] = valid.get(amount, 0) + 1
        for amount in leaving:
            valid[amount] -= 1
            if not valid[amount]:
                del valid[amount]
        if len(heap) > 2 * len(valid) + _FEW:
            heap[:] = valid
            heapify(heap)
        while heap and heap[0] not in valid:
            heappop(heap)

    @property
    def value(self) -> Any:
        return self._turned(self._heap[0])

    @staticmethod
    def _turned(amount: Any) -> Any:
        """What comes first of these is what is wanted of the amounts; turned again, the amount."""
        return amount


class _Greatest(_Least):
    @staticmethod
    def _turned(amount: Any) -> Any:
        # `-` would round a long decimal.
        return amount.copy_negate() if isinstance(amount, Decimal) else -amount


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
