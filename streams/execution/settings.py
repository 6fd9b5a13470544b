"""The options of a stage that calls a handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.streams.failures.policy import OnError

__all__ = ["OnLimitChange", "Overload", "Settings"]

Overload = Callable[[Exception], bool | float | None]
"""Whether an error is a sign of overload, or for how many seconds to begin nothing after it."""

OnLimitChange = Callable[[int, int, str], object]
"""Told of the old limit, the new one, and the limiter's reason."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of `penstock.adaptive_flat_map`, which documents each."""

    handler: Callable[[Any], Any]
    name: str
    ordered: bool
    timeout: float | None
    on_error: OnError
    overload: Overload | None
    on_limit_change: OnLimitChange | None
    window: int
