"""Sums and means that are exact: the same whatever the order and the parts in which they are added.

The sum of floats is a list of floats that do not overlap, and is rounded once, as a result.
Source: J. R. Shewchuk, "Adaptive Precision Floating-Point Arithmetic and Fast Robust Geometric
Predicates" (1997), which is what math.fsum does.
"""

from __future__ import annotations

from fractions import Fraction
from math import fsum, inf
from typing import Any

from penstock.streams.aggregates.aggregate import BaseAggregate, reader
from penstock.streams.base.errors import describe
from penstock.streams.base.keys import By, key_name

__all__ = ["Mean", "Sum", "number_reader"]

# JSON has integers of up to 64 bits; a larger one is a text.
_LARGE = 1 << 63

# So that no sum of floats becomes infinite.
_LARGEST = 1e300


def number_reader(of: By[Any], name: str) -> Any:
    """Reads the number `of` of values for the aggregate `name`. ValueError for anything else."""
    read = reader(of, name)

    def read_number(value: Any) -> Any:
        number = read(value)
        kind = number.__class__
        if kind is int or (kind is float and -_LARGEST < number < _LARGEST):
            return number
        if kind is bool:
            return int(number)
        raise ValueError(f"{name}({key_name(of)}): {describe(number)} is not a number")

    return read_number


# A whole number, or it with the floats, whose sum is exact.
# Any: which of them it is, is asked by its class, because that is quick.
_Total = Any


def _whole(total: int) -> int | str:
    return total if -_LARGE < total < _LARGE else str(total)


def _added(total: _Total, number: Any) -> _Total:
    """The exact sum."""
    if total.__class__ is int and number.__class__ is int:
        return _whole(total + number)
    if total.__class__ is not list:
        if number.__class__ is int:
            return _whole(int(total) + number)
        return [total, number]
    parts = total
    if number.__class__ is int:
        parts[0] = _whole(int(parts[0]) + number)
        return parts
    kept = 1
    for at in range(1, len(parts)):
        part = parts[at]
        if abs(number) < abs(part):
            number, part = part, number
        high = number + part
        low = part - (high - number)
        if low:
            parts[kept] = low
            kept += 1
        number = high
    parts[kept:] = [number]
    return parts


def _merged(total: _Total, other: _Total) -> _Total:
    if other.__class__ is not list:
        return _added(total, int(other))
    whole, *floats = other
    for number in (int(whole), *floats):
        total = _added(total, number)
    return total


def _exact(total: _Total) -> int | Fraction:
    if total.__class__ is not list:
        return int(total)
    whole, *floats = total
    return int(whole) + sum(map(Fraction, floats), Fraction())


def _value(total: _Total) -> float:
    """The sum: an int of ints, else the nearest float."""
    if total.__class__ is not list:
        return int(total)
    whole, *floats = total
    return fsum(floats) if whole == 0 else _nearest(_exact(total))


def _nearest(exact: int | Fraction) -> float:
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return inf if exact > 0 else -inf


class Sum(BaseAggregate[float]):
    """The sum of a number of each value."""

    def __init__(self, of: By[Any]) -> None:
        super().__init__(number_reader(of, "sum"))

    def start(self) -> Any:
        return 0

    def put(self, acc: Any, read: Any, time: float) -> Any:
        return _added(acc, read)

    def merge(self, acc: Any, other: Any, /) -> Any:
        return _merged(acc, other)

    def result(self, acc: Any, /) -> float:
        return _value(acc)


class Mean(BaseAggregate[float]):
    """The mean of a number of each value: the float nearest to the exact one."""

    def __init__(self, of: By[Any]) -> None:
        super().__init__(number_reader(of, "mean"))

    def start(self) -> Any:
        return [0, 0]

    def put(self, acc: Any, read: Any, time: float) -> Any:
        acc[0] += 1
        acc[1] = _added(acc[1], read)
        return acc

    def merge(self, acc: Any, other: Any, /) -> Any:
        acc[0] += other[0]
        acc[1] = _merged(acc[1], other[1])
        return acc

    def result(self, acc: Any, /) -> float:
        return _nearest(Fraction(_exact(acc[1])) / acc[0])
