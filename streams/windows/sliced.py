"""Windows of a fixed shape: an event is added to one slice, and a window is the sum of its slices.

A slice has its values in parts: those that were not late for any of its windows, and for each limit
`after` those that count only in windows (or their corrections) that end after it.

    state    [closed, due, slices, results]
    slice    [start, end, parts], by start
    part     [after, acc, changed], by after
    result   [end, start, revision, pending], by end

`results` has the windows with early results, and with `keep` the closed ones. What is less than all
times is a number, because JSON has no infinity, and what JSON writes as null may be none.

`closed` is the end of the last window that was closed, `due` when there is something to close or to
forget, `revision` the number of results so far, `pending` that of the corrections still to come.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import chain
from math import inf
from operator import itemgetter
from typing import Any

from penstock.streams.aggregates.aggregate import Aggregate
from penstock.streams.windows.grids import Grid
from penstock.streams.windows.window import Window

__all__ = ["SlicedWindows"]

_CLOSED, _DUE, _SLICES, _RESULTS = range(4)
_START, _END, _PARTS = range(3)
_AFTER, _ACC, _CHANGED = range(3)
_BOUND, _BEGIN, _REVISION, _PENDING = range(4)

_LEAST = -1e300

_by_first = itemgetter(0)
_due_of: Callable[[Any], float | None] = itemgetter(_DUE)
_parts_of, _acc_of = itemgetter(_PARTS), itemgetter(_ACC)


def _by_end(window: Window[Any]) -> tuple[float, int]:
    return window.end, window.revision


class SlicedWindows:
    """The windows of one key that are cut into slices by a grid."""

    def __init__(self, grid: Grid, aggregate: Aggregate[Any], keep: float) -> None:
        self._grid = grid
        self._aggregate = aggregate
        self._add, self._start = aggregate.add, aggregate.start
        self._keep = keep
        self.merges = bool(keep) or not grid.has_one_slice

    def new(self) -> Any:
        return [_LEAST, None, [], []]

    def is_empty(self, state: Any, /) -> bool:
        return not state[_SLICES]

    def due(self, state: Any, /) -> float | None:
        return _due_of(state)

    def add(self, state: list[Any], time: float, value: Any, watermark: float, /) -> bool:
        slices: list[Any] = state[_SLICES]
        slice_: list[Any]
        part: list[Any]
        closed = state[0]
        if time < closed:
            # After a restart the watermark may be less than it was when silence closed a window.
            watermark = max(watermark, closed)
        elif slices and watermark == -inf:
            # Most events belong to the last slice.
            slice_ = slices[-1]
            if slice_[0] <= time < slice_[1]:
                part = slice_[2][0]
                if part[0] == _LEAST:
                    part[1] = self._add(part[1], value, time)
                    part[2] = True
                    return True
        return self._add_anywhere(state, time, value, watermark)

    def _add_anywhere(self, state: Any, time: float, value: Any, watermark: float) -> bool:
        slices = state[_SLICES]
        at = bisect_right(slices, time, key=_by_first) - 1
        slice_: list[Any]
        if at >= 0 and time < slices[at][_END]:
            slice_ = slices[at]
        else:
            slice_ = [*self._grid.slice_at(time), []]
        start, end, parts = slice_
        after = _LEAST
        if watermark > -inf:
            if self._grid.last_end(start, end) + self._keep <= watermark:
                return False
            after = self._after(start, end, watermark)
        part = next((one for one in parts if one[_AFTER] == after), None)
        if part is None:
            part = [after, self._add(self._start(), value, time), True]
            insort(parts, part, key=_by_first)
            if len(parts) == 1:
                insort(slices, slice_, key=_by_first)
            self._expect(state, start, end, after)
        else:
            part[_ACC] = self._add(part[_ACC], value, time)
            part[_CHANGED] = True
        if after > _LEAST and self._keep:
            self._correct(state, start, end, watermark)
        return True

    def _after(self, start: float, end: float, watermark: float) -> float:
        """The last of the ends of these windows, and of their corrections, that has passed: it is
        the same for all watermarks at which a value counts in the same windows."""
        passed = _LEAST
        for _, bound in self._grid.windows(start, end, -inf):
            for one in (bound, bound + self._keep):
                if passed < one <= watermark:
                    passed = one
        return passed

    def _expect(self, state: Any, start: float, end: float, after: float) -> None:
        """Have the first of these windows closed that ends after this."""
        bound = next((bound for _, bound in self._grid.windows(start, end, after)), None)
        if bound is not None and (state[_DUE] is None or bound < state[_DUE]):
            state[_DUE] = bound

    def _correct(self, state: Any, start: float, end: float, watermark: float) -> None:
        """Note a correction of the windows of a slice that the watermark has passed."""
        for begin, bound in self._grid.windows(start, end, -inf):
            if bound > watermark:
                break
            if bound + self._keep > watermark:
                self._result(state, begin, bound)[_PENDING] += 1
                if state[_DUE] is None or bound < state[_DUE]:
                    state[_DUE] = bound

    def _result(self, state: Any, begin: float, bound: float) -> Any:
        """What is known of the results of a window."""
        results = state[_RESULTS]
        at = bisect_left(results, bound, key=_by_first)
        if at == len(results) or results[at][_BOUND] != bound:
            results.insert(at, [bound, begin, 0, 0])
        return results[at]

    def close(self, key: Any, state: Any, watermark: float, /) -> list[Window[Any]]:
        due = state[_DUE]
        if due is None or due > watermark:
            return []
        found: list[Window[Any]] = []
        results = state[_RESULTS]
        for begin, bound in self._open(state, watermark):
            state[_CLOSED] = bound
            if parts := self._parts(state, begin, bound, bound):
                revision = 1
                if results or self._keep:
                    result = self._result(state, begin, bound)
                    revision = result[_REVISION] = result[_REVISION] + 1
                found.append(Window(key, begin, bound, self._value(parts), revision, True))
        for result in results:
            bound, begin, revision, pending = result
            if bound > watermark:
                break
            if pending:
                revision += pending
                result[_REVISION:] = revision, 0
                parts = self._parts(state, begin, bound, bound + self._keep)
                found.append(Window(key, begin, bound, self._value(parts), revision, True))
        if self._keep:
            found.sort(key=_by_end)
        self._forget(state, watermark)
        return found

    def early(self, key: Any, state: Any, /) -> list[Window[Any]]:
        found: list[Window[Any]] = []
        for begin, bound in self._open(state, inf):
            parts = self._parts(state, begin, bound, bound)
            if any(part[_CHANGED] for part in parts):
                result = self._result(state, begin, bound)
                revision = result[_REVISION] = result[_REVISION] + 1
                found.append(Window(key, begin, bound, self._value(parts), revision, False))
        for slice_ in state[_SLICES]:
            for part in slice_[_PARTS]:
                part[_CHANGED] = False
        return found

    def open(self, state: Any, /) -> int:
        return sum(1 for _ in self._open(state, inf))

    def _open(self, state: Any, until: float) -> Iterator[tuple[float, float]]:
        """The windows that are not closed and end up to `until`, by their ends."""
        above = state[_CLOSED]
        for start, end, _ in state[_SLICES]:
            for begin, bound in self._grid.windows(start, end, above):
                if bound > until:
                    return
                above = bound
                yield begin, bound

    @staticmethod
    def _parts(state: Any, begin: float, bound: float, limit: float) -> list[Any]:
        """The parts of the slices of a window that count in what ends at `limit`."""
        slices = state[_SLICES]
        first, end = (bisect_left(slices, one, key=_by_first) for one in (begin, bound))
        parts = chain.from_iterable(map(_parts_of, slices[first:end]))
        return [part for part in parts if part[_AFTER] < limit]

    def _value(self, parts: list[Any]) -> Any:
        aggregate = self._aggregate
        accs = map(_acc_of, parts)
        # The first may not be changed by what is merged into it.
        acc = next(accs) if len(parts) == 1 else reduce(aggregate.merge, accs, self._start())
        return aggregate.result(acc)

    def _forget(self, state: Any, watermark: float) -> None:
        """Drop the slices whose windows, and their corrections, have all passed."""
        slices, results, grid, keep = state[_SLICES], state[_RESULTS], self._grid, self._keep
        gone = 0
        for start, end, _ in slices:
            if grid.last_end(start, end) + keep > watermark:
                break
            gone += 1
        del slices[:gone]
        del results[: bisect_right(results, watermark, key=lambda result: result[_BOUND] + keep)]
        if not slices:
            state[:] = self.new()
            return
        start, end, _ = slices[0]
        due = next((bound for _, bound in self._open(state, inf)), inf)
        state[_DUE] = min(due, grid.last_end(start, end) + keep)
