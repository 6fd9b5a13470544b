"""Calls a listener on SIGINT and SIGTERM while a loop runs."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from penstock.command.interrupt import SIGNALS, Interrupted

__all__ = ["on_signal"]


@contextmanager
def on_signal(listener: Callable[[Interrupted], object]) -> Generator[None]:
    """Inside the block, in the running loop, a signal calls `listener` and does nothing else.

    Ignored signals stay ignored.
    """
    if sys.platform == "win32":
        # Event loops have no signal handlers there: the exception passes through the loop.
        yield
        return
    loop = asyncio.get_running_loop()
    handlers = [(number, signal.getsignal(number)) for number in SIGNALS]
    before = [pair for pair in handlers if pair[1] is not signal.SIG_IGN]
    for number, _ in before:
        loop.add_signal_handler(number, listener, Interrupted(number))
    try:
        yield
    finally:
        for number, handler in before:
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
