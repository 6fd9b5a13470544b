"""The batch stage: calls a handler with several events at a time, and with halves of what fails.

The events that wait to begin are the open batch, one of each group at first. As soon as a call is
free its groups may give it more of their events, until it is closed: from then on its groups wait
for the call to end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import copy_context
from typing import Any, cast

from penstock.streams.base.errors import BatchContractError, describe
from penstock.streams.execution.batch_turns import BatchTurns
from penstock.streams.execution.call import attempts_at
from penstock.streams.execution.calling_stage import CallingStage
from penstock.streams.execution.handler import opened, speaks_for_its_type, unfinished
from penstock.streams.execution.iterators import is_iterator
from penstock.streams.execution.linger import Linger
from penstock.streams.execution.options import BatchOptions
from penstock.streams.keyed.queues import close_turns, open_turns
from penstock.streams.limits import Outcome
from penstock.streams.limits.batch_size import BatchSize
from penstock.streams.protocol.acknowledgement import Withdrawn, may_begin
from penstock.streams.protocol.event import Event, Turn, give_back_all
from penstock.streams.protocol.stage import CLOSED, FAILED, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.slot import Slot
from penstock.streams.runtime.tasks import has_changed
from penstock.streams.runtime.timer import Timer
from penstock.streams.stages.time_slice import PAUSE

__all__ = ["BatchStage"]


class BatchStage(CallingStage):
    """Has up to `parallel` slots, each of which takes a batch and calls the handler with it."""

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, options: BatchOptions
    ) -> None:
        super().__init__(downstream, run, info, options)
        self._options = options
        self._handler = _by_contract(opened(options.handler, run), options.name)
        self._turns = BatchTurns(self._siblings)
        self._size = BatchSize(options.max_size, options.latency)
        self._parallel = run.overrides.parallel or options.parallel
        self._linger = Linger(options.max_wait, self._parallel)
        # When the first event of the open batch arrived.
        self._opened = 0.0
        self._calling: int = 0
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
            if not self._turns.must_wait(event):
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
        if self._is_ready():
            self._slots.wake(1, self._parallel)

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
        if (
            not self._inbox
            or self.state >= CLOSED
            or self._calling >= self._parallel
            or self._results.waiting > self._options.max_size
        ):
            return False
        self._gather()
        waiting = len(self._inbox)
        if waiting >= self._size.size or self.state:
            return True
        left = (
            self._opened
            + self._linger.patience(waiting, self._parallel - self._calling)
            - self._now()
        )
        if left <= 0:
            return True
        if not self._timer.is_set:
            self._timer.set(left)
        return False

    def _gather(self) -> None:
        """Let the groups in the open batch give more of their events, once a call is free.

        Earlier, a group that is in no call would fill the batch alone.
        """
        if not self._gathering:
            self._gathering = True
            open_turns([event.turn for event in self._inbox])

    async def _work(self) -> None:
        free: float | None = None
        context = copy_context()
        slot = self._slots.begin()
        while self.state < CLOSED:
            # Events of the same loop iteration go into the same batch.
            await PAUSE
            if self._is_ready():
                batch = self._close_batch()
                await self._work_on(slot, batch, self._now() if free is None else free)
                if has_changed(context):
                    return
                free = self._now()
            else:
                free = None
                await self._slots.sleep()

    def _close_batch(self) -> list[Event[Any]]:
        inbox, size = self._inbox, self._size.size
        self._gathering = False
        close_turns(event.turn for event in inbox)
        # Events that have failed before stay together, or they would fail others again and again.
        again = attempts_at(inbox[0]) > 1
        batch: list[Event[Any]] = []
        while inbox and len(batch) < size and (attempts_at(inbox[0]) > 1) == again:
            event = inbox.popleft()
            batch.append(event)
            self._turns.begin(event)
        left = list(inbox)
        inbox.clear()
        inbox.extend(event for event in left if not self._turns.must_wait(event))
        return batch

    # Calls.

    async def _work_on(self, slot: Slot, batch: list[Event[Any]], free: float) -> None:
        """Call the handler with a batch in this slot, and settle each of its events.

        `free` is the time at which both the batch was ready and a call was free.
        """
        size, opened, started = self._size.size, self._opened, self._now()
        # Events left over, because the size has become smaller, are the next batch from now on.
        self._opened = started
        self._calling += 1
        self.in_flight += len(batch)
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        for event in batch:
            event.started = started
        self._watch.begin()
        # As soon as the call has begun: the next batch is made while this one is worked on.
        self.run.call_soon(self.info, self._drain)
        outcome = Outcome.SUCCESS
        parts = [batch]
        try:
            while parts:
                part = self._still_due(parts.pop())
                if not part:
                    continue
                error = await self._attempt(slot, part)
                if isinstance(error, TimeoutError):
                    outcome = Outcome.DROPPED
                if error is None:
                    continue
                if not isinstance(error, Exception):
                    # It stops the pipeline, and one event is enough to say so.
                    self._return(part[1:])
                    part = part[:1]
                if len(part) > 1 and not isinstance(error, BatchContractError):
                    middle = len(part) // 2
                    parts += (part[middle:], part[:middle])
                else:
                    self._settle_all(part, [error] * len(part))
        finally:
            self._calling -= 1
            # Its frames refer to this one, from Python 3.13 on, and keep what a user's function
            # has in its variables, until the garbage collector comes.
            error = None
            for part in parts:
                self._return(part)
        ended = self._now()
        if self.state < FAILED:
            self._linger.on_complete(ended - started)
            # With what each call costs this stage and the loop, which small ones pay as well.
            self._size.on_complete(ended - free, len(batch), size, ended - opened, outcome)
        self._drain()

    def _still_due(self, part: list[Event[Any]]) -> list[Event[Any]]:
        """The events of `part` that may begin.

        None after an error, none whose source has lost it, and none whose group has an event that
        waits for its next attempt.
        """
        if self.state >= FAILED:
            self._return(part)
            return []
        due: list[Event[Any]] = []
        lessors = self.run.lessors
        for event in part:
            if lessors and not may_begin(event, lessors):
                self._failures.append((event, Withdrawn()))
            elif self._turns.waits_for_another(event):
                # Until the group's event before it has succeeded or failed for good.
                self.in_flight -= 1
                self._turns.put_off(event)
            else:
                due.append(event)
        return due

    async def _attempt(self, slot: Slot, part: list[Event[Any]]) -> BaseException | None:
        """Call once and settle the events that have results; otherwise return the error."""
        try:
            results = await self._call(slot, part)
        except BaseException as error:
            return self._error_of(part, error)
        self._settle_all(part, results)
        return None

    async def _call(self, slot: Slot, part: list[Event[Any]]) -> Sequence[Any]:
        watched = self._watched
        handler: Callable[[list[Any]], Awaitable[Sequence[Any]]] = self._handler
        values = [event.value for event in part]
        if self._traced is not None:
            handler = self._traced.batch(handler, part)
        if watched is None:
            return await handler(values)
        watched.begin(slot, self._now())
        try:
            results = await handler(values)
            watched.end(slot)
        except BaseException as error:
            failure = watched.error(slot, error)
            if failure is error:
                raise
            raise failure from error
        return results

    # Outcomes.

    def _settle_all(self, part: list[Event[Any]], results: Sequence[Any]) -> None:
        ended = self._now()
        for event, result in zip(part, results, strict=True):
            event.ended = ended
            if isinstance(result, BaseException):
                self._failures.append((event, result))
            else:
                self._no_more_attempts(event)
                event.value = result
                self._ended.append(event)
        self._drain()

    def _settle_error(self, event: Event[Any], error: BaseException) -> None:
        if isinstance(error, BatchContractError):
            # Every event of the call has one, with notes of its own.
            self._give_up(event, BatchContractError(str(error)))
        else:
            super()._settle_error(event, error)

    def _try_again(self, event: Event[Any], asked: float) -> None:
        if self._turns.waits_for_another(event):
            # After the event of its group that was before it, which is not settled yet.
            assert self._retries is not None
            self._retries.failed(event)
            self._turns.put_off(event)
            return
        self._turns.retry(event)
        self._waiting.put_retry(event, asked, self._options.limit)

    def _again(self, event: Event[Any]) -> None:
        if not self._inbox:
            self._opened = self._now()
        self._waiting.retry(event, self._options.limit)
        self._drain()

    def _no_more_attempts(self, event: Event[Any]) -> None:
        self._turns.settle(event)

    def _turn_over(self, turn: Turn | None) -> None:
        for following in self._turns.end(turn):
            self._enter(following)

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
            "calls": self._calling,
            "parallel": self._parallel,
            "size": self._size.size,
            "size_reason": self._size.reason,
        }


def _by_contract(
    handler: Callable[[list[Any]], Any], name: str
) -> Callable[[list[Any]], Coroutine[Any, Any, Sequence[Any]]]:
    """`handler` as a coroutine function that returns as many results as it is given values.

    BatchContractError where it returns anything else; None stands for a None each.
    """

    async def call(values: list[Any]) -> Sequence[Any]:
        count = len(values)
        results: Any = handler(values)
        kind = cast("type[Any]", results.__class__)
        if hasattr(kind, "__await__") and not is_iterator(kind):
            results = await results
        if results is None:
            return [None] * count
        kind = cast("type[Any]", results.__class__)
        if isinstance(results, str | bytes) or not isinstance(results, Sequence):
            if is_iterator(kind):
                what = "an async iterator or a stream"
            elif (error := unfinished(results, name)) is not None:
                raise BatchContractError(str(error))
            else:
                what = describe(results, 80)
            raise BatchContractError(
                f"'{name}' returned {what} for {_many(count, 'event')}: return a list of as many "
                "results, or None"
            )
        given: Sequence[Any] = cast(Any, results)
        if len(given) != count:
            raise BatchContractError(
                f"'{name}' returned {_many(len(given), 'result')} for "
                f"{_many(count, 'event')}: return one for each, in their order; an exception in "
                "the place of one that failed"
            )
        if finished.issuperset(map(type, given)):
            return given
        errors = [unfinished(result, name) for result in given]
        if not any(errors):
            finished.update(map(type, filter(speaks_for_its_type, given)))
        return [error or result for error, result in zip(errors, given, strict=True)]

    # Types of results that need not be awaited.
    finished: set[type] = set()
    return call


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
