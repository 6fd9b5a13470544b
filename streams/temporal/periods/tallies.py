"""Sliding aggregates over the rows valid at an instant: count, sum, average, least, greatest.

A tally is given in advance the points at which rows enter and leave, and then crosses the points in
order. It is exact: the value at an instant is the plain aggregate over the rows valid then,
correctly rounded, whatever has entered and left before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, Rounded, getcontext, localcontext
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import repeat
from math import frexp, inf
from operator import mul
from typing import Any, Literal

from penstock.streams.base.errors import BuildError

__all__ = ["Aggregate", "Scaled", "Tally", "negated", "rounded", "scaled", "tally_maker"]

# A smaller heap is not worth compacting.
_FEW = 8

# What is scaled to whole numbers: at most so many decimal places, and no larger numbers.
_PLACES, _LARGEST = 60, 1 << 200

# Binary digits of a float.
_DIGITS = 53

# Sums and multiples of so many decimals with so many places are exact in it.
_EXACT = Context(prec=4 * _PLACES, traps=[Rounded])

Aggregate = Literal["count", "sum", "avg", "min", "max"]


class Tally:
    """Counts rows; the base class of the other tallies.

    `pending` holds the changes at each point not yet crossed. Entering and leaving take O(1),
    crossing a point O(log rows) for each row that changes there.
    """

    pending: dict[Any, Any]

    def __init__(self) -> None:
        self.rows: int = 0
        self.pending = {}

    def enter(self, at: Any, amount: Any) -> None:
        """A row is valid from `at` on."""
        self.pending[at] = self.pending.get(at, 0) + 1

    def leave(self, at: Any, amount: Any) -> None:
        """A row is no longer valid from `at` on."""
        self.pending[at] = self.pending.get(at, 0) - 1

    def cross(self, at: Any) -> None:
        """Go on to `at`, which must come after the points crossed so far."""
        self.rows += self.pending.pop(at)

    @property
    def value(self) -> Any:
        """The aggregate of the rows valid now; there is at least one."""
        return self.rows


class _Sum(Tally):
    """Keeps the sum as an int or a fraction, because rounding errors would keep it from returning
    to zero."""

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
        # Of the remaining rows; a NaN or infinity may have left.
        return self._sum if self._fractions else int(self._sum)

    def _plain(self, exact: int | Fraction) -> Any:
        if self._floats:
            return rounded(exact)
        return Decimal(exact.numerator) / Decimal(exact.denominator)


class _Average(_Sum):
    @property
    def value(self) -> Any:
        exact = Fraction(self._sum, self.rows)
        return self._plain(exact) if self._decimals else rounded(exact)


def rounded(exact: int | Fraction) -> float:
    """The nearest float; infinity beyond the largest one."""
    try:
        return float(exact)
    except OverflowError:
        return inf if exact > 0 else -inf


@dataclass(frozen=True, slots=True)
class Scaled:
    """Amounts of one type, `kind`, as whole numbers, each `scale` times as large.

    Sums of whole numbers are exact, and much quicker than those of fractions.
    """

    kind: type[Any]
    scale: int

    def whole(self, amounts: Sequence[Any]) -> list[int]:
        """The whole numbers of some of the amounts."""
        if self.kind is int:
            return list(amounts)
        if self.kind is float:
            return list(map(int, map(float(self.scale).__mul__, amounts)))
        with localcontext(_EXACT):
            return list(map(int, map(mul, amounts, repeat(Decimal(self.scale)))))

    def sums(self, totals: list[int], rows: list[int]) -> list[Any]:
        """The sums of amounts, of the totals of their whole numbers."""
        if self.kind is int:
            return list(totals)
        if self.kind is float:
            # Correctly rounded, as the scale is a power of two; totals are too small to overflow. A
            # quotient takes twice as long.
            return list(map((1 / self.scale).__mul__, totals))
        return list(map(getcontext().divide, totals, repeat(Decimal(self.scale))))

    def averages(self, totals: list[int], rows: list[int]) -> list[Any]:
        """The averages of amounts, of the totals and the number of rows; where there are none, of
        one."""
        scale = self.scale
        divisors = [(number or 1) * scale for number in rows]
        if self.kind is Decimal:
            return list(map(getcontext().divide, totals, divisors))
        try:
            return [total / divisor for total, divisor in zip(totals, divisors, strict=True)]
        except OverflowError:
            return list(map(rounded, map(Fraction, totals, divisors)))


def scaled(amounts: list[Any]) -> Scaled | None:
    """How to make the amounts whole numbers; None for those of several types, for fractions, and
    where a whole number would need too many digits."""
    kinds = set(map(type, amounts))
    if kinds == {int}:
        return Scaled(int, 1)
    if kinds == {float}:
        # A float is a whole number of 53 binary digits, times a power of two.
        sizes: list[float] = [abs(amount) for amount in amounts if amount]
        _, exponent = frexp(min(sizes, default=1.0))
        scale = 1 << max(0, _DIGITS - exponent)
        if scale > _LARGEST or max(amounts) > _LARGEST or min(amounts) < -_LARGEST:
            return None
        return Scaled(float, scale)
    if kinds == {Decimal}:
        if max(map(Decimal.adjusted, amounts)) > _PLACES:
            return None
        try:
            with localcontext(_EXACT):
                # It has as many decimal places as the amount that has the most.
                total = sum(amounts, Decimal())
        except Rounded:
            return None
        exponent = int(total.as_tuple().exponent)
        return Scaled(Decimal, 10 ** max(0, -exponent)) if -exponent <= _PLACES else None
    return None


class _Least(Tally):
    """A heap of the amounts of valid rows, each once.

    Those that have left are removed when they reach the top, or when they outnumber the others: the
    heap never holds many more than twice the valid amounts.
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
        """The sort key of an amount, such that the least key is the wanted amount; applied again,
        it returns the amount."""
        return amount


class _Greatest(_Least):
    @staticmethod
    def _turned(amount: Any) -> Any:
        return negated(amount)


def negated(amount: Any) -> Any:
    """`-amount`, which would round a long decimal."""
    return amount.copy_negate() if isinstance(amount, Decimal) else -amount


_TALLIES: dict[str, Callable[[], Tally]] = {
    "count": Tally,
    "sum": _Sum,
    "avg": _Average,
    "min": _Least,
    "max": _Greatest,
}


def tally_maker(aggregate: Aggregate, has_amounts: bool, include_zero: bool) -> Callable[[], Tally]:
    """The factory of a tally for each key. Raises BuildError for options that do not go
    together."""
    if aggregate not in tuple(_TALLIES):
        raise BuildError(f"aggregate={aggregate!r}: use one of {', '.join(_TALLIES)}")
    if has_amounts == (aggregate == "count"):
        what = "counts rows: leave out of=" if has_amounts else "needs of=, the field it is of"
        raise BuildError(f"aggregate={aggregate!r} {what}")
    if include_zero and aggregate != "count":
        raise BuildError(
            f"include_zero=True with aggregate={aggregate!r}: only a count of no rows is 0"
        )
    return _TALLIES[aggregate]
