"""The trial of a partition whose last owner was lost: see `penstock.streams.delivery.trial`.

Its note is written with the floor. Nothing else is in the pipeline of the worker while events begin
that are in doubt; while none is there, other partitions go on.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from math import inf
from typing import TYPE_CHECKING, Protocol

from penstock.streams.delivery.lease import Lease
from penstock.streams.delivery.trial import Doubt, Trial
from penstock.streams.runtime.tasks import new_task

if TYPE_CHECKING:
    from penstock.streams.nats.partition.floors import Floor

__all__ = ["Suspects"]

# Seconds until a failed write is repeated, and until the lease is looked at again.
_PAUSE = 0.5


class Gate(Protocol):
    """Puts the events of a partition into the pipeline."""

    @property
    def lease(self) -> Lease:
        """The lease of the partition."""
        ...

    @property
    def window(self) -> int:
        """How many events may be unfinished."""
        ...

    @property
    def is_read(self) -> bool:
        """Whether all that was stored has arrived, as far as is known."""
        ...

    def let_in(self, reach: float) -> None:
        """The events that wait before this position are to be worked on."""

    def alone(self) -> AbstractAsyncContextManager[None]:
        """Inside, nothing else is in the pipeline."""
        ...

    async def until_left(self, left: asyncio.Future[None]) -> None:
        """Wait until `left` is done, or what is in the pipeline is not expected to end soon."""


class Suspects:
    """Lets the events of a partition in by parts, until none is in doubt."""

    def __init__(self, floor: Floor, search: Trial, gate: Gate) -> None:
        self._floor = floor
        self._search = search
        self._gate = gate
        self._given_up: int | None = None
        self._news = asyncio.Event()
        # Done when the events that were let in last have ended.
        self._left: asyncio.Future[None] | None = None
        self._task = new_task(self._work(), "penstock suspects")

    @property
    def is_over(self) -> bool:
        """Whether nothing is in doubt any more: arrivals go on at once."""
        return self._task.done()

    def cost_if_given_up(self, position: int) -> int:
        """The number of workers that an event has cost alone, if it must not begin any more; else
        0."""
        return self._search.note.lost if position == self._given_up else 0

    def look(self) -> None:
        """Events have arrived or ended, or there are no more."""
        self._news.set()
        if self._left is not None and not self._left.done() and self._search.have_ended:
            self._left.set_result(None)

    def stop(self) -> None:
        """Let nothing more in."""
        if not self.is_over:
            self._task.cancel()
            if self._gate.lease.held:
                self._floor.doubt = self._cleared

    @property
    def _cleared(self) -> Doubt:
        """The note while nothing of it is at work."""
        return self._search.note._replace(reach=-1, begun=0)

    async def _work(self) -> None:
        search, gate = self._search, self._gate
        while True:
            if search.guilty is not None or search.more() is not None:
                async with gate.alone():
                    await self._try()
            elif gate.is_read or not search.may_have_more:
                break
            else:
                self._news.clear()
                await self._news.wait()
        await self._note(Doubt(begun=gate.window))
        gate.let_in(inf)

    async def _try(self) -> None:
        """Let one part after the other in, as long as there is one."""
        search = self._search
        while True:
            self._given_up = search.guilty
            if self._given_up is not None:
                reach = self._given_up + 1
            elif (note := search.more()) is not None:
                await self._note(note)
                search.begin(note)
                reach = search.reach
            else:
                break
            self._left = asyncio.get_running_loop().create_future()
            self._gate.let_in(reach)
            await self._gate.until_left(self._left)
        await self._note(self._cleared)

    async def _note(self, doubt: Doubt) -> None:
        """Have it written. When the lease is over, the next owner has to know what was at work
        then: nothing more is noted."""
        from nats.errors import Error

        while True:
            if self._gate.lease.held:
                self._floor.doubt = doubt
                with suppress(Error, TimeoutError):
                    await self._floor.settle()
                    return
            await asyncio.sleep(_PAUSE)
