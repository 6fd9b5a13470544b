"""Charts as SVG: percentiles as the plotter of HdrHistogram shows them, and series over time.

A chart is text to be put into a page, whose style sheet gives it its colours by class. Numbers go
in as they are; names are escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import accumulate, pairwise
from math import ceil, floor, log10
from typing import NamedTuple

__all__ = ["Curve", "Line", "in_time", "nines_of", "over_time", "percentiles", "ticks"]

_Cells = Sequence[tuple[int, int]]

# Of the drawing area within the picture, in its own units.
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 10, 26

# The places of a curve of percentiles: where the line would look the same with more.
_PLACES = 400

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


class Curve(NamedTuple):
    """Latencies of one kind: a name, its class, and the cells of a histogram in microseconds."""

    name: str
    kind: str
    cells: _Cells


class Line(NamedTuple):
    """A series over time: a name, its class, and its points; `steps` if it jumps between them."""

    name: str
    kind: str
    points: Sequence[tuple[float, float]]
    steps: bool = False
    filled: bool = False


def percentiles(
    curve: Curve,
    *,
    top: float,
    nines: int,
    least: float | None = None,
    behind: Sequence[Curve] = (),
    size: tuple[int, int] = (360, 230),
) -> str:
    """Latency by percentile: each nine of the percentile takes as much room as the one before.

    `top` is the latency at the upper end, in seconds, and `nines` how many there are to the right:
    charts with the same two can be compared. With `least`, the axis of the latency is logarithmic
    too, and begins there or below. The curves `behind` are drawn first.
    """
    plot = (
        _Plot(size, nines, _rounded_up(top)) if least is None else _Decades(size, nines, top, least)
    )
    parts = [plot.rules(_labelled(plot.marks())), *(_nine(plot, n) for n in range(nines + 1))]
    for one in (*behind, curve):
        points = [
            (min(nines, -log10(max(1 - part, 10.0**-nines))), seconds)
            for part, seconds in _distribution(one.cells)
        ]
        if points:
            path = plot.path(_thinned(points), steps=True)
            parts.append(f'<path class="line {escape(one.kind)}" d="{path}"/>')
    return plot.svg(f"{curve.name}: latency by percentile", parts)


def nines_of(count: int) -> int:
    """How many nines of a percentile so many events can show: 3 are 99.9 %."""
    return min(6, max(2, ceil(log10(max(count, 1)))))


def over_time(
    lines: Sequence[Line],
    *,
    seconds: float,
    size: tuple[int, int] = (540, 190),
    label: str,
    top: float = 0.0,
    whole: bool = False,
) -> str:
    """Series over the seconds of a run, on an axis up to `top` or the greatest of them.

    With `whole` they are of whole numbers, and so are the labels of the axis.
    """
    highest = max([top, *(y for line in lines for _, y in line.points)])
    plot = _Plot(size, max(seconds, 1e-9), _rounded_up(highest))
    parts = [plot.rules([(y, number(y)) for y in ticks(plot.top, 1.0 if whole else 0.0)])]
    parts += [plot.below(x, in_time(x), "start" if x == 0 else "middle") for x in _times(seconds)]
    for line in lines:
        if not line.points:
            continue
        path = plot.path(line.points, steps=line.steps)
        if line.filled:
            (first, _), (last, _) = line.points[0], line.points[-1]
            area = f"{path}L{plot.x(last):.1f} {plot.y(0):.1f}L{plot.x(first):.1f} {plot.y(0):.1f}Z"
            parts.append(f'<path class="area {escape(line.kind)}" d="{area}"/>')
        parts.append(f'<path class="line {escape(line.kind)}" d="{path}"/>')
    return plot.svg(label, parts)


class _Plot:
    """The area between two axes that begin at 0."""

    def __init__(self, size: tuple[int, int], right: float, top: float) -> None:
        self.width, self.height = size
        self.right, self.top = right, top

    def x(self, value: float) -> float:
        return _LEFT + (self.width - _LEFT - _RIGHT) * value / self.right

    def y(self, value: float) -> float:
        return self.height - _BOTTOM - (self.height - _TOP - _BOTTOM) * value / self.top

    def marks(self) -> list[float]:
        return ticks(self.top)

    def path(self, points: Iterable[tuple[float, float]], *, steps: bool) -> str:
        words: list[str] = []
        for x, y in points:
            if not words:
                words.append(f"M{self.x(x):.1f} {self.y(y):.1f}")
            elif steps:
                words.append(f"H{self.x(x):.1f}V{self.y(y):.1f}")
            else:
                words.append(f"L{self.x(x):.1f} {self.y(y):.1f}")
        return "".join(words)

    def rules(self, marks: Iterable[tuple[float, str]]) -> str:
        right = self.width - _RIGHT
        return "".join(
            f'<path class="rule" d="M{_LEFT} {self.y(y):.1f}H{right}"/>'
            f'<text class="mark" x="{_LEFT - 6}" y="{self.y(y) + 4:.1f}" text-anchor="end">'
            f"{escape(text)}</text>"
            for y, text in marks
        )

    def below(self, x: float, text: str, anchor: str = "middle") -> str:
        return (
            f'<text class="mark" x="{self.x(x):.1f}" y="{self.height - 8}" '
            f'text-anchor="{anchor}">{escape(text)}</text>'
        )

    def svg(self, label: str, parts: Iterable[str]) -> str:
        return (
            f'<svg class="chart" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
        )


class _Decades(_Plot):
    """The same with a logarithmic upright axis, from the power of ten below `least`."""

    def __init__(self, size: tuple[int, int], right: float, top: float, least: float) -> None:
        self._first = floor(log10(least))
        self._last = max(ceil(log10(top)), self._first + 1)
        super().__init__(size, right, 10.0**self._last)

    def y(self, value: float) -> float:
        part = (log10(max(value, 10.0**self._first)) - self._first) / (self._last - self._first)
        return self.height - _BOTTOM - (self.height - _TOP - _BOTTOM) * part

    def marks(self) -> list[float]:
        return [10.0**power for power in range(self._first, self._last + 1)]


def _nine(plot: _Plot, n: int) -> str:
    text = "0 %" if n == 0 else f"{100 - 10 ** (2 - n):.{max(0, n - 2)}f} %"
    x = plot.x(n)
    anchor = "start" if n == 0 else "end" if n == plot.right else "middle"
    upright = f'<path class="rule" d="M{x:.1f} {_TOP}V{plot.height - _BOTTOM}"/>'
    # The last two would overlap where there is little room.
    is_narrow = n and n == plot.right - 1 and (plot.x(1) - plot.x(0)) < 70
    return upright + ("" if is_narrow else plot.below(n, text, anchor))


def _distribution(cells: _Cells) -> list[tuple[float, float]]:
    """The part of the events that are below each latency, in seconds: a step for each cell."""
    total = sum(count for _, count in cells)
    below = [0, *accumulate(count for _, count in cells)]
    steps = [(part / total, cell / 1e6) for part, (cell, _) in zip(below, cells, strict=False)]
    return [*steps, (1.0, cells[-1][0] / 1e6)] if steps else []


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most one point for each place along the x axis: the last, and the ends."""
    widest = points[-1][0] or 1.0
    return [
        point
        for point, after in pairwise(points)
        if floor(_PLACES * point[0] / widest) != floor(_PLACES * after[0] / widest)
    ] + [points[-1]]


def ticks(top: float, least: float = 0.0) -> list[float]:
    """Four or five round numbers from 0 to `top`, which is one of them if it is round; fewer where
    they would be nearer together than `least`."""
    step = max(_rounded_up(top / 5), least)
    return [step * n for n in range(floor(top / step + 1e-9) + 1)]


def _rounded_up(value: float) -> float:
    """The next 1, 2, 2.5, 5 or 10 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(r * power for r in (1, 2, 2.5, 5, 10) if r * power >= value * (1 - 1e-9))


def _labelled(marks: list[float]) -> list[tuple[float, str]]:
    return [(mark, _span(mark)) for mark in marks]


def _span(seconds: float) -> str:
    size, unit = next((one for one in _UNITS if seconds >= one[0] * 0.999), _UNITS[-1])
    return f"{seconds / size:.4g} {unit}" if seconds else "0"


def number(value: float) -> str:
    """A number on an axis, in few characters."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


def in_time(seconds: float) -> str:
    """`12 s`, `3:05`, `2:00:00`."""
    whole = round(seconds)
    if seconds < 60:
        return f"{round(seconds, 2 if seconds < 10 else 1):g} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def _times(seconds: float) -> list[float]:
    """Round moments of a run of so many seconds: at most seven."""
    for step in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600):
        if seconds / step <= 6:
            break
    else:
        step = 3600 * ceil(seconds / 6 / 3600)
    if seconds < 1:
        return ticks(seconds)
    return [float(n * step) for n in range(int(seconds / step) + 1)]
