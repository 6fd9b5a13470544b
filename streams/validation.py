"""Validation of numeric arguments: is_... returns a bool, check_... raises BadArgument.

Values that cannot be compared are rejected, and bools too.
"""

from __future__ import annotations

from operator import index
from typing import Any

from penstock.streams.errors import BadArgument

__all__ = [
    "check_bounds",
    "check_count",
    "check_share",
    "is_at_least",
    "is_count",
    "is_positive",
]


def is_count(value: Any) -> bool:
    """Whether `value` is a whole number of at least 1."""
    # bool is an int: without this chunk(True) would mean one at a time.
    if isinstance(value, bool):
        return False
    try:
        return index(value) >= 1
    except TypeError:
        return False


def is_positive(value: Any) -> bool:
    """Whether `value` is a number above 0, and not nan."""
    return is_at_least(value, 0) and value != 0


def is_at_least(value: Any, least: float) -> bool:
    """Whether `value` is a number of at least `least`, and not nan."""
    if isinstance(value, bool):
        return False
    try:
        return bool(value >= least)
    except TypeError:
        return False


def check_count(name: str, value: object) -> int:
    """Return `value` if it is an int of at least 1; BadArgument otherwise."""
    # bool is an int: without this, Fixed(True) would silently mean one at a time.
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadArgument(f"{name} must be an int, got {value!r}")
    if value < 1:
        raise BadArgument(f"{name} must be at least 1, got {value}")
    return value


def check_bounds(floor: object, ceiling: object) -> tuple[int, int]:
    """Return the two if both are ints with 1 <= floor <= ceiling; BadArgument otherwise."""
    low, high = check_count("floor", floor), check_count("ceiling", ceiling)
    if low > high:
        raise BadArgument(f"floor must not be above ceiling, got floor={low} and ceiling={high}")
    return low, high


def check_share(name: str, value: object) -> float:
    """Return `value` as a float if it is a number from 0 to 1; BadArgument otherwise."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise BadArgument(f"{name} must be a number, got {value!r}")
    if not 0 <= value <= 1:
        raise BadArgument(f"{name} must be from 0 to 1, got {value}")
    return float(value)
