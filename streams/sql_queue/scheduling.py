"""When the rows of a queue are due, and how urgent they are, by the values that become rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Any

from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By, Key, key_function, key_name
from penstock.streams.base.validation import seconds_of
from penstock.streams.sql_queue.store import Enqueued

__all__ = ["LARGEST", "Scheduling"]

LARGEST = 2**31 - 1
"""The largest priority, and less one the negative of the least."""


class Scheduling:
    """The new rows of a queue from payloads and the values that these were made of.

    `run_at` and `priority` are fields of a value or functions of it. A value without the field, or
    with None there, is due now and has priority 0.
    """

    def __init__(self, run_at: By[Any] | None = None, priority: By[Any] | None = None) -> None:
        self.ranks = priority is not None
        self._run_at = None if run_at is None else _reading(run_at, "run_at")
        self._priority = None if priority is None else _reading(priority, "priority")
        self._names = {
            "run_at": "" if run_at is None else key_name(run_at),
            "priority": "" if priority is None else key_name(priority),
        }

    def enqueued(self, payload: str, value: Any) -> Enqueued:
        """The new row. Raises TypeError for what is not a time or not a priority."""
        run_at, priority = None, 0
        if self._run_at is not None and (given := self._run_at(value)) is not None:
            run_at = self._seconds(given)
        if self._priority is not None and (given := self._priority(value)) is not None:
            priority = self._whole(given)
        return Enqueued(payload, run_at, priority)

    def _seconds(self, given: Any) -> float:
        try:
            seconds = seconds_of(given)
            # In the range of the times of both databases.
            datetime.fromtimestamp(seconds)
        except (ValueError, OverflowError, OSError):
            raise TypeError(
                f"run_at={self._names['run_at']}: {given!r} is not a time: a datetime, a text in "
                "ISO 8601 or seconds since 1970 is needed"
            ) from None
        return seconds

    def _whole(self, given: Any) -> int:
        whole = isinstance(given, int) and not isinstance(given, bool)
        if whole and -LARGEST <= given <= LARGEST:
            return int(given)
        raise TypeError(
            f"priority={self._names['priority']}: {given!r} is not a priority: a whole number from "
            f"-{LARGEST} to {LARGEST} is needed"
        )


def _reading(by: By[Any], option: str) -> Callable[[Any], Any]:
    """The function that reads a field of a value, None if that has no such field."""
    if isinstance(by, datetime | date | float):
        raise BuildError(
            f"{option}={by!r}: give a field, or a function of the value such as lambda value: ..."
        )
    Key(by, option)
    read = key_function(by)
    if callable(by):
        return read

    def found(value: Any) -> Any:
        try:
            return read(value)
        except (LookupError, TypeError, AttributeError):
            return None

    return found
