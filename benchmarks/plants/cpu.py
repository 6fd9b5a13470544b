"""The CPU time of work with PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg

__all__ = ["cpu_of"]


def cpu_of(url: str) -> Callable[[], float]:
    """The CPU seconds of this process and, if they can be read, of the server's processes."""
    with psycopg.connect(url) as connection:
        pid: int = connection.info.backend_pid
    try:
        server = _times(pid)[0]
    except (OSError, ValueError):
        server = -1  # The server is on another machine, or there is no /proc.

    def seconds() -> float:
        used = time.process_time()
        for process in Path("/proc").glob("[0-9]*") if server > 0 else ():
            with suppress(OSError, ValueError):
                parent, ticks = _times(int(process.name))
                used += ticks / 100 if parent == server else 0.0
        return used

    return seconds


def _times(pid: int) -> tuple[int, int]:
    """The parent of a process, and its CPU time in hundredths of a second."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(stat[1]), int(stat[11]) + int(stat[12])
