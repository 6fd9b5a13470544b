"""Limiters: how many events may be worked on at once."""

from __future__ import annotations

from penstock.streams.limits.default import default
from penstock.streams.limits.fixed import Fixed
from penstock.streams.limits.hill_climb import HillClimb
from penstock.streams.limits.limiter import (
    ArrivalLimiter,
    Completion,
    Limiter,
    ListLimiter,
    Outcome,
)
from penstock.streams.limits.shared import Shared

__all__ = [
    "ArrivalLimiter",
    "Completion",
    "Fixed",
    "HillClimb",
    "Limiter",
    "ListLimiter",
    "Outcome",
    "Shared",
    "default",
]
