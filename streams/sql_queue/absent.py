"""Columns that stay null because no event has their field: its name may be misspelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, cast

from penstock.streams.base.keys import key_function

__all__ = ["AbsentFields"]

# Events that are looked at.
_FIRST = 1_000


class AbsentFields:
    """Looks for each of the `fields`, by the columns that they fill, in the first thousand events.

    `warn` is called once, with the fields that none of these events has, if there are any. For a
    stream that has fewer events, `report` calls it at the end.
    """

    def __init__(self, fields: Mapping[str, str], warn: Callable[[str], None]) -> None:
        self.absent = dict(fields)
        """The fields that no event has had so far, by their columns; empty after `report`."""
        self._warn = warn
        self._looked = 0
        self._last: Any = None

    def look(self, value: Any) -> None:
        """An event has come, while there are `absent` fields."""
        self.absent = {
            column: field for column, field in self.absent.items() if not _has(value, field)
        }
        self._looked += 1
        self._last = value
        if self._looked == _FIRST:
            self.report()

    def report(self) -> None:
        """Report the absent fields: no more events come, or no more are looked at."""
        absent, self.absent = self.absent, {}
        if not (absent and self._looked):
            return
        names = " and ".join(f"{field!r} (column {column!r})" for column, field in absent.items())
        there = ""
        last = self._last
        if isinstance(last, Mapping):
            there = ", ".join(map(repr, islice(cast("Mapping[str, Any]", last), 20)))
            there = f"; the last one has {there or 'no field'}"
        self._warn(
            f"write_table: no event of the first {self._looked:,} has the field {names}, so "
            f"that it is null in every row{there}"
        )


def _has(value: Any, field: str) -> bool:
    if isinstance(value, Mapping):
        return field in value
    try:
        key_function(field)(value)
    except (LookupError, TypeError, AttributeError):
        return False
    return True
