"""Delivers a load at the times at which its events are due.

A consumer that is late finds everything that became due meanwhile waiting for it: the events
are kept here, as a message broker would keep them, and the observer counts them at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable

from penstock.command.kata.load.events import Event, Load
from penstock.command.kata.observe import Observer

__all__ = ["Arrivals", "feed", "live"]


class Arrivals:
    """The events of a load that are due and not yet taken, for a run that the observer began.

    `next_due` is when the next event arrives, on the observer's time line; None after the last.
    Memory: the events that wait; a consumer that does not keep up is what this is to show.
    """

    def __init__(self, load: Load, observer: Observer) -> None:
        self._schedule = load.schedule(observer.start)
        self._observer = observer
        self._waiting: deque[Event] = deque()
        self._next = next(self._schedule, None)

    @property
    def next_due(self) -> float | None:
        return None if self._next is None else self._next[1]["created"]

    def arrive(self, now: float) -> None:
        """Let everything arrive that is due by `now`, and report it to the observer."""
        before = len(self._waiting)
        while self._next is not None and self._next[1]["created"] <= now:
            self._waiting.append(self._next[1])
            self._next = next(self._schedule, None)
        if len(self._waiting) > before:
            self._observer.arrived(len(self._waiting) - before)

    def take(self) -> Event | None:
        """The event that waits longest, or None where none waits."""
        return self._waiting.popleft() if self._waiting else None


def feed(
    load: Load,
    consume: Callable[[Event], object],
    observer: Observer,
    *,
    grace: float = 1.0,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Push each event into `consume`, one after another, not before it is due.

    As in the article, a consumer that blocks delays the next delivery. Returns after the last
    event, or `grace` seconds after the end of the load with the rest left waiting.
    Blocks the calling thread and lets the consumer's errors through.
    """
    arrivals = Arrivals(load, observer)
    deadline = observer.start + load.seconds + grace
    while (moment := observer.now()) < deadline:
        arrivals.arrive(moment)
        event = arrivals.take()
        if event is not None:
            consume(event)
        elif arrivals.next_due is not None:
            sleep(max(0.0, arrivals.next_due - moment))
        else:
            return
    arrivals.arrive(deadline)


async def live(load: Load, observer: Observer) -> AsyncGenerator[Event, None]:
    """Yield each event, not before it is due; ends after the last.

    The asynchronous twin of `feed`, for a consumer with demand: events that are not requested wait
    here. The observer's time must be the running loop's, as `penstock.streams.base.clock.clock_of`
    returns it.
    """
    arrivals = Arrivals(load, observer)
    while True:
        moment = observer.now()
        arrivals.arrive(moment)
        event = arrivals.take()
        if event is not None:
            yield event
        elif arrivals.next_due is not None:
            await asyncio.sleep(max(0.0, arrivals.next_due - moment))
        else:
            return
