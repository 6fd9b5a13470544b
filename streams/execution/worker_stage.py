"""The stage that calls a handler: limits, turns, attempts and outcomes.

How the calls are made is left to `penstock.streams.execution.workers` for async handlers and to
`penstock.streams.execution.inline` for plain ones.
"""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.streams.errors import HandlerCancelled
from penstock.streams.execution.call import Calls
from penstock.streams.execution.handler import cancelled_inside, is_being_cancelled, opened_pool
from penstock.streams.execution.limited import Limited
from penstock.streams.execution.results import InOrder, Results
from penstock.streams.execution.settings import Settings
from penstock.streams.execution.waiting import Waiting
from penstock.streams.failures.policy import ErrorPolicy, blame
from penstock.streams.keyed.queues import release
from penstock.streams.limits import Completion, Limiter, Outcome
from penstock.streams.protocol.acknowledgement import Family, Withdrawn
from penstock.streams.protocol.event import Event, Turn
from penstock.streams.protocol.stage import StageInfo, Subscriber, is_second
from penstock.streams.runtime.context import Run

__all__ = ["Working"]


class Working(Limited):
    """Works on events as its limit and their turns allow, and settles each."""

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        settings: Settings,
        limiter: Limiter,
    ) -> None:
        waiting = Waiting(run.policy(settings.on_error), run, settings.window, self._again)
        results = (InOrder if settings.ordered else Results)(downstream, settings.window)
        super().__init__(downstream, run, info, settings, waiting, results)
        self._now = run.now
        self._handler = opened_pool(settings.handler, run)
        self._set_limiter(limiter)
        self._special = self._from_arrival or self._shared is not None
        # What the limiter has not heard of yet, and turns whose results are not on their way.
        self._ends: list[Completion] = []
        self._turns: list[Turn] = []
        self._faults = ErrorPolicy(settings.on_error, run, info)
        self._calls = Calls(
            run, settings.name, settings.timeout, results, self._may_iterate, self._dispatch
        )
        self._siblings = waiting.siblings
        self._parking = waiting.parking
        # A worker is settling an event, and takes the first event that comes itself.
        self._busy = False

    # Demand.

    def on_subscribe(self, subscription: Any, /) -> None:
        if is_second(self, subscription):
            return
        self.upstream = subscription
        if self._shared is not None:
            self._shared.join(self)
        self.downstream.on_subscribe(self)
        self._ask()

    def request(self, n: int, /) -> None:
        if self._cancelled:
            return
        self._results.request(n)
        self._calls.look_for_room()
        self._ask()

    def _ask(self) -> None:
        shared = self._shared
        if shared is not None:
            shared.settle(self)
        if self._closing or self._cancelled:
            self._end_if_idle()
            return
        room = self.slots - self._open
        if shared is not None:
            # One too many, who tells that there is work.
            room += max(1, shared.free)
        spare = self._settings.window - self._results.waiting
        if spare < 0:
            room += spare
        if room > 0 and self._waiting.has_room(self._limit):
            self._open += room
            self.upstream.request(room)

    # Events.

    def on_events(self, events: list[Event[Any]], /) -> None:
        may_begin = False
        for event in events:
            if self._closing or self._cancelled:
                event.give_back()
            else:
                may_begin |= self._admit(event)
        self._arrived(may_begin=may_begin)

    def _arrived(self, *, may_begin: bool) -> None:
        """Events have been let in, of which some may begin."""
        if may_begin and not (self._busy and len(self._inbox) == 1 and self._shared is None):
            self._dispatch()
        if self._from_arrival or self._shared is not None:
            # The arrival may have raised the limit, or taken a slot.
            self._ask()

    def _admit(self, event: Event[Any]) -> bool:
        """Let an event in; whether it may begin."""
        if self._from_arrival:
            self._control.arrived()
            if self._closing:
                # The limiter has raised.
                event.give_back()
                return False
            self._follow_limiter()
        turn = event.turn
        if turn is not None and turn.holders > 1:
            self._special = True
            if not self._siblings.may_begin(turn, event):
                self._open -= 1
                self._ask()
                return False
        return self._waiting.put(event, self._limit)

    def _may_begin(self) -> bool:
        """Whether the next event of the inbox may begin."""
        inbox = self._inbox
        if self._hold_timer is not None:
            return False
        return bool(inbox) and (self.in_flight < self.slots or self._only_head_helps())

    def _only_head_helps(self) -> bool:
        """Whether all calls wait for the head of the order, which is to be tried again.

        It then begins beyond the limit, for nobody else is at work.
        """
        head = self._results.head
        if head is None or self._calls.suspended < self.in_flight or head not in self._inbox:
            return False
        self._inbox.remove(head)
        self._inbox.appendleft(head)
        return True

    # Outcomes.

    def _succeeded(self, event: Event[Any], result: Any, started: float, in_flight: int) -> None:
        event.ended = ended = self._now()
        self._flush()
        self._call_ended()
        if self._learns:
            among = self._among + 1
            self._control.ended(event, ended, started, in_flight, among, Outcome.SUCCESS)
            self._follow_limiter()
        if self._parking is not None:
            self._parking.forget(event)
        turn = event.turn
        event.turn = None
        if self._cancelled:
            event.give_back()
            self._leave()
        elif type(result) is Family:
            self._end_call(event)
            result.close()
        else:
            event.value = result
            self._results.put(event, event)
            self._end_call(event)
        if turn is not None:
            turn.end()
            self._turn_over(turn)
        self._ask()

    def _flush(self) -> None:
        """Let go what has ended: the limiter hears of it, results go on, and then turns end."""
        if self._ends:
            ends, self._ends = self._ends, []
            if self._learns:
                self._control.completed(ends)
                self._follow_limiter()
        self._results.deliver()
        if self._turns:
            turns, self._turns = self._turns, []
            release(turns)

    def _end_call(self, event: Event[Any]) -> None:
        self._results.end(event)
        # With order, the next call's results may go now.
        self._calls.look_for_room()

    def _turn_over(self, turn: Turn) -> None:
        if self._siblings and (following := self._siblings.next(turn)) is not None:
            self._open += 1
            self._inbox.append(following)
            self._dispatch()

    def _failed(
        self, event: Event[Any], error: BaseException, started: float, in_flight: int
    ) -> None:
        event.ended = ended = self._now()
        self._flush()
        self._call_ended()
        if self._cancelled:
            event.give_back()
            self._leave()
            if not isinstance(error, Exception):
                raise error
            self._run.late_error(error)
            return
        if isinstance(error, KeyboardInterrupt | SystemExit):
            self._busy = False
            blame(error, self._info, event)
            event.give_back()
            raise error
        if isinstance(error, asyncio.CancelledError):
            error = self._cancelled_inside(event, error)
        if isinstance(error, Withdrawn):
            self._withdrawn(event)
            return
        outcome, seconds = self._control.outcome(error)
        if seconds:
            self._hold_back(seconds)
        if self._learns:
            among = self._among + 1
            self._control.ended(event, ended, started, in_flight, among, outcome)
        # First, because the event may keep its slot.
        again = self._tried_again(event, error)
        if self._learns:
            self._follow_limiter()
        if not again:
            turn = event.turn
            attempts = 1 if self._parking is None else self._parking.count(event)
            self._end_call(event)
            if not self._faults.survives(event, error, attempts):
                self._stop(error)
            if self._parking is not None:
                self._parking.forget(event)
            if turn is not None:
                self._turn_over(turn)
        self._dispatch()
        self._ask()

    def _withdrawn(self, event: Event[Any]) -> None:
        """An event was to begin, and its source has lost it: nothing was learnt of the handler."""
        turn = event.turn
        self._end_call(event)
        event.give_back()
        if self._parking is not None:
            self._parking.forget(event)
        if turn is not None:
            self._turn_over(turn)
        self._dispatch()
        self._ask()

    def _cancelled_inside(
        self, event: Event[Any], error: asyncio.CancelledError
    ) -> HandlerCancelled:
        inside = cancelled_inside(f"'{self._settings.name}'", error)
        if is_being_cancelled(self._run):
            # Obey, lose nothing, and leave no stage behind that nobody works in.
            self._busy = False
            blame(inside, self._info, event)
            event.give_back()
            self._stop(inside)
            self._ask()
            raise error
        return inside

    def _tried_again(self, event: Event[Any], error: BaseException) -> bool:
        """Whether there will be another attempt at this event, here or where it came from."""
        parking = self._parking
        if parking is None:
            return False
        attempts = parking.count(event)
        if not parking.allows(error, attempts):
            return False
        if self._is_kept_for_later(event, error):
            self._end_call(event)
            event.give_back()
            return True
        self._special = True
        if self._waiting.park(event, attempts, self._limit):
            self.in_flight += 1
            self._open += 1
            if self._shared is not None:
                self.slots += 1
        return True

    def _again(self, event: Event[Any], in_slot: bool) -> None:
        if in_slot:
            self.in_flight -= 1
        else:
            self._open += 1
        self._waiting.unpark(event, self._limit)
        self._dispatch()
        self._ask()

    def statistics(self) -> dict[str, Any]:
        """Calls `in_flight` (of them `stuck` past their timeout), the `limit` and its reason.

        `held_back` is for how many seconds more no call begins because `overload=` said so.
        `shared` is None, or what all stages under the same limit have in flight together.
        """
        return {
            "waiting": len(self._waiting),
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak_in_flight,
            "limit": self._limit,
            "limit_reason": "holding back" if self.held_back else self._control.reason,
            "held_back": self.held_back,
            "shared": None if self._shared is None else self._shared.statistics(),
            "undelivered": self._results.waiting,
            "retrying": self._waiting.retrying,
            "stuck": self._calls.stuck,
            **self._faults.statistics(),
        }
