"""A window of one key with its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

__all__ = ["Window"]

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Window(Generic[V]):
    """A window of one key with the result of its aggregate."""

    key: Any
    """What its events have in common; None if they have no key."""
    start: float
    """In seconds since 1970, and the first time that belongs to it."""
    end: float
    """In seconds since 1970, and the first time after it. Of a window by count, its latest time."""
    value: V
    revision: int
    """How many results of this window there are with this one: 1, then 2, ... One result may stand
    for several corrections, and counts as so many."""
    is_final: bool
    """Whether the window was closed. What follows it, if anything, are corrections."""
