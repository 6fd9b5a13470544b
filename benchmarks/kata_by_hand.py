"""The kata's pipeline by hand: a dict for duplicates, a deque per client, a rotation, workers.

A client has a place in the rotation or a worker, never both; workers await the handler directly. No
task, future or lock per event.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from operator import sub
from time import monotonic_ns

from benchmarks.latencies import Latencies
from benchmarks.window import Window
from benchmarks.workload import LIMIT, Event, Result

__all__ = ["BUFFER", "InlineKata", "Kata"]

BUFFER = 1_024


class InlineKata:
    """For a plain handler: called with a chunk of events, it finishes them in fair order."""

    def __init__(self, handler: Callable[[Event], Result]) -> None:
        self._handler = handler
        self._spare: list[deque[Event]] = []
        self.window = Window()
        self.latencies = Latencies()

    def __call__(self, events: Iterable[Event], now: int | None = None) -> list[Result]:
        """Results of a chunk; `now` is its time of receipt in nanoseconds, the clock's if None."""
        clock, handler = monotonic_ns, self._handler
        created = clock()
        ready = self._by_client(self.window.unseen(events, created if now is None else now))
        results: list[Result] = []
        finish, spare = results.append, self._spare.append
        # The end of one event is the start of the next: the clock is read once per event.
        stamps = [clock()]
        stamp = stamps.append
        while ready:
            queue = ready.popleft()
            finish(handler(queue.popleft()))
            stamp(clock())
            if queue:
                ready.append(queue)
            else:
                spare(queue)
        since = [(at - created) // 1000 for at in stamps]
        waiting, total = since[:-1], since[1:]
        self.latencies.record_microseconds(waiting, list(map(sub, total, waiting)), total)
        return results

    def _by_client(self, events: list[Event]) -> deque[deque[Event]]:
        queues: dict[int, deque[Event]] = {}
        spare = self._spare
        for event in events:
            client = event["client_id"]
            if client not in queues:
                # A new deque costs as much as ten appends, and there is one in ten events.
                queues[client] = spare.pop() if spare else deque()
            queues[client].append(event)
        return deque(queues.values())


class Kata:
    """For a handler that awaits: `limit` workers share the clients that have work."""

    def __init__(
        self,
        handler: Callable[[Event], Awaitable[Result]],
        limit: int = LIMIT,
        *,
        stamped: bool = False,
        distinct: bool = True,
    ) -> None:
        self._handler = handler
        self._limit = limit
        self._stamped = stamped
        self._distinct = distinct
        self.window = Window()
        self.latencies = Latencies()
        # The head of a client's deque stays there while it is worked on: a client with a deque
        # has either a place in the rotation or a worker, never both, and so no flag is needed.
        self._queues: dict[int, deque[tuple[int, Event]]] = {}
        self._ready: deque[deque[tuple[int, Event]]] = deque()
        self._parked: list[asyncio.Future[None]] = []
        self._waiting = 0
        self._room: asyncio.Future[None] | None = None
        self._ended = False

    async def run(self, source: AsyncIterator[list[Event]]) -> None:
        """Work on all of `source`, which is read only while fewer than BUFFER events wait."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._limit):
                workers.create_task(self._work())
            async for events in source:
                self._admit(events)
                if self._waiting > BUFFER // 2:
                    self._room = loop.create_future()
                    await self._room
            self._ended = True
            self._wake(len(self._parked))

    def _admit(self, events: list[Event]) -> None:
        now = monotonic_ns()
        queues, ready, stamped = self._queues, self._ready, self._stamped
        fresh = self.window.unseen(events, now) if self._distinct else events
        for event in fresh:
            client = event["client_id"]
            item = (event["created"] if stamped else now, event)
            if client in queues:
                queues[client].append(item)
            else:
                queues[client] = queue = deque((item,))
                ready.append(queue)
        self._waiting += len(fresh)
        self._wake(len(ready))
        if len(self.latencies.waiting) > 16 * BUFFER:
            self.latencies.record()

    def _wake(self, count: int) -> None:
        parked = self._parked
        for _ in range(min(count, len(parked))):
            parked.pop().set_result(None)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        clock, handler = monotonic_ns, self._handler
        queues, ready, parked = self._queues, self._ready, self._parked
        record_waiting = self.latencies.waiting.append
        record_service = self.latencies.service.append
        now = clock()
        while True:
            while not ready:
                if self._ended:
                    return
                place = loop.create_future()
                parked.append(place)
                await place
                now = clock()
            queue = ready.popleft()
            created, event = queue[0]
            self._waiting -= 1
            if self._room is not None and self._waiting <= BUFFER // 2:
                self._room.set_result(None)
                self._room = None
            started = now
            await handler(event)
            now = clock()
            # Both at the end, or a record() while events are in flight would pair different events.
            record_waiting(started - created)
            record_service(now - started)
            queue.popleft()
            if queue:
                ready.append(queue)
            else:
                del queues[event["client_id"]]
