"""The time of creation of an event, from a field or a function of its value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.streams import clock
from penstock.streams.io.stamps import seconds_of
from penstock.streams.keyed.key import By, Key

__all__ = ["Creation"]


class Creation:
    """Converts an event's own time stamp to the time line of the loop.

    The distance between the two clocks is read once, so that stamps keep their distances from
    each other when the wall clock is set. A stamp later than the receipt is taken as the
    receipt, and `in_future` counts it; one that is missing or cannot be read is too, and
    `unknown` counts it.
    """

    def __init__(self, by: By[Any], now: Callable[[], float]) -> None:
        self._key = Key(by)
        self._offset = now() - clock.wall()
        self.in_future = self.unknown = 0

    def __call__(self, value: Any, received: float) -> float:
        """The time of creation in seconds of the loop's clock, at most `received`."""
        try:
            created = seconds_of(self._key.get(value)) + self._offset
        except Exception:
            if self._key.adapts(value):
                return self(value, received)
            # Whatever the function raises: the event has no usable stamp, which is counted.
            self.unknown += 1
            return received
        if created > received:
            self.in_future += 1
            return received
        return created
