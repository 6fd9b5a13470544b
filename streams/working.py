"""The stage that executes work: limits, turns, attempts and results around a handler.

Long-lived workers take the next event and await the handler directly; they park when there
is nothing to do or the limit shrank. No task, future or lock is made for an event.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from streams.errors import HandlerCancelled, HandlerTimeout
from streams.event import Event, Family, Turn
from streams.faults import Faults, OnError, Retry
from streams.handler import Pooled, is_async, is_coroutine_function
from streams.limits import ArrivalLimiter, Fixed, Limiter, Outcome
from streams.results import InOrder, Results
from streams.run import Run
from streams.stage import Stage, StageInfo, Subscriber, is_second

__all__ = ["Settings", "Working"]


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
        self._handler = self._open_handler(settings.handler)
        self._inline = not is_async(settings.handler)
        self._direct = (
            is_coroutine_function(settings.handler)
            and settings.timeout is None
            and not settings.ordered
        )
        self._limiter: Limiter
        self._set_limiter(limiter)
        policy = settings.on_error
        self._retry = policy if isinstance(policy, Retry) else None
        self._faults = Faults(policy, run, info)
        self._results = (InOrder if settings.ordered else Results)(downstream, settings.window)
        self._plain: set[type] = set()
        self._open = 0
        self._inbox: deque[Event[Any]] = deque()
        self._parked: list[asyncio.Future[None]] = []
        self._workers: set[asyncio.Task[None]] = set()
        self._busy = False
        self._attempts: dict[Event[Any], int] = {}
        self._retrying: dict[Event[Any], asyncio.TimerHandle] = {}
        self._siblings: dict[Turn, deque[Event[Any]]] = {}
        self._waiting_siblings = 0
        self._no_room: list[asyncio.Future[None]] = []
        self._overdue: dict[Event[Any], float] = {}
        self._rng = random.Random(self._retry.backoff.seed if self._retry else 0)
        self._closing = self._cancelled = False
        # Whether a success needs more than the shortest way: something has to be learnt, is
        # ending, or shares a turn.
        self._special = self._learns
        self._take: Callable[[], Event[Any] | None] | None = None
        self._error: BaseException | None = None

    def _open_handler(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        if not isinstance(handler, Pooled):
            return handler
        opened = cast(Pooled[Any, Any], handler).open()
        self._run.on_close(opened.close)
        return opened

    def _set_limiter(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._limit = limiter.limit
        self._arrivals = limiter if isinstance(limiter, ArrivalLimiter) else None
        # An inline handler is never more than one at a time, and a fixed limit learns nothing.
        self._learns = not (self._inline or isinstance(limiter, Fixed))

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
        if self._no_room:
            self._wake(self._no_room, len(self._no_room))
        self._ask()

    def _ask(self) -> None:
        if self._closing or self._cancelled:
            if self._closing:
                self._end_if_idle()
            return
        limit = self._limit
        room = limit - self._open
        if room <= 0:
            return
        spare = self._settings.window - self._results.waiting
        if spare < 0:
            room += spare
        if len(self._retrying) >= limit or self._waiting_siblings >= self._settings.window:
            return
        if room > 0:
            self._open += room
            self.upstream.request(room)

    def retune(self, limiter: Limiter) -> None:
        """Work by another limiter from the next event on; nothing is cancelled."""
        self._set_limiter(limiter)
        self._special = True
        self._dispatch()
        self._ask()

    # Events.

    def on_next(self, event: Event[Any], /) -> None:
        if self._closing or self._cancelled:
            event.give_back()
            return
        if self._arrivals is not None:
            self._arrivals.on_arrive()
        turn = event.turn
        if turn is not None and turn.holders > 1 and not self._first_of(turn, event):
            return
        if self._inline and not self._inbox and self.in_flight < self._limit:
            self._call_inline(event)
            return
        self._inbox.append(event)
        # The worker that is just asking for more takes the first event itself.
        if not (self._busy and len(self._inbox) == 1):
            self._dispatch()

    def _first_of(self, turn: Turn, event: Event[Any]) -> bool:
        """Children that share a turn run one after another."""
        others = self._siblings.get(turn)
        if others is None:
            self._siblings[turn] = deque()
            self._special = True
            return True
        others.append(event)
        self._waiting_siblings += 1
        self._open -= 1
        self._ask()
        return False

    def _turn_over(self, turn: Turn) -> None:
        others = self._siblings.get(turn)
        if others is None:
            return
        if others:
            self._waiting_siblings -= 1
            self._open += 1
            self._inbox.append(others.popleft())
            self._dispatch()
        else:
            del self._siblings[turn]

    def _dispatch(self) -> None:
        """Let as many waiting events begin as the limit allows."""
        inbox = self._inbox
        if self._inline:
            while inbox and self.in_flight < self._limit and not self._cancelled:
                self._call_inline(inbox.popleft())
            return
        begin = min(len(inbox), self._limit - self.in_flight)
        if begin <= 0:
            return
        begin -= self._wake(self._parked, begin)
        for _ in range(min(begin, self._limit - len(self._workers))):
            work = self._work_directly() if self._direct else self._work()
            worker = self._run.spawn(work, f"{self._info.name} {self._settings.name}")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    @staticmethod
    def _wake(sleepers: list[asyncio.Future[None]], n: int) -> int:
        woken = 0
        while sleepers and woken < n:
            sleeper = sleepers.pop()
            if not sleeper.done():
                sleeper.set_result(None)
                woken += 1
        return woken

    async def _work(self) -> None:
        """One worker: take, call, settle, and park when there is nothing to do."""
        inbox, now = self._inbox, self._now
        while True:
            while inbox and self.in_flight < self._limit:
                event = inbox.popleft()
                event.started = started = now()
                self.in_flight = in_flight = self.in_flight + 1
                if in_flight > self.peak_in_flight:
                    self.peak_in_flight = in_flight
                try:
                    result = await self._attempt(event)
                except BaseException as error:
                    self._busy = True
                    self._failed(event, error, started, in_flight)
                else:
                    self._busy = True
                    self._succeeded(event, result, started, in_flight)
                self._busy = False
            sleeper = self._run.loop.create_future()
            self._parked.append(sleeper)
            await sleeper

    async def _work_directly(self) -> None:
        """The same for a coroutine function without timeout or order, with no call to spare."""
        inbox, handler, now, results = self._inbox, self._handler, self._now, self._results
        pass_on, take = self.downstream.on_next, self._take
        while True:
            event: Event[Any] | None = None
            while event is not None or (inbox and self.in_flight < self._limit):
                if event is None:
                    event = inbox.popleft()
                event.started = started = now()
                self.in_flight = in_flight = self.in_flight + 1
                if in_flight > self.peak_in_flight:
                    self.peak_in_flight = in_flight
                try:
                    result = await handler(event.value)
                except BaseException as error:
                    self._busy = True
                    self._failed(event, error, started, in_flight)
                    self._busy = False
                    event = None
                    continue
                self._busy = True
                if self._special or not results.demand or results.ready:
                    self._succeeded(event, result, started, in_flight)
                    event = None
                else:
                    event.ended = now()
                    self.in_flight -= 1
                    results.demand -= 1
                    turn = event.turn
                    event.turn = None
                    event.value = result
                    pass_on(event)
                    if turn is not None:
                        turn.end()
                    # The place that is free is asked for anew, and the event that comes for it
                    # is this worker's next.
                    event = None
                    if self._special or self._open > self._limit:
                        self._open -= 1
                        self._ask()
                    elif take is not None:
                        event = take()
                    else:
                        self.upstream.request(1)
                self._busy = False
            sleeper = self._run.loop.create_future()
            self._parked.append(sleeper)
            await sleeper

    def _call_inline(self, event: Event[Any]) -> None:
        event.started = started = self._now()
        self.in_flight = in_flight = self.in_flight + 1
        try:
            result = self._handler(event.value)
        except BaseException as error:
            self._failed(event, error, started, in_flight)
            return
        if type(result) in self._plain or self._is_plain(result):
            self._succeeded(event, result, started, in_flight)
        else:
            self._begun(event, result)

    def _is_plain(self, result: Any) -> bool:
        kind = type(result)
        plain = not (hasattr(kind, "__await__") or hasattr(kind, "__aiter__"))
        if plain:
            self._plain.add(kind)
        return plain

    def _begun(self, event: Event[Any], call: Any) -> None:
        """A plain function returned an awaitable: its work has only begun."""
        assert event.started is not None
        work = self._finish_call(event, call, event.started, self.in_flight)
        self._run.spawn(work, f"{self._info.name} {self._settings.name}")

    async def _finish_call(
        self, event: Event[Any], call: Any, started: float, in_flight: int
    ) -> None:
        try:
            result = await self._outcome_of(event, call)
        except BaseException as error:
            self._failed(event, error, started, in_flight)
        else:
            self._succeeded(event, result, started, in_flight)

    async def _attempt(self, event: Event[Any]) -> Any:
        self._results.begin(event)
        timeout = self._settings.timeout
        if timeout is None:
            return await self._outcome_of(event, self._handler(event.value))
        clock = self._run.loop.time
        self._overdue[event] = clock() + timeout
        try:
            async with asyncio.timeout(timeout) as limit:
                return await self._outcome_of(event, self._handler(event.value))
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise HandlerTimeout(
                f"'{self._settings.name}' did not end within {timeout:g} s"
            ) from error
        finally:
            del self._overdue[event]

    async def _outcome_of(self, event: Event[Any], call: Any) -> Any:
        if hasattr(type(call), "__aiter__"):
            return await self._iterate(event, call)
        return await cast(Awaitable[Any], call)

    async def _iterate(self, event: Event[Any], results: AsyncIterator[Any]) -> Family:
        """Deliver an async iterator's results; its children carry the event's obligations."""
        family = Family(event, "no results")
        # The children are past the working stage: the turn stays with the call.
        turn, event.turn = event.turn, None
        try:
            async for value in results:
                child = family.child(value)
                child.started, child.ended = event.started, self._now()
                while not self._results.has_room(event):
                    room = self._run.loop.create_future()
                    self._no_room.append(room)
                    await room
                self._results.put(event, child)
        finally:
            event.turn = turn
            close: Callable[[], Awaitable[None]] | None = getattr(results, "aclose", None)
            if close is not None:
                await close()
        return family

    # Outcomes.

    def _succeeded(self, event: Event[Any], result: Any, started: float, in_flight: int) -> None:
        event.ended = ended = self._now()
        self.in_flight -= 1
        self._open -= 1
        if self._learns:
            self._learn(event, ended, started, in_flight, Outcome.SUCCESS)
        turn = event.turn
        event.turn = None
        if self._cancelled:
            event.give_back()
        elif type(result) is Family:
            self._results.end(event)
            result.close()
        else:
            event.value = result
            self._results.put(event, event)
            self._results.end(event)
        if self._attempts:
            self._attempts.pop(event, None)
        if turn is not None:
            turn.end()
            if self._siblings:
                self._turn_over(turn)
        self._ask()

    def _failed(
        self, event: Event[Any], error: BaseException, started: float, in_flight: int
    ) -> None:
        event.ended = ended = self._now()
        self.in_flight -= 1
        self._open -= 1
        if self._cancelled or isinstance(error, KeyboardInterrupt | SystemExit):
            event.give_back()
            raise error
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                event.give_back()
                raise error
            error = HandlerCancelled(f"'{self._settings.name}' was cancelled from inside")
        if self._learns:
            self._learn(event, ended, started, in_flight, self._outcome(error))
        attempts = self._attempts.pop(event, 0) + 1
        turn = event.turn
        if self._may_retry(error, attempts):
            assert self._retry is not None
            self._special = True
            self._attempts[event] = attempts
            delay = self._retry.backoff.delay(attempts, self._rng)
            self._retrying[event] = self._run.loop.call_later(delay, self._try_again, event)
        else:
            self._results.end(event)
            if not self._faults.survives(event, error, attempts):
                self._stop(error)
            if turn is not None and self._siblings:
                self._turn_over(turn)
        self._dispatch()
        self._ask()

    def _may_retry(self, error: BaseException, attempts: int) -> bool:
        retry = self._retry
        return (
            retry is not None
            and attempts < retry.times
            and isinstance(error, Exception)
            and self._error is None
        )

    def _try_again(self, event: Event[Any]) -> None:
        del self._retrying[event]
        self._open += 1
        self._inbox.appendleft(event)
        self._dispatch()
        self._ask()

    def _outcome(self, error: BaseException) -> Outcome:
        if isinstance(error, TimeoutError):
            return Outcome.DROPPED
        overload = self._settings.overload
        if overload is not None and isinstance(error, Exception) and overload(error):
            return Outcome.DROPPED
        return Outcome.IGNORED

    def _learn(
        self, event: Event[Any], now: float, started: float, in_flight: int, outcome: Outcome
    ) -> None:
        if self._arrivals is not None:
            self._arrivals.on_depart(now, event.created, self.in_flight + 1, outcome)
        else:
            self._limiter.on_complete(now, started, in_flight, outcome)
        limit = self._limiter.limit
        if limit != self._limit:
            self._limit = limit
            self._dispatch()

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
            return
        self._error = error
        if not self._closing and not upstream_ended:
            self.upstream.cancel()
        self._closing = self._special = True
        self._run.stopping(error)
        self._give_back_unstarted()

    def _give_back_unstarted(self) -> None:
        for event, timer in self._retrying.items():
            timer.cancel()
            event.give_back()
        self._retrying.clear()
        waiting = list(self._inbox)
        self._inbox.clear()
        for others in self._siblings.values():
            waiting.extend(others)
        self._siblings.clear()
        self._waiting_siblings = 0
        for event in waiting:
            event.give_back()

    def _end_if_idle(self) -> None:
        if (
            self.in_flight
            or self._inbox
            or self._retrying
            or self._waiting_siblings
            or self._results.waiting
            or self._cancelled
        ):
            return
        self._cancelled = True
        self._end_workers()
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
        self._end_workers()

    def _end_workers(self) -> None:
        for worker in self._workers:
            if worker is not asyncio.current_task():
                worker.cancel()

    def statistics(self) -> dict[str, Any]:
        """Calls `in_flight` (of them `stuck` past their timeout), the `limit` and its reason."""
        now = self._run.loop.time() if self._overdue else 0.0
        return {
            "waiting": len(self._inbox) + self._waiting_siblings + len(self._retrying),
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak_in_flight,
            "limit": self._limit,
            "limit_reason": getattr(self._limiter, "reason", ""),
            "undelivered": self._results.waiting,
            "retrying": len(self._retrying),
            "stuck": sum(1 for deadline in self._overdue.values() if deadline < now),
            "skipped": self._faults.skipped,
            "routed": self._faults.routed,
        }
