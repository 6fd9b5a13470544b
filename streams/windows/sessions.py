"""Session windows: events of one key that are less than a gap apart.

    state      [session, ...], by start
    session    [start, end, acc, revision, changed]

The end is that of the last event, plus the gap. Sessions of a state do not overlap, but for those
that are as long as allowed: which events these have may depend on the order in which they arrive.
"""

from __future__ import annotations

from math import floor
from operator import itemgetter
from typing import Any, Generic, TypeVar

from penstock.streams.aggregates.aggregate import Aggregate
from penstock.streams.windows.shapes import Session
from penstock.streams.windows.window import Window

__all__ = ["SessionWindows"]

V = TypeVar("V")

_START, _END, _ACC, _REVISION, _CHANGED = range(5)

_by_start = itemgetter(_START)
_by_end = itemgetter(_END, _START)


class SessionWindows(Generic[V]):
    """The sessions of one key."""

    def __init__(self, shape: Session, aggregate: Aggregate[V]) -> None:
        self._gap = float(shape.gap)
        # To the microsecond, as the ends.
        self._most = float(shape.most) + 5e-7
        self._aggregate = aggregate

    def new(self) -> Any:
        return []

    def is_empty(self, state: Any, /) -> bool:
        return not state

    def open(self, state: Any, /) -> int:
        return len(state)

    def due(self, state: Any, /) -> float | None:
        return min([session[_END] for session in state]) if state else None

    def add(self, state: Any, time: float, value: Any, watermark: float, /) -> bool:
        if time < watermark:
            # In its place the sessions would depend on which of two events comes here first.
            return False
        start, end = time, _decimal(time + self._gap)
        aggregate = self._aggregate
        until = end
        joined: list[Any] = []
        for session in state:
            begin, bound = session[_START], session[_END]
            if begin >= until:
                break
            # One that would be too long is not joined.
            if bound > time:
                least, greatest = min(start, begin), max(end, bound)
                if greatest - least <= self._most:
                    joined.append(session)
                    start, end = least, greatest
        if not joined:
            state.append([time, end, aggregate.add(aggregate.start(), value, time), 0, True])
            state.sort(key=_by_start)
            return True
        # The last that began before it, so that of equal times the first to come stays the first.
        into = next((one for one in reversed(joined) if one[_START] <= time), joined[0])
        into[_ACC] = aggregate.add(into[_ACC], value, time)
        first, *others = joined
        for session in others:
            first[_ACC] = aggregate.merge(first[_ACC], session[_ACC])
            first[_REVISION] = max(first[_REVISION], session[_REVISION])
            state.remove(session)
        first[_CHANGED] = True
        first[_END] = end
        if start != first[_START]:
            first[_START] = start
            state.sort(key=_by_start)
        return True

    def close(self, key: Any, state: Any, watermark: float, /) -> list[Window[V]]:
        closed = sorted((one for one in state if one[_END] <= watermark), key=_by_end)
        if closed:
            state[:] = [session for session in state if session[_END] > watermark]
        return [self._window(key, session, True) for session in closed]

    def early(self, key: Any, state: Any, /) -> list[Window[V]]:
        changed = sorted((session for session in state if session[_CHANGED]), key=_by_end)
        found: list[Window[V]] = []
        for session in changed:
            found.append(self._window(key, session, False))
            session[_REVISION] += 1
            session[_CHANGED] = False
        return found

    def _window(self, key: Any, session: Any, is_final: bool) -> Window[V]:
        start, end, acc, revision, _ = session
        return Window(key, start, end, self._aggregate.result(acc), revision + 1, is_final)


def _decimal(seconds: float) -> float:
    """The same in whole microseconds: without the error in the last digits that makes 0.1 + 0.2
    more than 0.3."""
    return floor(seconds * 1e6 + 0.5) / 1e6
