"""What a function of `stateful` gets besides the state and the event."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite
from typing import Any

from penstock.streams.base.errors import WrongType
from penstock.streams.base.validation import is_at_least, is_text
from penstock.streams.state.changes import without
from penstock.streams.state.clocks import EventClock

__all__ = ["Context"]

_NEEDS_TIMES = (
    "needs the times of events: put event_time(field) directly behind each source; the results of "
    "windows, joins and lookups have none, so behind these"
)


class Context:
    """The key, the time and the timers, for a function of `stateful`.

    `time` is when the timer was due or the event happened, in seconds since 1970; without an
    `event_time` in front it is when the event was created. A context is valid only during the call.
    """

    __slots__ = ("_clock", "_fires", "_now", "base", "event_timers", "key", "time", "timers")

    def __init__(self, now: Callable[[], float], clock: EventClock | None, fires: bool) -> None:
        self.key: Any = None
        self.time = 0.0
        self._now = now
        self._clock = clock
        self._fires = fires
        # From when `after` counts in event time; None is the watermark.
        self.base: float | None = None
        self.timers: dict[str, float] = {}
        self.event_timers: dict[str, float] = {}

    @property
    def watermark(self) -> float:
        """The time up to which all events have come, as far as is known, in seconds since 1970.

        `-inf` before the first event, and `inf` when the input has ended for good. Raises WrongType
        if no `event_time` is in front.
        """
        if self._clock is None:
            raise WrongType(f"ctx.watermark {_NEEDS_TIMES}")
        return self._clock.watermark

    def timer(
        self,
        name: str,
        *,
        at: float | None = None,
        after: float | None = None,
        clock: str = "wall",
    ) -> None:
        """Have `on_timer` called once, `at` a time in seconds since 1970, or `after` some seconds.

        By the wall clock, or with `clock="event"` when all events up to that time have come, as far
        as is known: `after` then counts from `time`, and in the call for a wall-clock timer from
        the watermark. One whose time has passed already is due at once, after this call. Replaces a
        timer of the same key and name. Raises WrongType for a name that is not a text, unless
        exactly one of the two times is given, if there is no `on_timer`, and for event time without
        an `event_time` in front.
        """
        if not self._fires:
            raise WrongType(
                f"ctx.timer({name!r}): give stateful an on_timer=, the function that is called "
                "when the timer is due"
            )
        if not is_text(name):
            raise WrongType(f"ctx.timer({name!r}): the name is a text that is not empty")
        # Also of the member of an enum, which is not stored as such.
        name = str.__str__(name)
        if (at is None) == (after is None):
            raise self._no_time(name, at, after)
        if clock == "event":
            self._event_timer(name, at, after)
            return
        if clock != "wall":
            raise WrongType(f'ctx.timer({name!r}, clock={clock!r}): "wall" or "event" is needed')
        if not is_at_least(after if at is None else at, 0):
            raise self._no_time(name, at, after)
        if name in self.event_timers:
            self.event_timers = without(self.event_timers, name)
        when = self._now() + (after or 0.0) if at is None else at
        self.timers = {**self.timers, name: when}

    def _event_timer(self, name: str, at: float | None, after: float | None) -> None:
        if self._clock is None:
            raise WrongType(f'ctx.timer({name!r}, clock="event") {_NEEDS_TIMES}')
        if at is None:
            if not is_at_least(after, 0):
                raise self._no_time(name, at, after)
            at = (self.watermark if self.base is None else self.base) + (after or 0.0)
        if not is_at_least(at, -inf) or not isfinite(at):
            raise self._no_time(name, at, after)
        if name in self.timers:
            self.timers = without(self.timers, name)
        self.event_timers = {**self.event_timers, name: at}

    def _no_time(self, name: str, at: object, after: object) -> WrongType:
        return WrongType(
            f"ctx.timer({name!r}, at={at!r}, after={after!r}): give one of the two, a number of "
            "seconds"
        )

    def cancel(self, name: str) -> None:
        """Delete the timer with this name, if there is one."""
        if name in self.timers:
            self.timers = without(self.timers, name)
        if name in self.event_timers:
            self.event_timers = without(self.event_timers, name)
