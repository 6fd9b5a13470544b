"""The reactivex scheduler of lifted operators: its `now` is the loop's time."""

from __future__ import annotations

from asyncio import TimerHandle
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from reactivex import abc, typing
from reactivex.disposable import Disposable, SingleAssignmentDisposable
from reactivex.scheduler.periodicscheduler import PeriodicScheduler

from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run

__all__ = ["LoopScheduler"]

State = TypeVar("State")

_EPOCH = datetime.fromtimestamp(0, UTC)


class LoopScheduler(PeriodicScheduler):
    """Schedules on the running loop, in its time, without threads.

    Work that is due at once runs in the call that schedules it, or after work that is already
    running here, so that an operator that can answer at once does. (On reactivex's own trampoline,
    which all streams share, it would wait until the subscriber returns.) `pending` are the
    timers that are set or running, with what runs them. `on_due(run)` is called for each timer that
    is due; `run()` runs it, at once or later.
    """

    def __init__(
        self,
        run: Run,
        info: StageInfo,
        on_due: Callable[[Callable[[], None]], None] = lambda run: run(),
        who: str = "",
    ) -> None:
        super().__init__()
        self._run = run
        self._info = info
        self._on_due = on_due
        # The subject of the sentence that there is no loop for a timer.
        self._who = who or info.name
        self.pending: dict[object, Callable[[], None]] = {}
        # Of those that are not running.
        self._handles: dict[object, TimerHandle] = {}
        self._due: deque[Callable[[], None]] = deque()
        self._running = False

    @property
    def now(self) -> datetime:
        """The loop's time, as a time of day counted from the epoch."""
        return _EPOCH + timedelta(seconds=self._run.now())

    def schedule(
        self, action: typing.ScheduledAction[State], state: State | None = None
    ) -> abc.DisposableBase:
        outcome = SingleAssignmentDisposable()

        def due() -> None:
            if not outcome.is_disposed:
                outcome.disposable = self.invoke_action(action, state=state)

        self._due.append(due)
        if not self._running:
            self._running = True
            try:
                while self._due:
                    self._due.popleft()()
            finally:
                self._running = False
                self._due.clear()
        return outcome

    def schedule_relative(
        self,
        duetime: typing.RelativeTime,
        action: typing.ScheduledAction[State],
        state: State | None = None,
    ) -> abc.DisposableBase:
        # Raises NoLoop here, with the reason.
        self._run.loop_for(f"{self._who} has a timer, which")
        seconds = max(0.0, self.to_seconds(duetime))
        outcome = SingleAssignmentDisposable()

        def run() -> None:
            if outcome not in self.pending:
                return
            self._handles.pop(outcome, None)
            # An operator that answers in a timer may set it again: until then it still counts.
            try:
                outcome.disposable = self.invoke_action(action, state=state)
            finally:
                self.pending.pop(outcome, None)

        self.pending[outcome] = run
        self._handles[outcome] = self._run.call_later(seconds, self._info, self._on_due, run)

        def dispose() -> None:
            self.pending.pop(outcome, None)
            handle = self._handles.pop(outcome, None)
            if handle is not None:
                handle.cancel()
            outcome.dispose()

        return Disposable(dispose)

    def postpone(self, seconds: float) -> None:
        """Let the timers that are set, or wait to be run, be due so much later."""
        for outcome, handle in self._handles.items():
            handle.cancel()
            when, run = handle.when() + seconds, self.pending[outcome]
            self._handles[outcome] = self._run.call_at(when, self._info, self._on_due, run)

    def hurry(self) -> None:
        """Run the timers that are set, as if they were due."""
        for run in list(self.pending.values()):
            self._on_due(run)

    def schedule_absolute(
        self,
        duetime: typing.AbsoluteTime,
        action: typing.ScheduledAction[State],
        state: State | None = None,
    ) -> abc.DisposableBase:
        due: Any = self.to_datetime(duetime)
        return self.schedule_relative(due - self.now, action, state)
