"""A lock queue for a SQLite file: its pollers on one machine wait for the lock in order.

SQLite has one lock per file and no queue for it: a connection that finds it taken sleeps, up to 100
ms, and tries again, while the lock may be free. Here a poller waits instead for the lock of a file
beside it, `...-lock`, which the system hands on at once, also when a process dies. It is held
through the commit: SQLite then copies its log into the file before others write on, so the log is
restarted and stays small.

The queue is advisory: a poller that does not get the lock soon, because its holder was stopped, or
that cannot create the file, does without it. Other programs know nothing of it, and sleep as SQLite
does. While pollers wait for each other all the time, they leave SQLite's lock free now and then for
longer than the longest such sleep.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from penstock.streams.base import clock

if sys.platform != "win32":
    import fcntl

__all__ = ["LockQueue"]

# Seconds until a poller does without the queue.
_COURTESY = 0.5
# Seconds for which SQLite's lock is left free, and seconds between two such pauses: once in the
# five seconds for which most programs wait.
_PAUSE, _EVERY = 0.11, 4.0


class LockQueue:
    """The place of one connection in the lock queue of a file; used from one thread."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}-lock"
        self._fd: int | None = None
        # Whether a thread still waits for a lock that this poller did without.
        self._late = False

    @contextmanager
    def taken(self) -> Generator[None, None, None]:
        """Hold the queue's lock, if it can be had."""
        fd, waited = self._take()
        try:
            yield
            if fd is not None and waited:
                _leave_alone(fd)
        finally:
            if fd is not None:
                fcntl.flock(fd, fcntl.LOCK_UN)

    def _take(self) -> tuple[int | None, bool]:
        """The lock file, if its lock was obtained, and whether others were ahead."""
        if sys.platform == "win32" or self._late:
            return None, False
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return (self._fd if self._fd is not None and self._wait(self._fd) else None), True
        except OSError:
            # It belongs to another user, the disk is full, or the file system has no locks.
            return None, False
        return self._fd, False

    def _wait(self, fd: int) -> bool:
        """Whether the lock is obtained soon."""
        got, answer = threading.Event(), threading.Lock()

        def wait() -> None:
            # In a separate thread, because the wait can neither be interrupted nor limited.
            fcntl.flock(fd, fcntl.LOCK_EX)
            if answer.acquire(blocking=False):
                got.set()
            else:
                fcntl.flock(fd, fcntl.LOCK_UN)
                self._late = False

        threading.Thread(target=wait, name="lock queue", daemon=True).start()
        if not got.wait(_COURTESY):
            self._late = True
            if answer.acquire(blocking=False):
                return False
            self._late = False
        return True

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None and not self._late:
            os.close(self._fd)
            self._fd = None


def _leave_alone(fd: int) -> None:
    # The file's modification time shows all pollers when the last pause was.
    if clock.wall() - os.fstat(fd).st_mtime >= _EVERY:
        time.sleep(_PAUSE)
        os.utime(fd)
