"""The fields of a row, or of a part of one, as it comes in a stream."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.streams.base.errors import describe
from penstock.streams.base.keys import By
from penstock.streams.temporal.periods.intervals import IntervalError, amount, reader

__all__ = ["Part", "Reading"]


class Part(NamedTuple):
    """A row; or a part of the row with this `name`, which `opens` or `closes` it."""

    begin: Any
    end: Any
    of: Any
    name: Any = None
    opens: bool = False
    closes: bool = False


class Reading:
    """Reads the fields of a row."""

    def __init__(
        self, begin: By[Any], end: By[Any], of: By[Any] | None, id: By[Any] | None
    ) -> None:
        self._of = None if of is None else reader(of, option="of")
        self._id = None if id is None else reader(id, option="id")
        self._begin = reader(begin, optional=id is not None, option="begin")
        self._end = reader(end, optional=True, option="end")

    def part(self, row: Any) -> Part:
        """The fields of a row. Raises IntervalError and TypeError."""
        begin, end = self._begin(row), self._end(row)
        if self._id is None or (begin is not None and end is not None):
            return Part(begin, end, self._amount(row))
        if begin is not None:
            return Part(begin, None, self._amount(row), self._id(row), opens=True)
        if end is None:
            raise IntervalError(f"the row {describe(row)} has neither a beginning nor an end")
        return Part(None, end, None, self._id(row), closes=True)

    def _amount(self, row: Any) -> Any:
        return None if self._of is None else amount(self._of(row))

    def first(self, row: Any) -> Any:
        """Where a row begins, or for a part without a beginning, where it ends."""
        begin = self._begin(row)
        return begin if begin is not None or self._id is None else self._end(row)
