"""The stage that calls a handler with several events at a time: calls, halves and outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.streams.errors import BatchContractError, cancelled_inside
from penstock.streams.execution.batch_settings import BatchSettings, by_contract
from penstock.streams.execution.batch_window import Gathering
from penstock.streams.execution.call import Calls
from penstock.streams.execution.handler import is_being_cancelled, opened_pool
from penstock.streams.failures.policy import ErrorPolicy
from penstock.streams.keyed.queues import release
from penstock.streams.limits import Outcome
from penstock.streams.protocol.acknowledgement import Nobody, may_begin
from penstock.streams.protocol.blame import blame
from penstock.streams.protocol.event import Event, Turn
from penstock.streams.protocol.stage import StageInfo, Subscriber
from penstock.streams.runtime.context import Run

__all__ = ["Batching"]

_NOBODY = Nobody()


def _no_iterators() -> None:
    """A call that gives an iterator fails before it could go on."""


class Batching(Gathering):
    """Calls with a batch, and with halves of it for as long as there are any that fail."""

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, settings: BatchSettings
    ) -> None:
        super().__init__(downstream, run, info, settings)
        self._handler = by_contract(opened_pool(settings.handler, run), settings.name)
        self._faults = ErrorPolicy(settings.on_error, run, info)
        self._calls = Calls(
            run, settings.name, settings.timeout, self._results, _no_iterators, self._go_on
        )

    # Calls.

    async def _work_on(self, batch: list[Event[Any]], free: float) -> None:
        size, opened, started = self._size.size, self._opened, self._now()
        # What was left, for a size that has become smaller, is the next batch from now on.
        self._opened = started
        self._calling += 1
        self.in_flight += len(batch)
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        for event in batch:
            event.started = started
        self._watch.begin()
        # As soon as the call has begun: the next batch is made while this one is worked on.
        self._run.call_soon(self._info, self._go_on)
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
            # With what each call costs this stage and the loop, which small ones pay as well.
            self._size.on_complete(ended - free, len(batch), size, ended - opened, outcome)
        self._go_on()

    def _still_due(self, part: list[Event[Any]]) -> list[Event[Any]]:
        """What of it may begin: nothing after an error, nothing that its source has lost, none
        whose group tries another again."""
        if self._error is not None or self._cancelled:
            self._return(part)
            return []
        due: list[Event[Any]] = []
        lessors = self._run.lessors
        for event in part:
            if lessors and not may_begin(event, lessors):
                self._withdrawn(event)
            elif self._turns.waits_for_another(event):
                self._put_off(event)
            else:
                due.append(event)
        return due

    def _withdrawn(self, event: Event[Any]) -> None:
        self.in_flight -= 1
        if self._parking is not None:
            self._parking.forget(event)
        self._turns.settle(event)
        turn = event.turn
        event.give_back()
        self._turn_over(turn)

    def _put_off(self, event: Event[Any]) -> None:
        """Wait until the group's event before it has succeeded or failed for good."""
        self.in_flight -= 1
        self._turns.put_off(event)

    async def _attempt(self, part: list[Event[Any]]) -> Exception | None:
        """Call once, and settle what there are results for; else say what went wrong."""
        call: Event[Any] = Event([event.value for event in part], 0.0, _NOBODY)
        try:
            results = await self._calls.attempt(call, self._handler)
        except asyncio.CancelledError as error:
            inside = cancelled_inside(f"'{self._name}'", error)
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

    # Outcomes.

    def _settle(self, part: list[Event[Any]], results: Sequence[Any]) -> None:
        ended = self._now()
        self._settling = True
        done: list[Event[Any]] = []
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
                if turn is not None:
                    self._turns.settle(event)
                    event.turn = None
                    turns.append(turn)
                event.value = result
                if self._parking is not None:
                    self._parking.forget(event)
                done.append(event)
        self._results.put_all(done)
        for turn in turns:
            self._turn_over(turn)
        release(turns)
        self._settling = False
        self._ask()

    def _failed(self, event: Event[Any], error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            error = cancelled_inside(f"'{self._name}'", error)
        if isinstance(error, BatchContractError):
            # Every event of the call has one, with notes of its own.
            error = BatchContractError(str(error))
        elif self._tried_again(event, error):
            return
        attempts = 1
        if self._parking is not None:
            attempts = self._parking.count(event)
            self._parking.forget(event)
        self._turns.settle(event)
        self._turn_over(event.turn)
        if not self._faults.survives(event, error, attempts):
            self._stop(error)

    def _tried_again(self, event: Event[Any], error: BaseException) -> bool:
        """Whether there will be another attempt at this event, here or where it came from."""
        parking = self._parking
        if parking is None:
            return False
        attempts = parking.count(event)
        if not parking.allows(error, attempts):
            return False
        if self._is_kept_for_later(event, error):
            event.give_back()
            return True
        if self._turns.waits_for_another(event):
            # Behind the one before it, which is not done yet.
            self._turns.put_off(event)
            return True
        self._turns.park(event)
        if self._waiting.park(event, attempts, self._settings.limit):
            self.in_flight += 1
        return True

    def _turn_over(self, turn: Turn | None) -> None:
        for following in self._turns.end(turn):
            self._enter(following)

    def _return(self, part: list[Event[Any]]) -> None:
        """Give back what is in flight and has not been worked on to its end."""
        self.in_flight -= len(part)
        for event in part:
            event.give_back()

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
            **self._faults.statistics(),
        }
