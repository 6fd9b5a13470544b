"""The handlers' log: an append-only file that all processes of a run write to.

Each line is one entry, written by one call, so that a process that is killed leaves whole lines
only. Times are those of the system's monotonic clock, which is one for all processes of a machine.
"""

from __future__ import annotations

import os
import time
from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from orjson import OPT_APPEND_NEWLINE, dumps, loads

__all__ = ["Entry", "Log", "What", "entries_of"]

What = Literal["there", "start", "end", "cancel", "sink", "gone", "frozen", "woken"]


class Entry(NamedTuple):
    """`start`, `end`, `cancel` of a handler's work on one event, and its arrival at the `sink`.

    A process that is `there`, `gone` (killed, or ended), `frozen` or `woken` has its own entries,
    written by itself or by the process that did it, without a client.
    """

    at: float
    process: str
    what: What
    client: str = ""
    seq: int = 0


class Log:
    """One process's writer for the log at `path`."""

    def __init__(self, path: str | Path, process: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._process = process

    def note(self, what: What, client: str = "", seq: int = 0, process: str = "") -> None:
        """Write one entry, about another process if one is named."""
        entry = Entry(time.monotonic(), process or self._process, what, client, seq)
        os.write(self._file, dumps(list(entry), option=OPT_APPEND_NEWLINE))

    @contextmanager
    def working(self, client: str, seq: int) -> Iterator[None]:
        """The handler works on an event inside the block."""
        self.note("start", client, seq)
        try:
            yield
        except CancelledError:
            self.note("cancel", client, seq)
            raise
        except Exception:
            self.note("end", client, seq)
            raise
        self.note("end", client, seq)

    def sink(self, client: str, seq: int) -> None:
        """An event arrived at the sink."""
        self.note("sink", client, seq)

    def close(self) -> None:
        os.close(self._file)


def entries_of(path: str | Path) -> list[Entry]:
    """The entries of a log, by time; entries of one process stay in their order.

    A line without its end is still being written. The file is read in one piece: an iteration over
    its lines takes what a writer has not ended for a line, and then the rest of it for another.
    """
    *lines, _ = Path(path).read_bytes().split(b"\n")
    return sorted((Entry(*loads(line)) for line in lines), key=lambda entry: entry.at)
