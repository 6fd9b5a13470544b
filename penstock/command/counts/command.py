"""`penstock counts`: counts over time of rows: of files, or of a table of a database."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable, Iterator
from datetime import date
from decimal import Decimal
from math import isfinite
from sys import float_info
from typing import Any

from penstock.command.counts.rows import Row, as_number, read_rows
from penstock.command.inputs.events import input_name
from penstock.command.inputs.field_option import FieldOption
from penstock.command.output import counted, give, mention, write
from penstock.streams.base.errors import BuildError, describe
from penstock.streams.pictures.steps import Steps, as_svg
from penstock.streams.temporal.periods.counts import Periods, sequenced
from penstock.streams.temporal.periods.intervals import Axis, IntervalError, amount, reader
from penstock.streams.temporal.periods.slices import Month, as_of, by_month

__all__ = ["call"]

_BAD_ROWS = 3
_LARGEST = int(float_info.max)
_SHOWN = 10  # bad rows; the others are only counted


def call(options: Namespace, words: list[str]) -> int:
    """Print a line of JSON for each period, each month, or each key at an instant.

    Returns 0, or 3 if rows were bad and left out. Raises BuildError for a wrong use, and for an
    input that cannot be read.
    """
    if words:
        raise BuildError(f"counts takes nothing after `--`: {' '.join(words)}")
    _check_amounts(options)
    _check_plot(options)
    rows, unread = read_rows(options)
    if unread not in (0, _BAD_ROWS):
        return unread
    if not rows and not unread:
        mention(f"{input_name(options)} has no rows")
    periods, bad = _counted(rows, options)
    if periods.empty:
        mention(f"{counted(periods.empty, 'row')} skipped: open for no time")
    months = _months(periods, options) if options.month else []
    if options.plot:
        _plot(periods, months, options)
    lines = _lines(periods, months, options)
    status = give(
        "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), options.output
    )
    return status or (_BAD_ROWS if bad else unread)


def _check_amounts(options: Namespace) -> None:
    if options.aggregate == "count" and options.of is not None:
        raise BuildError("--of needs an --aggregate other than count, which counts rows")
    if options.aggregate != "count" and options.of is None:
        raise BuildError(
            f"--aggregate {options.aggregate} needs --of FIELD, the number to aggregate"
        )


def _counted(rows: list[Row], options: Namespace) -> tuple[Periods, int]:
    """The periods of the good rows, and the number of bad ones."""
    fields: dict[str, Any] = {
        "by": options.by,
        "begin": options.begin,
        "end": options.end,
        "of": options.of,
    }
    try:
        return sequenced(rows, options.aggregate, **fields), 0
    except (IntervalError, TypeError):
        good = list(_good(rows, options))
    return sequenced(good, options.aggregate, **fields), len(rows) - len(good)


def _good(rows: list[Row], options: Namespace) -> Iterator[Row]:
    """The rows that can be counted; the others are reported, numbered from 1."""
    axis, bad = Axis(), 0
    begin, end = reader(options.begin), reader(options.end, optional=True)
    key = reader(options.by) if options.by else None
    of = reader(options.of) if options.of else None
    needed = [
        FieldOption(f"--{option}", field, "row")
        for option in ("begin", "by", "of")
        if (field := getattr(options, option))
    ]
    for number, row in enumerate(rows, 1):
        if [field for field in needed if not field.is_in(row)]:
            continue
        try:
            if key is not None:
                _check_key(key(row), options.by)
            if of is not None:
                amount(of(row))
            axis.interval(begin(row), end(row))
        except (IntervalError, TypeError) as error:
            bad += 1
            if bad <= _SHOWN:
                mention(f"row {number} is left out: {error}")
        else:
            yield row
    for field in needed:
        field.end(_BAD_ROWS)
    if bad > _SHOWN:
        mention(f"{counted(bad - _SHOWN, 'more row')} left out")


def _check_key(key: Any, field: str) -> None:
    """Raise TypeError for a value that cannot be a key, such as a list."""
    try:
        hash(key)
    except TypeError:
        raise TypeError(f"its {field!r} is {describe(key)}, which cannot be a key (--by)") from None


def _lines(periods: Periods, months: list[Month], options: Namespace) -> Iterator[dict[str, Any]]:
    if options.at is not None:
        at = _instant(options.at, periods)
        values = as_of(periods, at)
        if not values and options.by is None and options.aggregate == "count":
            values = {None: 0}
        for key, value in values.items():
            yield {"at": _plain(at), **_key(key, options), "value": _plain(value)}
    elif options.month:
        for month in months:
            yield {
                **_key(month.key, options),
                "month": month.month.isoformat()[:7],
                "least": _plain(month.least),
                "mean": _plain(month.mean),
                "greatest": _plain(month.greatest),
            }
    else:
        for period in periods:
            ends = {"begin": _plain(period.begin), "end": _plain(period.end)}
            yield {**_key(period.key, options), **ends, "value": _plain(period.value)}


def _months(periods: Periods, options: Namespace) -> list[Month]:
    try:
        return by_month(periods, until=options.until)
    except IntervalError as error:
        raise BuildError(f"{error}: here, --until") from error


def _instant(text: str, periods: Periods) -> Any:
    """A point on the command line: a number where the periods are of numbers."""
    dates = bool(periods) and isinstance(periods[0].begin, date)
    return text if dates else as_number(text)


def _key(key: Any, options: Namespace) -> dict[str, Any]:
    return {} if options.by is None else {"key": _plain(key)}


def _plain(value: Any) -> Any:
    """`value` as JSON has it; a number that it does not have is a text."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, int) and abs(value) > _LARGEST:
        value = Decimal(value)
    if isinstance(value, Decimal):
        return float(value) if isfinite(float(value)) else str(value.normalize())
    if isinstance(value, float) and not isfinite(value):
        # As PostgreSQL writes it: Infinity.
        return str(Decimal(value))
    return value if isinstance(value, str | int | float | None) else str(value)


def _check_plot(options: Namespace) -> None:
    """Raise BuildError for a plot that could not be drawn, before anything is read."""
    if options.until is not None and not options.month:
        raise BuildError("--until goes with --month")
    if options.plot is None:
        return
    if options.at is not None:
        raise BuildError("--plot draws periods or months: leave --at out")
    if not options.plot.endswith(".svg"):
        raise BuildError(f"--plot {options.plot}: the name must end in .svg")


def _plot(periods: Periods, months: list[Month], options: Namespace) -> None:
    what = options.aggregate if options.of is None else f"{options.aggregate} of {options.of}"
    curves = _curves_of_months(months, options) if options.month else _curves_of_periods(periods)
    write(as_svg((what, curves)), options.plot)


def _curves_of_periods(periods: Periods) -> dict[str, Steps]:
    curves: dict[str, Steps] = {}
    for period in periods:
        steps = curves.setdefault(_name(period.key), [])
        if periods.aggregate == "count" and steps and steps[-1][1] < period.begin:
            steps.append((steps[-1][1], period.begin, 0))
        steps.append((period.begin, period.end, period.value))
    return curves


def _curves_of_months(months: Iterable[Month], options: Namespace) -> dict[str, Steps]:
    curves: dict[str, Steps] = {}
    for month in months:
        first = month.month
        if (first.year, first.month) == (date.max.year, date.max.month):
            after = date.max
        else:
            after = date(first.year + first.month // 12, first.month % 12 + 1, 1)
        values = {"greatest": month.greatest, "mean": month.mean, "least": month.least}
        if options.by is not None:
            values = {_name(month.key): month.mean}
        for name, value in values.items():
            curves.setdefault(name, []).append((first, after, value))
    return curves


def _name(key: Any) -> str:
    return "" if key is None else str(key)
