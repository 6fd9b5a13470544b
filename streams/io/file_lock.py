"""A file that one run at a time may use."""

from __future__ import annotations

import os
import sys

from penstock.streams.base.errors import CannotOpen

if sys.platform != "win32":
    import fcntl

__all__ = ["locked"]


def locked(path: str, why: str) -> int | None:
    """A descriptor that locks the file `path` until it is closed, or the process ends; None on
    Windows.

    Raises CannotOpen if another one has it locked, for the reason `why`, whole sentences that begin
    in lower case.
    """
    if sys.platform == "win32":
        return None
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise CannotOpen(f"Cannot write {path}: {error.strerror}.") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise CannotOpen(f"{path} is locked: {why}") from error
    return lock
