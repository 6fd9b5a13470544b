"""Objectives for latencies: what they ask, whether they are kept, how fast their budget burns.

As service level objectives in "The Site Reliability Workbook" (Beyer et al., 2018): the budget is
the share that may be bad, and the burn rate is the share that is bad, divided by it. Two windows
of different lengths say whether it burns now and has done so for a while (chapter 5). With a
percentile the shares are of time slices, the budgeting method "Timeslices" of OpenSLO.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from fractions import Fraction
from typing import Any, NamedTuple

from penstock.streams.base.errors import BadArgument, BuildError, describe

__all__ = ["BURNS", "SLICE", "WINDOWS", "Budget", "Target", "share_of", "target_of"]

SLICE = 10
"""The seconds of a time slice; windows move by as many."""

WINDOWS = {"5m": 300, "30m": 1_800, "1h": 3_600, "6h": 21_600}
"""The windows in which burn rates are known, by their names, in seconds."""

BURNS = (("fast", "1h", "5m", 14.4), ("slow", "6h", "30m", 6.0))
"""The burn rates that need attention, if they are exceeded in both windows: a fast one uses 2 % of
the budget of 30 days in one hour, a slow one 5 % in six hours (the workbook's table 5-8). The short
window has to be over once."""

_SLICES = max(WINDOWS.values()) // SLICE

_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_FORM = re.compile(
    r"(?:(?P<part>waiting|service|total)\b)?\s*(?:p(?P<percent>\d\d?(?:\.\d+)?|9\d\d+))?\s*"
    rf"<\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>{'|'.join(_UNITS)})"
)


class Target(NamedTuple):
    """What an objective asks of the latencies of events.

    `part` is "waiting", "service" or "total"; `percentile` the share of a time slice's events that
    must be below `bound` seconds, or None, where each event is asked by itself.
    """

    part: str
    percentile: Fraction | None
    bound: float


def target_of(text: object) -> Target:
    """What a text such as "service p99 < 50ms" asks. Raises BadArgument."""
    found = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None or not (found["part"] or found["percent"]) or not float(found["number"]):
        raise BadArgument(
            f"objective({describe(text)}, ...): write [waiting|service|total] [pNN] < TIME, with a "
            "part, a percentile such as p50, p99 or p99.9, or both, and a time above 0 in us, ms, "
            's, min or h: "p99 < 50ms" (of the total), "service p95 < 2s", "waiting < 1s" (each '
            "event)"
        )
    percent = found["percent"]
    if percent is not None and len(percent) > 2 and "." not in percent:
        # p999 as in the statistics.
        percent = f"{percent[:2]}.{percent[2:]}"
    percentile = None if percent is None else Fraction(percent) / 100
    if percentile == 0:
        raise BadArgument(f"objective({describe(text)}, ...): p0 asks nothing; write p50 or more")
    return Target(
        found["part"] or "total", percentile, float(found["number"]) * _UNITS[found["unit"]]
    )


def share_of(share: Any) -> Fraction:
    """A share between 0 and 1 as the decimal that was written. Raises BuildError."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        hint = ""
        if isinstance(share, int | float) and 1 < share < 100:
            hint = f": {share:g} % is share={share / 100:g}"
        raise BuildError(
            f"objective(share={share!r}): must be above 0 and below 1, such as 0.999 where one of "
            f"a thousand may be bad{hint}"
        )
    return Fraction(repr(share))


class Budget:
    """Counts what is good and bad, over all time and in the last hours.

    Time: O(1) for each call of `count`, O(log n) for each window in `statistics`. Memory: two
    numbers for each of the 2,160 slices of six hours.
    """

    def __init__(self, target: Target, share: Fraction, start: float) -> None:
        """The first slice begins at the time `start`."""
        self._start = start
        self._percentile = target.percentile
        self._allowed = 1 - share
        self._good = self._bad = 0
        # The slice of the last event, and its events if they are judged together.
        self._now = 0
        self._events = self._late = 0
        # For each slice with events: its number, and what was good and bad before it.
        self._slices: list[int] = []
        self._good_before: list[int] = []
        self._bad_before: list[int] = []

    def count(self, events: int, late: int, now: float) -> None:
        """`late` of so many events, which came at the time `now`, were not within the bound."""
        self._go_on(now)
        if self._percentile is None:
            self._add(self._now, events - late, late)
        else:
            self._events += events
            self._late += late

    def _go_on(self, now: float) -> None:
        """Judge the slice of the last events, if it is over."""
        number = int((now - self._start) // SLICE)
        if number > self._now:
            self._judge()
            self._now = number

    def _judge(self) -> None:
        if self._events:
            is_bad = self._late > (1 - (self._percentile or 0)) * self._events
            self._events = self._late = 0
            self._add(self._now, not is_bad, is_bad)

    def _add(self, number: int, good: int, bad: int) -> None:
        if not self._slices or self._slices[-1] != number:
            self._slices.append(number)
            self._good_before.append(self._good)
            self._bad_before.append(self._bad)
            if (over := bisect_left(self._slices, number - _SLICES + 1)) > 0:
                del self._slices[:over], self._good_before[:over], self._bad_before[:over]
        self._good += good
        self._bad += bad

    def end(self) -> None:
        """No more events come: judge the last slice although it is not over."""
        self._judge()

    def statistics(self, now: float) -> dict[str, Any]:
        """What was good and bad, whether it is kept, and the burn rates of the windows."""
        self._go_on(now)
        windows = {name: self._window(seconds // SLICE) for name, seconds in WINDOWS.items()}
        rates = {name: self._burn_rate(*counts) for name, counts in windows.items()}
        burning = None
        for name, long, short, least in reversed(BURNS):
            if (
                min(rates[long] or 0, rates[short] or 0) > least
                and self._now * SLICE >= WINDOWS[short]
            ):
                burning = name
        return {
            "good": self._good,
            "bad": self._bad,
            "kept": self._is_kept(self._good, self._bad),
            "burning": burning,
            "windows": {
                name: {
                    "good": good,
                    "bad": bad,
                    "kept": self._is_kept(good, bad),
                    "burn_rate": rates[name],
                }
                for name, (good, bad) in windows.items()
            },
        }

    def _window(self, slices: int) -> tuple[int, int]:
        """What was good and bad in the last slices, the present one included."""
        first = bisect_left(self._slices, self._now - slices + 1)
        if first == len(self._slices):
            return 0, 0
        return self._good - self._good_before[first], self._bad - self._bad_before[first]

    def _is_kept(self, good: int, bad: int) -> bool | None:
        """Whether at most the allowed share is bad; None of nothing."""
        return bad <= self._allowed * (good + bad) if good + bad else None

    def _burn_rate(self, good: int, bad: int) -> float | None:
        return float(bad / (self._allowed * (good + bad))) if good + bad else None
