"""What SIGINT and SIGTERM do to the command while no pipeline listens to them."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupted", "calling", "raising"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A signal came."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.exit_status = 128 + number
        """What shells call the status of a process that a signal ended."""


@contextmanager
def raising() -> Generator[None]:
    """While inside: the first signal raises Interrupted, a second one ends the process.

    One that is ignored, as in the background of a script, stays ignored. For the main thread.
    """
    before = {
        number: handler
        for number in _SIGNALS
        if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
    }

    def raise_it(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        raise Interrupted(number)

    for number in before:
        signal.signal(number, raise_it)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def calling(listener: Callable[[Interrupted], object]) -> Generator[None]:
    """While inside, in the running loop: a signal is told to `listener` and does nothing else."""
    if sys.platform == "win32":
        # There loops know no signals: the exception goes through the loop.
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        loop.add_signal_handler(number, listener, Interrupted(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
