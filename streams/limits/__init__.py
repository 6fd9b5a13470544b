"""Limiters: how many events may be worked on at once."""

from __future__ import annotations

from streams.limits.default import default
from streams.limits.fixed import Fixed
from streams.limits.hill_climb import HillClimb
from streams.limits.limiter import ArrivalLimiter, Completion, Limiter, ListLimiter, Outcome
from streams.limits.shared import Shared

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
