"""The states of a window stage: the windows of each key that are open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from orjson import loads

from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.state.backend import Backend, Columns, KeptStage, Row
from penstock.streams.state.changes import NO_TIMERS, Cell, Change, Root
from penstock.streams.state.codec import encoded, timers_text
from penstock.streams.state.states import States
from penstock.streams.windows.windows import Windows

__all__ = ["AT_END", "AT_ONCE", "Added", "Asked", "Closed", "WindowStates"]

_DUE = "closes"

# The keys that are looked at, at each look at the statistics.
_COUNTED = 1_000

AT_ONCE, AT_END = -1e300, 1e300
"""When something is due at any watermark, and only at the end: JSON has no infinity."""


class Added(NamedTuple):
    """A value was added, of an event with this time that was emitted at this watermark."""

    time: float
    value: Any
    watermark: float


class Closed(NamedTuple):
    """The windows that end by this watermark were closed."""

    watermark: float


class Asked(NamedTuple):
    """The results so far were asked for."""


_Done = Added | Closed | Asked


class WindowStates(States):
    """The windows of each key, as plain values that are changed in place.

    A change is what was done, and the state after it is made of the committed one when it is
    needed: most commits write the newest state, and then it is there.
    """

    def __init__(
        self,
        info: StageInfo,
        backend: Backend,
        kept: KeptStage,
        windows: Windows[Any],
        cache: int,
        wall: Callable[[], float],
    ) -> None:
        super().__init__(info, backend, kept, self._read, None, None, {}, cache, wall)
        self._windows = windows
        # The committed states of the keys in memory; a key without one has none.
        self._committed: dict[Cell, bytes] = {}

    def add(self, missing: dict[bytes, Any], rows: list[Row]) -> None:
        keys = dict(missing)
        super().add(missing, rows)
        for row in rows:
            cell = self.cells.get(keys[row.key])
            if cell is not None:
                self._committed[cell] = row.state

    def _new(self) -> Any:
        return self._windows.new()

    def _read(self, data: bytes) -> Any:
        """The state with this JSON."""
        return loads(data)

    def _encoded(self, state: Any) -> bytes:
        return encoded(state)

    def _forget(self) -> None:
        super()._forget()
        kept = set(self.cells.values())
        self._committed = {one: data for one, data in self._committed.items() if one in kept}

    def forget(self, cells: Iterable[Cell]) -> None:
        for cell in cells:
            self._committed.pop(cell, None)
            self._drop(cell)

    def sum_of(self, number: Callable[[Any], int]) -> int:
        """The sum of a number of each key in memory; of many keys, from the first of them. Time:
        O(1)."""
        keys = len(self.cells)
        first = islice(self.cells.values(), _COUNTED)
        count = sum(number(cell.state) for cell in first)
        return count if keys <= _COUNTED else count * keys // _COUNTED

    # Changing.

    def follow(self, cell: Cell) -> None:
        """Note when the next window of a key closes, of which nothing is stored."""
        cell.timers = self._timers(cell.state, cell.timers)

    def note(self, cell: Cell, root: Root, done: _Done) -> Change:
        """The change of a key that has this done to its state, which has it already."""
        state = cell.state
        change = root.change(cell, done, self._timers(state, cell.timers))
        cell.state = state
        cell.used = True
        return change

    def _timers(self, state: Any, before: dict[str, float] = NO_TIMERS) -> dict[str, float]:
        """When the next window of a state closes; the same object as `before`, if it has that."""
        known: Mapping[str, float] = before
        due = self._windows.due(state)
        if due is None:
            return NO_TIMERS
        if known.get(_DUE) == due:
            return before
        due = min(max(due, AT_ONCE), AT_END)
        return before if known.get(_DUE) == due else {_DUE: due}

    def _after(self, cell: Cell, change: Change | None) -> Any:
        """The state of a key after a change; after None it is the committed one."""
        done: list[_Done] = []
        while change is not None:
            done.append(change.state)
            change = change.before
        data = self._committed.get(cell)
        state = self._new() if data is None else self._read(data)
        for one in reversed(done):
            match one:
                case Added():
                    self._windows.add(state, *one)
                case Closed():
                    self._windows.close(cell.key, state, one.watermark)
                case Asked():
                    self._windows.early(cell.key, state)
        return state

    def undone(self, cell: Cell) -> None:
        last = cell.last
        cell.state = self._after(cell, last)
        cell.timers = self._timers(cell.state)
        if self.when_undone is not None:
            self.when_undone(cell)

    # Writing.

    def write(self, changes: Sequence[Change], rows: list[Columns], gone: list[bytes]) -> None:
        change: Change
        cell: Cell
        for change in changes:
            cell = change.cell
            state = cell.state if change is cell.last else self._after(cell, change)
            if self._windows.is_empty(state):
                change.data = None
                gone.append(cell.text)
            else:
                change.data = self._encoded(state)
                timers = timers_text(change.timers), change.timers.get(_DUE)
                rows.append((cell.text, change.data, self._version, *timers))

    def committed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.data is None:
                self._committed.pop(change.cell, None)
            else:
                self._committed[change.cell] = change.data
