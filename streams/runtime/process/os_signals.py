"""Signal handling: the first signal drains the running pipeline, the second cancels it.

A hangup (SIGHUP) says that the terminal has gone. It drains too. The kernel and the shell may each
send one, so a further one does nothing. It has no effect where it is ignored, as by `nohup`.

While the process is stopped, as by Ctrl-Z, nothing runs; SIGCONT, with which it goes on, tells that
from a function that blocks the loop.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Protocol

from penstock.streams.diagnostics.blocked_loop import WATCHDOG

__all__ = ["DRAINING", "FROM_TERMINAL", "Drains", "drain_on_signals", "left_to_parent", "nothing"]

# There are none on Windows.
_HANGUP: tuple[signal.Signals, ...] = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()
_CONTINUED: tuple[signal.Signals, ...] = (signal.SIGCONT,) if hasattr(signal, "SIGCONT") else ()

FROM_TERMINAL = (signal.SIGINT, *_HANGUP)
"""The signals that a terminal sends to all processes of its group."""

DRAINING = (*FROM_TERMINAL, signal.SIGTERM)
"""The signals that drain a pipeline."""


class Drains(Protocol):
    """Anything that can be drained and cancelled, such as a `Running`."""

    def begin_drain(self, deadline: float | None = None, *, by_signal: bool = False) -> None: ...

    def cancel(self) -> None: ...


@contextmanager
def drain_on_signals(
    running: Drains, deadline: float, report: Callable[[str], None] | None = None
) -> Generator[None]:
    """A context in which the first SIGINT or SIGTERM drains `running`, and the second cancels it.

    A third one ends the process at once, by the default handler. SIGHUP, unless it is ignored,
    counts only as a first one. `report`, if given, is called with a message at the first and at the
    second. On exit the previous handlers are restored. Outside the main thread, which is the only
    one that receives signals, the context does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Not `add_signal_handler`, whose handlers are called by the loop: a user's function that blocks
    # the loop for ever must not protect the process from signals.
    loop = asyncio.get_running_loop()
    received = 0
    counted = (signal.SIGINT, signal.SIGTERM)

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal received
        if received and number in _HANGUP:
            return
        received += 1
        if received == 1:
            loop.call_soon_threadsafe(drain)
        elif received == 2:
            handle_by(signal.SIG_DFL, counted)
            loop.call_soon_threadsafe(cancel)

    def drain() -> None:
        if report is not None:
            report(f"draining, for at most {deadline:g} s; another signal cancels")
        running.begin_drain(deadline, by_signal=True)

    def cancel() -> None:
        if report is not None:
            report("cancelling")
        running.cancel()

    with ExitStack() as previous:

        def handle_by(handler: Any, numbers: Iterable[int]) -> None:
            for number in numbers:
                before = signal.signal(number, handler)
                # None is a handler that was not set by Python, which cannot restore it.
                previous.callback(signal.signal, number, before or signal.SIG_DFL)

        handle_by(on_signal, counted)
        handle_by(on_signal, _unignored(_HANGUP))
        handle_by(_on_continued, _unignored(_CONTINUED))
        yield


def left_to_parent(numbers: Iterable[int]) -> None:
    """Ignore these signals in this process, a child: its parent drains on them.

    For the main thread.
    """
    for number in _unignored(numbers):
        # Not SIG_IGN, which a program that a handler starts would keep.
        signal.signal(number, nothing)


def nothing(number: int, frame: FrameType | None) -> None:
    """A handler of a signal that has no effect."""


def _on_continued(number: int, frame: FrameType | None) -> None:
    WATCHDOG.continued()


def _unignored(numbers: Iterable[int]) -> list[int]:
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
