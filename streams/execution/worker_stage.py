"""The worker stage: calls a handler for each event, as its limit and the events' turns allow.

An async handler is called by slots. Calls that have ended are flushed together: the limiter
receives their completions, results are sent on, turns end, and more events are requested.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from penstock.streams.base.take_front import taken
from penstock.streams.execution.calling_stage import CallingStage
from penstock.streams.execution.gate import Gate, SharedGate
from penstock.streams.execution.iterators import Iterators
from penstock.streams.execution.options import CallOptions
from penstock.streams.limits import Limiter, Shared
from penstock.streams.protocol.event import BaseEvent, Count, Event, give_back_all
from penstock.streams.protocol.stage import CLOSED, FAILED, Subscriber, Subscription
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.slot import Slot
from penstock.streams.runtime.timer import Timer

__all__ = ["WorkerStage"]


class WorkerStage(CallingStage):
    """Keeps as many calls in flight as its limit, or its `slots` of a shared limit, allows.

    `admitted` counts the events that are requested, waiting to begin, or in flight.
    """

    __slots__ = (
        "_gate",
        "_hold_timer",
        "_iterators",
        "_options",
        "admitted",
        "allowed",
        "is_concurrent",
    )

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        options: CallOptions,
        limiter: Limiter,
    ) -> None:
        super().__init__(downstream, run, info, options)
        self._options = options
        # Whether calls may be in flight together.
        self.is_concurrent = not options.is_plain
        self.admitted: int = 0
        self.allowed: int = 0
        self._hold_timer = Timer(run, info, self._drain)
        self._gate = self._gate_of(limiter)
        self._acts_after_drain = self._gate.is_shared
        self._iterators = Iterators(
            self._results, self._watched, self._check, self._checked, self._drain, self
        )
        self._kept = self._iterators.kept
        run.withdrawals.append(partial(self.within, self._withdraw))

    def _gate_of(self, limiter: Limiter) -> Gate:
        more = self._options, self._waiting, self._broke, self._limit_assigned
        if isinstance(limiter, Shared):
            return SharedGate(self, limiter, *more)
        return Gate(self, limiter, *more)

    def retune(self, limiter: Limiter) -> None:
        """Follow another limiter from the next event on; nothing is cancelled."""
        if self.state >= CLOSED:
            return
        self._recall()
        gate, old = self._gate_of(limiter), self._gate
        gate.open(old)
        self._gate = gate
        self._acts_after_drain = gate.is_shared
        for event in self._due:
            event.level = gate.concurrency
        gate.retuned(old.limit)
        # An error of what begins now is one of the run, not of the caller.
        self.begin()

    def follow_limiter(self) -> None:
        """Begin no call under a limit that is not the limiter's any more."""
        if self._gate.follow():
            # Nothing more begins under the old limit.
            self._recall()
            self._gate.moved()

    def _limit_assigned(self) -> None:
        if self.state < CLOSED:
            self.follow_limiter()
            # As in `retune`.
            self.begin()

    # Demand and events.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._gate.open()
        super().on_subscribe(subscription)

    def request(self, n: Count, /) -> None:
        if self.state >= CLOSED:
            return
        self._results.request(n)
        if self._iterators.suspended:
            self._iterators.resume()
        if self._draining:
            # As most often: the stage below asks in the call that sends it results.
            self._noted = True
        else:
            self._drain()

    def on_events(self, events: list[Event[Any]], /) -> None:
        are_admitted = not self.state and not self._gate.from_arrival
        event: BaseEvent
        for event in events if are_admitted else ():
            turn = event.turn
            if turn is not None and turn.holders > 1:
                are_admitted = False
                break
        if not are_admitted:
            events = [event for event in events if self._is_admitted(event)]
        if self._retries is None:
            self._inbox.extend(events)
        else:
            self._waiting.put(events, self._gate.limit)
        if self._draining:
            # As most often: they come in the call that requests them.
            self._noted = True
        else:
            self._drain()

    def _is_admitted(self, event: Event[Any]) -> bool:
        """Whether an event may wait for its call."""
        if self._gate.from_arrival and not self.state:
            self._gate.arrived()
            self.follow_limiter()
        if self.state:
            event.give_back()
            return False
        turn = event.turn
        if turn is None or turn.holders < 2 or self._siblings.enter(turn, event):
            return True
        self.admitted -= 1
        return False

    def _proceed(self) -> None:
        while self._ended:
            self._flush()
        self._noted = False
        if not self.state:
            self._request_more()
        # New events begin below; a request depends on them only if they change the limit.
        self._noted = self._noted and (self._gate.from_arrival or self._gate.is_shared)
        if self._inbox and not self._hold_timer.is_set and self.state < FAILED:
            self._begin()
        self._gate.just_ended = 0
        if self._due:
            self.begin_soon()

    def _request_more(self) -> None:
        gate, results = self._gate, self._results
        room = self.allowed - self.admitted
        if gate.is_shared:
            room += gate.spare
        # Siblings that wait are not counted as admitted, and will have results, too.
        # `results.room`, without a call for each event.
        spare = results.window - len(results.ready) - results.out_of_order - self._siblings.waiting
        if spare < 0:
            room += spare
        if room > 0 and self._waiting.has_room(gate.limit):
            self.admitted += room
            self.upstream.request(room)

    # Beginnings.

    def _room_to_begin(self) -> int:
        """How many events of the inbox may begin now: they have a slot and room for a result.

        Where all calls wait for the head of the order, which is to be tried again, it needs no
        slot, because nothing else makes progress.
        """
        in_flight = self.in_flight
        n = len(self._inbox) if self._retries is None else self._with_room()
        free = self.allowed - in_flight
        if free < n:
            n = free
        if n > 0:
            return n
        if not in_flight or self._iterators.suspended < in_flight:
            return 0
        n = int(self._waiting.bring(self._results.head))
        self._gate.grant(n)
        return n

    def _with_room(self) -> int:
        """How many events of the inbox have room for a result; the head of the order always has.

        All have where nothing is tried again: no more events are requested than have room.
        """
        if self._retries is None:
            return len(self._inbox)
        room = self._gate.limit + self._results.room - self.in_flight
        n = min(len(self._inbox), room)
        return n if n > 0 else int(self._waiting.bring(self._results.head))

    def _begin(self) -> None:
        """Assign events of the inbox to slots."""
        n = self._room_to_begin()
        if n <= 0:
            return
        if not self._watch.is_on:
            self._watch.begin()
        begun = taken(self._inbox, n)
        self._due.extend(begun)
        if self._is_ordered:
            self._results.begin(begun)
        self._gate.take(begun)

    def _withdrawn(self, is_gone: Callable[[Event[Any]], bool]) -> list[Event[Any]]:
        self._recall()
        events = super()._withdrawn(is_gone)
        self.admitted -= len(events)
        return events

    # Calls in slots.

    def _read(self, event: Event[Any], slot: Slot, results: Any) -> Awaitable[Any]:
        self._gate.check_below()
        return self._iterators.read(event, slot, results)

    @property
    def _most_slots(self) -> int:
        return max(self.allowed, self.in_flight)

    def _send_kept(self) -> None:
        self._iterators.send_kept()

    # Outcomes.

    def _over(self, events: list[Event[Any]], error: BaseException | None = None) -> None:
        self._gate.report(events, error)
        if self._iterators.suspended:
            self._iterators.resume()

    def _return(self, events: list[Event[Any]]) -> None:
        self._gate.ended(len(events))
        give_back_all(events)
        if self.state >= CLOSED:
            self._gate.leave()

    def _enter(self, event: Event[Any]) -> None:
        self.admitted += 1
        self._inbox.append(event)

    def _try_again(self, event: Event[Any], asked: float) -> None:
        self._iterators.again(event)
        self._waiting.put_retry(event, asked, self._gate.limit)

    def _again(self, event: Event[Any]) -> None:
        self.admitted += 1
        self._waiting.retry(event, self._gate.limit)
        self._drain()

    # Holding back.

    @property
    def held_back(self) -> float:
        """Seconds for which no call begins."""
        return self._hold_timer.left

    def hold_back(self, seconds: float) -> None:
        """Begin no call for so long; nothing if it holds back for longer already."""
        if self.state >= FAILED or seconds <= self.held_back:
            return
        self._recall()
        self._hold_timer.set(seconds)

    # Its gate.

    def _after_drain(self) -> None:
        # Stages get slots one at a time, and use each before the next one is given.
        self._gate.settle()

    @property
    def runnable(self) -> int:
        """Events that would begin now if there were slots."""
        return self._with_room()

    def begin(self) -> None:
        """Use new slots. An error ends this run, not that of the stage which has freed them."""
        self.run.call(self.info, self._drain)

    # The end.

    def give_back_unstarted(self) -> None:
        super().give_back_unstarted()
        self._gate.settle()

    def release(self) -> None:
        super().release()
        self._hold_timer.cancel()
        self._gate.leave()

    def statistics(self) -> dict[str, Any]:
        """Those of every calling stage, and the `limit` and its reason.

        `held_back` is for how many seconds more no call begins because of `overload=`. `shared` is
        None, or the numbers of the limit that is shared.
        """
        numbers, held_back = super().statistics(), self._hold_timer.left
        # A dict made of another takes longer than additions to it.
        numbers["limit"] = self._gate.limit
        numbers["limit_reason"] = "holding back" if held_back else self._gate.reason
        numbers["held_back"] = held_back
        numbers["shared"] = self._gate.statistics()
        return numbers
