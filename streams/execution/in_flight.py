"""The life of a stage that has calls in flight: its tasks, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.streams.diagnostics.loop_lag import BlockingWatch
from penstock.streams.execution.handler import is_own
from penstock.streams.execution.results import Results
from penstock.streams.execution.waiting import Waiting
from penstock.streams.failures.policy import blame
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Stage, StageInfo, Subscriber
from penstock.streams.runtime.context import Run

__all__ = ["InFlight"]


class InFlight(Stage[Any, Any]):
    """Completes when nothing is in flight, waiting or undelivered any more.

    On an error it begins nothing new, lets the calls in flight finish, and then passes the
    first error on. On cancel it gives back all it has, and cancels its tasks.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        handler: Callable[..., Any],
        name: str,
        waiting: Waiting,
        results: Results,
    ) -> None:
        super().__init__(downstream)
        self.in_flight: int = 0
        self.peak_in_flight: int = 0
        self._run = run
        self._info = info
        self._name = name
        # A handler of the library's own is not what a user can mend.
        self._is_own = is_own(handler)
        self._who = str(info) if self._is_own else f"'{name}' ({info})"
        self._waiting = waiting
        self._inbox = waiting.inbox
        self._results = results
        self._watch = BlockingWatch(run, self._who, self._progress, is_own=self._is_own)
        # A dict for its order: the same run always ends in the same way.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._closing = self._cancelled = False
        # Whether a success needs more than the shortest way: something has to be learnt, is
        # ending, or shares a turn.
        self._special = False
        self._error: BaseException | None = None

    # Work.

    def _progress(self) -> tuple[int, ...] | None:
        """What changes as this stage gets on; None when nothing is in flight."""
        if not (self.in_flight or self._inbox):
            return None
        return self.in_flight, self._results.demand, self._results.waiting

    def _spawn(self, work: Any) -> None:
        task = self._run.spawn(work, f"{self._info.name} {self._name}")
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]

    def _end_work(self) -> None:
        self._watch.end()
        for task in self._tasks:
            # The one that brings the end itself sees that it is over.
            if task is not asyncio.current_task(self._run.loop):
                task.cancel()

    # The end.

    def on_completed(self) -> None:
        self._closing = self._special = True
        self._end_if_idle()

    def on_error(self, error: BaseException, /) -> None:
        self._stop(error, upstream_ended=True)
        self._end_if_idle()

    def _stop(self, error: BaseException, *, upstream_ended: bool = False) -> None:
        """Begin nothing new; what is in flight may finish before the error passes on."""
        if self._error is not None:
            if error is not self._error:
                self._run.late_error(error)
            return
        self._error = error
        if not self._closing and not upstream_ended:
            self.upstream.cancel()
        self._closing = self._special = True
        self._run.stopping(error)
        self._give_back_unstarted()

    def _is_kept_for_later(self, event: Event[Any], error: BaseException) -> bool:
        """Whether nothing begins any more: an event with attempts left is then not given up on."""
        parking = self._waiting.parking
        if self._error is None or parking is None:
            return False
        blame(error, self._info, event)
        self._run.late_error(error)
        parking.forget(event)
        return True

    def _give_back_unstarted(self) -> None:
        waiting, in_slot = self._waiting.clear()
        self.in_flight -= in_slot
        for event in waiting:
            # Those that were tried before have a place in the order.
            self._results.end(event)
            event.give_back()

    def _end_if_idle(self) -> None:
        results = self._results
        if self._cancelled or self.in_flight or self._waiting:
            return
        if results.waiting or results.delivering:
            return
        self._cancelled = True
        self._end_work()
        if self._error is None:
            self.downstream.on_completed()
        else:
            self.downstream.on_error(self._error)

    def cancel(self) -> None:
        if self._cancelled:
            return
        self._cancelled = self._special = True
        if not self._closing:
            self.upstream.cancel()
        self._give_back_unstarted()
        self._results.give_back()
        self._end_work()
