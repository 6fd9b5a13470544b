"""The clocks: the only place where time is read.

Durations and stamps are seconds. Inside a pipeline all times lie on the running loop's own
time line, so that a virtual-time loop makes a pipeline exactly repeatable.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

__all__ = [
    "call_on",
    "clock_of",
    "is_virtual",
    "monotonic",
    "processor",
    "processor_of",
    "queued",
    "queued_of",
    "running_loop",
    "wall",
    "wall_of",
]

monotonic = time.monotonic
wall = time.time


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def call_on(loop: asyncio.AbstractEventLoop | None, function: Callable[[], object]) -> None:
    """Call a function in the thread of `loop`: at once if that is this one, or if there is no loop,
    and not at all if the loop is closed."""
    if loop is None or running_loop() is loop:
        function()
        return
    # It may be closed at any time.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function)


def clock_of(loop: asyncio.AbstractEventLoop | None) -> Callable[[], float]:
    """The function that returns the time of `loop`, in seconds.

    A virtual-time loop (one with a true `virtual` attribute) has its own time. Any other loop
    runs on the monotonic clock, which is read directly: uvloop caches its own reading with a
    resolution of a millisecond, too coarse for latencies.
    """
    return loop.time if loop is not None and is_virtual(loop) else monotonic


def wall_of(loop: asyncio.AbstractEventLoop | None) -> Callable[[], float]:
    """The function that returns the wall clock, in seconds since 1970.

    On a virtual-time loop it is the loop's own time: there, 1970 is when the loop was made.
    """
    return loop.time if loop is not None and is_virtual(loop) else wall


def queued_of(loop: asyncio.AbstractEventLoop | None) -> Callable[[int], float]:
    """The function that returns `queued` for the threads of `loop`, on its own time line."""
    if loop is not None and is_virtual(loop):
        return getattr(loop, "queued", _never)
    return queued


def queued(thread: int, tasks: str = "/proc/self/task") -> float:
    """The total seconds for which a thread was ready to run while other threads or processes ran.

    `thread` is its system id (`threading.get_native_id`). Only Linux reports it: the second number
    in the thread's `schedstat`, in nanoseconds (Documentation/scheduler/sched-stats.rst of the
    kernel). 0.0 elsewhere. Reads one file, which takes about ten microseconds.
    """
    try:
        with open(f"{tasks}/{thread}/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _never(thread: int) -> float:
    return 0.0


def processor_of(loop: asyncio.AbstractEventLoop | None) -> Callable[[], tuple[float, float]]:
    """The function that returns `processor` for the threads of `loop`, on its own time line."""
    if loop is not None and is_virtual(loop):
        return getattr(loop, "processor", _unused)
    return processor


def processor() -> tuple[float, float]:
    """The seconds of processor time of the calling thread, and of all others of the process."""
    own = time.thread_time()
    return own, time.process_time() - own


def _unused() -> tuple[float, float]:
    return 0.0, 0.0


def is_virtual(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether `loop` has virtual time."""
    return bool(getattr(loop, "virtual", False))
