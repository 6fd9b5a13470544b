"""Quantiles of numbers of any size, with a small relative error.

The counts of cells as in penstock's latency histogram, which are HdrHistogram's
(https://hdrhistogram.github.io/HdrHistogram/): the cell of a number is its first 11 binary digits.
Here they are not bounded by an hour, and negative numbers and 0 have cells too.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import frexp, ldexp
from typing import Any

from penstock.streams.aggregates.aggregate import BaseAggregate
from penstock.streams.aggregates.numbers import number_reader
from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By
from penstock.streams.base.validation import is_at_least

__all__ = ["Quantiles"]

_DIGITS = 11
# Cells of one power of two.
_CELLS = 1 << _DIGITS - 1
# No float has a less exponent.
_LEAST = 1100


class Quantiles(BaseAggregate[list[float]]):
    """The number at each of these shares of the sorted numbers, as the middle of its cell.

    The state is the count of each cell that is not empty, by its number as a text.
    """

    def __init__(self, of: By[Any], shares: tuple[float, ...]) -> None:
        if not shares or not all(is_at_least(one, 0) and one <= 1 for one in shares):
            given = ", ".join(map(repr, shares))
            raise BuildError(
                f"agg.quantiles(..., {given}): give shares from 0 to 1, such as 0.5 and 0.99"
            )
        super().__init__(number_reader(of, "quantiles"))
        self._shares = shares

    def start(self) -> Any:
        return {}

    def put(self, acc: Any, read: Any, time: float) -> Any:
        cell = _cell(read)
        acc[cell] = acc.get(cell, 0) + 1
        return acc

    def merge(self, acc: Any, other: Any, /) -> Any:
        for cell, count in other.items():
            acc[cell] = acc.get(cell, 0) + count
        return acc

    def result(self, acc: Any, /) -> list[float]:
        cells = sorted((int(cell), count) for cell, count in acc.items())
        ends = list(accumulate(count for _, count in cells))
        # As a percentile of the latency histogram.
        ranks = (max(1, int(share * ends[-1] + 0.5)) for share in self._shares)
        return [_middle(cells[bisect_left(ends, rank)][0]) for rank in ranks]


def _cell(number: float) -> str:
    """The number of the cell, in the order of the numbers; 0 has that of 0."""
    if not number:
        return "0"
    fraction, exponent = frexp(abs(number))
    cell = (exponent + _LEAST) * _CELLS + int(fraction * 2 * _CELLS) - _CELLS
    return str(cell if number > 0 else -cell)


def _middle(cell: int) -> float:
    """The number in the middle of a cell."""
    if not cell:
        return 0.0
    exponent, digits = divmod(abs(cell), _CELLS)
    middle = ldexp(digits + _CELLS + 0.5, exponent - _LEAST - _DIGITS)
    return middle if cell > 0 else -middle
