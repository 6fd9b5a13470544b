"""Stops the whole interpreter for a while, as the pause of a garbage collector does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["hold", "paused"]


def hold(seconds: float) -> None:
    """Keep every other thread of this interpreter from running for so long.

    The thread sleeps in the C library and keeps the interpreter's lock, which Python's own sleep
    releases. Where an interpreter has no such lock, the others go on.
    """
    # Imported here: slow to import, and only a pause needs it.
    import ctypes

    milliseconds = int(seconds * 1000)
    if sys.platform == "win32":
        ctypes.PyDLL("kernel32").Sleep(milliseconds)
    else:
        ctypes.PyDLL(None).poll(None, 0, milliseconds)


@contextmanager
def paused(after: float, seconds: float) -> Generator[None]:
    """Inside the block, hold the interpreter once, `after` seconds from now."""
    timer = threading.Timer(after, hold, (seconds,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
