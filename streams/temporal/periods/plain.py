"""Points, amounts and what is made of them, as plain values that JSON can represent.

A text, a number, None and a list of these are themselves; anything else is an object with one
member, whose name says what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from typing import Any, cast
from uuid import UUID

from penstock.streams.base.errors import describe

__all__ = ["of_plain", "plain"]

_INTEGERS = range(-(1 << 63), 1 << 64)

_READ: dict[str, Callable[[Any], Any]] = {
    "integer": int,
    "float": float,
    "decimal": Decimal,
    "fraction": Fraction,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "uuid": UUID,
    "tuple": lambda items: tuple(map(of_plain, items)),
    "pairs": lambda pairs: {of_plain(key): of_plain(value) for key, value in pairs},
}


def plain(value: Any) -> Any:
    """A value in its plain form. Raises TypeError for one that has none."""
    if value is None or value.__class__ in (str, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value) if value in _INTEGERS else {"integer": str(int(value))}
    if isinstance(value, float):
        return float(value) if isfinite(value) else {"float": str(float(value))}
    if isinstance(value, list | tuple):
        items = list(map(plain, cast(Any, value)))
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, dict):
        pairs = cast(Any, value).items()
        return {"pairs": [[plain(key), plain(one)] for key, one in pairs]}
    if isinstance(value, datetime | date):
        return {"datetime" if isinstance(value, datetime) else "date": value.isoformat()}
    if isinstance(value, Decimal | Fraction):
        return {"decimal" if isinstance(value, Decimal) else "fraction": str(value)}
    if isinstance(value, UUID):
        return {"uuid": str(value)}
    raise TypeError(f"{describe(value)} cannot be kept: it is not a text, a number or a time")


def of_plain(value: Any) -> Any:
    """The value with this plain form."""
    if value.__class__ is list:
        return list(map(of_plain, value))
    if value.__class__ is not dict:
        return value
    ((kind, inner),) = value.items()
    return _READ[kind](inner)
