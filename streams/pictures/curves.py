"""Curves through points, on logarithmic axes, as an SVG picture."""

from __future__ import annotations

from math import ceil, floor, log10

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

__all__ = ["Curve", "as_svg"]

Curve = list[tuple[float, float]]
"""Points by their distance from the left, both positive."""


def as_svg(title: str, across: str, curves: dict[str, Curve], marks: list[int]) -> str:
    """An SVG document, readable on light and dark backgrounds.

    `across` is the label of the axis below, and `marks` has the point of each curve that is to
    stand out, by its index. At most as many curves as there are colours.
    """
    x = _Axis([point[0] for curve in curves.values() for point in curve], LEFT, WIDTH - RIGHT)
    y = _Axis([point[1] for curve in curves.values() for point in curve], HEIGHT - BOTTOM, TOP)
    parts = [text("title", LEFT, 26, title)]
    for value in y.ticks():
        at = y.pixel(value)
        parts.append(
            f'<line class="grid" x1="{LEFT}" y1="{at:g}" x2="{WIDTH - RIGHT}" y2="{at:g}"/>'
        )
        parts.append(text("label", LEFT - 8, at + 4, f"{value:,g}", anchor="end"))
    below = HEIGHT - BOTTOM + 20
    for value in x.ticks():
        at = x.pixel(value)
        parts.append(
            f'<line class="grid" x1="{at:g}" y1="{TOP}" x2="{at:g}" y2="{HEIGHT - BOTTOM}"/>'
        )
        parts.append(text("label", at, below, f"{value:,g}", anchor="middle"))
    parts.append(text("label", WIDTH - RIGHT, below + 20, across, anchor="end"))
    for colour, curve, mark in zip(COLOURS, curves.values(), marks, strict=False):
        points = [(x.pixel(one), y.pixel(other)) for one, other in curve]
        path = "L".join(f"{one:g} {other:g}" for one, other in points)
        parts.append(f'<path class="curve" stroke="{colour}" d="M{path}"/>')
        for number, (one, other) in enumerate(points):
            size = 5 if number == mark else 2
            parts.append(f'<circle cx="{one:g}" cy="{other:g}" r="{size}" fill="{colour}"/>')
    return sheet(title, parts + legend([name for name in curves if name]))


class _Axis:
    """Maps positive numbers to pixels by their logarithms, from a round number to another."""

    def __init__(self, numbers: list[float], first: float, last: float) -> None:
        self._low, self._high = _below(min(numbers)), _above(max(numbers))
        if self._low == self._high:
            self._high *= 2
        self._first, self._last = first, last

    def pixel(self, number: float) -> float:
        share = log10(number / self._low) / log10(self._high / self._low)
        return round(self._first + share * (self._last - self._first), 1)

    def ticks(self) -> list[float]:
        """Round numbers from end to end: 1, 2, 5, 10, or powers of ten if there are many."""
        powers = range(floor(log10(self._low)) - 1, ceil(log10(self._high)) + 2)
        factors = (1, 2, 5) if self._high / self._low <= 2000 else (1,)
        ticks = [factor * 10.0**power for power in powers for factor in factors]
        return [tick for tick in ticks if self._low * 0.999 <= tick <= self._high * 1.001]


def _below(number: float) -> float:
    power = 10.0 ** floor(log10(number))
    return next(factor * power for factor in (5, 2, 1) if factor * power <= number * 1.0001)


def _above(number: float) -> float:
    power = 10.0 ** floor(log10(number))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= number * 0.9999)
