"""Who is next at the lock of a file of SQLite: its pollers on a machine queue for it.

SQLite has one lock a file and no queue for it: whoever finds it taken sleeps, up to 100 ms, and
looks again, while the lock idles. Here one waits beside the file, for the lock of `...-turn`, which
the system hands on at once, also when a process dies. A turn lasts through the commit: what SQLite
then copies from its log into the file is done before others write on, so that the log begins anew
and stays small.

The turn is a courtesy: who does not get it soon, since its holder was stopped, or cannot have such
a file, does without. Other programs know nothing of it, and sleep as SQLite does. While pollers
wait for each other all the time, they leave the lock alone now and then for longer than the longest
such sleep.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from streams import clock

if sys.platform != "win32":
    import fcntl

__all__ = ["Turn"]

# Seconds until we do without.
_COURTESY = 0.5
# Seconds that the lock is left alone, and how often that is when pollers wait for each other: once
# in the five seconds for which most programs wait.
_PAUSE, _EVERY = 0.11, 4.0


class Turn:
    """The turns of one connection to a file, in one thread."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}-turn"
        self._fd: int | None = None
        # Whether a thread still waits for a turn that we did without.
        self._late = False

    @contextmanager
    def taken(self) -> Generator[None, None, None]:
        """Hold the turn, if it can be had."""
        fd, waited = self._take()
        try:
            yield
            if fd is not None and waited:
                _leave_alone(fd)
        finally:
            if fd is not None:
                fcntl.flock(fd, fcntl.LOCK_UN)

    def _take(self) -> tuple[int | None, bool]:
        """The file, if it is our turn, and whether others were before us."""
        if sys.platform == "win32" or self._late:
            return None, False
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return (self._fd if self._fd is not None and self._wait(self._fd) else None), True
        except OSError:
            # It is somebody else's, the disk is full, or it knows no locks.
            return None, False
        return self._fd, False

    def _wait(self, fd: int) -> bool:
        """Whether it is our turn soon."""
        got, answer = threading.Event(), threading.Lock()

        def wait() -> None:
            # In a thread of its own, since it can neither be broken off nor given a limit.
            fcntl.flock(fd, fcntl.LOCK_EX)
            if answer.acquire(blocking=False):
                got.set()
            else:
                fcntl.flock(fd, fcntl.LOCK_UN)
                self._late = False

        threading.Thread(target=wait, name="turn", daemon=True).start()
        if not got.wait(_COURTESY):
            self._late = True
            if answer.acquire(blocking=False):
                return False
            self._late = False
        return True

    def close(self) -> None:
        """Let the file go."""
        if self._fd is not None and not self._late:
            os.close(self._fd)
            self._fd = None


def _leave_alone(fd: int) -> None:
    # The file's own time tells all pollers when that was the last time.
    if clock.wall() - os.fstat(fd).st_mtime >= _EVERY:
        time.sleep(_PAUSE)
        os.utime(fd)
