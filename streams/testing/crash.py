"""The crash of a program, in a test: it stops between two iterations of the loop, and nothing is
closed, flushed or cancelled."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.streams.testing.loop import VirtualTimeLoop

__all__ = ["run_until_crash"]

T = TypeVar("T")

# What a process that was killed would not run either: the `finally` of its coroutines.
_crashed: list[Any] = []


def run_until_crash(coroutine: Coroutine[Any, Any, T], iterations: int) -> T | None:
    """Run a coroutine on a new `VirtualTimeLoop` for so many iterations, and then never again.

    Returns its result, or None if it has crashed before it ended. Files that it has open stay open
    in this process, and what it holds in memory is kept, because nothing of it is released.
    """
    loop = _Limited(iterations)
    task = loop.create_task(coroutine)
    task.add_done_callback(lambda _: loop.stop())
    try:
        loop.run_forever()
        if task.done():
            return task.result()
        # It is not a mistake here.
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own
        _crashed.append(task)
        return None
    finally:
        loop.close()


class _Limited(VirtualTimeLoop):
    """A loop that stops after so many iterations."""

    _most = 0

    def __init__(self, iterations: int) -> None:
        super().__init__()
        self._left = iterations

    def _run_once(self) -> None:
        super()._run_once()
        self._left -= 1
        if not self._left:
            self.stop()
