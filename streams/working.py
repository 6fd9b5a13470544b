"""The stage that executes work: limits, turns, attempts and results around a handler.

Long-lived workers take the next event and await the handler directly; they park when there
is nothing to do or the limit shrank. No task, future or lock is made for an event.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streams.blocking import BlockingWatch
from streams.calls import Calls, is_iterator
from streams.errors import HandlerCancelled
from streams.event import Event, Family, Turn
from streams.faults import Faults, OnError, Retry, blame
from streams.handler import is_async, is_coroutine_function, opened_pool
from streams.limits import ArrivalLimiter, Fixed, Limiter, Outcome
from streams.parking import Parking
from streams.results import InOrder, Results
from streams.run import Run
from streams.siblings import Siblings
from streams.stage import Stage, StageInfo, Subscriber, is_second

__all__ = ["Settings", "Working"]

# The loop gets a turn at least this often (seconds), unless a single step takes longer.
_SLICE = 0.005


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user says about a working stage; `operators.adaptive_flat_map` explains each."""

    handler: Callable[[Any], Any]
    name: str
    ordered: bool
    timeout: float | None
    on_error: OnError
    overload: Callable[[Exception], bool] | None
    window: int


class Working(Stage[Any, Any]):
    """`_open` counts the events that are asked for, waiting to begin, or in flight."""

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        settings: Settings,
        limiter: Limiter,
    ) -> None:
        super().__init__(downstream)
        self.in_flight = self.peak_in_flight = 0
        self._run = run
        self._info = info
        self._now = run.now
        self._settings = settings
        self._who = f"'{settings.name}' ({info})"
        handler = settings.handler
        self._handler = opened_pool(handler, run)
        self._direct = (
            is_coroutine_function(handler) and settings.timeout is None and not settings.ordered
        )
        self._set_limiter(limiter, learns=is_async(handler))
        policy = settings.on_error
        self._faults = Faults(policy, run, info)
        self._results = (InOrder if settings.ordered else Results)(downstream, settings.window)
        self._calls = Calls(run, settings.name, settings.timeout, self._results)
        self._parking = Parking(policy, run, self._again) if isinstance(policy, Retry) else None
        self._siblings = Siblings()
        self._watch = BlockingWatch(run, self._who, self._progress)
        self._slice_end = 0.0
        self._open = 0
        self._inbox: deque[Event[Any]] = deque()
        # New events that may not begin because as many as the limit wait for another attempt.
        self._held: deque[Event[Any]] = deque()
        self._sleepers: list[asyncio.Future[None]] = []
        # A dict for its order: the same run always ends in the same way.
        self._workers: dict[asyncio.Task[None], None] = {}
        # A worker is settling an event, and takes the first event that comes itself.
        self._busy = False
        # Types of results that are a single one.
        self._single: set[type] = set()
        self._closing = self._cancelled = False
        # Whether a success needs more than the shortest way: something has to be learnt, is
        # ending, or shares a turn.
        self._special = self._learns
        self._take: Callable[[], Event[Any] | None] | None = None
        self._error: BaseException | None = None

    def _set_limiter(self, limiter: Limiter, learns: bool) -> None:
        self._limiter = limiter
        self._limit = max(1, limiter.limit)
        # A fixed limit learns nothing.
        self._learns = learns and not isinstance(limiter, Fixed)
        self._arrivals = limiter if self._learns and isinstance(limiter, ArrivalLimiter) else None

    def _progress(self) -> object:
        """What changes as this stage gets on; None when nothing is in flight."""
        if not (self.in_flight or self._inbox):
            return None
        return self.in_flight, self._results.demand, self._results.waiting

    # Demand.

    def on_subscribe(self, subscription: Any, /) -> None:
        if is_second(self, subscription):
            return
        self.upstream = subscription
        self._take = getattr(subscription, "take", None)
        self.downstream.on_subscribe(self)
        self._ask()

    def request(self, n: int, /) -> None:
        if self._cancelled:
            return
        self._results.request(n)
        self._calls.look_for_room()
        self._ask()

    def _ask(self) -> None:
        if self._closing or self._cancelled:
            self._end_if_idle()
            return
        room = self._limit - self._open
        spare = self._settings.window - self._results.waiting
        if spare < 0:
            room += spare
        if room > 0 and self._siblings.waiting < self._settings.window and not self._parked_full():
            self._open += room
            self.upstream.request(room)

    def _parked_full(self) -> bool:
        return self._parking is not None and self._parking.waiting >= self._limit

    def retune(self, limiter: Limiter) -> None:
        """Work by another limiter from the next event on; nothing is cancelled."""
        self._set_limiter(limiter, learns=is_async(self._settings.handler))
        self._special = True
        self._dispatch()
        self._ask()

    # Events.

    def on_next(self, event: Event[Any], /) -> None:
        if self._closing or self._cancelled:
            event.give_back()
            return
        # The worker that is just asking for more takes the first event itself.
        if self._admit(event) and not (self._busy and len(self._inbox) == 1):
            self._dispatch()
        if self._arrivals is not None:
            # The arrival may have raised the limit.
            self._ask()

    def _admit(self, event: Event[Any]) -> bool:
        """Let an event in; whether it may begin."""
        if self._arrivals is not None:
            self._arrived(self._arrivals)
        turn = event.turn
        if turn is not None and turn.holders > 1:
            self._special = True
            if not self._siblings.may_begin(turn, event):
                self._open -= 1
                self._ask()
                return False
        if self._held or self._parked_full():
            self._held.append(event)
            return False
        self._inbox.append(event)
        return True

    def _dispatch(self) -> None:
        """Let as many waiting events begin as the limit allows."""
        begin = min(len(self._inbox), self._limit - self.in_flight)
        if begin <= 0:
            return
        self._watch.begin()
        while begin and self._sleepers:
            sleeper = self._sleepers.pop()
            if not sleeper.done():
                sleeper.set_result(None)
                begin -= 1
        for _ in range(min(begin, self._limit - len(self._workers))):
            self._spawn(self._work_directly() if self._direct else self._work())

    def _spawn(self, work: Any) -> None:
        worker = self._run.spawn(work, f"{self._info.name} {self._settings.name}")
        self._workers[worker] = None
        worker.add_done_callback(self._workers.pop)

    async def _sleep(self) -> None:
        sleeper = self._run.loop.create_future()
        self._sleepers.append(sleeper)
        await sleeper

    async def _work(self) -> None:
        """One worker: take, call, settle, and sleep when there is nothing to do."""
        inbox, now = self._inbox, self._now
        while not self._cancelled:
            self._slice_end = now() + _SLICE
            while inbox and self.in_flight < self._limit:
                event = inbox.popleft()
                self._results.begin(event)
                event.started = started = now()
                self.in_flight = in_flight = self.in_flight + 1
                if in_flight > self.peak_in_flight:
                    self.peak_in_flight = in_flight
                try:
                    if started >= self._slice_end:
                        started = await self._give_way(event)
                    result = await self._calls.attempt(event, self._handler)
                except BaseException as error:
                    self._busy = True
                    self._failed(event, error, started, in_flight)
                else:
                    self._busy = True
                    self._succeeded(event, result, started, in_flight)
                self._busy = False
            if not self._cancelled:
                await self._sleep()

    async def _work_directly(self) -> None:
        """The same for a coroutine function without timeout or order, with no call to spare."""
        inbox, handler, now, results = self._inbox, self._handler, self._now, self._results
        pass_on, take, single = self.downstream.on_next, self._take, self._single
        event: Event[Any] | None = None
        while not self._cancelled:
            self._slice_end = now() + _SLICE
            while event is not None or (inbox and self.in_flight < self._limit):
                if event is None:
                    event = inbox.popleft()
                    self.in_flight += 1
                in_flight = self.in_flight
                if in_flight > self.peak_in_flight:
                    self.peak_in_flight = in_flight
                event.started = started = now()
                try:
                    if started >= self._slice_end:
                        started = await self._give_way(event)
                    result = await handler(event.value)
                    if type(result) not in single and not self._is_single(result):
                        result = await self._calls.iterate(event, result)
                except BaseException as error:
                    self._busy = True
                    self._failed(event, error, started, in_flight)
                    self._busy = False
                    event = None
                    continue
                self._busy = True
                if self._special or not results.demand or results.ready or type(result) is Family:
                    self._succeeded(event, result, started, in_flight)
                    event = None
                else:
                    event.ended = now()
                    results.demand -= 1
                    turn = event.turn
                    event.turn = None
                    event.value = result
                    pass_on(event)
                    if turn is not None:
                        turn.end()
                    event = None
                    # The place that is free is asked for anew, and the event that comes for it
                    # is this worker's next. Until then it counts, or the stage might end.
                    if self._special or self._open > self._limit:
                        self.in_flight -= 1
                        self._open -= 1
                        self._ask()
                    elif take is None or inbox:
                        self.in_flight -= 1
                        self.upstream.request(1)
                    else:
                        event = take()
                        if event is None:
                            self.in_flight -= 1
                            if self._closing:
                                self._end_if_idle()
                        elif self._error is not None or self._cancelled:
                            self._not_begun(event)
                            event = None
                self._busy = False
            if not self._cancelled:
                await self._sleep()

    async def _give_way(self, event: Event[Any]) -> float:
        """Let the loop have its turn, which handlers that never wait would not; then begin."""
        await asyncio.sleep(0)
        event.started = started = self._now()
        self._slice_end = started + _SLICE
        return started

    def _not_begun(self, event: Event[Any]) -> None:
        self.in_flight -= 1
        event.give_back()
        self._end_if_idle()

    def _is_single(self, result: object) -> bool:
        kind = type(result)
        single = not is_iterator(result)
        if single:
            self._single.add(kind)
        return single

    # Outcomes.

    def _succeeded(self, event: Event[Any], result: Any, started: float, in_flight: int) -> None:
        event.ended = ended = self._now()
        self.in_flight -= 1
        self._open -= 1
        if self._learns:
            self._learn(event, ended, started, in_flight, Outcome.SUCCESS)
        if self._parking is not None:
            self._parking.forget(event)
        turn = event.turn
        event.turn = None
        if self._cancelled:
            event.give_back()
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
        self.in_flight -= 1
        self._open -= 1
        if self._cancelled:
            event.give_back()
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
        if self._learns:
            self._learn(event, ended, started, in_flight, self._outcome(error))
        if not self._tried_again(event, error):
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

    def _cancelled_inside(
        self, event: Event[Any], error: asyncio.CancelledError
    ) -> HandlerCancelled:
        inside = HandlerCancelled(f"'{self._settings.name}' was cancelled from inside")
        inside.__cause__ = error
        task = asyncio.current_task() if self._run.has_loop else None
        if task is not None and task.cancelling():
            # Somebody else ends this worker, who cannot be told from a handler that cancels
            # its own task: obey, lose nothing, and leave no stage behind that nobody works in.
            self._busy = False
            blame(inside, self._info, event)
            event.give_back()
            self._stop(inside)
            self._ask()
            raise error
        return inside

    def _tried_again(self, event: Event[Any], error: BaseException) -> bool:
        """Whether there will be another attempt at this event."""
        parking = self._parking
        if parking is None or self._error is not None:
            return False
        attempts = parking.count(event)
        if not parking.allows(error, attempts):
            return False
        self._special = True
        # Where results are in order, iterators may be suspended, each in its slot, until this
        # event has brought its own: it must not need one of theirs.
        suspended = self._settings.ordered and self._calls.iterates
        in_slot = suspended or self._parked_full()
        parking.park(event, attempts, in_slot)
        if in_slot:
            self.in_flight += 1
            self._open += 1
        elif self._parked_full():
            self._held.extend(self._inbox)
            self._inbox.clear()
        return True

    def _again(self, event: Event[Any], in_slot: bool) -> None:
        if in_slot:
            self.in_flight -= 1
        else:
            self._open += 1
        self._inbox.appendleft(event)
        if not self._parked_full():
            self._inbox.extend(self._held)
            self._held.clear()
        self._dispatch()
        self._ask()

    # The limiter.

    def _arrived(self, limiter: ArrivalLimiter) -> None:
        try:
            limiter.on_arrive()
        except Exception as error:
            self._broke(error, "limiter")
        self._follow_limiter()

    def _outcome(self, error: BaseException) -> Outcome:
        if isinstance(error, TimeoutError):
            return Outcome.DROPPED
        overload = self._settings.overload
        if overload is not None and isinstance(error, Exception):
            try:
                if overload(error):
                    return Outcome.DROPPED
            except Exception as raised:
                self._broke(raised, "function given as overload=")
        return Outcome.IGNORED

    def _learn(
        self, event: Event[Any], now: float, started: float, in_flight: int, outcome: Outcome
    ) -> None:
        try:
            if self._arrivals is not None:
                self._arrivals.on_depart(now, event.created, self.in_flight + 1, outcome)
            else:
                self._limiter.on_complete(now, started, in_flight, outcome)
        except Exception as error:
            self._broke(error, "limiter")
        self._follow_limiter()

    def _follow_limiter(self) -> None:
        limit = max(1, self._limiter.limit)
        if limit != self._limit:
            self._limit = limit
            self._dispatch()

    def _broke(self, error: Exception, what: str) -> None:
        """Something of the user's beside the handler raised: no event is to blame."""
        error.add_note(f"in the {what} of {self._info}")
        self._stop(error)

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

    def _give_back_unstarted(self) -> None:
        waiting = [*self._inbox, *self._held, *self._siblings.clear()]
        self._inbox.clear()
        self._held.clear()
        if self._parking is not None:
            for event, in_slot in self._parking.clear():
                if in_slot:
                    self.in_flight -= 1
                waiting.append(event)
        for event in waiting:
            # Those that were tried before have a place in the order.
            self._results.end(event)
            event.give_back()

    def _end_if_idle(self) -> None:
        if (
            self._cancelled
            or self.in_flight
            or self._inbox
            or self._held
            or self._siblings.waiting
            or self._results.waiting
            or self._parking
        ):
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

    def _end_work(self) -> None:
        self._watch.end()
        for worker in self._workers:
            # The one that brings the end itself sees that it is over.
            if worker is not asyncio.current_task(self._run.loop):
                worker.cancel()

    def statistics(self) -> dict[str, Any]:
        """Calls `in_flight` (of them `stuck` past their timeout), the `limit` and its reason."""
        retrying = 0 if self._parking is None else self._parking.waiting
        return {
            "waiting": len(self._inbox) + len(self._held) + self._siblings.waiting + retrying,
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak_in_flight,
            "limit": self._limit,
            "limit_reason": getattr(self._limiter, "reason", ""),
            "undelivered": self._results.waiting,
            "retrying": retrying,
            "stuck": self._calls.stuck,
            "skipped": self._faults.skipped,
            "routed": self._faults.routed,
        }
