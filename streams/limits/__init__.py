"""Limiters: how many events may be worked on at once."""

from __future__ import annotations

from streams.limits.default import default
from streams.limits.fixed import Fixed
from streams.limits.hill_climb import HillClimb
from streams.limits.limiter import ArrivalLimiter, Limiter
from streams.limits.outcome import Outcome
from streams.limits.shared import Shared

__all__ = ["ArrivalLimiter", "Fixed", "HillClimb", "Limiter", "Outcome", "Shared", "default"]
