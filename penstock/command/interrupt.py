"""Handles SIGINT and SIGTERM for the command while no pipeline listens to them.

Imported before everything else, so that it handles a signal while the rest is imported: it imports
next to nothing.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

__all__ = ["SIGNALS", "Interrupted", "raising"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A signal came."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.exit_status = 128 + number
        """The exit status that shells report for a process ended by a signal."""


class raising:
    """Inside the block the first signal raises Interrupted, a second one ends the process.

    In a running event loop it is raised by the next iteration, out of which it leaves the loop.
    An ignored signal, as in a background job of a script, stays ignored. A handler that was set
    inside the block stays after it. For the main thread.
    """

    def __enter__(self) -> None:
        handlers = [(number, signal.getsignal(number)) for number in SIGNALS]
        self._before = [pair for pair in handlers if pair[1] not in (signal.SIG_IGN, None)]
        for number, _ in self._before:
            signal.signal(number, self._raise)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            if signal.getsignal(number) in (self._raise, signal.SIG_DFL):
                signal.signal(number, handler)

    def _raise(self, number: int, frame: object) -> None:
        for each, _ in self._before:
            signal.signal(each, signal.SIG_DFL)
        interrupted = Interrupted(number)
        loop = _running_loop()
        if loop is None:
            raise interrupted
        # Raised here, in whatever the loop has called, it may not get out of the loop: uvloop
        # reports what a protocol raises as an error of its connection, and goes on.
        loop.call_soon_threadsafe(_throw, interrupted)


def _throw(interrupted: Interrupted) -> None:
    raise interrupted


def _running_loop() -> Any:
    """The loop that runs in this thread; asyncio is not imported for the question."""
    events: Any = sys.modules.get("asyncio.events")
    # It may be in the middle of its import.
    find = getattr(events, "_get_running_loop", None)
    return None if find is None else find()
