"""Windows by their definition: lists of all events, looked through each time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from math import floor, inf
from typing import Any
from zoneinfo import ZoneInfo

__all__ = ["Arrived", "FixedWindows", "Sessions", "calendar_window"]


@dataclass(frozen=True)
class Arrived:
    """An event with the watermark at its emission, -inf if it was not late."""

    time: float
    watermark: float
    number: int


@dataclass
class FixedWindows:
    """Windows that begin at each multiple of `every`."""

    length: Fraction
    every: Fraction
    keep: float = 0.0
    arrived: list[Arrived] = field(default_factory=list)

    def windows_at(self, time: float) -> list[tuple[float, float]]:
        """The windows that have this time."""
        near = floor(Fraction(time) / self.every)
        some = range(near - floor(self.length / self.every) - 2, near + 3)
        bounds = [(float(n * self.every), float(n * self.every + self.length)) for n in some]
        return [(start, end) for start, end in bounds if start <= time < end]

    def counts(self, event: Arrived) -> bool:
        return any(end + self.keep > event.watermark for _, end in self.windows_at(event.time))

    def all(self) -> list[tuple[float, float]]:
        found = {one for event in self.arrived for one in self.windows_at(event.time)}
        return sorted(found, key=lambda window: window[::-1])

    def on_time(self, window: tuple[float, float]) -> list[int]:
        return self._in(window, window[1])

    def corrected(self, window: tuple[float, float]) -> list[int]:
        return self._in(window, window[1] + self.keep)

    def _in(self, window: tuple[float, float], limit: float) -> list[int]:
        """The numbers of the events of a window for which `limit` has not passed."""
        start, end = window
        return sorted(
            event.number
            for event in self.arrived
            if start <= event.time < end and event.watermark < limit
        )


@dataclass
class Sessions:
    """Events less than `gap` apart, as sessions in which each event is listed."""

    gap: Fraction
    most: Fraction
    sessions: list[list[Arrived]] = field(default_factory=list)

    def put(self, event: Arrived) -> bool:
        time, end = _exact(event.time), self._after(event.time)
        if event.time < event.watermark:
            return False
        one = [event]
        for other in sorted(self.sessions, key=lambda events: self.bounds(events)[0]):
            start, bound = self.bounds(other)
            overlaps = start < end and time < bound
            if overlaps and self._length([*one, *other]) <= self.most:
                one += other
                self.sessions.remove(other)
        self.sessions.append(one)
        return True

    def bounds(self, events: list[Arrived]) -> tuple[Fraction, Fraction]:
        times = [event.time for event in events]
        return _exact(min(times)), self._after(max(times))

    def _after(self, time: float) -> Fraction:
        return _exact(time) + self.gap

    def _length(self, events: list[Arrived]) -> Fraction:
        start, end = self.bounds(events)
        return end - start


def _exact(time: float) -> Any:
    """A time as its decimal number."""
    return time if abs(time) == inf else Fraction(repr(time))


def calendar_window(unit: str, zone: ZoneInfo, time: float, step: int = 60) -> tuple[int, int]:
    """The window of a time, found by steps of so many seconds in which the local time is read."""

    def named(second: int) -> tuple[Any, ...]:
        local = datetime.fromtimestamp(second, zone)
        match unit:
            case "hour":
                return local.date(), local.hour, local.utcoffset()
            case "day":
                return (local.date(),)
            case "week":
                return (local.date() - timedelta(days=local.weekday()),)
            case "month":
                return local.year, local.month
            case "quarter":
                return local.year, (local.month + 2) // 3
            case _:
                return (local.year,)

    start = floor(time) // step * step
    end = start + step
    name = named(start)
    while named(start - step) == name:
        start -= step
    while named(end) == name:
        end += step
    return start, end
