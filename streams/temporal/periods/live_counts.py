"""Incremental temporal aggregation: emits only the periods that no later row can change.

How it is used, by one who keeps a `state` for each key and knows the watermark:

    counts = LiveCounts(read, Tally, include_zero=False)
    state = counts.new()
    if not counts.add(state, time, row, watermark):     # late
        ...
    for period in counts.close(key, state, watermark):  # when that has reached counts.due(state)
        ...
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf, nextafter
from typing import Any

from penstock.streams.temporal.periods.counts import Sweep
from penstock.streams.temporal.periods.intervals import Axis, IntervalError, Period
from penstock.streams.temporal.periods.plain import of_plain, plain
from penstock.streams.temporal.periods.reading import Reading
from penstock.streams.temporal.periods.seconds import point_at, seconds_at
from penstock.streams.temporal.periods.tallies import Tally

__all__ = ["KeyCounts", "LiveCounts"]


class KeyCounts:
    """The rows of one key that are valid or still to come: the `kind` of its points, the sweep over
    them, those that lie ahead as a heap with their seconds, and rows that are open, by name."""

    __slots__ = ("ahead", "kind", "open", "sweep")

    def __init__(self, sweep: Sweep) -> None:
        self.kind: str | None = None
        self.sweep = sweep
        self.ahead: list[tuple[float, Any]] = []
        self.open: dict[Any, tuple[Any, Any]] = {}


class LiveCounts:
    """Takes the rows of a key in any order, and returns periods as the watermark passes their ends.

    A period is final when its end lies before the watermark: a row may still begin at the watermark
    itself and extend the period. O(log points) for each row; memory for the end points after the
    watermark, and for the rows that are open. `empty` rows were skipped because they end where they
    begin.
    """

    def __init__(self, read: Reading, make: Callable[[], Tally], include_zero: bool) -> None:
        self.empty = 0
        self._read = read
        self._make = make
        self._include_zero = include_zero

    def new(self) -> KeyCounts:
        """The state of a key without rows."""
        return KeyCounts(Sweep(None, self._make(), self._include_zero))

    def add(self, state: KeyCounts, time: float, row: Any, watermark: float, /) -> bool:
        """Add one row, or a part of it, which came at this watermark; `time` is that of its event.

        False if it is late: a row that begins before the watermark, which changes nothing, or a
        part that ends there, whose row is counted up to the watermark. Raises IntervalError and
        TypeError, and then nothing has changed.
        """
        part = self._read.part(row)
        axis = Axis(state.kind)
        if part.closes:
            return self._close(state, axis, time, part.name, part.end, watermark)
        if part.opens and part.name in state.open:
            since = state.open[part.name][0]
            raise IntervalError(
                f"row {part.name!r} begins at {part.begin}, but is open since {since}"
            )
        begin, end = axis.interval(part.begin, part.end)
        _refuse_before(time, seconds_at(begin), f"from {begin}")
        state.kind = axis.kind
        if begin == end:
            self.empty += 1
            return True
        if seconds_at(begin) < watermark:
            return False
        self._expect(state, begin)
        state.sweep.tally.enter(begin, part.of)
        if end is not None:
            self._expect(state, end)
            state.sweep.tally.leave(end, part.of)
        if part.opens:
            state.open[part.name] = begin, part.of
        return True

    def _close(
        self, state: KeyCounts, axis: Axis, time: float, name: Any, end: Any, watermark: float
    ) -> bool:
        if name not in state.open:
            raise IntervalError(f"row {name!r} ends at {end}, but none of that name is open")
        begin, of = state.open[name]
        _, point = axis.interval(begin, end)
        seconds = seconds_at(point)
        _refuse_before(time, seconds, f"to {point}")
        is_late = seconds < watermark
        self.empty += point == begin and not is_late
        del state.open[name]
        if is_late:
            point = point_at(state.kind, watermark)
        self._expect(state, point)
        state.sweep.tally.leave(point, of)
        return not is_late

    def _expect(self, state: KeyCounts, at: Any) -> None:
        if at not in state.sweep.tally.pending:
            heappush(state.ahead, (seconds_at(at), at))

    def due(self, state: KeyCounts, /) -> float | None:
        """The watermark from which on a point is final, infinity for the end of open rows; None if
        there is nothing."""
        if state.ahead:
            return nextafter(state.ahead[0][0], inf)
        return inf if state.sweep.tally.rows else None

    def close(self, key: Any, state: KeyCounts, watermark: float, /) -> list[Period]:
        """The periods that end before the watermark, by their ends. `inf` ends all, and those of
        open rows last."""
        found: list[Period] = []
        sweep, ahead = state.sweep, state.ahead
        sweep.key = key
        while ahead and (ahead[0][0] < watermark or watermark == inf):
            period = sweep.cross(heappop(ahead)[1])
            if period is not None:
                found.append(period)
        if watermark == inf:
            found += sweep.rest()
            state.sweep = self.new().sweep
            state.open.clear()
        return found

    def why_late(self, row: Any, watermark: float) -> str:
        """Why a row is late at this watermark."""
        part, axis = self._read.part(row), Axis()
        at = axis.point(part.end if part.closes else part.begin)
        until = point_at(axis.kind, watermark)
        if part.closes:
            return (
                f"row {part.name!r} ends at {at}, before the watermark {until}: it is counted up "
                "to there"
            )
        return f"from {at} is before the watermark {until}"

    def open(self, state: KeyCounts, /) -> int:
        """The number of points that lie ahead."""
        return len(state.ahead)

    def is_empty(self, state: KeyCounts, /) -> bool:
        """Whether the state is as good as a new one."""
        return state.sweep.is_empty

    def stored(self, state: KeyCounts, /) -> Any:
        """The state as plain values, which JSON can represent. Raises TypeError for a row whose
        name cannot be."""
        sweep = state.sweep
        return plain(
            {"kind": state.kind, "since": sweep.since, "value": sweep.value, "open": state.open}
            | vars(sweep.tally)
        )

    def restored(self, values: Any, /) -> KeyCounts:
        """The state that was stored as these values."""
        state = self.new()
        kept: dict[str, Any] = of_plain(values)
        state.kind, state.open = kept.pop("kind"), kept.pop("open")
        state.sweep.since, state.sweep.value = kept.pop("since"), kept.pop("value")
        vars(state.sweep.tally).update(kept)
        state.ahead = [(seconds_at(at), at) for at in state.sweep.tally.pending]
        heapify(state.ahead)
        return state


def _refuse_before(time: float, seconds: float, what: str) -> None:
    if seconds < time:
        raise IntervalError(
            f"{what} is before the time of its event: give event_time the field of the beginning, "
            "and of the end for a part that has no beginning"
        )
