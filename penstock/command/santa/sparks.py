"""Stories as lines of a terminal: one of them in four lines, or one line for each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from math import log
from statistics import fmean

from penstock.command.santa.story import UNLIMITED, Curve

__all__ = ["race_lines", "sparks"]

_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 60


def sparks(curve: Curve) -> str:
    """A line for each, from the beginning of the story to its end, all of the same height."""
    end = max(curve.time[-1], curve.done_at[-1])
    rows: list[tuple[str, Sequence[float], Sequence[float], bool]] = [
        ("queue", curve.time, curve.queue, True),
        ("in flight", curve.time, curve.in_flight, True),
        ("limit", curve.time, curve.limit, True),
        ("seconds in the system", curve.done_at, curve.total, False),
    ]
    lines: list[str] = []
    for name, times, values, lasts in rows:
        most = max(values)
        if name == "limit" and most >= UNLIMITED:
            continue
        line = "".join(
            _BARS[round(value / most * 8) if most else 0]
            for value in _highest(times, values, end, lasts)
        )
        lines.append(f"{name:>21} |{line}| at most {most:.0f}")
    return "\n".join(lines)


def race_lines(curves: dict[str, Curve], seconds: float) -> list[str]:
    """A heading, and a line for each story: the time in the system over `seconds` of the story.

    The heights are logarithmic and the same for all stories: one limit can be a hundred times as
    slow as another. Where no job ended there is a blank; jobs that ended later count in the last
    part. A story need not have ended.
    """
    rows = {name: _means(curve, seconds) for name, curve in curves.items()}
    values = [value for row in rows.values() for value in row if value]
    least, most = min(values, default=1.0), max(values, default=1.0)
    width = max(map(len, curves))
    lines = [
        f"seconds in the system, {seconds / 60:.0f} min of the story: ▁ is {least:.0f} and "
        f"█ is {most:.0f}, logarithmic"
    ]
    for name, row in rows.items():
        line = "".join(_bar(value, least, most) for value in row)
        lines.append(f"{name:>{width}} |{line}| {_numbers(curves[name])}")
    return lines


def _numbers(curve: Curve) -> str:
    if not curve.total:
        return ""
    totals = sorted(curve.total)
    return (
        f"median {totals[len(totals) // 2]:.0f}, longest {totals[-1]:.0f}; at most "
        f"{max(curve.in_flight)} in flight, {max(curve.queue)} in the queue"
    )


def _bar(value: float | None, least: float, most: float) -> str:
    if value is None:
        return " "
    return _BARS[1 + round(7 * log(value / least) / log(most / least)) if most > least else 1]


def _means(curve: Curve, seconds: float) -> list[float | None]:
    """The mean time in the system of the jobs that ended in each part of the time."""
    parts = _parts(curve.done_at, curve.total, seconds)
    return [fmean(part) if part else None for part in parts]


def _parts(times: Sequence[float], values: Sequence[float], end: float) -> list[Sequence[float]]:
    """The values of each part of the time until `end`; the last has those after it, too."""

    def part_of(time: float) -> int:
        return min(_WIDTH - 1, int(time / end * _WIDTH)) if end else 0

    # The times ascend: a story of a day has a hundred thousand of them, and sixty edges.
    edges = [bisect_left(times, part, key=part_of) for part in range(_WIDTH)]
    return [values[begin:until] for begin, until in pairwise([*edges, len(times)])]


def _highest(
    times: Sequence[float], values: Sequence[float], end: float, lasts: bool
) -> list[float]:
    """The highest value in each part of the time. What `lasts` is there until the next; the first,
    from the beginning."""
    found: list[float] = []
    before = values[0]
    for part in _parts(times, values, end):
        found.append(max([before, *part] if lasts else part, default=0.0))
        before = part[-1] if part else before
    return found
