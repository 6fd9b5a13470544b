"""Time limits of calls: one timer for all calls of a stage."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.streams.base.errors import HandlerTimeout
from penstock.streams.protocol.event import Event
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer

__all__ = ["Timeouts"]

# Two times that differ by less (seconds) are the same: a timer is set by a difference.
_TINY = 1e-9


class Timeouts:
    """Cancels calls that last longer than `seconds`, each in the task that awaits it.

    A late call is cancelled once, and awaited until it has really ended. Whatever it then returns
    or raises, it has failed. The cancellation is undone afterwards (`Task.uncancel`), so that only
    requests by others to cancel the task remain.

    Time: constant per call, and a scan of all calls when the timer fires, about once in `seconds`,
    or more often when calls have waited for room.
    """

    def __init__(self, run: Run, seconds: float, name: str) -> None:
        self._run = run
        self._seconds = seconds
        self._name = name
        self._calls: dict[Event[Any], tuple[float, asyncio.Task[Any]]] = {}
        self._late: dict[Event[Any], asyncio.Task[Any]] = {}
        self._timer = Timer(run, run.attaching, self._due)
        self._is_closed = False

    @property
    def stuck(self) -> int:
        """Calls past their timeout that have not ended."""
        return len(self._late)

    def begin(self, event: Event[Any], now: float, task: asyncio.Task[Any] | None) -> None:
        """A call begins in the current task, which is `task`."""
        assert task is not None
        self._calls[event] = now + self._seconds, task
        if not (self._timer.is_set or self._is_closed):
            self._timer.set(self._seconds)

    def end(self, event: Event[Any]) -> None:
        """The call has returned. HandlerTimeout if it is late."""
        if self._calls.pop(event, None) is None and self._over(event):
            raise self._timeout()

    def error(self, event: Event[Any], error: BaseException) -> BaseException:
        """The call has raised `error`. Returns the error with which it failed."""
        if self._calls.pop(event, None) is not None or not self._over(event):
            return error
        if not isinstance(error, Exception | asyncio.CancelledError):
            return error
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            # The task is cancelled by something else, too.
            return error
        timeout = self._timeout()
        timeout.__cause__ = error
        return timeout

    def _over(self, event: Event[Any]) -> bool:
        task = self._late.pop(event, None)
        if task is None:
            return False
        task.uncancel()
        return True

    def _timeout(self) -> HandlerTimeout:
        return HandlerTimeout(f"'{self._name}' did not end within {self._seconds:g} s")

    def suspend(self, event: Event[Any]) -> float | None:
        """The call begins to wait for room. Returns the seconds that it has left, if limited."""
        call = self._calls.get(event)
        if call is None:
            return None
        when, task = call
        self._calls[event] = float("inf"), task
        return when - self._run.now()

    def resume(self, event: Event[Any], left: float | None) -> None:
        """The call continues, with so many seconds left."""
        call = self._calls.get(event)
        if call is not None and left is not None:
            self._calls[event] = self._run.now() + left, call[1]
            if not self._is_closed:
                self._timer.set(left)

    def _due(self) -> None:
        now = self._run.now()
        first = float("inf")
        for event, (when, task) in list(self._calls.items()):
            if when <= now + _TINY:
                del self._calls[event]
                self._late[event] = task
                task.cancel()
            else:
                first = min(first, when)
        if first < float("inf"):
            self._timer.set(first - now)

    def close(self) -> None:
        """Cancel no more calls."""
        self._is_closed = True
        self._timer.cancel()
