"""The worker stage: calls a handler for each event, as its limit and the events' turns allow.

An async handler is called by slots, a plain one in the loop of `on_events`, within a slice of time;
a plain call whose result is to be awaited goes on in a slot. What has ended is flushed together:
the limiter hears of it, results go on, turns end, more is asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import repeat
from typing import Any

from penstock.streams.diagnostics.loop_lag import BLOCKED
from penstock.streams.errors import BuildError
from penstock.streams.execution.calling_stage import PAUSE, CallingStage
from penstock.streams.execution.handler import (
    check_result,
    is_async,
    is_coroutine_function,
    not_awaited,
    opened_pool,
)
from penstock.streams.execution.iterators import Iterators, is_iterator
from penstock.streams.execution.limit_control import LimitControl
from penstock.streams.execution.results import InOrder, Results
from penstock.streams.execution.settings import Settings
from penstock.streams.execution.timeouts import Timeouts
from penstock.streams.execution.waiting import Waiting
from penstock.streams.keyed.queues import release
from penstock.streams.keyed.taken import taken
from penstock.streams.limits import Completion, Fixed, Limiter, Outcome, Shared
from penstock.streams.protocol.acknowledgement import Family, Withdrawn, may_begin
from penstock.streams.protocol.blame import blame
from penstock.streams.protocol.event import Event, Turn, give_back_all
from penstock.streams.protocol.stage import StageInfo, State, Subscriber, is_second
from penstock.streams.protocol.time_slice import TimeSlice, fitting
from penstock.streams.runtime.context import Run

__all__ = ["WorkerStage"]

# Results of plain calls wait at most about this long (seconds) for others of their list.
_FLUSH_AFTER = 0.001


class WorkerStage(CallingStage):
    """As many calls as its limit, or the `slots` that it was dealt of a shared one, are in flight.

    `_open` counts the events that are asked for, waiting to begin, or in flight. A plain handler
    has one call in flight at a time: it asks for as many events as take about a slice of time, and
    for no more than there is demand for.
    """

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
        handler, name = settings.handler, settings.name
        super().__init__(downstream, run, info, handler, name, settings.on_error, waiting, results)
        self._settings = settings
        self._handler = opened_pool(handler, run)
        self._timeouts = None
        if settings.timeout is not None:
            self._timeouts = Timeouts(run, settings.timeout, name)
        self._iterators = Iterators(run, results, self._timeouts, self._check, self._drain)
        self._siblings = waiting.siblings
        # Whether a call is made in a slot, and makes a coroutine.
        self._in_slots = is_async(handler)
        self._is_awaited = is_coroutine_function(handler)
        # Whether calls may be in flight together; a plain call may turn out to be only a beginning.
        self._is_concurrent = self._in_slots or isinstance(limiter, Shared)
        self._open: int = 0
        self.slots: int = 0
        self._hold_timer: asyncio.TimerHandle | None = None
        self._set_limiter(limiter)
        # Begun for a slot, and what plain calls among them returned.
        self._due: deque[Event[Any]] = deque()
        self._begun: dict[Event[Any], Any] = {}
        # Ended and not flushed; what the limiter has to hear of it; calls with several results.
        self._ended: list[Event[Any]] = []
        self._completions: list[Completion] = []
        self._families: dict[Event[Any], Family] = {}
        self._flush_is_due = self._wake_is_due = self._slot_drains = False
        # How many were in flight, with itself, when each of those that are due began; a flush has
        # just lowered that by so many.
        self._levels: deque[int] = deque()
        self._flushed = 0
        # Types of results that need no look.
        self._checked: set[type] = set()
        self._slice = TimeSlice(run, self._drain)
        self._stride, self._stride_began = 0, 0.0

    def _set_limiter(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._shared = limiter if isinstance(limiter, Shared) else None
        self._settles = self._shared is not None
        if self._shared is not None:
            limiter = self._shared.limiter
        self._control = LimitControl(limiter, self._settings, self._broke)
        self._limit = self._control.limit
        self.slots = self._limit if self._shared is None else self.in_flight
        # A fixed limit learns nothing, and nothing is learnt from calls one after the other.
        self._learns = self._is_concurrent and not isinstance(limiter, Fixed)
        self._from_arrival = self._learns and self._control.from_arrival

    def _broke(self, error: Exception, what: str) -> None:
        """Something of the user's beside the handler raised: no event is to blame."""
        self._learns = self._from_arrival = False
        error.add_note(f"in the {what} of {self._info}")
        self._stop(error)

    def retune(self, limiter: Limiter) -> None:
        """Work by another limiter from the next event on; nothing is cancelled."""
        if self.state >= State.CLOSED:
            return
        self._recall()
        old, shared = self._limit, self._shared
        self._is_concurrent = self._is_concurrent or isinstance(limiter, Shared)
        if isinstance(limiter, Shared) and limiter is not shared:
            limiter.join(self)
        self._set_limiter(limiter)
        if shared is not None and shared is not self._shared:
            shared.leave(self)
        self._control.reason = "retuned"
        self._control.tell(old, "retuned")
        self._drain()

    def _follow_limiter(self) -> None:
        if self._control.follow():
            self._limit = self._control.limit
            # Nothing begins under the old limit any more.
            self._recall()
            if self._shared is None:
                self.slots = self._limit
            else:
                self._shared.moved(self._limit)

    # Demand and events.

    def on_subscribe(self, subscription: Any, /) -> None:
        if is_second(self, subscription):
            return
        self.upstream = subscription
        if self._shared is not None:
            self._shared.join(self)
        self.downstream.on_subscribe(self)
        self._drain()

    def request(self, n: int, /) -> None:
        if self.state >= State.CLOSED:
            return
        self._results.request(n)
        if self._iterators.suspended:
            self._iterators.look_for_room()
        self._drain()

    def on_events(self, events: list[Event[Any]], /) -> None:
        if self.state or self._from_arrival or _any_shares(events):
            events = [event for event in events if self._is_admitted(event)]
        self._waiting.put(events, self._limit)
        self._drain()

    def _is_admitted(self, event: Event[Any]) -> bool:
        """Whether an event may wait for its call."""
        if self._from_arrival and not self.state:
            self._control.arrived()
            self._follow_limiter()
        if self.state:
            event.give_back()
            return False
        turn = event.turn
        if turn is None or turn.holders < 2 or self._siblings.may_begin(turn, event):
            return True
        self._open -= 1
        return False

    def _proceed(self) -> None:
        if self._ended:
            self._flush()
        self._noted = False
        if not self.state:
            self._ask()
        # What came begins below; more may be asked for only where it has changed the limit.
        self._noted = self._noted and (self._from_arrival or self._shared is not None)
        if self._inbox and self._hold_timer is None and self.state < State.FAILED:
            if self._in_slots:
                self._begin()
            else:
                self._call_plain()
        self._flushed = 0
        if len(self._due) > self._looking:
            self._wake_slots()

    def _ask(self) -> None:
        shared = self._shared
        if self._is_concurrent:
            room = self.slots - self._open
            if shared is not None:
                # One too many, so that it is known whether there is work.
                room += max(1, shared.free)
            spare = self._settings.window - self._results.waiting
            if spare < 0:
                room += spare
        elif self._open or self._results.ready or self._hold_timer is not None:
            return
        else:
            now = self._now()
            if self._slice.is_over(now):
                return
            self._stride = fitting(self._stride, now - self._stride_began) if self._stride else 1
            self._stride_began = now
            room = min(self._stride, self._results.demand)
        if room > 0 and self._waiting.has_room(self._limit):
            self._open += room
            self.upstream.request(room)

    # Beginnings.

    def _may_begin(self) -> int:
        """How many events of the inbox may begin; none may if it is below 1."""
        n = min(len(self._inbox), self.slots - self.in_flight)
        return n if n > 0 else int(self._only_head_helps())

    def _only_head_helps(self) -> bool:
        """Whether all calls wait for the head of the order, which is to be tried again.

        It then begins beyond the limit, for nobody else is at work.
        """
        head, in_flight = self._results.head, self.in_flight
        if head is None or not in_flight or self._iterators.suspended < in_flight:
            return False
        if head not in self._inbox:
            return False
        self._inbox.remove(head)
        self._inbox.appendleft(head)
        if self._shared is not None:
            self.slots += 1
        return True

    def _begin(self) -> None:
        """Let as many events of the inbox begin in slots as may."""
        n = self._may_begin()
        if n <= 0:
            return
        if not self._watch.is_on:
            self._watch.begin()
        begun = taken(self._inbox, n)
        self._due.extend(begun)
        self._results.begin(begun)
        self._levels.extend(self._levels_of(n) if self._learns else repeat(0, n))
        self.in_flight += n
        if self.in_flight > self.peak_in_flight:
            self.peak_in_flight = self.in_flight

    def _levels_of(self, n: int) -> list[int]:
        """How many are in flight as each of the next `n` begins.

        What takes the place of one that has just ended began when that did: it does not matter how
        many of these were flushed together.
        """
        among = self._among
        flushed = self._flushed if self._shared is None else self._shared.replaced(n)
        same = min(flushed, n)
        return [among + flushed] * same + list(range(among + flushed + 1, among + n + 1))

    def _wake_slots(self) -> None:
        """See to it that what is due is taken."""
        if not self._slot_drains:
            self._wake(len(self._due), max(self.slots, self.in_flight))
        elif not self._wake_is_due:
            # The slot that brought this takes what it can; calls that do not wait need no other.
            self._wake_is_due = True
            self._run.call_soon(self._info, self._wake_others)

    def _wake_others(self) -> None:
        self._wake_is_due = False
        self._wake_slots()

    def _recall(self) -> None:
        """What is due and has not begun waits again."""
        if not self._due:
            return
        due = [event for event in self._due if event not in self._begun]
        self._inbox.extendleft(reversed(due))
        self.in_flight -= len(due)
        begun = [event for event in self._due if event in self._begun]
        self._due.clear()
        self._due.extend(begun)
        for _ in due:
            self._levels.pop()

    def _take_unstarted(self) -> list[Event[Any]]:
        self._recall()
        if self.state is State.CANCELLED:
            for call in self._begun.values():
                not_awaited(call)
            self._begun.clear()
            self.in_flight -= len(self._due)
            self._inbox.extendleft(reversed(self._due))
            self._due.clear()
            self._levels.clear()
            self._inbox.extend(self._ended)
            self.in_flight -= len(self._ended)
            self._ended.clear()
        return super()._take_unstarted()

    # Calls in slots.

    async def _work(self) -> None:
        handler, now, slice_, timeouts = self._handler, self._now, self._slice, self._timeouts
        checked, lessors, is_awaited = self._checked, self._run.lessors, self._is_awaited
        due, levels, unflushed = self._due, self._levels, self._ended
        append = unflushed.append
        self._looking -= 1
        while True:
            while due:
                event = due.popleft()
                level = levels.popleft()
                event.started = started = now()
                try:
                    if started >= slice_.end and slice_.is_over(started):
                        started = await self._give_way(event)
                    if lessors and not may_begin(event, lessors):
                        raise Withdrawn
                    if timeouts is not None:
                        timeouts.begin(event, started)
                    if is_awaited:
                        result = await handler(event.value)
                    else:
                        result = await self._called(event)
                    if type(result) not in checked:
                        if is_iterator(result):
                            result = await self._read(event, result)
                            self._families[event] = result
                        else:
                            self._check(result)
                    if timeouts is not None:
                        timeouts.end(event)
                except BaseException as error:
                    if timeouts is not None:
                        error = timeouts.error(event, error)
                    self._looking += 1
                    try:
                        self._failed(event, error, level)
                    finally:
                        self._looking -= 1
                    continue
                event.ended = ended = now()
                event.value = result
                if self.state and self.state >= State.CLOSED:
                    self._return(event)
                    return
                append(event)
                if self._learns:
                    self._completions.append((ended, started, level, Outcome.SUCCESS))
                if len(unflushed) == self.in_flight:
                    # Nobody else is in a call.
                    self._slot_drains = True
                    self._looking += 1
                    try:
                        self._drain()
                    finally:
                        self._looking -= 1
                        self._slot_drains = False
                elif not self._flush_is_due:
                    self._flush_is_due = True
                    self._run.call_soon(self._info, self._flush_now)
            if self.state and self.state >= State.CLOSED:
                return
            if unflushed:
                # The flush that is due may bring this slot its next event.
                self._looking += 1
                try:
                    await PAUSE
                finally:
                    self._looking -= 1
            if not due:
                await self._sleep()

    def _flush_now(self) -> None:
        self._flush_is_due = False
        if self._ended:
            self._drain()

    async def _called(self, event: Event[Any]) -> Any:
        """The result of a call that need not make a coroutine, or has been made before."""
        begun = self._begun
        call = begun.pop(event) if event in begun else self._handler(event.value)
        return call if is_iterator(call) else await call

    async def _give_way(self, event: Event[Any]) -> float:
        """Let the loop run, which handlers that never wait would not; then begin."""
        while True:
            await asyncio.sleep(0)
            event.started = started = self._now()
            # It may be over again: others went on before.
            if not self._slice.is_over(started):
                return started

    def _check(self, result: object) -> None:
        """Look at a result of a type that was not seen before. Raises UnfinishedResult."""
        kind = type(result)
        if kind not in self._checked and check_result(result, self._name):
            self._checked.add(kind)

    # Plain calls.

    def _call_plain(self) -> None:
        """Call for as many events as may begin within the slice of time, one after the other."""
        now, handler, checked = self._now, self._handler, self._checked
        lessors = self._run.lessors
        n = self._may_begin() if self._is_concurrent else len(self._inbox)
        ended = now()
        if n <= 0 or self._slice.is_over(ended):
            return
        flush_at = ended + _FLUSH_AFTER
        events = taken(self._inbox, n)
        self.in_flight += 1
        level = self._among if self._learns else 0
        done, is_later = 0, False
        result: Any = None
        error: BaseException | None = None
        for event in events:
            # The end of one call is the start of the next.
            event.started = ended
            try:
                if lessors and not may_begin(event, lessors):
                    raise Withdrawn
                result = handler(event.value)
                if type(result) not in checked:
                    is_later = _is_beginning(result)
                    if is_later:
                        break
                    self._check(result)
            except BaseException as raised:
                error = raised
                break
            event.ended = ended = now()
            event.value = result
            done += 1
            if ended >= flush_at or self.state > State.COMPLETING:
                self._look_at(event)
                break
        begun = done + (is_later or error is not None)
        rest = events[begun:]
        ended_events = events[:done] if rest or begun > done else events
        self._noted = True
        self._results.begin(events[:begun] if rest else events)
        self.in_flight += begun - 1
        if self.state >= State.CLOSED:
            # Cancelled from inside of a call: nobody wants what has ended.
            self._call_ended(done)
            give_back_all([*ended_events, *rest])
        else:
            self._inbox.extendleft(reversed(rest))
            self._ended.extend(ended_events)
            if self._learns:
                self._completions = [
                    (other.ended, other.started or 0.0, level, Outcome.SUCCESS)
                    for other in ended_events
                ]
            if rest and self.state is State.FAILED:
                self._give_back_unstarted()
        if error is not None:
            self._failed(events[done], error, level)
        elif is_later:
            self._begin_later(events[done], result)

    def _look_at(self, event: Event[Any]) -> None:
        """Warn of a call that has blocked the loop."""
        assert event.started is not None
        seconds = event.ended - event.started
        if seconds > BLOCKED and self._run.has_loop:
            self._run.blocks.called(self._who, seconds, is_own=self._is_own)

    def _begin_later(self, event: Event[Any], call: Any) -> None:
        """The handler returned an awaitable or an iterator: its work has only begun."""
        if self.state >= State.CLOSED:
            not_awaited(call)
            self._return(event)
            return
        if not self._is_concurrent:
            # From now on as if the handler had been declared so.
            self._is_concurrent = True
            self._set_limiter(self._limiter)
        self._levels.append(self._among)
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        self._watch.begin()
        self._begun[event] = call
        self._due.append(event)

    # Outcomes.

    def _call_ended(self, n: int) -> None:
        self.in_flight -= n
        self._open -= n
        if self._shared is not None:
            self.slots -= n
            self._shared.flushed += n

    def _return(self, event: Event[Any]) -> None:
        """Give back an event whose call has ended, and nobody wants the result."""
        self._call_ended(1)
        event.give_back()
        self._leave()

    def _flush(self) -> None:
        """Let go what has ended: the limiter hears of it, results go on, and then turns end."""
        ended = self._ended[:]
        self._ended.clear()
        if self._completions:
            completions, self._completions = self._completions, []
            among = self._among
            self._call_ended(len(ended))
            self._flushed = len(ended)
            if self._from_arrival:
                completions = [
                    (event.ended, event.created, among, Outcome.SUCCESS) for event in ended
                ]
            if self._learns:
                self._control.completed(completions)
                self._follow_limiter()
                if self.state >= State.CLOSED:
                    # Who heard of the new limit has cancelled.
                    give_back_all(ended)
                    self._leave()
                    return
        else:
            self._call_ended(len(ended))
        if self._parking is not None:
            for event in ended:
                self._parking.forget(event)
        turns = [event.turn for event in ended]
        for event in ended:
            event.turn = None
        families = self._families
        if families:
            for event in ended:
                if event in families:
                    self._results.end(event)
                    families.pop(event).close()
            ended = [event for event in ended if type(event.value) is not Family]
        self._results.complete(ended)
        release(turns)
        if self._siblings:
            for turn in turns:
                self._turn_over(turn)
        if self._iterators.suspended:
            self._iterators.look_for_room()

    def _turn_over(self, turn: Turn | None) -> None:
        if turn is not None and (following := self._siblings.next(turn)) is not None:
            self._open += 1
            self._inbox.append(following)

    def _failed(self, event: Event[Any], error: BaseException, level: int) -> None:
        event.ended = ended = self._now()
        # Plain calls: whoever takes letters about failures is given them one by one.
        self._stride = 0
        draining, self._draining = self._draining, True
        try:
            if self._ended:
                self._flush()
            among = self._among
            self._call_ended(1)
            if self.state >= State.CLOSED:
                event.give_back()
                self._leave()
                if isinstance(error, Exception):
                    self._run.late_error(error)
                elif not isinstance(error, asyncio.CancelledError):
                    raise error
                return
            if isinstance(error, KeyboardInterrupt | SystemExit):
                blame(error, self._info, event)
                event.give_back()
                raise error
            if isinstance(error, asyncio.CancelledError):
                error = self._cancelled_inside([event], error)
            if isinstance(error, Withdrawn):
                # Its source has lost it: nothing was learnt of the handler.
                turn = event.turn
                self._settled(event)
                event.give_back()
                self._turn_over(turn)
                return
            outcome, seconds = self._control.outcome(error)
            if seconds:
                self._hold_back(seconds)
            if self._learns:
                since = event.created if self._from_arrival else event.started or ended
                if self._from_arrival:
                    level = among
                self._control.completed([(ended, since, level, outcome)])
            # First, because the event may keep its slot.
            again = self._is_tried_again(event, error)
            if again and self._error is None:
                self._park(event)
            if self._learns:
                self._follow_limiter()
            if not again:
                self._give_up(event, error)
            self._iterators.look_for_room()
        finally:
            self._draining = draining
            self._drain()

    def _park(self, event: Event[Any]) -> None:
        parking = self._parking
        assert parking is not None
        if self._waiting.park(event, parking.count(event), self._limit):
            self.in_flight += 1
            self._open += 1
            if self._shared is not None:
                self.slots += 1

    def _settled(self, event: Event[Any]) -> None:
        super()._settled(event)
        self._results.end(event)

    def _again(self, event: Event[Any], in_slot: bool) -> None:
        if in_slot:
            self.in_flight -= 1
        else:
            self._open += 1
        self._waiting.unpark(event, self._limit)
        self._drain()

    # Holding back.

    @property
    def held_back(self) -> float:
        """Seconds for which no call begins."""
        timer = self._hold_timer
        return 0.0 if timer is None else max(0.0, timer.when() - self._run.loop.time())

    def _hold_back(self, seconds: float) -> None:
        """Begin no call for so long, nor let others under the same limit."""
        if self._shared is None:
            self.hold_back(seconds)
        else:
            self._shared.hold_back(seconds)

    def hold_back(self, seconds: float) -> None:
        """Begin no call for so long; nothing if it holds back for longer already."""
        if self.state >= State.FAILED or seconds <= self.held_back:
            return
        self._recall()
        if self._hold_timer is not None:
            self._hold_timer.cancel()
        self._hold_timer = self._run.call_later(seconds, self._info, self._go_on_again)

    def _go_on_again(self) -> None:
        self._hold_timer = None
        self._drain()

    # A shared limit.

    def _settle(self) -> None:
        # Stages are dealt slots one at a time, and use each before the next is dealt.
        if self._shared is not None:
            self._shared.settle(self)

    @property
    def lacking(self) -> int:
        """Slots that it could use and has not; below 0, those that it cannot use."""
        return self.in_flight + len(self._inbox) - self.slots

    @property
    def place(self) -> tuple[Run, int]:
        """The running that this stage is part of, and its number there."""
        return self._run, self._info.number

    def begin(self) -> None:
        """Use the slot that was dealt, and ask for another event that may wait for one."""
        self._drain()

    def follow(self) -> None:
        """The limit has changed, by what another stage told."""
        if self._control.follow():
            self._limit = self._control.limit

    @property
    def _among(self) -> int:
        """Calls in flight, of all stages that share the limit, as the limiter is told.

        Events that wait for their next attempt keep others from beginning when they are as many
        as the limit, which is then what holds the work back.
        """
        among = self.in_flight if self._shared is None else self._shared.in_flight
        return max(among, self._limit) if self._waiting.holding else among

    def _read(self, event: Event[Any], results: Any) -> Any:
        """All results of an iterator."""
        if self._shared is not None and self._shared.is_above_another(self):
            raise BuildError(
                f"{self._who} brings several results a call and shares its limit with a stage "
                "below it: calls that wait for room there would keep the slots that it needs. Give "
                "one of the two a limit of its own."
            )
        return self._iterators.read(event, results)

    def _leave(self) -> None:
        """This stage is over; calls that have not ended yet keep their slots until then."""
        if self._shared is not None:
            self._shared.settle(self)
            if not self.in_flight:
                self._shared.leave(self)

    # The end.

    def _give_back_unstarted(self) -> None:
        super()._give_back_unstarted()
        if self._shared is not None:
            self._shared.settle(self)

    def _end_work(self) -> None:
        super()._end_work()
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None
        if self._timeouts is not None:
            self._timeouts.close()
        self._leave()

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
            "stuck": 0 if self._timeouts is None else self._timeouts.stuck,
            **self._faults.statistics(),
        }


def _any_shares(events: list[Event[Any]]) -> bool:
    """Whether one of them shares its turn with others."""
    for event in events:
        turn = event.turn
        if turn is not None and turn.holders > 1:
            return True
    return False


def _is_beginning(result: object) -> bool:
    """Whether the call of a plain handler has only begun its work."""
    return is_iterator(result) or hasattr(type(result), "__await__")
