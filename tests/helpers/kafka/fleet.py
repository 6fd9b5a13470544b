"""Processes of a group on virtual time, each with a store whose states move with partitions, and
random moves of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock import Flowable, Store, collect
from penstock.streams.base.errors import CannotOpen
from penstock.streams.kafka.offsets.stored import Done, done_in
from penstock.streams.state.backend import NotNow, Unit
from penstock.streams.testing.fleet import Fleet, FleetMember
from tests.helpers.kafka.model import Broker, Member

__all__ = ["Build", "Mortal", "Process", "Walk", "floors", "until"]

Build = Callable[[Store, dict[str, Any]], Flowable[Any]]
"""What a process does with its store and the settings of its clients."""


class Mortal(FleetMember):
    """The backend of a process that may be killed, and that commits nothing while its group does
    not know it, as with a changelog of Kafka."""

    is_dead = False

    def commit(self, unit: Unit) -> None:
        if self.is_dead:
            raise CannotOpen("killed")
        if unit.partitions and not any(places for _, places in unit.fences):
            raise NotNow("this member is not in the group now")
        super().commit(unit)


class Process:
    """A member of the group, with a store of the fleet."""

    def __init__(
        self,
        broker: Broker,
        fleet: Fleet,
        build: Build,
        *,
        every: float = 0.02,
        backend: type[Mortal] = Mortal,
    ) -> None:
        self.backend = backend(fleet)
        self.store = Store.of(self.backend, "fleet", every=every)
        self.found: list[Any] = []
        self._broker = broker
        config = {"client.id": f"process {id(self)}"}
        self._id = config["client.id"]
        self.running = build(self.store, config).to(collect(self.found)).start()

    @property
    def clients(self) -> list[Member]:
        """Its clients, of which one is in the group when it has joined."""
        return [one for one in self._broker.clients if one.settings["client.id"] == self._id]

    @property
    def member(self) -> Member:
        """Its client in the group, or one that is not in it if it has not joined."""
        return next((one for one in self.clients if one.topics), self.clients[0])

    def kill(self) -> None:
        self.backend.is_dead = True
        for client in self.clients:
            client.kill()
        self.running.cancel()


def floors(fleet: Fleet) -> int:
    """The records that are done, of all partitions."""
    done = [done_in(mark) for one in fleet.partitions.values() for mark in one.marks.values()]
    return sum(one.floor for one in done if isinstance(one, Done))


async def until(true: Any, patience: float = 600) -> None:
    async with asyncio.timeout(patience):
        while not true():  # noqa: ASYNC110 - many things may make it true
            await asyncio.sleep(0.05)


class Walk:
    """Random members that come, go, are killed, and are given up while they go on, while `writes`
    are made one after another. A subclass says what a member does in `build`."""

    def __init__(self, draw: random.Random, broker: Broker) -> None:
        self.draw = draw
        self.broker = broker
        self.every = draw.choice([0.0, 0.02, 0.3])
        late = draw.choice([0.0, 0.0, 0.05, 0.7])
        broker.naming = lambda: draw.random() * late
        self.fleet = Fleet()
        refuses = draw.choice([0.0, 0.0, 0.1, 0.5])
        self.fleet.refuse = lambda: draw.random() < refuses
        self.processes: list[Process] = []
        self._all: list[Process] = []

    def build(self, store: Store, config: dict[str, Any]) -> Flowable[Any]:
        raise NotImplementedError

    def start(self) -> None:
        self.processes.append(Process(self.broker, self.fleet, self.build, every=self.every))
        self._all.append(self.processes[-1])

    def _take(self) -> Process:
        return self.processes.pop(self.draw.randrange(len(self.processes)))

    def results(self) -> list[Any]:
        """The results of all members, also of those that have gone."""
        return [one for process in self._all for one in process.found]

    async def run(
        self,
        writes: list[Callable[[], object]],
        last: Callable[[int], object],
        is_done: Callable[[], bool],
    ) -> None:
        """Make all writes, and then the last ones until it is done: what was done ahead of an event
        that comes again moves the watermark with the next event only."""
        draw, n = self.draw, 0
        self.start()
        while n < len(writes) or draw.random() < 0.5:
            for _ in range(draw.randint(0, 8)):
                if n < len(writes):
                    writes[n]()
                    n += 1
            await asyncio.sleep(draw.choice([0, 0.01, 0.1, 1, 5]))
            step = draw.random()
            if step < 0.25 and len(self.processes) < 4:
                self.start()
            elif step < 0.4 and self.processes:
                self._take().kill()
            elif step < 0.5 and self.processes:
                await self._take().running.drain(5)
            elif step < 0.65 and self.processes:
                for member in draw.choice(self.processes).clients:
                    if member in self.broker.members:
                        self.broker.expire(member)
        if not self.processes:
            self.start()
        for times in range(20):
            last(times)
            with suppress(TimeoutError):
                await until(is_done, patience=60)
                break
        assert is_done()
        for process in self.processes:
            await process.running.drain(10)
