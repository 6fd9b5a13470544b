"""Where windows of a fixed shape begin and end, and the slices that they have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from math import floor, gcd
from typing import Protocol

from penstock.streams.base.calendar import change, days_at, local
from penstock.streams.windows.shapes import Calendar, Regular, Unit

__all__ = ["CalendarGrid", "Grid", "RegularGrid"]

# Slices of which what is computed of them is kept.
_REMEMBERED = 1_000


class Grid(Protocol):
    """Cuts time into slices, and says which windows they are part of."""

    has_one_slice: bool
    """Whether each window is one slice."""

    @abstractmethod
    def slice_at(self, time: float) -> tuple[float, float]:
        """The beginning and the end of the slice that has this time."""

    @abstractmethod
    def windows(self, start: float, end: float, above: float) -> Iterator[tuple[float, float]]:
        """The windows with this slice that end after `above`, the earliest first."""

    @abstractmethod
    def last_end(self, start: float, end: float) -> float:
        """The end of the last window with this slice."""


class RegularGrid:
    """The slices of windows of equal length: as long as the greatest common divisor of the length
    and of what is between two beginnings.

    A bound is a whole number of slices, divided exactly and rounded once: so it is the same float
    whatever it is computed from.
    """

    def __init__(self, shape: Regular) -> None:
        common = shape.length.denominator * shape.every.denominator
        length, every = int(shape.length * common), int(shape.every * common)
        slice_ = Fraction(gcd(length, every), common)
        self._up, self._down = slice_.numerator, slice_.denominator
        # In slices.
        self._length = int(shape.length / slice_)
        self._every = int(shape.every / slice_)
        self.has_one_slice = self._length == 1
        # Keys have the same slices at about the same time.
        self._number = lru_cache(_REMEMBERED)(self._number_of)
        self.last_end = lru_cache(_REMEMBERED)(self._last_end)

    def slice_at(self, time: float) -> tuple[float, float]:
        number = self._number(time)
        return self._bound(number), self._bound(number + 1)

    def windows(self, start: float, end: float, above: float) -> Iterator[tuple[float, float]]:
        number, length, every = self._number(start), self._length, self._every
        first = -((length - 1 - number) // every)
        if above > start:
            # The first that ends after it.
            first = max(first, (self._number(above) + 1 - length + every - 1) // every)
        for window in range(first, number // every + 1):
            begin = window * every
            bound = self._bound(begin + length)
            if bound > above:
                yield self._bound(begin), bound

    def _last_end(self, start: float, end: float) -> float:
        every = self._every
        return self._bound(self._number(start) // every * every + self._length)

    def _bound(self, number: int) -> float:
        return number * self._up / self._down

    def _number_of(self, time: float) -> int:
        """The number of the slice that has this time."""
        above, below = time.as_integer_ratio()
        number = above * self._down // (below * self._up)
        # The next bound may have been rounded down to this time.
        return number + 1 if self._bound(number + 1) <= time else number


class CalendarGrid:
    """The hours, days, weeks, months, quarters or years of a time zone.

    A bound is a whole second. An hour is what lies between two full hours of the clock, or between
    one and a change of the clock; for the others see `penstock.streams.base.calendar`.
    """

    has_one_slice = True

    def __init__(self, shape: Calendar) -> None:
        self._unit: Unit = shape.unit
        self._zone = shape.zone

    def slice_at(self, time: float) -> tuple[float, float]:
        second = floor(time)
        if self._unit == "hour":
            start, end = self._hour(second)
        else:
            _, start, end = days_at(self._unit, self._zone, second)
        return float(start), float(end)

    def windows(self, start: float, end: float, above: float) -> Iterator[tuple[float, float]]:
        if end > above:
            yield start, end

    def last_end(self, start: float, end: float) -> float:
        return end

    def _hour(self, second: int) -> tuple[int, int]:
        offset = self._offset(second)
        start = second - (second + offset) % 3600
        end = start + 3600
        if self._offset(start) != offset:
            start = change(start, second, self._zone)
        if self._offset(end - 1) != offset:
            end = change(second, end - 1, self._zone)
        return start, end

    def _offset(self, second: int) -> int:
        offset = local(second, self._zone).utcoffset()
        assert offset is not None
        return int(offset.total_seconds())
