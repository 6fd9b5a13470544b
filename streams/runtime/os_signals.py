"""Signal handling: the first signal drains the running pipelines, the second cancels them."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

__all__ = ["Drains", "drain_on_signals"]


class Drains(Protocol):
    """What can be drained and cancelled, as a `Running` can."""

    def begin_drain(self, deadline: float | None = None, *, by_signal: bool = False) -> None: ...

    def cancel(self) -> None: ...


class drain_on_signals:
    """While inside: the first SIGINT or SIGTERM drains, the second cancels.

    A third one ends the process at once, as if nobody had listened. `tell` is called with a
    line for people at the first and at the second. Afterwards the handlers are those that were
    there before. Does nothing outside of the main thread.
    """

    def __init__(
        self, running: Drains, deadline: float, tell: Callable[[str], None] | None = None
    ) -> None:
        self._running = running
        self._deadline = deadline
        self._tell = tell
        self._received = 0
        self._restore: list[Callable[[], Any]] = []

    def __enter__(self) -> drain_on_signals:
        # Signals come to the main thread only; elsewhere there is nothing to listen to.
        if threading.current_thread() is threading.main_thread():
            # Not add_signal_handler, which needs the loop to hear of a signal: a handler of the
            # user's that never lets go of the loop must not keep a process alive against all
            # signals.
            self._handle_by(partial(self._on_signal, asyncio.get_running_loop()))
        return self

    def _handle_by(self, handler: Any) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.signal(number, handler)
            # None is a handler that was not set by Python, and that Python cannot set again.
            self._restore.append(partial(signal.signal, number, before or signal.SIG_DFL))

    def _on_signal(self, loop: asyncio.AbstractEventLoop, *_: object) -> None:
        self._received += 1
        if self._received == 1:
            loop.call_soon_threadsafe(self._drain)
        elif self._received == 2:
            self._handle_by(signal.SIG_DFL)
            loop.call_soon_threadsafe(self._cancel)

    def _drain(self) -> None:
        self._say(f"draining, for at most {self._deadline:g} s; another signal cancels")
        self._running.begin_drain(self._deadline, by_signal=True)

    def _cancel(self) -> None:
        self._say("cancelling")
        self._running.cancel()

    def _say(self, text: str) -> None:
        if self._tell is not None:
            self._tell(text)

    def __exit__(self, *_: object) -> None:
        while self._restore:
            self._restore.pop()()
