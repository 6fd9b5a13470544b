"""The states of one stage: those in use are in memory, all others only in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from penstock.streams.base.errors import add_note, describe
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.state.backend import Backend, KeptStage, Row
from penstock.streams.state.changes import END, NO_TIMERS, Cell, Change, Root
from penstock.streams.state.codec import FIXED, encoded, key_of, timers_in, timers_text

__all__ = ["States"]


class States:
    """The cells of a stage, by key; about `cache` of them stay in memory when they are not in use.

    `start` is the state of a new key, made anew for each if it can change. `ttl` is the number of
    seconds that a state is kept after its last call. `migrate` has, by version, the function that
    converts a state to the next version. Memory: the cells. Time: O(1) for a key in memory, and a
    look-up in the store for any other.
    """

    def __init__(
        self,
        info: StageInfo,
        backend: Backend,
        kept: KeptStage,
        decode: Callable[[bytes], Any],
        start: Any,
        ttl: float | None,
        migrate: Mapping[int, Callable[[Any], Any]],
        cache: int,
        wall: Callable[[], float],
    ) -> None:
        self.name = kept.name
        self.cells: dict[Any, Cell] = {}
        self._info = info
        self._backend = backend
        self._version = kept.version
        self._decode = decode
        self._start = start
        self._start_text = None if type(start) in FIXED else encoded(start)
        self._ttl = ttl
        self.has_ends = ttl is not None
        self._migrate = migrate
        self._cache = cache
        self._most = cache + max(64, cache // 4)
        self._wall = wall
        # Types of states that were encoded once, at the event and not at the commit.
        self._known: set[type] = set()

    # Reading.

    def of(self, keys: Sequence[Any], distinct: set[Any]) -> list[Cell]:
        """The cells of the keys."""
        cells = self.cells
        missing = distinct.difference(cells)
        if missing:
            if len(cells) > self._most:
                self._forget()
                missing = distinct.difference(cells)
            self._load({key_of(key): key for key in missing})
        return [cells[key] for key in keys]

    def cell(self, key: Any) -> Cell:
        """The cell of a key."""
        return self.of((key,), {key})[0]

    def _load(self, missing: dict[bytes, Any]) -> None:
        """Make cells for keys that have none."""
        for row in self._backend.read(self.name, list(missing)):
            key = missing.pop(row.key)
            self.cells[key] = self._read(Cell(self, key, row.key, None), row)
        for text, key in missing.items():
            self.cells[key] = Cell(self, key, text, self._new())

    def _read(self, cell: Cell, row: Row) -> Cell:
        state = self._decode(row.state)
        for version in range(row.version, self._version):
            try:
                state = self._migrate[version](state)
            except Exception as error:
                key = describe(cell.key)
                add_note(error, f"in migrate[{version}] of {self._info}, for the key {key}")
                raise
        cell.state = state
        cell.timers = timers_in(row.timers) or NO_TIMERS
        return cell

    def _new(self) -> Any:
        return self._start if self._start_text is None else self._decode(self._start_text)

    def _forget(self) -> None:
        """Forget cells without uncommitted changes: those not used since the last time, and, if
        these are too few, others.

        Many at a time: a dict whose front was removed is walked through from where it once began.
        """
        cells = self.cells
        for _ in range(2):
            gone = [key for key, cell in cells.items() if not cell.used and cell.last is None]
            for cell in cells.values():
                cell.used = False
            for key in gone[: len(cells) - self._cache]:
                del cells[key]
            if len(cells) <= self._cache:
                break

    # Changing.

    def freeze(self, change: Change) -> None:
        """Encode the state of a change, which a function may change from now on."""
        if change.data is None and change.state.__class__ not in FIXED:
            change.data = self._written(change)

    def change(self, cell: Cell, root: Root, state: Any, timers: dict[str, float]) -> Change:
        """A change that gives a key a new state and these timers; None deletes the key.

        Raises TypeError for a state that cannot be encoded.
        """
        kind = state.__class__
        data: bytes | None = None
        if state is None:
            timers = NO_TIMERS
        elif kind is int and -(1 << 63) <= state < 1 << 64:
            # It is encoded if it is written: most are not, of keys with many events.
            pass
        elif kind in FIXED:
            data = encoded(state)
        elif kind not in self._known:
            encoded(state)
            self._known.add(kind)
        if self._ttl is not None and state is not None:
            timers = {**timers, END: self._wall() + self._ttl}
        change = root.change(cell, state, timers)
        change.data = data
        if state is None:
            cell.state = self._new()
        cell.used = True
        return change

    def undo(self, cell: Cell) -> None:
        """Give a key the state from before the call of a function that has raised."""
        last = cell.last
        if last is None:
            cell.state, cell.timers = self._new(), NO_TIMERS
            for row in self._backend.read(self.name, (cell.text,)):
                self._read(cell, row)
        elif last.state is None:
            cell.state = self._new()
        elif last.data is not None and last.state.__class__ not in FIXED:
            cell.state = self._decode(last.data)

    def keep(self, cell: Cell, root: Root, timers: dict[str, float]) -> Change:
        """A change that gives a key these timers, and the state that it has."""
        if cell.last is not None:
            self.freeze(cell.last)
        return root.change(cell, cell.state, timers)

    # Writing.

    def row(self, change: Change) -> Row | None:
        """The row of a change; None if it deletes the key."""
        state = change.state
        if state is None:
            return None
        data = self._written(change) if change.data is None else change.data
        timers = change.timers
        due = min(timers.values()) if timers else None
        return Row(change.cell.text, data, self._version, timers_text(timers), due)

    def _written(self, change: Change) -> bytes:
        try:
            return encoded(change.state)
        except TypeError as error:
            key = describe(change.cell.key)
            add_note(error, f"{self._info} cannot keep the state of the key {key}")
            raise

    # Timers.

    def changed(self) -> Iterator[Cell]:
        """The cells with changes that are not committed. Time: O(n) in the cells."""
        return (cell for cell in self.cells.values() if cell.last is not None)

    def due(self, after: float, until: float, most: int) -> list[tuple[float, bytes]]:
        """Up to `most` pairs of a time and a stored key whose first timer is due then."""
        return self._backend.due(self.name, after, until, most)
