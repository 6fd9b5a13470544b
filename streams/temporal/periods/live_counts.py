"""Incremental temporal aggregation: emits only the periods that no later row can change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from heapq import heappop, heappush
from itertools import count
from typing import Any, cast

from penstock.streams.base.ahead import Ahead
from penstock.streams.temporal.periods.counts import Sweep
from penstock.streams.temporal.periods.intervals import Axis, IntervalError, LateInterval, Period
from penstock.streams.temporal.periods.tallies import Tally

__all__ = ["LiveCounts"]


class LiveCounts:
    """Takes rows in any order, and returns periods as the watermark passes their ends.

    A period is final when its end lies before the watermark: a row may still begin at the watermark
    itself and extend the period. O(log points) for each row; memory for the end points after the
    watermark, for the keys that have a row, and for the rows that are open.
    """

    def __init__(
        self,
        make: Callable[[], Tally],
        include_zero: bool,
        lateness: float | timedelta | None = None,
        ahead: Ahead | None = None,
    ) -> None:
        self.watermark: Any = None
        self.ignored_watermarks = 0
        self._empty = 0
        self._make = make
        self._include_zero = include_zero
        self._lateness = lateness
        self._ahead = ahead
        self._axis = Axis()
        self._sweeps: dict[Any, Sweep] = {}
        # Numbered, because a heap compares its items and sweeps cannot be compared.
        self._heap: list[tuple[Any, int, Sweep]] = []
        self._number = count()
        self._open: dict[Any, tuple[Sweep, Any, Any]] = {}

    def insert(self, key: Any, begin: Any, end: Any, of: Any) -> Any:
        """Add one row with the amount `of`. Returns its beginning as a point, or None if the row
        is skipped because it ends where it begins.

        Raises IntervalError, TypeError, and LateInterval if it begins before the watermark.
        """
        begin, end = self._axis.interval(begin, end)
        if begin == end:
            self._empty += 1
            return None
        self._check_begin(begin)
        sweep = self._sweep(key)
        self._enter(sweep, begin, of)
        if end is not None:
            self._leave(sweep, end, of)
        return begin

    def open(self, name: Any, key: Any, begin: Any, of: Any) -> Any:
        """Begin the row called `name`. Raises what `insert` raises, and IntervalError if the row is
        open already."""
        if name in self._open:
            since = self._open[name][1]
            raise IntervalError(f"row {name!r} begins at {begin}, but is open since {since}")
        begin, _ = self._axis.interval(begin, None)
        self._check_begin(begin)
        sweep = self._sweep(key)
        self._enter(sweep, begin, of)
        self._open[name] = sweep, begin, of
        return begin

    def close(self, name: Any, end: Any) -> None:
        """End the row called `name`. Raises IntervalError if it is not open.

        Raises LateInterval if it ends before the watermark; it then ends at the watermark.
        """
        if name not in self._open:
            raise IntervalError(f"row {name!r} ends at {end}, but none of that name is open")
        sweep, begin, of = self._open[name]
        _, point = self._axis.interval(begin, end)
        late = self.watermark is not None and point < self.watermark
        self._empty += point == begin and not late
        del self._open[name]
        self._leave(sweep, self.watermark if late else point, of)
        if late:
            raise LateInterval(
                f"row {name!r} ends at {end}, before the watermark {self.watermark}: "
                "it is counted up to there"
            )

    def advance(self, to: Any) -> Iterable[Period]:
        """Move the watermark; lazily yields the periods that become final, in the order of their
        ends."""
        point = self._axis.point(to)
        if self._ahead is not None:
            self._ahead.check_point(point)
        if self.watermark is not None and point <= self.watermark:
            self.ignored_watermarks += point < self.watermark
            return ()
        self.watermark = point
        return self._final(point)

    def follow(self, begin: Any) -> Iterable[Period]:
        """Move the watermark to the lateness before `begin`, unless it is there already."""
        if self._lateness is None:
            return ()
        point = _earlier(begin, self._lateness)
        if point is None or (self.watermark is not None and point <= self.watermark):
            return ()
        return self.advance(point)

    def rest(self) -> Iterator[Period]:
        """The remaining periods when no more rows come; those of open rows last."""
        while self._heap:
            yield from self._cross()
        for sweep in self._sweeps.values():
            yield from sweep.rest()

    def _check_begin(self, begin: Any) -> None:
        if self._lateness is not None:
            # Checked now, before the row is counted.
            if self._ahead is not None:
                self._ahead.check_point(begin)
            try:
                _earlier(begin, self._lateness)
            except TypeError:
                raise TypeError(
                    f"lateness is {self._lateness!r}, which cannot be subtracted from where rows "
                    f"begin, such as {begin!r}"
                ) from None
        if self.watermark is not None and begin < self.watermark:
            raise LateInterval(f"from {begin} is before the watermark {self.watermark}")

    def _sweep(self, key: Any) -> Sweep:
        sweep = self._sweeps.get(key)
        if sweep is None:
            sweep = self._sweeps[key] = Sweep(key, self._make(), self._include_zero)
        return sweep

    def _enter(self, sweep: Sweep, at: Any, of: Any) -> None:
        self._expect(sweep, at)
        sweep.tally.enter(at, of)

    def _leave(self, sweep: Sweep, at: Any, of: Any) -> None:
        self._expect(sweep, at)
        sweep.tally.leave(at, of)

    def _expect(self, sweep: Sweep, at: Any) -> None:
        if at not in sweep.tally.pending:
            heappush(self._heap, (at, next(self._number), sweep))

    def _final(self, before: Any) -> Iterator[Period]:
        while self._heap and self._heap[0][0] < before:
            yield from self._cross()

    def _cross(self) -> Iterable[Period]:
        at, _, sweep = heappop(self._heap)
        period = sweep.cross(at)
        if sweep.is_empty:
            del self._sweeps[sweep.key]
        return () if period is None else (period,)

    def statistics(self) -> dict[str, Any]:
        """`keys` and end `points` that are remembered, rows that are `open` by name, and rows that
        were skipped because they are `empty`."""
        return {
            "keys": len(self._sweeps),
            "points": len(self._heap),
            "open": len(self._open),
            "empty": self._empty,
            "ignored_watermarks": self.ignored_watermarks,
        }


def _earlier(point: Any, by: float | timedelta) -> Any:
    """The point that is so much earlier (seconds, or the unit of the numbers); None if that is out
    of range."""
    try:
        if isinstance(point, date):
            return point - (by if isinstance(by, timedelta) else timedelta(seconds=by))
        return point - (Decimal(cast(float, by)) if isinstance(point, Decimal) else by)
    except ArithmeticError:
        # Beyond the first date, or the least decimal; an int can be too large for a float.
        return point - Fraction(cast(float, by)) if isinstance(point, int) else None
