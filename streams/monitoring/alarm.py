"""The timer of a stage that watches deadlines on arrival."""

from __future__ import annotations

from asyncio import Handle
from collections.abc import Callable
from typing import Any

from penstock.streams.monitoring.timed_watching import TimedWatch
from penstock.streams.monitoring.watching import Watch
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.temporal.monitors.timed.deadlines import in_microseconds
from penstock.streams.temporal.monitors.violation import Violation

__all__ = ["Alarm", "alarm_of"]

# Loop iterations in which what is ready is delivered: one in which the loop finds that something
# can be read, which some loops do after all callbacks that are due, and one for the task that waits
# for it; the alarm comes with the next.
_ITERATIONS = 3


_Ring = Callable[[list[Violation[Any]]], None]


def alarm_of(watch: Watch, run: Run, info: StageInfo, ring: _Ring) -> Alarm | None:
    """The timer for a watch, if its formula can be violated by the passing of time alone.

    A run without a loop has no timers: its events all come in one call.
    """
    if not isinstance(watch, TimedWatch) or not run.has_loop:
        return None
    return Alarm(watch, run, info, ring)


class Alarm:
    """Calls `ring` with the violations by deadlines that are past, while events are requested.

    While nothing is requested it waits, for the answer may be waiting outside. When something is
    requested again, all that is ready is delivered before.
    """

    def __init__(self, watch: TimedWatch, run: Run, info: StageInfo, ring: _Ring) -> None:
        self._watch = watch
        self._run = run
        self._info = info
        self._ring = ring
        self._is_requested = False
        self._timer: Handle | None = None
        # What the timer is set for.
        self._deadline = 0

    def follow(self, requested: int) -> None:
        """Set it after events, or a request; `requested` is how many have not come."""
        again = requested > 0 and not self._is_requested
        self._is_requested = requested > 0
        deadline = self._watch.next_deadline
        if deadline is None or not self._is_requested:
            self.stop()
        elif again:
            self._set(deadline, at_once=True)
        elif self._timer is None or deadline < self._deadline:
            self._set(deadline, at_once=self._is_past(deadline))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, deadline: int, *, at_once: bool) -> None:
        self.stop()
        self._deadline = deadline
        if at_once:
            self._timer = self._run.call_soon(self._info, self._after, _ITERATIONS - 1)
        else:
            # A bound includes its end.
            when = (deadline + 1) / 1_000_000
            self._timer = self._run.call_at(when, self._info, self._after, 0)

    def _after(self, iterations: int) -> None:
        if iterations:
            self._timer = self._run.call_soon(self._info, self._after, iterations - 1)
            return
        self._timer = None
        deadline = self._watch.next_deadline
        if deadline is not None and self._is_past(deadline):
            self._ring(self._watch.ring())
            deadline = self._watch.next_deadline
        if deadline is not None and self._is_requested and self._timer is None:
            self._set(deadline, at_once=False)

    def _is_past(self, deadline: int) -> bool:
        return in_microseconds(self._run.now()) > deadline
