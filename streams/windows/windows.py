"""The windows of one key: what their shape and aggregate have in common, and who makes them.

How they are used, by one who keeps a `state` for each key and knows the watermark:

    windows = windows_of(tumbling(60), agg.count())     # BuildError if they do not go together
    state = windows.new()
    if not windows.add(state, time, value, watermark):  # late: nothing has changed
        ...
    due = windows.due(state)                            # None, or the watermark at which to close
    if due is not None and due <= watermark:            # may be -inf
        for window in windows.close(key, state, watermark):
            ...
    if windows.is_empty(state):                         # forget the key
        ...

`add` takes the watermark at the emission of the event as it was decided for the event: `-inf` if
the event is not late. `close` and `early` take that of the stage, which must not exceed the greater
of `time` and `watermark` of any event that is still to be added. If `add` raises (what the
aggregate raises for this value), nothing has changed. `add` and `close` may change what is due.

A state is plain: texts, numbers, None, lists, dictionaries with texts as keys. Its JSON is its
stored form, and what is read from that is used in its place; there is nothing else to know of a
key. A state belongs to its shape, aggregate and `keep`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol, TypeVar, overload

from penstock.streams.aggregates.aggregate import Aggregate, can_merge, require_aggregate
from penstock.streams.aggregates.several import Several
from penstock.streams.base.errors import BuildError, describe
from penstock.streams.base.validation import seconds_in
from penstock.streams.windows.counted import CountedWindows
from penstock.streams.windows.grids import CalendarGrid, RegularGrid
from penstock.streams.windows.sessions import SessionWindows
from penstock.streams.windows.shapes import Calendar, Counted, Regular, Session, Shape
from penstock.streams.windows.sliced import SlicedWindows
from penstock.streams.windows.window import Window

__all__ = ["Windows", "aggregate_of", "windows_of"]

V = TypeVar("V")


class Windows(Protocol[V]):
    """The windows of one key, of a shape and an aggregate."""

    @abstractmethod
    def new(self) -> Any:
        """The state of a key without events."""

    @abstractmethod
    def add(self, state: Any, time: float, value: Any, watermark: float, /) -> bool:
        """Whether a value was added: False if it is late for all windows that have its time, and
        for their corrections.

        It is late for a window that ends at or before `watermark`, which is `-inf` for an event
        that is not late, or that was closed already. Raises what the aggregate raises.
        """

    @abstractmethod
    def due(self, state: Any, /) -> float | None:
        """The watermark from which on there is something for `close`; None if there is nothing."""

    @abstractmethod
    def close(self, key: Any, state: Any, watermark: float, /) -> list[Window[V]]:
        """The results of the windows that end at or before the watermark, and corrections of such
        windows, by their ends; the state forgets what it needs no longer. `inf` closes all."""

    @abstractmethod
    def early(self, key: Any, state: Any, /) -> list[Window[V]]:
        """The results so far of the open windows that have changed since they were last asked for,
        by their ends."""

    @abstractmethod
    def open(self, state: Any, /) -> int:
        """The number of windows that have events and are not closed."""

    @abstractmethod
    def is_empty(self, state: Any, /) -> bool:
        """Whether the state is as good as a new one."""


@overload
def aggregate_of(value: Mapping[str, Aggregate[Any]]) -> Aggregate[dict[str, Any]]: ...
@overload
def aggregate_of(value: Aggregate[V]) -> Aggregate[V]: ...
def aggregate_of(
    value: Mapping[str, Aggregate[Any]] | Aggregate[Any],
) -> Aggregate[Any]:
    """The aggregate that a user gives, alone or in a dict. BuildError for anything else."""
    if isinstance(value, Mapping):
        return Several(value)
    require_aggregate(value, "window()")
    return value


def windows_of(shape: Shape, aggregate: Aggregate[V], keep: float | timedelta = 0.0) -> Windows[V]:
    """The windows of a shape with an aggregate.

    A closed window is kept for `keep` seconds of event time more, for corrections. Raises
    BuildError if they do not go together.
    """
    kept = seconds_in("window", keep=keep)
    match shape:
        case Regular():
            made = SlicedWindows(RegularGrid(shape), aggregate, kept)
        case Calendar():
            made = SlicedWindows(CalendarGrid(shape), aggregate, kept)
        case Session():
            _require_no(kept, "session(), whose beginning and end a late event would change")
            _require_merge(aggregate, "session(), as an event may join two sessions")
            return SessionWindows(shape, aggregate)
        case Counted():
            _require_no(kept, "tumbling(count=), for which nothing is late")
            return CountedWindows(shape, aggregate)
        case _:
            raise BuildError(
                f"window({describe(shape)}): give a shape: tumbling(), sliding(), session() or "
                "calendar()"
            )
    if made.merges:
        _require_merge(aggregate, "windows that are put together, as with sliding() or keep=")
    return made


def _require_no(keep: float, shape: str) -> None:
    if keep:
        raise BuildError(f"window(keep={keep:g}) does not go together with {shape}")


def _require_merge(aggregate: Aggregate[Any], what: str) -> None:
    if not can_merge(aggregate):
        raise BuildError(f"agg.fold() needs merge= for {what}")
