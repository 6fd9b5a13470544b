"""The kata written by hand on asyncio and uvloop, as well as one can: the yardstick.

A dict for the duplicates, a deque a client, a rotation of the clients that have work, and
long-lived workers that await the handler directly. No task, future or lock an event.

``python -m benchmarks.by_hand jsonl < events.jsonl > done.jsonl`` is the whole process.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from itertools import islice
from operator import sub
from time import monotonic_ns
from typing import Any

import uvloop
from orjson import OPT_APPEND_NEWLINE as NEWLINE
from orjson import JSONDecodeError, dumps, loads

from benchmarks import case, workload
from benchmarks.latencies import Latencies
from benchmarks.window import Window
from benchmarks.workload import LIMIT, Event, Result

BUFFER = 1_024
READ_SIZE = 1 << 16


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
        # The end of one event is the start of the next: one reading of the clock an event.
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
            # Both at the end, or a record() while events are in flight would pair the wrong ones.
            record_waiting(started - created)
            record_service(now - started)
            queue.popleft()
            if queue:
                ready.append(queue)
            else:
                del queues[event["client_id"]]


def chunks(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Lazily, BUFFER events at a time."""
    events = iter(events)
    while chunk := list(islice(events, BUFFER)):
        yield chunk


async def half_chunks(events: Iterable[Event]) -> AsyncIterator[list[Event]]:
    """Lazily, as many as there is certainly room for when `Kata` asks."""
    events = iter(events)
    while chunk := list(islice(events, BUFFER // 2)):
        yield chunk


async def whole(events: list[Event]) -> AsyncIterator[list[Event]]:
    """All of a short list at once."""
    yield events


def plain(options: case.Options) -> dict[str, Any]:
    events = workload.kata_events(options.events)

    def job() -> dict[str, Any]:
        kata = InlineKata(workload.project)
        finished = sum(len(kata(chunk)) for chunk in chunks(events))
        return {
            "finished": finished,
            "duplicates": kata.window.duplicates,
            **kata.latencies.report(),
        }

    return case.timed(job, len(events))


def yielding(options: case.Options) -> dict[str, Any]:
    events = workload.kata_events(options.events)

    def job() -> dict[str, Any]:
        kata = Kata(workload.project_yielding)
        uvloop.run(kata.run(half_chunks(events)))
        return outcome(kata)

    return case.timed(job, len(events))


def open_loop(options: case.Options) -> dict[str, Any]:
    def job() -> dict[str, Any]:
        kata = Kata(workload.slow_handler(), stamped=True)
        uvloop.run(kata.run(workload.arrivals(options.rate, options.seconds)))
        return outcome(kata)

    return case.timed(job, int(options.rate * options.seconds))


def fairness(options: case.Options) -> dict[str, Any]:
    """How many of the 500 events of one client start before the last of the 99 others."""
    events = workload.one_against_many()
    started: list[int] = []

    async def handler(event: Event) -> Result:
        started.append(event["client_id"])
        return await workload.project_yielding(event)

    def job() -> dict[str, Any]:
        uvloop.run(Kata(handler, limit=4).run(whole(events)))
        return {"started_before_the_last_other": workload.started_before_the_last_other(started)}

    return case.timed(job, len(events))


def memory_keys(options: case.Options) -> dict[str, Any]:
    """Each event with keys of its own, at 50,000 a second of stream time."""

    def job() -> dict[str, Any]:
        kata = InlineKata(workload.project)
        finished = 0
        for chunk in chunks(workload.many_keys(options.events)):
            finished += len(kata(chunk, now=int(chunk[0]["created"] * 1e9)))
        return {"finished": finished}

    return case.timed(job, options.events)


def memory_slow(options: case.Options) -> dict[str, Any]:
    """1 kB events through a handler that keeps its source waiting; no window, whose keys count."""

    def job() -> dict[str, Any]:
        kata = Kata(workload.slow_handler(0.001, 0.0), limit=256, distinct=False)
        uvloop.run(kata.run(half_chunks(workload.large_events(options.events))))
        return outcome(kata)

    return case.timed(job, options.events)


def outcome(kata: Kata) -> dict[str, Any]:
    times = kata.latencies.report()
    return {
        "finished": times["waiting"]["count"],
        "duplicates": kata.window.duplicates,
        **times,
    }


async def jsonl() -> None:
    """Standard input to standard output. Reads and writes leave the loop free, in a thread."""
    loop = asyncio.get_running_loop()
    kata = InlineKata(workload.project)
    bad = 0
    rest = b""
    reading = loop.run_in_executor(None, os.read, 0, READ_SIZE)
    ended = False
    while not ended:
        chunk = await reading
        ended = not chunk
        *lines, rest = (rest + chunk).split(b"\n")
        if ended:
            lines.append(rest)
        else:
            reading = loop.run_in_executor(None, os.read, 0, READ_SIZE)
        events, broken = parsed(lines)
        bad += broken
        results = kata(events)
        # Joining a list is slower: orjson gives each result a kilobyte to grow in and shrinks it
        # afterwards, and malloc cannot use the gaps until all of the list is gone.
        output = bytearray()
        for result in results:
            output += dumps(result, option=NEWLINE)
        while output:
            sent = await loop.run_in_executor(None, os.write, 1, output)
            del output[:sent]
    print(kata.latencies.report(), f"{bad} bad lines", file=sys.stderr)


def parsed(lines: list[bytes]) -> tuple[list[Event], int]:
    """The events, and how many lines were no JSON."""
    events: list[Event] = []
    bad = 0
    append = events.append
    for line in lines:
        try:
            append(loads(line))
        except JSONDecodeError:
            bad += bool(line.strip())
    return events, bad


CASES = {
    "plain": plain,
    "yielding": yielding,
    "open_loop": open_loop,
    "fairness": fairness,
    "memory_keys": memory_keys,
    "memory_slow": memory_slow,
}

if __name__ == "__main__":
    case.main(CASES, lambda: uvloop.run(jsonl()))
