"""The base of the stages whose events are processed elsewhere: in slots, or by other processes.

An event waits until it may begin, and is then with whatever processes it. What has ended, well or
not, is gathered and flushed in the order of the ends: results go on, failures are settled, turns
end, and other events of these may begin.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.streams.execution.batch_turns import BatchTurns
from penstock.streams.execution.call import attempts_at, call_of, closing_event
from penstock.streams.execution.options import HandlerOptions
from penstock.streams.execution.results import InOrder, Results
from penstock.streams.execution.waiting import Siblings, Waiting
from penstock.streams.failures.error_policy import ErrorPolicy, policy_in
from penstock.streams.keyed.queues import release
from penstock.streams.protocol.acknowledgement import Family
from penstock.streams.protocol.event import BaseEvent, Count, Event, Turn, give_back_all, take_turns
from penstock.streams.protocol.stage import CANCELLED, CLOSED, FAILED, OPEN, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.demand_stage import BaseDemandStage

__all__ = ["FlushingStage"]


class FlushingStage(BaseDemandStage):
    """Ends when nothing is in progress and all results are out, also after an error.

    `faults` settles what has failed for good, in place of the policy in the options.
    """

    __slots__ = (
        "_ended",
        "_faults",
        "_has_failures",
        "_has_families",
        "_inbox",
        "_is_ordered",
        "_results",
        "_retries",
        "_siblings",
        "_turns",
        "_waiting",
    )

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        options: HandlerOptions,
        faults: ErrorPolicy | None = None,
    ) -> None:
        super().__init__(downstream, run, info)
        policy, window = policy_in(run, options.on_error), options.window
        self._faults = ErrorPolicy(policy, run, info) if faults is None else faults
        self._is_ordered = options.ordered
        self._waiting = Waiting(policy, run, window, self._again)
        self._inbox = self._waiting.inbox
        self._siblings = self._waiting.siblings
        # What comes next in a turn.
        self._turns: Siblings | BatchTurns = self._siblings
        self._retries = self._waiting.retries
        # The events of calls that have ended and are not flushed, in the order of the ends, each
        # with its result as its value or an error in its record; whether one of them has failed,
        # and whether one of them had several results.
        self._ended: list[Event[Any]] = []
        self._has_failures = self._has_families = False
        self._results = (InOrder if options.ordered else Results)(downstream, window)

    # Demand and events.

    def request(self, n: Count, /) -> None:
        if self.state < CLOSED:
            self._results.request(n)
            self._drain()

    def on_events(self, events: list[Event[Any]], /) -> None:
        self.asked -= len(events)
        if self.state:
            give_back_all(events)
            return
        event: BaseEvent
        for event in events:
            turn = event.turn
            if turn is None or turn.holders < 2 or self._siblings.enter(turn, event):
                self._inbox.append(event)
        self._drain()

    # What has ended.

    def _failed(self, event: Event[Any], error: BaseException) -> None:
        """A call has ended with `error`."""
        call_of(event).error = error
        self._ended.append(event)
        self._has_failures = True

    def _settle(self) -> None:
        """Settle all that has ended."""
        while self._ended:
            self._flush()

    def _flush(self) -> None:
        """Settle what has ended, in the order of the ends: send results on, and end their turns.

        Where calls have failed this is a part of it: a failure, or the results in front of one.
        """
        if self._has_failures:
            ended = self._until_failure()
            if not ended:
                self._settle_failure(self._ended.pop(0))
                return
        else:
            ended = self._ended[:]
            self._ended.clear()
        if self.state >= CLOSED:
            # Cancelled from inside a call: no result is wanted.
            self._return(ended)
            return
        try:
            self._over(ended)
        except BaseException:
            give_back_all(ended)
            raise
        if self.state >= CLOSED:
            # `on_limit_change` has cancelled the pipeline.
            give_back_all(ended)
            return
        event: BaseEvent
        if self._retries is not None and not self._is_ordered:
            for event in ended:
                event.call = None
        turns = take_turns(ended)
        try:
            if self._has_families:
                ended = self._close_families(ended)
            self._results.complete(ended)
        except BaseException:
            self._return_ended()
            raise
        finally:
            if turns:
                self._end_turns(turns)

    def _until_failure(self) -> list[Event[Any]]:
        """Remove and return the events that have ended before one that has failed."""
        ended, n = self._ended, 0
        event: BaseEvent
        for event in ended:
            if event.call is not None and call_of(event).error is not None:
                break
            n += 1
        else:
            self._has_failures = False
        before = ended[:n]
        del ended[:n]
        return before

    def _close_families(self, ended: list[Event[Any]]) -> list[Event[Any]]:
        """End the calls with several results; returns the other events."""
        # There may be more behind a failure.
        self._has_families = bool(self._ended)
        others = [event for event in ended if type(event.value) is not Family]
        left = deque(event for event in ended if type(event.value) is Family)
        try:
            while left:
                self._results.end(left[0])
                left.popleft().value.close()
        except BaseException:
            # Of a function that results of these calls, or of later ones, have reached.
            for event in left:
                event.value.close()
            give_back_all(others)
            raise
        return others

    def _settle_failure(self, event: Event[Any]) -> None:
        call = call_of(event)
        error, call.error = call.error, None
        assert error is not None
        try:
            self._judge(event, error)
        except BaseException:
            # Of a function such as that given as overload=.
            event.give_back()
            self._return_ended()
            raise

    def _give_up(self, event: Event[Any], error: BaseException) -> None:
        """An event has failed for good: apply the error policy."""
        attempts, turn = attempts_at(event), event.turn
        self._no_more_attempts(event)
        if turn is not None:
            # The event gives up its share when it has ended, or with the letter about it.
            turn.holders += 1
        try:
            if not self._faults.survives(closing_event(event), error, attempts):
                self.stop(error)
        finally:
            if turn is not None:
                self._end_turns([turn])

    def _return_ended(self) -> None:
        """Return what has ended behind an event at whose end a function has raised."""
        ended = list(map(closing_event, self._ended))
        self._ended.clear()
        self._return(ended)

    def _end_turns(self, turns: list[Turn]) -> None:
        """End the turns of events that are settled: others of these may begin."""
        release(turns)
        if self._siblings.at_work:
            self._bring_next(turns)

    def _bring_next(self, turns: list[Turn]) -> None:
        for turn in turns:
            for event in self._turns.end(turn):
                self._enter(event)

    # What stages do in their own ways.

    def _enter(self, event: Event[Any]) -> None:
        """An event that was behind another one of its turn may begin."""
        self._inbox.append(event)

    def _again(self, event: Event[Any]) -> None:
        """The next attempt at `event` may begin."""
        raise NotImplementedError

    def _over(self, events: list[Event[Any]], error: BaseException | None = None) -> None:
        """The calls of these events have ended, with this error."""

    def _judge(self, event: Event[Any], error: BaseException) -> None:
        """Try an event that has failed again, return it to its source, or give it up."""
        self._give_up(event, error)

    def _no_more_attempts(self, event: Event[Any]) -> None:
        """There will be no more attempts at this event."""
        self._results.end(event)

    def _return(self, events: list[Event[Any]]) -> None:
        """Return events whose calls have begun and have no result."""
        give_back_all(events)

    # Events that do not begin, and the end.

    def _withdraw(self, is_gone: Callable[[Event[Any]], bool]) -> None:
        """Return the events for which this is true, unless they have begun before."""
        # Those behind another event of their turn first: they do not end it.
        give_back_all(self._siblings.withdraw(is_gone))
        self._lose(self._withdrawn(is_gone))

    def _withdrawn(self, is_gone: Callable[[Event[Any]], bool]) -> list[Event[Any]]:
        """Remove and return the events for which this is true, of those that may begin."""
        return self._waiting.withdraw(is_gone)

    def _lose(self, events: list[Event[Any]]) -> None:
        """Return events that no call has; others of their turns may begin."""
        turns = take_turns(events)
        self._give_back(events)
        if turns:
            self._end_turns(turns)

    def _take_unstarted(self) -> list[Event[Any]]:
        """Remove and return the events that have not begun; on cancel, those to be flushed too."""
        events = self._waiting.clear()
        if self.state is CANCELLED:
            events += self._ended
            self._ended.clear()
        return events

    def give_back_unstarted(self) -> None:
        """Return the events that have not begun: none will."""
        self._give_back(self._take_unstarted())

    def _give_back(self, events: list[Event[Any]]) -> None:
        """Return events whose calls have not begun, or have no more results."""
        try:
            for event in events:
                # It may have a place in the order.
                self._results.end(event)
        finally:
            give_back_all(map(closing_event, events))

    def stop(self, error: BaseException) -> None:
        """Begin nothing more; what is in progress may finish before the error passes on."""
        if self.error is not None or self.state >= CLOSED:
            if error is not self.error:
                self.run.late_error(error)
            return
        self.error = error
        before, self.state = self.state, FAILED
        # Before the cancel, in which a stage of the user's own may raise a second error.
        self.run.stopping(error)
        if before is OPEN:
            self.cancel_upstream()
        self.give_back_unstarted()

    def on_error(self, error: BaseException, /) -> None:
        self.end()
        self.stop(error)
        self._drain()

    def _end_if_idle(self) -> None:
        if self.state < CLOSED and not self.is_busy():
            self.complete()

    def is_busy(self) -> bool:
        """Whether anything is in progress, waits, or is on its way down."""
        results = self._results
        return bool(self._waiting or self._ended or results.waiting or results.delivering)

    def release(self) -> None:
        self._results.give_back()
        self._give_back(self._take_unstarted())
