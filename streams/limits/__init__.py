"""Limiters: how many events may be worked on at once."""

from __future__ import annotations

from streams.limits.aimd import AIMD
from streams.limits.default import default
from streams.limits.fixed import Fixed
from streams.limits.gradient import Gradient
from streams.limits.hill_climb import HillClimb
from streams.limits.limiter import ArrivalLimiter, Limiter
from streams.limits.outcome import Outcome
from streams.limits.shared import Shared
from streams.limits.vegas import Vegas

__all__ = [
    "AIMD",
    "ArrivalLimiter",
    "Fixed",
    "Gradient",
    "HillClimb",
    "Limiter",
    "Outcome",
    "Shared",
    "Vegas",
    "default",
]
