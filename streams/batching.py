"""The stage that calls a handler with several events at a time: batches, turns and outcomes.

The events that wait to begin are the open batch, one of each group at first. As soon as a call is
free its groups may give it more of their events, until it is closed: from then on its groups wait
for the call to end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from streams.calls import Calls, is_iterator
from streams.errors import BatchContractError, describe
from streams.event import Event, Turn
from streams.faults import Faults, OnError, blame
from streams.handler import cancelled_inside, is_being_cancelled, opened_pool
from streams.in_flight import InFlight
from streams.limits import Outcome
from streams.limits.batch_size import BatchSize, Company
from streams.origins import Nobody
from streams.results import Results
from streams.rotation import close_turns, end_turns, open_turns
from streams.run import Run
from streams.stage import StageInfo, Subscriber, is_second
from streams.waiting import Waiting

__all__ = ["BatchSettings", "Batching"]

_NOBODY = Nobody()


def _no_iterators() -> None:
    """A call that gives an iterator fails before it could go on."""


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """The arguments of `operators.batch`, which explains each."""

    handler: Callable[[list[Any]], Any]
    name: str
    max_size: int
    max_wait: float
    latency: float | None
    parallel: int
    timeout: float | None
    on_error: OnError

    @property
    def limit(self) -> int:
        """Events that may be in calls at once."""
        return self.max_size * self.parallel


class Batching(InFlight):
    """Has up to `parallel` workers, each of them a task that takes a batch and settles it."""

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, settings: BatchSettings
    ) -> None:
        waiting = Waiting(settings.on_error, run, settings.max_size, self._again)
        results = Results(downstream, settings.max_size)
        super().__init__(downstream, run, info, settings.name, waiting, results)
        self._settings = settings
        self._now = run.now
        self._handler = opened_pool(settings.handler, run)
        self._faults = Faults(settings.on_error, run, info)
        self._calls = Calls(run, settings.name, settings.timeout, results, _no_iterators)
        self._siblings = waiting.siblings
        self._parking = waiting.parking
        self._size = BatchSize(settings.max_size, settings.latency)
        self._company = Company(settings.max_wait)
        self._asked = 0
        # When the first event of the open batch came.
        self._opened = 0.0
        self._calling = 0
        # Whether a call is free, and the groups of the open batch may give more.
        self._gathering = False
        self._sleepers: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        # Events in calls, or between two attempts, of each turn; and those between two only.
        self._at_work: Counter[Turn] = Counter()
        self._retried: Counter[Turn] = Counter()

    # Demand.

    def on_subscribe(self, subscription: Any, /) -> None:
        if is_second(self, subscription):
            return
        self.upstream = subscription
        self.downstream.on_subscribe(self)
        self._ask()

    def request(self, n: int, /) -> None:
        if self._cancelled:
            return
        self._results.request(n)
        self._dispatch()
        self._ask()

    def _ask(self) -> None:
        """Ask for what is missing in the open batch."""
        if self._closing or self._cancelled:
            self._end_if_idle()
            return
        waiting = self._waiting
        room = self._size.size - self._asked - (len(waiting) - waiting.retrying)
        room += min(0, self._settings.max_size - self._results.waiting)
        if room > 0 and waiting.has_room(self._settings.limit):
            self._asked += room
            self.upstream.request(room)

    # Events.

    def on_next(self, event: Event[Any], /) -> None:
        self._asked -= 1
        if self._closing or self._cancelled:
            event.give_back()
            return
        now = self._now()
        self._company.on_arrive(now)
        if not self._inbox:
            self._opened = now
        turn = event.turn
        if turn is not None and turn in self._siblings:
            self._siblings.may_begin(turn, event)
            return
        self._enter(event)
        self._dispatch()

    def _enter(self, event: Event[Any]) -> None:
        if self._waiting.put(event, self._settings.limit) and self._gathering:
            open_turns((event.turn,))

    def on_completed(self) -> None:
        super().on_completed()
        self._dispatch()

    # Batches.

    def _dispatch(self) -> None:
        """Wake or start a worker, if it has something to do."""
        if not self._is_ready():
            return
        while self._sleepers:
            sleeper = self._sleepers.pop()
            if not sleeper.done():
                sleeper.set_result(None)
                return
        if len(self._tasks) < self._settings.parallel:
            self._spawn(self._work())

    def _is_ready(self) -> bool:
        """Whether a call may begin, and waits no longer for more events."""
        if (
            not self._inbox
            or self._cancelled
            or self._calling >= self._settings.parallel
            or self._results.waiting > self._settings.max_size
        ):
            return False
        self._gather()
        waiting = len(self._inbox)
        if waiting >= self._size.size or self._closing:
            return True
        left = self._opened + self._company.patience(waiting) - self._now()
        if left <= 0:
            return True
        if self._timer is None:
            self._timer = self._run.loop.call_later(left, self._waited)
        return False

    def _gather(self) -> None:
        """Let the groups in the open batch give more of their events.

        Not before a call is free, or a group that is in no call would fill the batch alone.
        """
        if not self._gathering:
            self._gathering = True
            open_turns([event.turn for event in self._inbox])

    def _waited(self) -> None:
        self._timer = None
        self._dispatch()

    async def _work(self) -> None:
        while not self._cancelled:
            # Whatever else comes in this turn of the loop goes into the same batch.
            await asyncio.sleep(0)
            if self._is_ready():
                await self._work_on(self._close_batch())
            else:
                sleeper = self._run.loop.create_future()
                self._sleepers.append(sleeper)
                await sleeper

    def _close_batch(self) -> list[Event[Any]]:
        inbox, size = self._inbox, self._size.size
        self._gathering = False
        close_turns(event.turn for event in inbox)
        # What has failed before stays among itself, or it would fail others again and again.
        again = self._tried(inbox[0])
        batch: list[Event[Any]] = []
        while inbox and len(batch) < size and self._tried(inbox[0]) == again:
            event = inbox.popleft()
            batch.append(event)
            turn = event.turn
            if turn is not None:
                if turn not in self._siblings:
                    self._siblings.may_begin(turn, event)
                if not again:
                    self._at_work[turn] += 1
        left = list(inbox)
        inbox.clear()
        for event in left:
            if event.turn is None or event.turn not in self._siblings or self._tried(event):
                inbox.append(event)
            else:
                self._siblings.may_begin(event.turn, event)
        return batch

    def _tried(self, event: Event[Any]) -> bool:
        return self._parking is not None and self._parking.count(event) > 1

    # Calls.

    async def _work_on(self, batch: list[Event[Any]]) -> None:
        """Call with a batch, and with halves of it for as long as there are any that fail."""
        size, opened, started = self._size.size, self._opened, self._now()
        self._calling += 1
        self.in_flight += len(batch)
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        for event in batch:
            event.started = started
        self._watch.begin()
        self._ask()
        self._dispatch()
        outcome = Outcome.SUCCESS
        parts = [batch]
        try:
            while parts:
                part = self._still_due(parts.pop())
                if not part:
                    continue
                error = await self._attempt(part)
                if isinstance(error, TimeoutError):
                    outcome = Outcome.DROPPED
                if error is None or self._cancelled:
                    continue
                if len(part) > 1 and not isinstance(error, BatchContractError):
                    middle = len(part) // 2
                    parts += (part[middle:], part[:middle])
                else:
                    self._settle(part, [error] * len(part))
        finally:
            self._calling -= 1
            for part in parts:
                self._return(part)
        ended = self._now()
        if self._error is None and not self._cancelled:
            self._company.on_complete(ended - started)
            self._size.on_complete(ended - started, len(batch), size, ended - opened, outcome)
        self._dispatch()
        self._ask()

    def _still_due(self, part: list[Event[Any]]) -> list[Event[Any]]:
        """What of it may begin: nothing after an error, none whose group tries another again."""
        if self._error is not None or self._cancelled:
            self._return(part)
            return []
        if not self._retried:
            return part
        due: list[Event[Any]] = []
        for event in part:
            if self._retried[cast(Turn, event.turn)] and not self._tried(event):
                self._put_off(event)
            else:
                due.append(event)
        return due

    def _put_off(self, event: Event[Any]) -> None:
        """Wait until the group's event before it has succeeded or failed for good."""
        turn = cast(Turn, event.turn)
        self.in_flight -= 1
        self._at_work[turn] -= 1
        self._siblings.may_begin(turn, event)

    async def _attempt(self, part: list[Event[Any]]) -> Exception | None:
        """Call once, and settle what there are results for; else say what went wrong."""
        call: Event[Any] = Event([event.value for event in part], 0.0, _NOBODY)
        try:
            results = await self._calls.attempt(call, self._call)
        except asyncio.CancelledError as error:
            inside = cancelled_inside(self._name, error)
            if self._cancelled:
                self._return(part)
                raise
            if is_being_cancelled(self._run):
                # Obey, lose nothing, and leave no stage behind that nobody works in.
                blame(inside, self._info, part[0])
                self._return(part)
                self._stop(inside)
                self._ask()
                raise
            return inside
        except Exception as error:
            if self._cancelled:
                self._return(part)
                self._run.late_error(error)
            return error
        except BaseException as error:
            blame(error, self._info, part[0])
            if isinstance(error, KeyboardInterrupt | SystemExit):
                self._return(part)
                raise
            self._settle(part[:1], [error])
            self._return(part[1:])
            return None
        self._settle(part, results)
        return None

    async def _call(self, values: list[Any]) -> Sequence[Any]:
        count = len(values)
        results = self._handler(values)
        if isinstance(results, Awaitable):
            results = await cast(Any, results)
        if results is None:
            return [None] * count
        if isinstance(results, str | bytes) or not isinstance(results, Sequence):
            what = "an async iterator" if is_iterator(results) else describe(results, 80)
            raise BatchContractError(
                f"'{self._name}' returned {what} for {count:,} events: return a list of as many "
                "results, or None"
            )
        given: Sequence[Any] = cast(Any, results)
        if len(given) != count:
            raise BatchContractError(
                f"'{self._name}' returned {len(given):,} results for {count:,} events: return one "
                "for each, in their order; an exception in the place of one that failed"
            )
        return given

    # Outcomes.

    def _settle(self, part: list[Event[Any]], results: Sequence[Any]) -> None:
        ended = self._now()
        turns: list[Turn] = []
        for event, result in zip(part, results, strict=True):
            event.ended = ended
            self.in_flight -= 1
            if self._cancelled:
                event.give_back()
            elif isinstance(result, BaseException):
                self._failed(event, result)
            else:
                turn = event.turn
                event.turn = None
                event.value = result
                if self._parking is not None:
                    self._parking.forget(event)
                if turn is not None:
                    turns.append(turn)
                self._results.put(event, event)
        for turn in turns:
            self._turn_over(turn)
        end_turns(turns)

    def _failed(self, event: Event[Any], error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            error = cancelled_inside(self._name, error)
        if isinstance(error, BatchContractError):
            # Every event of the call has one, with notes of its own.
            error = BatchContractError(str(error))
        elif self._tried_again(event, error):
            return
        turn = event.turn
        attempts = 1 if self._parking is None else self._parking.count(event)
        if self._parking is not None:
            self._parking.forget(event)
        if turn is not None:
            self._turn_over(turn)
        if not self._faults.survives(event, error, attempts):
            self._stop(error)

    def _tried_again(self, event: Event[Any], error: BaseException) -> bool:
        """Whether there will be another attempt at this event."""
        parking, turn = self._parking, event.turn
        if parking is None or self._error is not None:
            return False
        attempts = parking.count(event)
        if not parking.allows(error, attempts):
            return False
        if turn is not None:
            if self._retried[turn]:
                # Behind the one before it, which is not done yet.
                self.in_flight += 1
                self._put_off(event)
                return True
            self._retried[turn] += 1
        if self._waiting.park(event, attempts, self._settings.limit, in_slot=False):
            self.in_flight += 1
        return True

    def _again(self, event: Event[Any], in_slot: bool) -> None:
        if in_slot:
            self.in_flight -= 1
        if event.turn is not None:
            self._less(self._retried, event.turn)
        if not self._inbox:
            self._opened = self._now()
        self._waiting.unpark(event, self._settings.limit)
        self._dispatch()
        self._ask()

    def _turn_over(self, turn: Turn) -> None:
        """One event of a turn is settled; with the last, those that waited for it may begin."""
        self._less(self._at_work, turn)
        if not self._at_work[turn]:
            del self._at_work[turn]
            while (following := self._siblings.next(turn)) is not None:
                self._enter(following)

    @staticmethod
    def _less(counts: Counter[Turn], turn: Turn) -> None:
        counts[turn] -= 1
        if not counts[turn]:
            del counts[turn]

    def _return(self, part: list[Event[Any]]) -> None:
        """Give back what is in flight and has not been worked on to its end."""
        self.in_flight -= len(part)
        for event in part:
            event.give_back()

    # The end.

    def _end_work(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super()._end_work()

    def statistics(self) -> dict[str, Any]:
        """The `size` of a full batch now and its reason, `calls` and their events `in_flight`."""
        return {
            "waiting": len(self._waiting),
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak_in_flight,
            "calls": self._calling,
            "size": self._size.size,
            "size_reason": self._size.reason,
            "undelivered": self._results.waiting,
            "retrying": self._waiting.retrying,
            "stuck": self._calls.stuck,
            "skipped": self._faults.skipped,
            "routed": self._faults.routed,
        }
