"""Signal handling: the first signal drains the running pipeline, the second cancels it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

__all__ = ["Drains", "drain_on_signals"]


class Drains(Protocol):
    """Anything that can be drained and cancelled, such as a `Running`."""

    def begin_drain(self, deadline: float | None = None, *, by_signal: bool = False) -> None: ...

    def cancel(self) -> None: ...


@contextmanager
def drain_on_signals(
    running: Drains, deadline: float, tell: Callable[[str], None] | None = None
) -> Generator[None]:
    """A context in which the first SIGINT or SIGTERM drains `running`, and the second cancels it.

    A third one ends the process at once, by the default handler. `tell`, if given, is called with a
    message at the first and at the second. On exit the previous handlers are restored. Outside the
    main thread, which is the only one that receives signals, the context does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Not `add_signal_handler`, whose handlers are called by the loop: a user's function that blocks
    # the loop for ever must not protect the process from signals.
    loop = asyncio.get_running_loop()
    received = 0

    def on_signal(*_: object) -> None:
        nonlocal received
        received += 1
        if received == 1:
            loop.call_soon_threadsafe(drain)
        elif received == 2:
            handle_by(signal.SIG_DFL)
            loop.call_soon_threadsafe(cancel)

    def drain() -> None:
        if tell is not None:
            tell(f"draining, for at most {deadline:g} s; another signal cancels")
        running.begin_drain(deadline, by_signal=True)

    def cancel() -> None:
        if tell is not None:
            tell("cancelling")
        running.cancel()

    with ExitStack() as previous:

        def handle_by(handler: Any) -> None:
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.signal(number, handler)
                # None is a handler that was not set by Python, which cannot restore it.
                previous.callback(signal.signal, number, before or signal.SIG_DFL)

        handle_by(on_signal)
        yield
