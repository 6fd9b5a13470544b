"""`penstock counts`: counts over time of rows: of files, or of a table of a database."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.command.counts.lines import lines_of
from penstock.command.counts.rows import Row, read_rows
from penstock.command.inputs.events import input_name, inputs_of
from penstock.command.inputs.field_option import FieldOption
from penstock.command.output import counted, give, mention, write
from penstock.streams.base.errors import BuildError, describe
from penstock.streams.temporal.periods.counts import Periods, sequenced
from penstock.streams.temporal.periods.intervals import Axis, IntervalError, amount, reader
from penstock.streams.temporal.periods.slices import Slice, by_calendar

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

__all__ = ["call"]

_BAD_ROWS = 3
_SHOWN = 10  # bad rows; the others are only counted


def call(options: Namespace, words: list[str]) -> int:
    """Print a line of JSON for each period, each unit of the calendar, or each key at an instant.

    Returns 0, or 3 if rows were bad and left out. Raises BuildError for a wrong use, and for an
    input that cannot be read.
    """
    _check_amounts(options)
    _check_calendar(options)
    _check_plot(options)
    zone = None if options.zone is None else _zone(options.zone)
    inputs = inputs_of(options) if options.join else {}
    names: list[str] | None = list(inputs) if len(inputs) > 1 else None
    if options.join and names is None and options.by is None:
        raise BuildError("--join puts several series side by side: give several PATHs, or --by")
    status = 0
    found: dict[str, Periods] = {}
    for name, own in ({"": options} if names is None else inputs).items():
        periods, read = _read(own, name)
        if read not in (0, _BAD_ROWS):
            return read
        status = status or read
        found[name] = periods
    periods = found[""] if names is None else _together(found, options)
    slices = None if options.unit is None else _slices(periods, zone, options)
    if options.plot:
        from penstock.command.counts.plot import picture_of

        write(picture_of(periods, slices, names, options), options.plot)
    lines = lines_of(periods, slices, names, options)
    # One for all: `dumps` would make one for each line.
    encode = json.JSONEncoder(ensure_ascii=False).encode
    text = "".join(f"{encode(line)}\n" for line in lines)
    return give(text, options.output) or status


def _read(options: Namespace, name: str) -> tuple[Periods, int]:
    """The periods of an input, with the exit status."""
    rows, unread = read_rows(options)
    if unread not in (0, _BAD_ROWS):
        return Periods(), unread
    if not rows and not unread:
        mention(f"{input_name(options)} has no rows")
    periods, bad = _counted(rows, options, f"{name}: " if name else "")
    if periods.empty:
        mention(f"{counted(periods.empty, 'row')} skipped: open for no time")
    return periods, unread or (_BAD_ROWS if bad else 0)


def _together(found: dict[str, Periods], options: Namespace) -> Periods:
    """The periods of several inputs, by pairs of their names and keys. Raises BuildError where
    their points cannot be compared."""
    axis = Axis()
    whole = Periods(aggregate=options.aggregate)
    for name, periods in found.items():
        try:
            for period in periods[:1]:
                axis.point(period.begin)
        except TypeError as error:
            raise BuildError(f"--join: in {name}, {error}") from error
        for period in periods:
            period.key = (name, period.key)
        whole += periods
    return whole


def _check_amounts(options: Namespace) -> None:
    if options.aggregate == "count" and options.of is not None:
        raise BuildError("--of needs an --aggregate other than count, which counts rows")
    if options.aggregate != "count" and options.of is None:
        raise BuildError(
            f"--aggregate {options.aggregate} needs --of FIELD, the number to aggregate"
        )


def _check_calendar(options: Namespace) -> None:
    """Raise BuildError for options that would be ignored."""
    for option in ("until", "zone"):
        if getattr(options, option) is not None and options.unit is None:
            raise BuildError(f"--{option} goes with --day, --week, --month, --quarter or --year")


def _check_plot(options: Namespace) -> None:
    """Raise BuildError for a plot that could not be drawn, before anything is read."""
    if options.plot is None:
        return
    if options.at is not None:
        raise BuildError("--plot draws periods, or units of the calendar: leave --at out")
    if not options.plot.endswith(".svg"):
        raise BuildError(f"--plot {options.plot}: the name must end in .svg")


def _counted(rows: list[Row], options: Namespace, where: str) -> tuple[Periods, int]:
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
        good = list(_good(rows, options, where))
    return sequenced(good, options.aggregate, **fields), len(rows) - len(good)


def _good(rows: list[Row], options: Namespace, where: str) -> Iterator[Row]:
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
                mention(f"{where}row {number} is left out: {error}")
        else:
            yield row
    for field in needed:
        field.end(_BAD_ROWS)
    if bad > _SHOWN:
        mention(f"{where}{counted(bad - _SHOWN, 'more row')} left out")


def _check_key(key: Any, field: str) -> None:
    """Raise TypeError for a value that cannot be a key, such as a list."""
    try:
        hash(key)
    except TypeError:
        raise TypeError(f"its {field!r} is {describe(key)}, which cannot be a key (--by)") from None


def _slices(periods: Periods, zone: ZoneInfo | None, options: Namespace) -> list[Slice]:
    try:
        return by_calendar(periods, options.unit, until=options.until, zone=zone)
    except IntervalError as error:
        raise BuildError(f"{error}: here, --until") from error


def _zone(name: str) -> ZoneInfo:
    from penstock.streams.base.calendar import zone_named

    return zone_named(name, f"--zone {name}")
