"""Points on one axis of time, and the intervals [from, to) between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import repeat
from math import isfinite
from operator import eq, lt
from typing import Any

from penstock.streams.base.errors import PenstockError, describe
from penstock.streams.base.keys import By, Key, key_name
from penstock.streams.base.validation import moment_of

__all__ = [
    "Axis",
    "IntervalError",
    "LateInterval",
    "Period",
    "RowTypeError",
    "Watermark",
    "amount",
    "are_usual",
    "in_row",
    "new_periods",
    "read_all",
    "read_ends",
    "reader",
]


class IntervalError(PenstockError, ValueError):
    """An interval ends before it begins, lacks its beginning, or is out of range.

    `row` is the place of its row in a table, counted from 0; None in a stream.
    """

    row: int | None = None


class RowTypeError(PenstockError, TypeError):
    """A row of a table has ends that cannot be compared, or an amount that is not a number.

    `row` is its place in the table, counted from 0.
    """

    row: int


class LateInterval(IntervalError):
    """An interval begins, or ends, before the watermark."""


_NONE = type(None)
_BLOCK = 1_000
# The exponent range of the largest decimal format of IEEE 754.
_LARGEST_EXPONENT = 6144


# Not frozen: there may be millions, and each would cost twice as much to make.
@dataclass(slots=True)
class Period:
    """The rows of `key` had this `value` from `begin` up to, but not including, `end`.

    An `end` of None is open. `key` is None where there are no keys.
    """

    key: Any
    begin: Any
    end: Any
    value: Any


def new_periods(
    key: Any, begins: Sequence[Any], ends: Sequence[Any], values: Sequence[Any]
) -> list[Period]:
    """`Period(key, begin, end, value)` for each of the values, in half the time."""
    new: Any = Period.__new__
    periods: list[Period] = list(map(new, repeat(Period, len(values))))
    for period, begin, end, value in zip(periods, begins, ends, values, strict=False):
        period.key = key
        period.begin = begin
        period.end = end
        period.value = value
    return periods


@dataclass(frozen=True, slots=True)
class Watermark:
    """A promise that no further row begins or ends before `time`."""

    time: Any


def in_row(
    error: TypeError | IntervalError, row: int, name: str | None = None
) -> IntervalError | RowTypeError:
    """The same error with the place of its row in the table, and the row's name in the message."""
    kind = IntervalError if isinstance(error, IntervalError) else RowTypeError
    told = kind(f"{name or f'row {row}'}: {error}")
    told.row = row
    return told


class Axis:
    """The common type of the points of one relation, so that any two can be compared.

    All are numbers, or all dates, or all datetimes with a time zone (compared, and given out, in
    UTC), or all without. A text is read as ISO 8601. Raises TypeError for anything else, for NaN,
    and for a mixture of kinds.
    """

    def __init__(self, kind: str | None = None) -> None:
        self.kind = kind

    def interval(self, begin: Any, end: Any) -> tuple[Any, Any]:
        """Both ends as points; an `end` of None is open. IntervalError if end < begin."""
        kind, begins = _point(begin)
        self._check(kind, begin)
        if end is None:
            self.kind = kind
            return begins, None
        ending_kind, ends = _point(end)
        if ending_kind != kind:
            raise TypeError(f"from {describe(begin)} is {kind}, but to {describe(end)} is "
                            f"{ending_kind}")  # fmt: skip
        if ends < begins:
            raise IntervalError(_after(begin, end))
        self.kind = kind
        return begins, ends

    def point(self, value: Any) -> Any:
        """A single point."""
        kind, point = _point(value)
        self._check(kind, value)
        self.kind = kind
        return point

    def intervals(
        self, begins: list[Any], ends: list[Any], name: Callable[[int], str]
    ) -> tuple[list[Any], list[Any], list[int]]:
        """Many points at once, in a fraction of the time, and the places of the empty intervals.

        `name` names the failing one in an error.
        """
        if not _comparable_as_they_are(begins, ends):
            pairs = list(zip(begins, ends, strict=True))
            begins, ends = [], []
            for i, pair in enumerate(pairs):
                try:
                    begin, end = self.interval(*pair)
                except (TypeError, IntervalError) as error:
                    raise in_row(error, i, name(i)) from None
                begins.append(begin)
                ends.append(end)
        empty: list[int] = []
        if _NONE in map(type, ends) or not all(map(lt, begins, ends)):
            for i, (begin, end) in enumerate(zip(begins, ends, strict=True)):
                if end is None or begin < end:
                    continue
                if end < begin:
                    raise in_row(IntervalError(_after(begin, end)), i, name(i))
                empty.append(i)
        return begins, ends, empty

    def _check(self, kind: str, value: Any) -> None:
        if self.kind is not None and kind != self.kind:
            raise TypeError(f"{describe(value)} is {kind}, but the points before it are each "
                            f"{self.kind}")  # fmt: skip


def _after(begin: Any, end: Any) -> str:
    return f"from {describe(begin)} comes after to {describe(end)}"


class _Dates(dict[Any, Any]):
    """Texts as dates, memoised: most texts in a table occur many times."""

    def __missing__(self, text: str) -> date:
        found = self[text] = date.fromisoformat(text)
        return found


def _as_dates(points: list[Any], dates: _Dates) -> list[Any]:
    """The same as dates, where all are texts of dates."""
    if not points or not isinstance(points[0], str | _NONE):
        return points
    try:
        return list(map(dates.__getitem__, points))
    except (TypeError, ValueError):
        return points


def _comparable_as_they_are(begins: list[Any], ends: list[Any]) -> bool:
    kinds: set[type] = {*map(type, begins), *({*map(type, ends)} - {_NONE})}
    if kinds <= {int, float}:
        # Only NaN does not equal itself.
        return all(map(eq, begins, begins)) and all(map(eq, ends, ends))
    if kinds == {datetime}:
        zones = {p.tzinfo for points in (begins, ends) for p in points if p is not None}
        return zones in ({None}, {UTC})
    return kinds == {date}


def _point(value: Any) -> tuple[str, Any]:
    """What kind of point `value` is, and the point in the form that is compared."""
    if isinstance(value, str):
        value = _moment(value)
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            return "a datetime without a time zone", value
        # Python compares two datetimes of one zone by local time, which is wrong when clocks are
        # put back.
        try:
            return "a datetime with a time zone", value.astimezone(UTC)
        except OverflowError:
            raise IntervalError(f"{describe(value)} is out of range in UTC") from None
    if isinstance(value, date):
        return "a date", value
    if isinstance(value, int | float | Decimal | Fraction) and not isinstance(value, bool):
        if value.is_nan() if isinstance(value, Decimal) else value != value:
            raise TypeError(
                "NaN is not a point in time: it comes neither before nor after any other"
            )
        return "a number", value
    raise TypeError(
        f"{describe(value)} of type {type(value).__name__} is not a point in time: a number, a "
        "date, a datetime or a text in ISO 8601 is needed"
    )


def _moment(text: str) -> date | datetime:
    for read in (date.fromisoformat, moment_of):
        try:
            return read(text)
        except ValueError:
            continue
    raise TypeError(f"{describe(text)} is not a point in time: texts must be in ISO 8601")


def amount(value: Any) -> Any:
    """`value` if it can be summed and compared; else raises TypeError.

    A Decimal must lie between 1E-6144 and 1E+6145, or be 0: one of ten million digits, which is
    just as easily written, would take minutes to sum.
    """
    if isinstance(value, int | float | Decimal | Fraction) and not isinstance(value, bool):
        if isinstance(value, Decimal):
            # isfinite() would raise for a signalling NaN.
            finite = value.is_finite() and abs(value.adjusted()) <= _LARGEST_EXPONENT
        else:
            finite = isinstance(value, int | Fraction) or isfinite(value)
        if finite:
            return value
        raise TypeError(f"{value} is not an amount: a finite number of usual size is needed")
    raise TypeError(f"{describe(value)} of type {type(value).__name__} is not an amount: a finite "
                    "number is needed")  # fmt: skip


def are_usual(decimals: list[Decimal]) -> bool:
    """Whether `amount` accepts each of the decimals; for all together in a fraction of the time."""
    return (
        all(map(Decimal.is_finite, decimals))
        and max(map(abs, map(Decimal.adjusted, decimals)), default=0) <= _LARGEST_EXPONENT
    )


def read_ends(rows: list[Any], begin: By[Any], end: By[Any]) -> tuple[list[Any], list[Any]]:
    """Both ends of each row, texts of dates as dates. Raises as `read_all` does.

    A block at a time, whose texts are still in the processor's cache when they are looked up.
    """
    dates = _Dates({None: None})
    begins: list[Any] = []
    ends: list[Any] = []
    for at in range(0, len(rows), _BLOCK):
        some = rows[at : at + _BLOCK]
        begins += _as_dates(read_all(some, begin, first=at), dates)
        ends += _as_dates(read_all(some, end, first=at, optional=True), dates)
    return begins, ends


def read_all(rows: list[Any], by: By[Any], *, first: int = 0, optional: bool = False) -> list[Any]:
    """A field of each row, in a fraction of the time that `reader` takes.

    Raises what `reader` raises, with the place of the row; the first row is number `first`.
    """
    try:
        key = Key(by)
        # A StopIteration from the user's function would end a map.
        return [key.get(row) for row in rows] if callable(by) else list(map(key.get, rows))
    except (LookupError, TypeError):
        return list(_read_each(rows, by, first, optional))


def _read_each(rows: list[Any], by: By[Any], first: int, optional: bool) -> Iterator[Any]:
    read = reader(by, optional=optional)
    for i, row in enumerate(rows, first):
        try:
            yield read(row)
        except (LookupError, TypeError, IntervalError) as error:
            # An error of the user's function is left as it is.
            if callable(by) or isinstance(error, LookupError):
                error.add_note(f"in row {i}")
                raise
            raise in_row(error, i) from None


def reader(by: By[Any], *, optional: bool = False, option: str = "by") -> Callable[[Any], Any]:
    """A function that reads a field of a row. It raises IntervalError if the field is missing, or
    returns None if it is `optional`. Raises WrongType if it is not a field, given as `option`."""
    key = Key(by, option)
    if callable(by):
        return lambda row: key.get(row)

    def read(row: Any) -> Any:
        try:
            return key.get(row)
        except (LookupError, AttributeError):
            if optional:
                return None
            raise IntervalError(f"the row {describe(row)} has no {key_name(by)!r}") from None
        except TypeError:
            if key.adapts(row):
                return key.get(row)
            raise TypeError(f"{describe(row)} of type {type(row).__name__} is not a row with "
                            f"{key_name(by)!r}") from None  # fmt: skip

    return read
