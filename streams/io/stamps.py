"""Parses time stamps: a number of seconds, an ISO 8601 text, or a datetime."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite, nan
from typing import Any

from penstock.streams.errors import describe

__all__ = ["seconds_of"]


def seconds_of(stamp: Any) -> float:
    """The stamp in seconds, which for a text or a datetime are those since 1970.

    One without a time zone is taken as UTC. ValueError for anything but a point in time.
    """
    seconds = nan
    try:
        moment = datetime.fromisoformat(stamp) if isinstance(stamp, str) else stamp
        if isinstance(moment, datetime):
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        elif not isinstance(moment, bool):
            seconds = float(moment)
    except (TypeError, ValueError, OverflowError):
        pass
    if isfinite(seconds):
        return seconds
    raise ValueError(
        f"{describe(stamp)} is not a time: a number of seconds, ISO 8601 or a datetime is needed"
    )
