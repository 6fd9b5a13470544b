"""Values that change in steps over time, as an SVG picture."""

from __future__ import annotations

from datetime import UTC, date, datetime
from math import ceil, floor, inf, isfinite, log10
from typing import Any

from penstock.streams.base.errors import BuildError
from penstock.streams.pictures.sheet import (
    BOTTOM,
    COLOURS,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    legend,
    sheet,
)
from penstock.streams.pictures.svg import text

__all__ = ["Steps", "as_svg"]

Steps = list[tuple[Any, Any, Any]]
"""Begin, end and value, in order; an end of None is open."""

_TICKS = 6
# Seconds between them in a picture of less than some days, which is labelled with times of the day.
_DAYS = 5 * 86_400
_STEPS = (
    *(10.0**-n for n in range(6, 0, -1)),
    *(
        1,
        2,
        5,
        10,
        15,
        30,
        60,
        120,
        300,
        600,
        900,
        1800,
        3600,
        7200,
        10_800,
        21_600,
        43_200,
        86_400,
    ),
)
# In pixels: a label that is this close to an end of the axis begins or ends there.
_CLOSE = 30
_OPEN = 0.06  # of the width, for what is open
# Chosen: the differences of numbers up to this one are finite.
_LARGEST = 1e300


def as_svg(*panels: tuple[str, dict[str, Steps]]) -> str:
    """An SVG document of one or more panels, each with a title and curves, one below the other.

    It is readable on light and dark backgrounds; its size does not grow with the number of steps.
    A step that is open ends at the right edge, and one with a value beyond 1E+300 is left out.
    Raises BuildError for more curves than can be told apart, and for points in time beyond 1E+300.
    """
    drawn = [_panel(title, curves) for title, curves in panels]
    return sheet("; ".join(title for title, _ in panels), *drawn)


def _panel(title: str, curves: dict[str, Steps]) -> list[str]:
    if len(curves) > len(COLOURS):
        raise BuildError(
            f"--plot draws at most {len(COLOURS)} keys, and there are {len(curves):,}: leave --by "
            "out, or select rows"
        )
    points = [p for steps in curves.values() for step in steps for p in step[:2] if p is not None]
    values = [_as_float(step[2]) for steps in curves.values() for step in steps]
    positions = [_position(p) for p in points]
    if not all(map(isfinite, positions)):
        raise BuildError(
            f"--plot draws points in time up to {_LARGEST:g}, and there are others: leave out such "
            "rows, or give them no end"
        )
    across = _Axis(positions, LEFT, WIDTH - RIGHT)
    if any(end is None for steps in curves.values() for _, end, _ in steps):
        # Or one that begins at the last point would not be seen.
        across.high += (across.high - across.low) * _OPEN or 1.0
    up = _Axis([0.0, *filter(isfinite, values)], HEIGHT - BOTTOM, TOP)
    parts = [text("title", LEFT, 26, title), *_horizontals(up)]
    if points:
        parts += _dates(across, points[0])
    for colour, steps in zip(COLOURS, curves.values(), strict=False):
        path = _path(steps, across, up)
        parts.append(f'<path class="curve" stroke="{colour}" d="{path}"/>')
    return parts + legend([name for name in curves if name])


class _Axis:
    """Maps numbers to pixels, linearly."""

    def __init__(self, numbers: list[float], first: float, last: float) -> None:
        self.low, self.high = min(numbers, default=0.0), max(numbers, default=1.0)
        self.first, self.last = first, last

    def pixel(self, number: float) -> float:
        share = (number - self.low) / ((self.high - self.low) or 1.0)
        return round(self.first + share * (self.last - self.first), 1)


def _position(point: Any) -> float:
    if isinstance(point, datetime):
        # Those without a time zone have their own axis, on which any zone will do.
        return (point if point.tzinfo else point.replace(tzinfo=UTC)).timestamp()
    return _as_float(point.toordinal() if isinstance(point, date) else point)


def _as_float(number: Any) -> float:
    """The number, or infinity for one that cannot be drawn."""
    try:
        found = float(number)
    except OverflowError:
        return inf
    return found if abs(found) <= _LARGEST else inf


def _path(steps: Steps, across: _Axis, up: _Axis) -> str:
    """Within one column of pixels only the range of the steps is drawn, and the last of them."""
    drawn: list[str] = []
    column, ended = -1, None
    low = high = pen = 0.0
    for begin, end, value in steps:
        height = _as_float(value)
        if not isfinite(height):
            continue
        x, y = across.pixel(_position(begin)), up.pixel(height)
        if ended is None or ended != begin:
            drawn.append(f"M{x:g} {y:g}")
            column, low, high, pen = int(x), y, y, y
        elif not low <= y <= high:
            drawn.append(f"V{y:g}")
            low, high, pen = min(low, y), max(high, y), y
        ended = end
        last = across.last if end is None else across.pixel(_position(end))
        if int(last) != column:
            drawn.append(f"H{last:g}" if pen == y else f"V{y:g}H{last:g}")
            column, low, high, pen = int(last), y, y, y
    return "".join(drawn)


def _horizontals(up: _Axis) -> list[str]:
    """Lines at round numbers."""
    span = (up.high - up.low) or 1.0
    rough = span / _TICKS
    power = 10.0 ** floor(log10(rough))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough)
    parts: list[str] = []
    for n in range(floor(up.low / step), floor(up.high / step) + 1):
        if n * step < up.low:
            continue
        y = up.pixel(n * step)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:g}" x2="{WIDTH - RIGHT}" y2="{y:g}"/>')
        parts.append(text("label", LEFT - 8, y + 4, f"{round(n * step, 10):,g}", anchor="end"))
    return parts


def _dates(across: _Axis, example: Any) -> list[str]:
    low, high = across.low, across.high
    hours = isinstance(example, datetime) and 0 < high - low < _DAYS
    at = [low + (high - low) * n / (_TICKS - 1) for n in range(_TICKS)]
    at = _round_times(low, high) if hours else at
    if isinstance(example, date):
        # What is open is drawn beyond its last point, which may be at the end of the calendar.
        latest = _position(example.replace(year=9999, month=12, day=31))
        at = [number for number in at if number <= latest]
    parts: list[str] = []
    for number in at:
        if isinstance(example, datetime):
            shown = datetime.fromtimestamp(number, UTC)
            seconds = ":%S" if number % 60 else ""
            label = shown.strftime(f"%m-%d %H:%M{seconds}" if hours else "%Y-%m-%d")
        elif isinstance(example, date):
            label = date.fromordinal(round(number)).isoformat()
        else:
            label = f"{number:,g}"
        x = across.pixel(number)
        anchor = "start" if x < LEFT + _CLOSE else "end" if x > WIDTH - RIGHT - _CLOSE else "middle"
        parts.append(text("label", x, HEIGHT - BOTTOM + 22, label, anchor=anchor))
    return parts


def _round_times(low: float, high: float) -> list[float]:
    """Times between the two, in seconds since 1970, at whole hours, minutes or days."""
    step = next(step for step in _STEPS if (high - low) / step <= _TICKS)
    return [n * step for n in range(ceil(low / step), floor(high / step) + 1)]
