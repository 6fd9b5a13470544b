"""The curves that `penstock counts --plot` draws."""

from __future__ import annotations

from argparse import Namespace
from datetime import date
from typing import Any

from penstock.command.counts.plain import name_of
from penstock.streams.base.calendar import next_first
from penstock.streams.pictures.steps import Steps, as_svg
from penstock.streams.temporal.periods.counts import Periods
from penstock.streams.temporal.periods.slices import Slice

__all__ = ["picture_of"]


def picture_of(
    periods: Periods, slices: list[Slice] | None, names: list[str] | None, options: Namespace
) -> str:
    """A curve for each series; for slices of one series its least, mean and greatest values."""
    what = options.aggregate if options.of is None else f"{options.aggregate} of {options.of}"
    if slices is None:
        curves = _of_periods(periods, names)
    else:
        alone = options.by is None and names is None
        curves = _of_slices(slices, names, options, alone=alone)
    return as_svg((what, curves))


def _of_periods(periods: Periods, names: list[str] | None) -> dict[str, Steps]:
    curves: dict[str, Steps] = {}
    for period in periods:
        steps = curves.setdefault(_name(period.key, names), [])
        if periods.aggregate == "count" and steps and steps[-1][1] < period.begin:
            steps.append((steps[-1][1], period.begin, 0))
        steps.append((period.begin, period.end, period.value))
    return curves


def _of_slices(
    slices: list[Slice], names: list[str] | None, options: Namespace, *, alone: bool
) -> dict[str, Steps]:
    curves: dict[str, Steps] = {}
    for one in slices:
        try:
            after = next_first(options.unit, one.first)
        except OverflowError:
            after = date.max
        values = {"greatest": one.greatest, "mean": one.mean, "least": one.least}
        if not alone:
            values = {_name(one.key, names): one.mean}
        for name, value in values.items():
            curves.setdefault(name, []).append((one.first, after, value))
    return curves


def _name(key: Any, names: list[str] | None) -> str:
    if names is None:
        return name_of(key)
    series, own = key
    return f"{series} {name_of(own)}".rstrip()
