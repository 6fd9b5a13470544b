"""A temporary file for the values of events that wait.

The file is a private database of SQLite: it uses the space of what was read again, and what it
cannot write, as on a full disk, changes nothing in it. Nothing of it survives the process: on POSIX
it has no name from the start, so that a kill frees its space too.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import CALL_ERRORS, SpillBroken, own_error
from penstock.streams.protocol.event import Decoded, Event
from penstock.streams.runtime.error_log import in_a_line

if TYPE_CHECKING:
    import sqlite3

__all__ = ["ON_DISK", "Block", "Refused", "Spill"]

# The file is private to the process and gone with it: nothing need be safe on the disk.
_SETTINGS = """
PRAGMA journal_mode = MEMORY;
PRAGMA synchronous = OFF;
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA cache_size = -1024;
CREATE TABLE block (number INTEGER PRIMARY KEY, data BLOB NOT NULL);
"""


class _OnDisk:
    def __repr__(self) -> str:
        return "(a value in a temporary file)"


ON_DISK = _OnDisk()
"""The value of an event while its own is in the file."""


class Refused(Exception):
    """Events cannot be written, for the reason in the text; they are unchanged.

    `is_full`: because the file has as much as it may have, so that it will have room again.
    """

    def __init__(self, reason: str, *, is_full: bool = False) -> None:
        super().__init__(reason)
        self.is_full = is_full


class Block:
    """Successive events, whose values are in the file if they have a `number` there."""

    __slots__ = ("events", "number", "size")

    def __init__(self, events: list[Event[Any]]) -> None:
        self.events = events
        self.number = self.size = 0


class Spill:
    """Keeps the values of up to `most_events` events in up to `most_bytes` bytes of a file.

    Memory: about a megabyte, and the events without their values, some 200 bytes each. Time: some
    microseconds per event, without waiting for the disk.
    """

    def __init__(self, most_events: int, most_bytes: int) -> None:
        self.most_events = most_events
        self.most_bytes = most_bytes
        self.events = 0
        """The events in the file, now."""
        self.bytes = 0
        """Their bytes."""
        self.peak = self.written = 0
        """The most events that were in it at once, and all that ever were."""
        self._database: sqlite3.Connection | None = None
        self._path = ""

    def write(self, block: Block) -> None:
        """Move the values of events to the file. Raises Refused, and then nothing has changed."""
        events = block.events
        if self.events + len(events) > self.most_events:
            raise Refused(f"{self.events:,} events are in the file", is_full=True)
        # Loaded where something is spilled, which few runs do.
        import sqlite3
        import tempfile

        data = _packed(events)
        if self.bytes + len(data) > self.most_bytes:
            raise Refused(f"{self.bytes:,} bytes are in the file", is_full=True)
        try:
            if self._database is None:
                self._database = self._opened()
            added = self._database.execute("INSERT INTO block (data) VALUES (?)", (data,))
        except (OSError, sqlite3.Error) as error:
            where = self._path or tempfile.gettempdir()
            raise Refused(f"{where} cannot be written: {error}") from error
        for event in events:
            event.value = ON_DISK
            if isinstance(event, Decoded):
                event.data = b""
        self.events += len(events)
        self.peak = max(self.peak, self.events)
        self.written += len(events)
        self.bytes += len(data)
        assert added.lastrowid is not None
        block.number, block.size = added.lastrowid, len(data)

    def read(self, block: Block) -> None:
        """Move the values of events back out of the file.

        Raises SpillBroken, and then the events are in the block, without their values.
        """
        import pickle

        events = block.events
        self.events -= len(events)
        self.bytes -= block.size
        assert self._database is not None
        which = (block.number,)
        block.number = 0
        try:
            select = "SELECT data FROM block WHERE number = ?"
            (data,) = self._database.execute(select, which).fetchone()
            values, lines = pickle.loads(data)
            self._database.execute("DELETE FROM block WHERE number = ?", which)
        except CALL_ERRORS as raised:
            error = own_error(raised)
            raise SpillBroken(
                f"the values of {len(events):,} events in the temporary file {self._path} cannot "
                f"be read back: {in_a_line(error)}. The events are returned to their source. Set "
                'TMPDIR to a folder on another disk, or give group_by(overflow="wait")'
            ) from error
        for event, value, line in zip(events, values, lines, strict=True):
            event.value = value
            if isinstance(event, Decoded):
                event.data = line

    def close(self) -> None:
        """Remove the file."""
        if self._database is not None:
            self._database.close()
            self._database = None
            with suppress(OSError):
                os.unlink(self._path)

    def _opened(self) -> sqlite3.Connection:
        import sqlite3
        import tempfile

        descriptor, self._path = tempfile.mkstemp(prefix="penstock-", suffix=".spill")
        os.close(descriptor)
        try:
            database = sqlite3.connect(self._path, isolation_level=None)
            try:
                database.executescript(_SETTINGS)
            except BaseException:
                database.close()
                raise
        finally:
            # Elsewhere an open file keeps its name, until it is closed.
            with suppress(OSError):
                os.unlink(self._path)
        return database


def _packed(events: list[Event[Any]]) -> bytes:
    """The bytes of the values of events, and of the lines they were made of. Raises Refused."""
    import pickle

    values = [event.value for event in events]
    lines = [bytes(event.data) if isinstance(event, Decoded) else None for event in events]
    try:
        data = pickle.dumps((values, lines), protocol=pickle.HIGHEST_PROTOCOL)
        # A value that cannot be made again must not be lost.
        pickle.loads(data)
    except CALL_ERRORS as raised:
        kinds = ", ".join(sorted({type(value).__name__ for value in values}))
        error = own_error(raised)
        raise Refused(f"{kinds} cannot be pickled: {in_a_line(error)}") from error
    return data
