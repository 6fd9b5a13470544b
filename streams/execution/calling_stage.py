"""The base of the stages that call a handler: their slots, waiting events, and the end.

An event is in flight from the moment when it is assigned to a slot until its call has ended and has
been flushed.
"""

from __future__ import annotations

from typing import Any

from penstock.streams.base.errors import (
    CALL_ERRORS,
    add_note,
    own_error,
)
from penstock.streams.diagnostics.loop_lag import BlockingWatch
from penstock.streams.execution.call import closing_event
from penstock.streams.execution.flushing_stage import FlushingStage
from penstock.streams.execution.handler import is_own
from penstock.streams.execution.options import CallOptions
from penstock.streams.execution.slots import Slots
from penstock.streams.execution.timeouts import Timeouts
from penstock.streams.protocol.acknowledgement import Withdrawn
from penstock.streams.protocol.blame import blame
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import CANCELLED, CLOSED, FAILED, Subscriber, Subscription
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.observing import CallLimits

__all__ = ["CallingStage"]


class CallingStage(FlushingStage):
    """Completes when nothing is in flight, waiting or undelivered.

    After an error nothing new begins; calls in flight finish, and then the first error is passed
    on. On cancel it returns all its events and cancels its tasks.
    """

    __slots__ = (
        "_is_own",
        "_name",
        "_now",
        "_slots",
        "_traced",
        "_watch",
        "_watched",
        "in_flight",
        "peak_in_flight",
        "who",
    )

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        options: CallOptions,
    ) -> None:
        super().__init__(downstream, run, info, options)
        self.in_flight: int = 0
        self.peak_in_flight: int = 0
        self._name = name = options.name
        self._now = run.now
        # The advice for a handler of the library's own is different: a user cannot change it.
        self._is_own = is_own(options.handler)
        self.who = str(info) if self._is_own else f"'{name}' ({info})"
        self._slots = Slots(run, info, name, self._work, self._slot_ended)
        self._watched: CallLimits | None = None
        if options.timeout is not None:
            self._watched = Timeouts(run, options.timeout, name, self._slots.by_task.values())
        self._traced = None
        if run.tracing is not None:
            self._watched = self._traced = run.tracing.calls(info, name, self._watched)
        self._watch = BlockingWatch(run, self.who, self._progress, is_own=self._is_own)

    def on_subscribe(self, subscription: Subscription, /) -> None:
        super().on_subscribe(subscription)
        self._drain()

    # Slots.

    async def _work(self) -> None:
        """One slot: make calls, and sleep while there is nothing to do."""
        raise NotImplementedError

    def _slot_ended(self) -> None:
        if self.state < CLOSED:
            self._drain()

    def _progress(self) -> tuple[int, ...] | None:
        """Numbers that change while the stage makes progress; None when nothing is in flight."""
        if not (self.in_flight or self._inbox):
            return None
        return self.in_flight, self._results.demand, self._results.waiting

    # The ends of calls.

    def _settle_failure(self, event: Event[Any], error: BaseException) -> None:
        if isinstance(error, Withdrawn):
            # Its source has lost it: this says nothing about the handler.
            turn = event.turn
            self._no_more_attempts(event)
            self._return([closing_event(event)])
            self._turn_over(turn)
        elif (failure := self._error_of([event], error)) is not None:
            self._over([event], failure)
            self._settle_error(event, failure)

    def _over(self, events: list[Event[Any]], error: BaseException | None = None) -> None:
        """The calls of these events have ended, with this error."""
        self.in_flight -= len(events)

    def _error_of(self, events: list[Event[Any]], error: BaseException) -> BaseException | None:
        """The error with which a call has failed; see `ErrorPolicy.error_of_call`."""
        stop = self.stop if self.state < CLOSED else None
        return self._faults.error_of_call(events, error, self._name, self._return, stop)

    def _return(self, events: list[Event[Any]]) -> None:
        """Return events in flight whose calls have no result."""
        self.in_flight -= len(events)
        give_back_all(events)

    def _try_again(self, event: Event[Any], asked: float) -> None:
        """Let the next attempt at `event` begin when the seconds `asked` for are over, or later."""
        raise NotImplementedError

    def _settle_error(self, event: Event[Any], error: BaseException) -> None:
        """Try an event that has failed again, return it to its source, or give it up."""
        retries = self._retries
        if retries is None or not retries.allows(event, error):
            self._give_up(event, error)
            return
        asked = 0.0
        if self.state < FAILED:
            try:
                asked = retries.asked(error)
            except CALL_ERRORS as raised:
                what = "function given as wait="
                self._broke(own_error(raised, f"the {what}"), what)
        if self.state < FAILED:
            self._try_again(event, asked)
            return
        # Nothing begins any more: an event with attempts left returns to its source.
        blame(error, self.info, event)
        self.run.late_error(error)
        self._no_more_attempts(event)
        closing_event(event).give_back()

    def _broke(self, error: Exception, what: str) -> None:
        """A function of the user's other than the handler raised: no event is to blame."""
        add_note(error, f"in the {what} of {self.info}")
        self.stop(error)

    # The end.

    def _take_unstarted(self) -> list[Event[Any]]:
        if self.state is CANCELLED:
            self.in_flight -= len(self._ended) + len(self._failures)
        return super()._take_unstarted()

    def is_busy(self) -> bool:
        return bool(self.in_flight) or super().is_busy()

    def release(self) -> None:
        super().release()
        self._watch.end()
        self._slots.cancel()
        if self._watched is not None:
            self._watched.close()

    # Numbers.

    def statistics(self) -> dict[str, Any]:
        """Events `waiting`, `in_flight`, `undelivered` (results) and `retrying`, and `stuck` calls.

        A stuck call is past its timeout and has not ended. `retries` are the attempts after the
        first, those that wait included.
        """
        retries = self._retries
        return {
            "waiting": len(self._waiting),
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak_in_flight,
            "undelivered": self._results.waiting,
            "retrying": 0 if retries is None else retries.waiting,
            "retries": 0 if retries is None else retries.retries,
            "stuck": 0 if self._watched is None else self._watched.stuck,
            **self._faults.statistics(),
        }
