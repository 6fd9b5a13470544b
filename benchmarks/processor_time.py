"""An event loop whose clock counts the processor time of its thread, and jumps over its waits.

What else runs on the machine does not count, so latencies can be measured on a busy one. A call in
a thread is made at once, and ends on this clock when it has taken its processor time, beside the
loop. Waits for a disk, a network or the lock of the interpreter are left out.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from time import thread_time
from typing import Any, Literal

__all__ = ["ProcessorTimeLoop"]


class ProcessorTimeLoop(asyncio.SelectorEventLoop):
    """A loop on a clock of processor time."""

    # Penstock takes its time from a loop that says so.
    virtual: Literal[True] = True

    def __init__(self) -> None:
        super().__init__(_Jumping(self._jump))
        self._jumped = -thread_time()

    def time(self) -> float:
        return self._jumped + thread_time()

    def _jump(self, seconds: float) -> None:
        self._jumped += seconds

    def run_in_executor(
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call a function now; its result is there when it has taken its time."""
        future = self.create_future()
        end: Callable[[Any], None] = future.set_result
        began = thread_time()
        try:
            found = func(*args)
        except Exception as error:
            end, found = future.set_exception, error
        took = thread_time() - began
        self._jump(-took)
        self.call_later(took, end, found)
        return future


class _Jumping(selectors.SelectSelector):
    """Polls, and reports the seconds for which it would have waited."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            return super().select()
        if not ready and timeout is not None and timeout > 0:
            self._jump(timeout)
        return ready
