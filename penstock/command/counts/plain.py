"""Values, points in time and units of the calendar, as a line of JSON has them."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from math import isfinite
from sys import float_info
from typing import Any

from penstock.streams.base.calendar import Days

__all__ = ["as_plain", "label", "name_of"]

_LARGEST = int(float_info.max)


def as_plain(value: Any) -> Any:
    """`value` as JSON has it; a number that it does not have is a text."""
    if value is None or value.__class__ is str:
        return value
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, int) and abs(value) > _LARGEST:
        value = Decimal(value)
    if isinstance(value, Decimal):
        near = float(value)
        return near if isfinite(near) else str(value.normalize())
    if isinstance(value, float) and not isfinite(value):
        # As PostgreSQL writes it: Infinity.
        return str(Decimal(value))
    return value if isinstance(value, str | int | float | None) else str(value)


def name_of(key: Any) -> str:
    """A key as the name of a series."""
    plain = as_plain(key)
    return "" if plain is None else str(plain)


def label(unit: Days, first: date) -> str:
    """A unit by its first day, as in 2004-07-01, 2004-W27 (ISO 8601), 2004-07, 2004-Q3 and
    2004."""
    match unit:
        case "week":
            year, week, _ = first.isocalendar()
            return f"{year:04}-W{week:02}"
        case "month":
            return first.isoformat()[:7]
        case "quarter":
            return f"{first.year:04}-Q{(first.month + 2) // 3}"
        case "year":
            return f"{first.year:04}"
        case _:
            return first.isoformat()
