"""How the work on one event ended, as a limiter sees it."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Outcome"]


class Outcome(StrEnum):
    """What one completion says about the capacity behind the handler."""

    SUCCESS = "success"
    """The work was done: it counts towards goodput."""

    IGNORED = "ignored"
    """An ordinary error: it used a slot and gave it back, and says nothing about capacity."""

    DROPPED = "dropped"
    """A timeout, a refusal or another sign of overload: the level was too high."""
