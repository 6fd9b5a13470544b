"""The lines that `penstock counts` prints."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from penstock.command.counts.joined import Absent, Span, side_by_side, with_gaps
from penstock.command.counts.plain import as_plain, label, name_of
from penstock.command.counts.rows import as_number
from penstock.streams.base.calendar import Days, next_first
from penstock.streams.base.errors import BuildError
from penstock.streams.temporal.periods.counts import Periods
from penstock.streams.temporal.periods.slices import Slice, as_of

__all__ = ["lines_of"]

# Each line has a value of each.
_MOST_SERIES = 1_000


class _Group(NamedTuple):
    """Series in one line, by their names; one that is alone has none."""

    key: Any
    names: list[str] | None
    series: list[Any]


def lines_of(
    periods: Periods, slices: list[Slice] | None, names: list[str] | None, options: Namespace
) -> Iterator[dict[str, Any]]:
    """A line for each period, each slice of the calendar, or each instant, as the options say.

    With the `names` of several inputs, a key is a pair of a name and a key. Raises BuildError for
    series that cannot stand side by side.
    """
    if options.at is not None:
        return _at(periods, names, options)
    if slices is None:
        return _over_time(periods, names, options)
    return _by_calendar(slices, periods.aggregate == "count", names, options)


def _over_time(
    periods: Periods, names: list[str] | None, options: Namespace
) -> Iterator[dict[str, Any]]:
    spans = (
        (key, [(one.begin, one.end, one.value) for one in some])
        for key, some in groupby(periods, attrgetter("key"))
    )
    nothing = _nothing(options)
    for group in _groups(spans, names, options, ("begin", "end")):
        found = _beside(group.series)
        if options.null is not None:
            found = with_gaps(found, [Absent] * len(group.series))
        key = _key(group, names, options)
        columns = group.names or ["value"]
        for begin, end, values in found:
            line = {**key, "begin": as_plain(begin), "end": as_plain(end)}
            for name, one in zip(columns, values, strict=True):
                line[name] = nothing if one is Absent else as_plain(one)
            yield line


def _by_calendar(
    slices: list[Slice], is_count: bool, names: list[str] | None, options: Namespace
) -> Iterator[dict[str, Any]]:
    unit: Days = options.unit
    spans: dict[Any, list[Span]] = {}
    for one in slices:
        # A count is above 0 where a row is valid.
        is_empty = options.null is not None and is_count and not one.greatest
        value = Absent if is_empty else one
        spans.setdefault(one.key, []).append((one.first, _after(unit, one.first), value))
    nothing = _nothing(options)
    for group in _groups(spans.items(), names, options, (unit,)):
        found = _beside(group.series)
        if options.null is not None:
            found = with_gaps(found, [Absent] * len(group.series), partial(_units, unit))
        for first, _, values in found:
            shown = [_of_slice(one, nothing) for one in values]
            beside = shown[0] if group.names is None else dict(zip(group.names, shown, strict=True))
            yield {**_key(group, names, options), unit: label(unit, first), **beside}


def _of_slice(one: Slice | type[Absent], nothing: Any) -> dict[str, Any]:
    if not isinstance(one, Slice):
        return dict.fromkeys(("least", "mean", "greatest"), nothing)
    values = {"least": one.least, "mean": one.mean, "greatest": one.greatest}
    return {name: as_plain(value) for name, value in values.items()}


def _at(periods: Periods, names: list[str] | None, options: Namespace) -> Iterator[dict[str, Any]]:
    at = _instant(options.at, periods)
    values = as_of(periods, at)
    if names is not None or options.join or options.null is not None:
        for period in periods:
            values.setdefault(period.key, Absent)
    if not values and options.by is None and options.aggregate == "count":
        values = {None: 0} if names is None else {(names[0], None): 0}
    nothing = _nothing(options)
    for group in _groups(values.items(), names, options, ("at",)):
        shown = [nothing if one in (Absent, []) else as_plain(one) for one in group.series]
        yield {
            "at": as_plain(at),
            **_key(group, names, options),
            **dict(zip(group.names or ["value"], shown, strict=True)),
        }


def _groups(
    series: Iterable[tuple[Any, Any]],
    names: list[str] | None,
    options: Namespace,
    taken: Sequence[str],
) -> Iterator[_Group]:
    """What stands in one line: a key, all keys, or the inputs for each key."""
    if names is not None:
        _check_names(names, (*taken, *([] if options.by is None else ["key"])))
        known = dict(series)
        for key in dict.fromkeys(key for _, key in known):
            yield _Group(key, names, [known.get((name, key), []) for name in names])
    elif options.join:
        known = dict(series)
        keys = [name_of(key) for key in known]
        _check_names(keys, taken)
        if keys:
            yield _Group(None, keys, list(known.values()))
    else:
        for key, one in series:
            yield _Group(key, None, [one])


def _check_names(names: list[str], taken: Sequence[str]) -> None:
    if len(names) > _MOST_SERIES:
        raise BuildError(
            f"--join puts at most {_MOST_SERIES:,} series side by side, and there are "
            f"{len(names):,}: leave it out"
        )
    known = set(taken)
    for name in names:
        if name in known:
            what = "the name of a field of each line" if name in taken else "that of another one"
            raise BuildError(f"--join: {name!r}, the name of a series, is {what} too")
        known.add(name)


def _beside(series: list[list[Span]]) -> Iterable[tuple[Any, Any, list[Any]]]:
    if len(series) == 1:
        return ((begin, end, [value]) for begin, end, value in series[0])
    return side_by_side(series)


def _key(group: _Group, names: list[str] | None, options: Namespace) -> dict[str, Any]:
    has_key = options.by is not None and (names is not None or not options.join)
    return {"key": as_plain(group.key)} if has_key else {}


def _nothing(options: Namespace) -> Any:
    """The value of a series that has no row."""
    if options.null is None:
        return 0 if options.aggregate == "count" else None
    try:
        return json.loads(options.null)
    except ValueError:
        return options.null


def _instant(text: str, periods: Periods) -> Any:
    """A point on the command line: a number where the periods are of numbers."""
    dates = bool(periods) and isinstance(periods[0].begin, date)
    return text if dates else as_number(text)


def _after(unit: Days, first: date) -> date | None:
    """The first day of the next unit, None after the last one of the calendar."""
    try:
        return next_first(unit, first)
    except OverflowError:
        return None


def _units(unit: Days, begin: date, end: date) -> Iterator[tuple[date, date]]:
    while begin < end:
        after = next_first(unit, begin)
        yield begin, after
        begin = after
