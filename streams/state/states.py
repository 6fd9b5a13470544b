"""The states of one stage: those in use are in memory, all others only in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.streams.base.errors import CALL_ERRORS, add_note, describe, own_error
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.state.backend import Backend, Columns, KeptStage, Row
from penstock.streams.state.changes import END, NO_TIMERS, Cell, Change, Root, is_over
from penstock.streams.state.codec import FIXED, encoded, key_of, timers_in, timers_text

__all__ = ["States"]

# Rows of which the mean size is taken, at each look at the statistics.
_MEASURED = 100


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
        ttl: int | float | None,
        migrate: Mapping[int, Callable[[Any], Any]],
        cache: int,
        wall: Callable[[], float],
    ) -> None:
        self.name = kept.name
        self.cells: dict[Any, Cell] = {}
        # The errors of keys whose stored states cannot be decoded or migrated, and their timers.
        # They have no cell; each error is that of one event or timer, which takes it out.
        self.unreadable: dict[Any, tuple[Exception, dict[str, float]]] = {}
        self._info = info
        self._backend = backend
        self._version = kept.version
        self._decode = decode
        self._start = start
        self._start_text = None if type(start) in FIXED else encoded(start)
        self._ttl = ttl
        self.has_ends = ttl is not None
        # Whether a key in use has no cell any more, and called with each cell that was `undone`.
        self.has_forgotten = False
        self.when_undone: Callable[[Cell], None] | None = None
        self._migrate = migrate
        self._cache = cache
        self._most = cache + max(64, cache // 4)
        self._wall = wall
        # How many keys more there are than when the run began, and the rows that were written last.
        self._grown = 0
        self._last_rows: list[Columns] = []
        # Types of states that were encoded once, at the event and not at the commit.
        self._known: set[type] = set()

    # Reading.

    def missing(self, distinct: set[Any]) -> dict[bytes, Any]:
        """The keys that have no cell and are not `unreadable`, by their texts."""
        missing = distinct.difference(self.cells)
        if missing and len(self.cells) > self._most:
            self._forget()
            missing = distinct.difference(self.cells)
        if self.unreadable:
            missing = missing.difference(self.unreadable)
        return {key_of(key): key for key in missing}

    def read(self, missing: dict[bytes, Any]) -> list[Row]:
        """The stored rows of keys that are missing. In any thread, if the backend's reads are."""
        return self._backend.read(self.name, list(missing))

    def add(self, missing: dict[bytes, Any], rows: list[Row]) -> None:
        """Make cells for keys that were missing, from the rows that were read; keys whose states
        cannot be made of them are `unreadable`."""
        now = self._wall()
        for row in rows:
            key = missing.pop(row.key)
            timers = timers_in(row.timers) or NO_TIMERS
            try:
                # A state that is over is deleted before any function gets it.
                state = self._new() if is_over(timers, now) else self._stored(key, row)
            except CALL_ERRORS as raised:
                self.unreadable[key] = own_error(raised), timers
            else:
                cell = Cell(self, key, row.key, state, timers, is_stored=True)
                cell.partition = row.partition
                self.cells[key] = cell
        for text, key in missing.items():
            self.cells[key] = Cell(self, key, text, self._new())

    def _stored(self, key: Any, row: Row) -> Any:
        """The state in a row, converted to the version of the stage."""
        where = "the stored state"
        try:
            state = self._decode(row.state)
            for one in range(row.version, self._version):
                where = f"migrate[{one}]"
                state = self._migrate[one](state)
        except CALL_ERRORS as error:
            add_note(error, f"in {where} of {self._info}, for the key {describe(key)}")
            raise
        return state

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
        change = root.change(cell, state, timers, data)
        if state is None:
            cell.state = self._new()
        cell.used = True
        return change

    def undo(self, cell: Cell) -> None:
        """Give a key the state from before the call of a function that has raised, or have it read
        again."""
        last = cell.last
        if cell.state.__class__ in FIXED:
            return
        if last is None:
            self._drop(cell)
        elif last.state is None:
            cell.state = self._new()
        elif last.data is not None:
            cell.state = self._decode(last.data)

    def undone(self, cell: Cell) -> None:
        """The last changes of a key will never be committed: give it the state before them, or have
        it read again."""
        last = cell.last
        if last is None:
            self._drop(cell)
        else:
            cell.state, cell.timers = last.state, last.timers
            self.undo(cell)
        if self.when_undone is not None:
            self.when_undone(cell)

    def forget(self, cells: Iterable[Cell]) -> None:
        """Have the keys of these cells read again: their states are another run's from now on, or
        were."""
        for cell in cells:
            self._drop(cell)

    def _drop(self, cell: Cell) -> None:
        if self.cells.get(cell.key) is cell:
            del self.cells[cell.key]
            self.has_forgotten = True

    def keep(self, cell: Cell, root: Root, timers: dict[str, float]) -> Change:
        """A change that gives a key these timers, and the state that it has."""
        if cell.last is not None:
            self.freeze(cell.last)
        return root.change(cell, cell.state, timers)

    # Writing.

    def write(self, changes: Sequence[Change], rows: list[Columns], gone: list[bytes]) -> None:
        """Add the rows of the changes, and the keys that they delete."""
        version = self._version
        change: Change
        cell: Cell
        for change in changes:
            state, timers = change.state, change.timers
            cell = change.cell
            if state is None:
                gone.append(cell.text)
                self._grown -= cell.is_stored
                cell.is_stored = False
                continue
            if not cell.is_stored:
                cell.is_stored = True
                self._grown += 1
            data = change.data
            if data is None:
                if state.__class__ is int and -(1 << 63) <= state < 1 << 64:
                    # As `encoded` does, without two calls for each count.
                    data = b"%d" % state
                else:
                    data = self._written(change)
            if timers:
                columns = timers_text(timers), min(timers.values())
                rows.append((cell.text, data, version, *columns))
            else:
                rows.append((cell.text, data, version, b"", None))
        self._last_rows = rows

    def committed(self, changes: Sequence[Change]) -> None:
        """These changes, whose rows were added last, are committed."""

    def _written(self, change: Change) -> bytes:
        try:
            return encoded(change.state)
        except TypeError as error:
            key = describe(change.cell.key)
            add_note(error, f"{self._info} cannot keep the state of the key {key}")
            raise

    def growth(self) -> dict[str, int] | None:
        """How many `keys` more there are than when the run began, and about how many `bytes` these
        are, by the rows that were written last; None with a `ttl`. Time: O(1)."""
        if self._ttl is not None:
            return None
        rows = self._last_rows[:_MEASURED]
        size = sum(len(key) + len(state) for key, state, *_ in rows)
        keys = max(0, self._grown)
        return {"keys": keys, "bytes": keys * size // max(1, len(rows))}

    # Timers.

    def uncommitted(self) -> list[tuple[float, Any]]:
        """The first timers of the cells with changes that are not committed, and their keys. Time:
        O(n) in the cells."""
        return [
            (min(cell.timers.values()), cell.key)
            for cell in self.cells.values()
            if cell.last is not None and cell.timers
        ]

    def due(self, after: float, until: float, most: int) -> list[tuple[float, bytes]]:
        """Up to `most` pairs of a time and a stored key whose first timer is due then. In any
        thread, as `read`."""
        return self._backend.due(self.name, after, until, most)
