"""Signal handling: the first signal drains the running pipeline, the second cancels it.

A hangup (SIGHUP) says that the terminal has gone. It drains too. The kernel and the shell may each
send one, so a further one does nothing.

A signal that the process was started to ignore stays ignored: SIGHUP by `nohup`, SIGINT in the
background of a script.

A function that blocks the loop keeps it from draining and from cancelling. The process then ends by
the third signal, or when the time for what the last one began has passed.

While the process is stopped, as by Ctrl-Z, nothing runs; SIGCONT, with which it goes on, tells that
from a function that blocks the loop.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from types import FrameType
from typing import Any, Protocol

from penstock.streams.base.clock import clock_of
from penstock.streams.diagnostics.blocked_loop import WATCHDOG

__all__ = [
    "DRAINING",
    "FROM_TERMINAL",
    "Drains",
    "drain_on_signals",
    "keep_exit_status",
    "left_to_parent",
    "nothing",
]

# There are none on Windows.
_HANGUP: tuple[signal.Signals, ...] = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()
_CONTINUED: tuple[signal.Signals, ...] = (signal.SIGCONT,) if hasattr(signal, "SIGCONT") else ()

FROM_TERMINAL = (signal.SIGINT, *_HANGUP)
"""The signals that a terminal sends to all processes of its group."""

DRAINING = (*FROM_TERMINAL, signal.SIGTERM)
"""The signals that drain a pipeline."""

_COUNTED = (signal.SIGINT, signal.SIGTERM)

# Seconds after which a loop that has not answered a signal is reported as blocked, and those that
# it has, beyond a drain's deadline, before the process ends. Worker processes get as many.
_BLOCKED, _GRACE = 1.0, 5.0
# The exit status of a process that ends with events unfinished.
_UNFINISHED = 5


class Drains(Protocol):
    """Anything that can be drained and cancelled, such as a `Running`."""

    def begin_drain(self, deadline: float | None = None, *, by_signal: bool = False) -> None: ...

    def cancel(self) -> None: ...


@contextmanager
def drain_on_signals(
    running: Drains, deadline: float, report: Callable[[str], None] | None = None
) -> Generator[None]:
    """A context in which the first SIGINT or SIGTERM drains `running`, and the second cancels it.

    A third one ends the process at once, by the default handler. SIGHUP counts only as a first one.
    Those that are ignored stay ignored. If the loop is blocked, the process ends with status 5 when
    it has not answered five seconds after the deadline, or after the second signal. `report`, if
    given, is called with a message at the first and at the second, and, in another thread, about a
    blocked loop. On exit the previous handlers are restored. Outside the main thread, which is the
    only one that receives signals, the context does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Not `add_signal_handler`, whose handlers are called by the loop: a user's function that blocks
    # the loop for ever must not protect the process from signals.
    loop = asyncio.get_running_loop()
    received = 0

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal received
        if received and number in _HANGUP:
            return
        received += 1
        if received == 1:
            loop.call_soon_threadsafe(drain)
        elif received == 2:
            handle_by(signal.SIG_DFL, _unignored(_COUNTED))
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

        handle_by(on_signal, _unignored(DRAINING))
        handle_by(_on_continued, _unignored(_CONTINUED))
        # Event loops there need their own notes of signals.
        if sys.platform != "win32":
            previous.enter_context(_Unanswered(loop, deadline, report))
        yield


class _Unanswered:
    """Inside the block, in the main thread, signals that the loop does not answer end the process.

    A handler runs between two instructions of the main thread, and so not while that waits in a
    function of another language, such as a query of SQLite. The number of a signal is noted at once
    in a socket, which one thread reads. Code that holds the interpreter's lock stops that too.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deadline: float,
        report: Callable[[str], None] | None,
    ) -> None:
        self._loop = loop
        self._now = clock_of(loop)
        self._patience = deadline + _GRACE
        self._report = report
        # The signals since the loop has answered, and when something is done about that.
        self._count = 0
        self._until = inf
        self._is_reported = False

    def __enter__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        _noting.append(self)
        self._before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._read, name="penstock signals", daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._before, warn_on_full_buffer=False)
        _noting.remove(self)
        # Not only closed: a process that was forked meanwhile may have the socket too.
        self._writer.shutdown(socket.SHUT_RDWR)
        self._writer.close()
        self._thread.join()
        self._reader.close()

    def _read(self) -> None:
        while True:
            left = self._until - self._now()
            self._reader.settimeout(None if left == inf else max(left, 0.001))
            try:
                numbers = self._reader.recv(64)
            except TimeoutError:
                self._time_has_passed()
                continue
            if not numbers:
                return
            if self._before >= 0:
                # The loop's own, which may be full: uvloop notices no signal otherwise.
                with suppress(OSError):
                    os.write(self._before, numbers)
            if not set(DRAINING).isdisjoint(numbers):
                self._received(numbers)

    def _received(self, numbers: bytes) -> None:
        before = self._count
        self._count = max(1, before + sum(number in _COUNTED for number in numbers))
        if self._count > 2:
            os._exit(128 + numbers[-1])
        if self._count > before:
            self._until, self._is_reported = self._now() + _BLOCKED, False
            self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._count = 0

    def _time_has_passed(self) -> None:
        if not self._count:
            self._until = inf
            return
        patience = self._patience if self._count == 1 else _GRACE
        is_over, self._is_reported = self._is_reported, True
        self._until += patience
        self._say(
            f"the event loop was blocked for {patience:g} s: the process ends, and its "
            "unfinished events are left to their sources"
            if is_over
            else "a function blocks the event loop, which can do nothing before it returns. "
            f"The process ends in {patience:g} s, or at the third signal"
        )
        if is_over:
            os._exit(_UNFINISHED)

    def _say(self, text: str) -> None:
        """Report, unless that blocks too: standard error may be what the loop waits for."""
        if self._report is None:
            return
        teller = threading.Thread(
            target=self._report, args=(text,), name="penstock report", daemon=True
        )
        teller.start()
        teller.join(_BLOCKED)


def keep_exit_status(status: Callable[[], int]) -> None:
    """Have signals change nothing from here on, except while a run drains on them.

    For a process that ends after its run: one that comes later must not make it look as if the run
    had not ended, or had never begun. The second SIGINT or SIGTERM ends the process at once, with
    the exit status that `status` returns. Ignored signals stay ignored. For the main thread.
    """
    received = 0

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received += number in _COUNTED
        if received == 2:
            os._exit(status())

    for number in _unignored(DRAINING):
        signal.signal(number, on_signal)


_noting: list[_Unanswered] = []


def _note_no_more() -> None:
    if _noting:
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    # A child would note the signals that it gets in the socket of its parent.
    os.register_at_fork(after_in_child=_note_no_more)


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
