"""Several series of values over time, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

__all__ = ["Absent", "Span", "side_by_side", "with_gaps"]

Span = tuple[Any, Any, Any]
"""Begin, end and value; an end of None is open."""


class Absent:
    """The value of a series where it has none."""


def side_by_side(series: Sequence[Iterable[Span]]) -> Iterator[tuple[Any, Any, list[Any]]]:
    """The longest periods in which no series changes, each with the values of all, Absent for a
    series that has none; those in which no series has a value are left out.

    The spans of each series come in order, and do not overlap. O(n log n + periods x series) time,
    O(n) memory.
    """
    steps: list[tuple[Any, bool, int, Any]] = []
    for at, spans in enumerate(series):
        for begin, end, value in spans:
            steps.append((begin, True, at, value))
            if end is not None:
                steps.append((end, False, at, Absent))
    # What ends at a point does so before another span of the series begins there.
    steps.sort(key=lambda step: step[:2])
    values: list[Any] = [Absent] * len(series)
    since: Any = None
    for point, _, at, value in steps:
        if since != point:
            if any(one is not Absent for one in values):
                yield since, point, list(values)
            since = point
        values[at] = value
    if any(one is not Absent for one in values):
        yield since, None, list(values)


def with_gaps(
    spans: Iterable[tuple[Any, Any, list[Any]]],
    nothing: Sequence[Any],
    cut: Callable[[Any, Any], Iterable[tuple[Any, Any]]] | None = None,
) -> Iterator[tuple[Any, Any, list[Any]]]:
    """The same, and between them those with `nothing`, `cut` to several if it is given."""
    before: Any = None
    for span in spans:
        begin = span[0]
        if before is not None and before < begin:
            for gap in [(before, begin)] if cut is None else cut(before, begin):
                yield (*gap, list(nothing))
        yield span
        before = span[1]
