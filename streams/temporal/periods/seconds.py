"""Points in time as seconds since 1970; numbers are seconds, and what has no zone is in UTC."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from math import ceil, inf
from typing import Any

__all__ = ["point_at", "seconds_at"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def seconds_at(point: Any) -> float:
    """The seconds of a point of any kind, of two points never in another order; those of a number
    that is too large for a float are infinite."""
    if isinstance(point, datetime):
        moment = point if point.tzinfo is not None else point.replace(tzinfo=UTC)
        return moment.timestamp()
    if isinstance(point, date):
        return datetime(point.year, point.month, point.day, tzinfo=UTC).timestamp()
    try:
        return float(point)
    except OverflowError:
        return inf if point > 0 else -inf


def point_at(kind: str | None, seconds: float) -> Any:
    """The first point of a `kind`, as an `Axis` names it, that is not before these seconds."""
    if kind == "a number":
        return int(seconds) if seconds.is_integer() else seconds
    moment = _EPOCH + timedelta(seconds=seconds)
    if kind == "a date":
        return _EPOCH.date() + timedelta(days=ceil(seconds / 86_400))
    if moment.timestamp() < seconds:
        moment += _MICROSECOND
    return moment if kind == "a datetime with a time zone" else moment.replace(tzinfo=None)
