"""Validation of numbers, points in time, iterables and functions that a user gives.

Of numeric arguments, is_... returns a bool, check_... raises BadArgument, and require_... raises
BuildError. Values that cannot be compared are rejected, and bools too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from inspect import (
    CO_ASYNC_GENERATOR,
    CO_COROUTINE,
    isasyncgenfunction,
    iscoroutinefunction,
    signature,
)
from math import isfinite, nan
from operator import index
from types import FunctionType
from typing import Any, cast

from penstock.streams.base.duration import in_seconds, is_duration
from penstock.streams.base.errors import BadArgument, BuildError, describe

__all__ = [
    "LEAST",
    "check_bounds",
    "check_count",
    "check_share",
    "given",
    "is_async",
    "is_async_iterable",
    "is_at_least",
    "is_coroutine_function",
    "is_count",
    "is_iterable",
    "is_positive",
    "is_text",
    "moment_of",
    "require_count",
    "require_parameters",
    "require_seconds",
    "seconds_in",
    "seconds_of",
    "takes",
    "texts_of",
    "unit_of",
]


def is_iterable(value: object) -> bool:
    """Whether a `for` loop may read `value`; a class whose instances it reads is not iterable."""
    return hasattr(type(value), "__iter__")


def is_async_iterable(value: object) -> bool:
    """Whether an `async for` loop may read `value`."""
    return hasattr(type(value), "__aiter__")


def is_count(value: Any) -> bool:
    """Whether `value` is a whole number of at least 1."""
    # bool is an int: without this chunk(True) would mean one at a time.
    if isinstance(value, bool):
        return False
    try:
        return index(value) >= 1
    except TypeError:
        return False


def is_text(value: Any) -> bool:
    """Whether `value` is a text that is not empty."""
    return isinstance(value, str) and value != ""


def texts_of(value: object) -> tuple[str, ...]:
    """The texts in `value`, which is one or a sequence of them; none if it is anything else."""
    if isinstance(value, str):
        return (value,)
    several = cast(Sequence[object], value) if isinstance(value, Sequence) else ()
    texts = tuple(one for one in several if isinstance(one, str))
    return texts if len(texts) == len(several) else ()


def is_positive(value: Any) -> bool:
    """Whether `value` is a number above 0, and not nan."""
    return is_at_least(value, 0) and value != 0


def is_at_least(value: Any, least: float) -> bool:
    """Whether `value` is a number of at least `least`, and not nan."""
    if isinstance(value, bool):
        return False
    try:
        return bool(value >= least)
    except TypeError:
        return False


LEAST = 1e-6
"""The least length of time that is more than none: a microsecond."""


def seconds_in(function: str, least: float = 0.0, **option: Any) -> float:
    """The seconds of one option of `function`, a length of time: a number or a timedelta. Raises
    BuildError if it is not finite, or less than `least`."""
    ((name, value),) = option.items()
    if is_duration(value):
        seconds = in_seconds(value)
        if seconds >= least:
            return seconds
    said = f"at least {least:g}" if least else "not negative"
    raise BuildError(
        f"{function}({name}={value!r}): seconds, or a timedelta, that are finite and {said} "
        "are needed"
    )


def given(**options: object) -> dict[str, object]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def require_count(function: str, **options: object) -> None:
    """Raise BuildError for an option of `function` that is not a whole number of at least 1."""
    for name, value in options.items():
        if not is_count(value):
            raise BuildError(f"{function}({name}={value!r}): must be a whole number of at least 1")


def require_seconds(function: str, **options: object) -> None:
    """Raise BuildError for an option of `function` that is not a positive number."""
    for name, value in options.items():
        if not is_positive(value):
            raise BuildError(f"{function}({name}={value!r}): must be positive seconds")


def takes(function: object, count: int) -> bool:
    """Whether `function` has exactly so many parameters, as a look at its code alone shows.

    That is quick, which matters for operators that are built anew for each group.
    """
    if not isinstance(function, FunctionType):
        return False
    code = function.__code__
    return code.co_argcount == count and not code.co_kwonlyargcount


def require_parameters(function: object, what: str, count: int, of: str = "one value") -> None:
    """Raise BuildError if a call of `function` with `count` arguments is sure to be a TypeError.

    `what` is the option that it was given as, and `of` says what its arguments are. A function
    whose parameters are not known is accepted, as many in C are.
    """
    if takes(function, count) or not callable(function):
        return
    try:
        # A wrapper may have other parameters than what it wraps.
        needed = signature(function, follow_wrapped=False)
    except Exception:
        return
    try:
        needed.bind(*range(count))
    except TypeError as error:
        raise BuildError(
            f"{what}: a function of {of} is needed, and this one cannot be called with {count} "
            f"argument{'s'[: count != 1]}: {error}. Give what else it needs a default, or bind it "
            "with functools.partial"
        ) from None


def check_count(name: str, value: object) -> int:
    """Return `value` if it is an int of at least 1; BadArgument otherwise."""
    # bool is an int: without this, Fixed(True) would silently mean one at a time.
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadArgument(f"{name} must be an int, got {value!r}")
    if value < 1:
        raise BadArgument(f"{name} must be at least 1, got {value}")
    return value


def check_bounds(floor: object, ceiling: object) -> tuple[int, int]:
    """Return the two if both are ints with 1 <= floor <= ceiling; BadArgument otherwise."""
    low, high = check_count("floor", floor), check_count("ceiling", ceiling)
    if low > high:
        raise BadArgument(f"floor must not be above ceiling, got floor={low} and ceiling={high}")
    return low, high


def check_share(name: str, value: object) -> float:
    """Return `value` as a float if it is a number from 0 to 1; BadArgument otherwise."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise BadArgument(f"{name} must be a number, got {value!r}")
    if not 0 <= value <= 1:
        raise BadArgument(f"{name} must be from 0 to 1, got {value}")
    return float(value)


# What datetime.fromisoformat does not read: the letters of RFC 3339 in lower case, the end of the
# day, a leap second.
_UNUSUAL = (
    r"(?P<date>\d{4}-?(?:\d\d-?\d\d|W\d\d-?\d))[Tt ]"
    r"(?P<hour>\d\d):?(?P<minute>\d\d)(?::?(?P<second>\d\d)(?P<part>[.,]\d+)?)?"
    r"(?P<zone>[Zz]|[+-]\d\d(?::?\d\d)?)?"
)


def moment_of(text: str) -> datetime:
    """The point in time of a text in ISO 8601 or RFC 3339; ValueError for any other.

    24:00 is the beginning of the next day, and a leap second (23:59:60) the second after it.
    """
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        found = re.fullmatch(_UNUSUAL, text)
        if found is None:
            raise
        at = found.groupdict(default="")
        later = timedelta(0)
        if at["second"] == "60":
            at["second"], later = "59", timedelta(seconds=1)
        elif at["hour"] == "24" and not (at["minute"] + at["second"] + at["part"]).strip("0.,"):
            at["hour"], later = "00", timedelta(days=1)
        usual = f"{at['date']}T{at['hour']}:{at['minute']}:{at['second'] or '00'}{at['part']}"
        try:
            return datetime.fromisoformat(usual + at["zone"].upper()) + later
        except OverflowError:
            raise ValueError(f"{text!r} is after the year 9999") from None


def seconds_of(stamp: Any) -> float:
    """A time stamp in seconds; for an ISO 8601 text, a date or a datetime, those since 1970.

    A stamp without a time zone is taken as UTC, and a date as its beginning. ValueError for
    anything but a point in time.
    """
    seconds = nan
    try:
        moment = moment_of(stamp) if isinstance(stamp, str) else stamp
        if isinstance(moment, datetime):
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        elif isinstance(moment, date):
            seconds = datetime(moment.year, moment.month, moment.day, tzinfo=UTC).timestamp()
        elif not isinstance(moment, bool):
            seconds = float(moment)
    except (TypeError, ValueError, OverflowError):
        pass
    if isfinite(seconds):
        return seconds
    raise ValueError(
        f"{describe(stamp)} is not a time: a number of seconds, ISO 8601 or a datetime is needed"
    )


_UNITS = {1_000: "milliseconds", 1_000_000: "microseconds", 1_000_000_000: "nanoseconds"}


def unit_of(stamp: Any, wall: float) -> str | None:
    """A sentence, without its full stop, on the unit that a time stamp of a wrong size seems to be
    in and what to write; None if in none it would be near `wall`, in seconds since 1970."""
    from decimal import Decimal
    from numbers import Real

    if isinstance(stamp, bool) or not isinstance(stamp, Real | Decimal):
        return None
    # Any: their types say nothing about comparisons.
    size: Any = stamp
    for parts, unit in _UNITS.items():
        if wall / 2 * parts < size < wall * 1.1 * parts:
            return (
                f"It looks like {unit}, and seconds are needed: in place of the field give a "
                f'function that divides by {parts:,}, such as lambda event: event["time"] / {parts}'
            )
    return None


def is_coroutine_function(handler: Callable[..., Any]) -> bool:
    """Whether calling `handler` makes a coroutine, as far as can be told without a call."""
    call: Any = getattr(type(handler), "__call__", None)  # noqa: B004 - wanted unbound
    return iscoroutinefunction(handler) or iscoroutinefunction(call)


# The flags of the code of an async function, and how `inspect` marks others as such.
_ASYNC = CO_COROUTINE | CO_ASYNC_GENERATOR
_MARK = "_is_coroutine_mark"


def is_async(handler: Callable[..., Any]) -> bool:
    """Whether `handler` is known to return before its work is done."""
    if type(handler) is FunctionType and not (
        handler.__code__.co_flags & _ASYNC or hasattr(handler, _MARK)
    ):
        # At once: a group's operators are built anew for each group.
        return False
    if not callable(handler):
        return False
    call: Any = getattr(type(handler), "__call__", None)  # noqa: B004 - wanted unbound
    return is_coroutine_function(handler) or isasyncgenfunction(handler) or isasyncgenfunction(call)
