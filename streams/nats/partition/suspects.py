"""Processes the events in doubt, one per partition at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from penstock.streams.runtime.tasks import new_task

if TYPE_CHECKING:
    from penstock.streams.nats.partition.floors import Floor

__all__ = ["Suspects"]

# A message of a partition, and an event of one.
Arrival = Any
Delivery = tuple[Any, int]

# Seconds until a failed write is repeated.
_PAUSE = 0.5


class Gate(Protocol):
    """Puts delivered events into the pipeline."""

    def arrived(self, arrival: Arrival, places: Sequence[int]) -> None:
        """These events are to be worked on."""

    def alone(self) -> AbstractAsyncContextManager[None]:
        """Inside, nothing else is in the pipeline."""
        ...

    async def until_left(self, left: asyncio.Future[None]) -> None:
        """Wait until `left` is done, or no handler can have the partition's events any more."""


class Suspects:
    """Holds the arrivals of a partition while there is doubt, and passes them on in order."""

    def __init__(self, floor: Floor, attempts: int, gate: Gate) -> None:
        # Events that are dead-lettered instead of begun, and the workers each has cost.
        self._given_up: tuple[Arrival, int, int] | None = None
        self._floor = floor
        self._attempts = attempts
        self._gate = gate
        self._waiting: deque[tuple[Arrival, deque[int]]] = deque()
        self._news = asyncio.Event()
        # The event that was let in last, and what is done when it has left the pipeline.
        self._working: tuple[Arrival, int, asyncio.Future[None]] | None = None
        self._task = new_task(self._work(), "penstock suspects")

    @property
    def is_over(self) -> bool:
        """Whether nothing is in doubt any more: arrivals go on at once."""
        return self._task.done()

    def take_in(self, arrival: Arrival, places: Sequence[int]) -> None:
        """Events that arrived, in order."""
        self._waiting.append((arrival, deque(places)))
        self._news.set()

    def cost_if_given_up(self, delivery: Delivery) -> int:
        """The number of workers that an event has cost, if it must not begin any more; else 0."""
        if self._given_up is None or (*delivery,) != self._given_up[:2]:
            return 0
        return self._given_up[2]

    def ended(self, arrival: Arrival, places: Collection[int]) -> None:
        """The events at these places have left the pipeline. Those that an operator has held may
        leave while a later one is still with a handler."""
        if self._working is None:
            return
        message, place, left = self._working
        if message is arrival and place in places and not left.done():
            left.set_result(None)

    def stop(self) -> None:
        """Pass nothing more on."""
        self._task.cancel()
        self._waiting.clear()
        # The worker is still alive: the event has not cost it.
        self._floor.doubt = self._floor.doubt._replace(trying="", alone=False)

    async def _work(self) -> None:
        while self._floor.doubt.left > 0:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            arrival, places = self._waiting[0]
            await self._try(arrival, places.popleft())
            if not places:
                self._waiting.popleft()
        for arrival, places in self._waiting:
            self._gate.arrived(arrival, list(places))

    async def _try(self, arrival: Arrival, place: int) -> None:
        floor, event = self._floor, f"{arrival.sequence}.{place}"
        cost = floor.doubt.cost(event)
        if floor.doubt.is_certain(event, self._attempts):
            self._given_up = arrival, place, cost
            await self._let_in(arrival, place)
        elif cost < self._attempts - 1:
            await self._begin(event, arrival, place, alone=False)
        else:
            async with self._gate.alone():
                await self._begin(event, arrival, place, alone=True)
                floor.doubt = floor.doubt.cleared(event)
                await self._write()
                return
        floor.doubt = floor.doubt.cleared(event)

    async def _begin(self, event: str, arrival: Arrival, place: int, *, alone: bool) -> None:
        self._floor.doubt = self._floor.doubt._replace(trying=event, alone=alone)
        await self._write()
        await self._let_in(arrival, place)

    async def _let_in(self, arrival: Arrival, place: int) -> None:
        left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._working = arrival, place, left
        self._gate.arrived(arrival, (place,))
        await self._gate.until_left(left)

    async def _write(self) -> None:
        from nats.errors import Error

        while True:
            try:
                await self._floor.settle()
                return
            except (Error, TimeoutError):
                await asyncio.sleep(_PAUSE)
