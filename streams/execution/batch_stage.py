"""The batch stage: calls a handler with several events at a time, and with halves of what fails.

The events that wait to begin are the open batch, one of each group at first. As soon as a call is
free its groups may give it more of their events, until it is closed: from then on its groups wait
for the call to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from penstock.streams.base.errors import BatchContractError, describe
from penstock.streams.execution.batch_turns import BatchTurns
from penstock.streams.execution.call import attempts_at
from penstock.streams.execution.calling_stage import CallingStage
from penstock.streams.execution.handler import speaks_for_its_type, unfinished
from penstock.streams.execution.iterators import is_iterator
from penstock.streams.execution.linger import Linger
from penstock.streams.execution.options import CallOptions
from penstock.streams.keyed.queues import close_turns, open_turns
from penstock.streams.limits import Outcome
from penstock.streams.limits.batch_size import BatchSize
from penstock.streams.protocol.acknowledgement import NOBODY, Withdrawn, may_begin
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import CLOSED, FAILED, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer

__all__ = ["BatchOptions", "BatchStage"]


@dataclass(kw_only=True)
class BatchOptions(CallOptions):
    """The options of `batch`, which documents each; as many results wait as a batch has."""

    max_size: int
    max_wait: float
    latency: float | None

    @property
    def limit(self) -> int:
        """Events that may be in calls at once."""
        return self.max_size * self.parallel


@dataclass(slots=True)
class _Batch:
    """The record of a call with several events, and of the calls with its halves that follow."""

    called: list[Event[Any]]
    """The events of the latest of these calls."""
    parts: list[list[Event[Any]]]
    """What is left to call with, the next part last."""
    count: int
    size: int
    """The events of a full batch when this one was closed."""
    free: float
    """When both the batch was ready and a call was free."""
    outcome: Outcome = Outcome.SUCCESS


class BatchStage(CallingStage):
    """Has up to `parallel` slots, each of which calls the handler with a batch.

    The events that are due are the stage's own: the value and the record of each is a batch.
    """

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, options: BatchOptions
    ) -> None:
        super().__init__(downstream, run, info, options)
        self._options = options
        self._given, self._handler = self._handler, self._call
        self._is_awaited, self._checked = True, {list}
        self._returned = self._end_call
        # Types of results that need not be awaited.
        self._finished: set[type] = set()
        self._turns = self._batch_turns = BatchTurns(self._siblings)
        self._size = BatchSize(options.max_size, options.latency)
        self._parallel = run.overrides.parallel or options.parallel
        self._linger = Linger(options.max_wait, self._parallel)
        # When the first event of the open batch arrived.
        self._opened = 0.0
        # Calls under way.
        self._calling: int = 0
        # Since when the open batch is ready and a call is free.
        self._free: float | None = None
        # Whether a call is free, and the groups of the open batch may give more events.
        self._gathering = False
        self._timer = Timer(run, info, self._drain)

    # Demand and events.

    def on_events(self, events: list[Event[Any]], /) -> None:
        self.asked -= len(events)
        now = self._now()
        for place, event in enumerate(events):
            if self.state:
                give_back_all(events[place:])
                break
            self._linger.on_arrive(now)
            if not self._inbox:
                self._opened = now
            if not self._batch_turns.must_wait(event):
                self._enter(event)
        self._drain()

    def _enter(self, event: Event[Any]) -> None:
        if self._waiting.put((event,), self._options.limit) and self._gathering:
            open_turns((event.turn,))

    def _proceed(self) -> None:
        self._settle()
        if not self.state:
            self._request_more()
        self._noted = False
        if not self._is_ready():
            self._free = None
        elif self._free is None:
            self._free = self._now()
            # Events of the same loop iteration go into the same batch.
            self._gathers = True
            self.flush_soon()
        elif not self.flush_is_due:
            self._begin(self._free)
        self.begin_soon()

    @property
    def _most_slots(self) -> int:
        return self._parallel

    def _request_more(self) -> None:
        """Request the events that are missing in the open batch."""
        waiting = self._waiting
        room = self._size.size - self.asked - (len(waiting) - waiting.retrying)
        room += min(0, self._options.max_size - self._results.waiting)
        if room > 0 and waiting.has_room(self._options.limit):
            self.ask(room)

    # Batches.

    def _is_ready(self) -> bool:
        """Whether a call may begin, and need not wait for more events."""
        free = self._parallel - self._calling - len(self._due)
        if (
            not self._inbox
            or self.state >= CLOSED
            or free <= 0
            or self._results.waiting > self._options.max_size
        ):
            return False
        if not self._gathering:
            self._gathering = True
            # Earlier, a group that is in no call would fill the batch alone.
            open_turns([event.turn for event in self._inbox])
        waiting = len(self._inbox)
        if waiting >= self._size.size or self.state:
            return True
        patience = self._linger.patience(waiting, free)
        left = self._opened + patience - self._now()
        if left <= 0:
            return True
        if not self._timer.is_set:
            self._timer.set(left)
        return False

    def _begin(self, free: float) -> None:
        """Close the open batch and assign it to a slot."""
        inbox, size, opened = self._inbox, self._size.size, self._opened
        self._gathering = False
        close_turns(event.turn for event in inbox)
        # Events that have failed before stay together, or they would fail others again and again.
        again = attempts_at(inbox[0]) > 1
        events: list[Event[Any]] = []
        while inbox and len(events) < size and (attempts_at(inbox[0]) > 1) == again:
            event = inbox.popleft()
            events.append(event)
            self._batch_turns.begin(event)
        left = list(inbox)
        inbox.clear()
        inbox.extend(event for event in left if not self._batch_turns.must_wait(event))
        # Events left over, because the size has become smaller, are the next batch from now on.
        self._opened, self._free = self._now(), None
        self.in_flight += len(events)
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        self._watch.begin()
        call: Event[Any] = Event(None, opened, NOBODY)
        call.value = call.call = _Batch([], [events], len(events), size, free)
        self._due.append(call)
        # As soon as the call has begun: the next batch is made while this one is worked on.
        self.run.call_soon(self.info, self._drain)

    # Calls.

    def event_in(self, task: asyncio.Task[Any]) -> Event[Any] | None:
        """None: a call has several."""
        return None

    async def _call(self, batch: _Batch) -> Sequence[Any]:
        """Call the handler with the next part of a batch."""
        batch.called = part = self._still_due(batch.parts.pop())
        if not part:
            return part
        started = self._now()
        for event in part:
            event.started = started
        traced, handler = self._traced, self._results_of
        call = handler if traced is None else traced.batch(handler, part)
        self._calling += 1
        try:
            return await call([event.value for event in part])
        finally:
            self._calling -= 1

    async def _results_of(self, values: list[Any]) -> Sequence[Any]:
        """As many results as `values`; None stands for a None each.

        BatchContractError where the handler returns anything else.
        """
        count = len(values)
        results: Any = self._given(values)
        kind = cast("type[Any]", results.__class__)
        if hasattr(kind, "__await__") and not is_iterator(kind):
            results = await results
        if results is None:
            return [None] * count
        kind = cast("type[Any]", results.__class__)
        if isinstance(results, str | bytes) or not isinstance(results, Sequence):
            if is_iterator(kind):
                what = "an async iterator or a stream"
            elif (error := unfinished(results, self._name)) is not None:
                raise BatchContractError(str(error))
            else:
                what = describe(results, 80)
            raise BatchContractError(
                f"'{self._name}' returned {what} for {_many(count, 'event')}: return a list of as "
                "many results, or None"
            )
        given: Sequence[Any] = cast(Any, results)
        if len(given) != count:
            raise BatchContractError(
                f"'{self._name}' returned {_many(len(given), 'result')} for "
                f"{_many(count, 'event')}: return one for each, in their order; an exception in "
                "the place of one that failed"
            )
        if self._finished.issuperset(map(type, given)):
            return list(given)
        errors = [unfinished(result, self._name) for result in given]
        if not any(errors):
            self._finished.update(map(type, filter(speaks_for_its_type, given)))
        return [error or result for error, result in zip(errors, given, strict=True)]

    def _still_due(self, part: list[Event[Any]]) -> list[Event[Any]]:
        """The events of `part` that may begin.

        None whose source has lost it, and none whose group has an event that waits for its next
        attempt.
        """
        due: list[Event[Any]] = []
        lessors = self.run.lessors
        for event in part:
            if lessors and not may_begin(event, lessors):
                self._failed(event, Withdrawn())
            elif self._batch_turns.waits_for_another(event):
                # Until the group's event before it has succeeded or failed for good.
                self.in_flight -= 1
                self._batch_turns.put_off(event)
            else:
                due.append(event)
        return due

    def _called_with(self, event: Event[Any]) -> Collection[Event[Any]]:
        batch: _Batch = event.call
        return batch.called

    def _recall(self) -> None:
        unstarted = [event for call in self._due for event in chain(*call.call.parts)]
        self._inbox.extendleft(reversed(unstarted))
        self.in_flight -= len(unstarted)
        self._due.clear()

    # Outcomes.

    def _raised(self, event: Event[Any], error: BaseException) -> None:
        batch: _Batch = event.call
        part = batch.called
        failure = self._error_of([*part, *chain(*batch.parts)], error)
        if isinstance(failure, TimeoutError):
            batch.outcome = Outcome.DROPPED
        if failure is None:
            batch.parts, part = [], []
        elif not isinstance(failure, Exception):
            # It stops the pipeline, and one event is enough to say so.
            self._return(part[1:])
            part = part[:1]
        elif len(part) > 1 and not isinstance(failure, BatchContractError):
            middle = len(part) // 2
            batch.parts += (part[middle:], part[:middle])
            part = []
        batch.called = part
        event.value = [failure] * len(part)
        self._end_call(event)

    def _end_call(self, call: Event[Any]) -> None:
        """Settle the events of a call, each by its result or error; the next part is then due."""
        batch: _Batch = call.call
        # An error leads to the frame of its slot, which has the call: they would keep each other.
        results, call.value = call.value, batch
        for event, result in zip(batch.called, results, strict=True):
            event.ended = call.ended
            if isinstance(result, BaseException):
                self._failed(event, result)
            else:
                self._no_more_attempts(event)
                event.value = result
                self._ended.append(event)
        if batch.parts:
            self._due.appendleft(call)
            if self.state >= FAILED:
                self.give_back_unstarted()
        self._drain()
        if not batch.parts and self.state < FAILED:
            # With what each call costs this stage and the loop, which small ones pay as well.
            ended = self._now()
            took, oldest = ended - batch.free, ended - call.created
            self._linger.on_complete(took)
            self._size.on_complete(took, batch.count, batch.size, oldest, batch.outcome)

    def _settle_error(self, event: Event[Any], error: BaseException) -> None:
        if isinstance(error, BatchContractError):
            # Every event of the call has one, with notes of its own.
            self._give_up(event, BatchContractError(str(error)))
        else:
            super()._settle_error(event, error)

    def _try_again(self, event: Event[Any], asked: float) -> None:
        if self._batch_turns.waits_for_another(event):
            # After the event of its group that was before it, which is not settled yet.
            assert self._retries is not None
            self._retries.failed(event)
            self._batch_turns.put_off(event)
            return
        self._batch_turns.retry(event)
        self._waiting.put_retry(event, asked, self._options.limit)

    def _again(self, event: Event[Any]) -> None:
        if not self._inbox:
            self._opened = self._now()
        self._waiting.retry(event, self._options.limit)
        self._drain()

    def _no_more_attempts(self, event: Event[Any]) -> None:
        self._batch_turns.settle(event)

    # The end.

    def release(self) -> None:
        self._timer.cancel()
        super().release()

    def statistics(self) -> dict[str, Any]:
        """The `size` of a full batch now and its reason, `calls` and their events `in_flight`.

        `parallel` is how many calls may run at once.
        """
        return {
            **super().statistics(),
            "calls": self._calling + len(self._due),
            "parallel": self._parallel,
            "size": self._size.size,
            "size_reason": self._size.reason,
        }


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
