"""Time limits of calls: one timer for all calls of a stage."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from math import inf

from penstock.streams.base.errors import HandlerTimeout
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.slot import Slot
from penstock.streams.runtime.timer import Timer

__all__ = ["Timeouts"]

# Two times that differ by less (seconds) are the same: a timer is set by a difference.
_TINY = 1e-9


class Timeouts:
    """Cancels calls that last longer than `seconds`, each in the slot that awaits it.

    A late call is cancelled once, and awaited until it has really ended. Whatever it then returns
    or raises, it has failed. The cancellation is undone afterwards (`Task.uncancel`), so that only
    requests by others to cancel the task remain.

    Time: constant per call, and a scan of all `slots` when the timer fires, about once in
    `seconds`, or more often when calls have waited for room.
    """

    def __init__(self, run: Run, seconds: float, name: str, slots: Iterable[Slot]) -> None:
        self._run = run
        self._seconds = seconds
        self._name = name
        self._slots = slots
        self._timer = Timer(run, run.attaching, self._due)
        self._is_closed = False

    @property
    def stuck(self) -> int:
        """Calls past their timeout that have not ended."""
        return sum(slot.is_late for slot in self._slots)

    def begin(self, slot: Slot, now: float) -> None:
        """A call begins in this slot."""
        slot.deadline = now + self._seconds
        if not (self._timer.is_set or self._is_closed):
            self._timer.set(self._seconds)

    def end(self, slot: Slot) -> None:
        """The call in this slot has returned. HandlerTimeout if it is late."""
        slot.deadline = inf
        if slot.is_late:
            self._over(slot)
            raise self._timeout()

    def error(self, slot: Slot, error: BaseException) -> BaseException:
        """The call has raised `error`. Returns the error with which it failed."""
        slot.deadline = inf
        if not slot.is_late:
            return error
        self._over(slot)
        if not isinstance(error, Exception | asyncio.CancelledError):
            return error
        if isinstance(error, asyncio.CancelledError) and slot.task.cancelling():
            # The task is cancelled by something else, too.
            return error
        timeout = self._timeout()
        timeout.__cause__ = error
        return timeout

    def _over(self, slot: Slot) -> None:
        slot.is_late = False
        # Whoever ends the withdrawal undoes the cancellation of both.
        if not slot.is_withdrawn:
            slot.task.uncancel()

    def _timeout(self) -> HandlerTimeout:
        return HandlerTimeout(f"'{self._name}' did not end within {self._seconds:g} s")

    def suspend(self, slot: Slot) -> float:
        """The call begins to wait for room. Returns the seconds that it has left."""
        left, slot.deadline = slot.deadline - self._run.now(), inf
        return left

    def resume(self, slot: Slot, left: float) -> None:
        """The call continues, with so many seconds left."""
        slot.deadline = self._run.now() + left
        if left < inf and not self._is_closed:
            timer = self._timer
            timer.set(min(left, timer.left) if timer.is_set else left)

    def _due(self) -> None:
        now = self._run.now()
        first = inf
        for slot in self._slots:
            if slot.deadline <= now + _TINY:
                slot.deadline = inf
                slot.is_late = True
                if not slot.is_withdrawn:
                    slot.task.cancel()
            else:
                first = min(first, slot.deadline)
        if first < inf:
            self._timer.set(first - now)

    def close(self) -> None:
        """Cancel no more calls."""
        self._is_closed = True
        self._timer.cancel()
