"""What must happen, in which order, and how much of it there was at every instant.

Formulas of temporal logic with their automata and monitors, paths through workflows, and
aggregates over rows that are valid from one time to another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streams.temporal.counts import sequenced
    from streams.temporal.intervals import IntervalError, LateInterval, Period, Watermark

__all__ = ["IntervalError", "LateInterval", "Period", "Watermark", "sequenced"]

# Imported when they are asked for: nobody needs all of them.
_ELSEWHERE = {
    "IntervalError": "streams.temporal.intervals",
    "LateInterval": "streams.temporal.intervals",
    "Period": "streams.temporal.intervals",
    "Watermark": "streams.temporal.intervals",
    "sequenced": "streams.temporal.counts",
}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_ELSEWHERE[name]), name)
    globals()[name] = value
    return value
