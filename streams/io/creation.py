"""The times of creation of events, on the time line of the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.streams.base import clock
from penstock.streams.base.errors import describe
from penstock.streams.base.keys import By, Key
from penstock.streams.base.validation import seconds_of, unit_of

__all__ = ["Creation"]

# Seconds by which the clocks of two machines often differ.
_SKEW = 1.0


class Creation:
    """Converts an event's own time stamp to the time line of the loop.

    The distance between the two clocks is read once, so that stamps keep their distances from
    each other when the wall clock is set. A stamp later than the receipt is taken as the
    receipt, and `in_future` counts it; one that is missing or cannot be read is too, and
    `unknown` counts it. `warn` is called once, about the first event whose time is so much
    later that clocks which differ a little cannot be the cause.
    """

    def __init__(self, by: By[Any], now: Callable[[], float], warn: Callable[[str], None]) -> None:
        self._key = Key(by)
        self._offset = now() - clock.wall()
        self._warn = warn
        self._has_warned = False
        self.in_future = self.unknown = 0

    def __call__(self, value: Any, received: float) -> float:
        """The time of creation in seconds of the loop's clock, at most `received`."""
        try:
            stamp = self._key.get(value)
            created = seconds_of(stamp) + self._offset
        except Exception:
            if self._key.adapts(value):
                return self(value, received)
            # Whatever the function raises: the event has no usable stamp, which is counted.
            self.unknown += 1
            return received
        if created > received:
            self.in_future += 1
            if not self._has_warned and created > received + _SKEW:
                self._has_warned = True
                self._warn(self._in_words(stamp, created - received, value))
            return received
        return created

    def _in_words(self, stamp: Any, seconds: float, value: Any) -> str:
        unit = unit_of(stamp, clock.wall())
        advice = "" if unit is None else f"{unit}. "
        return (
            f"the time of creation {describe(stamp)} is {seconds:,.0f} s in the future. {advice}"
            "The event counts as created when it was read, as all of created_in_future in the "
            f"statistics, of which it is the first by more than {_SKEW:g} s: {describe(value)}"
        )
