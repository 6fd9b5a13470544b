"""The only place where time is read.

Durations and stamps are seconds. Inside a pipeline all times lie on the running loop's own
time line, so that a virtual-time loop makes a pipeline exactly repeatable.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["clock_of", "is_virtual", "monotonic", "wall"]

monotonic = time.monotonic
wall = time.time


def clock_of(loop: asyncio.AbstractEventLoop | None) -> Callable[[], float]:
    """The function that tells the time of `loop`, in seconds.

    A virtual-time loop (one with a true `virtual` attribute) is asked itself. Any other loop
    runs on the monotonic clock, which is read directly: uvloop caches its own reading with a
    resolution of a millisecond, too coarse for latencies.
    """
    return loop.time if loop is not None and is_virtual(loop) else monotonic


def is_virtual(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether time passes on `loop` only as it is told."""
    return bool(getattr(loop, "virtual", False))
