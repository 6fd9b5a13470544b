"""Lengths of time, as a user gives them: numbers of seconds, or timedeltas."""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import Any

__all__ = ["in_seconds", "is_duration"]


def is_duration(value: Any) -> bool:
    """Whether `value` is a finite length of time, a number or a timedelta, and not negative."""
    if isinstance(value, timedelta):
        return value >= timedelta(0)
    if isinstance(value, bool):
        return False
    try:
        return bool(0 <= value < inf)
    except TypeError:
        return False


def in_seconds(duration: float | timedelta) -> float:
    """The seconds of a length of time."""
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
