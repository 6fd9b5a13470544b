"""Handles SIGINT and SIGTERM for the command while no pipeline listens to them.

Imported before everything else, so that it handles a signal while the rest is imported: it imports
next to nothing.
"""

from __future__ import annotations

import signal

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

    An ignored signal, as in a background job of a script, stays ignored. For the main thread.
    """

    def __enter__(self) -> None:
        handlers = [(number, signal.getsignal(number)) for number in SIGNALS]
        self._before = [pair for pair in handlers if pair[1] not in (signal.SIG_IGN, None)]
        for number, _ in self._before:
            signal.signal(number, self._raise)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def _raise(self, number: int, frame: object) -> None:
        for each, _ in self._before:
            signal.signal(each, signal.SIG_DFL)
        raise Interrupted(number)
