"""Whether a number that a user gives can be meant. What cannot be compared is not a number."""

from __future__ import annotations

from operator import index
from typing import Any

__all__ = ["is_at_least", "is_count", "is_positive"]


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
    if isinstance(value, bool):
        return False
    try:
        return bool(value > 0)
    except TypeError:
        return False


def is_at_least(value: Any, least: float) -> bool:
    """Whether `value` is a number of at least `least`, and not nan."""
    if isinstance(value, bool):
        return False
    try:
        return bool(value >= least)
    except TypeError:
        return False
