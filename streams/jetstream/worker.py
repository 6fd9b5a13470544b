"""A worker: owns its share of the partitions, and runs the pipeline on what they deliver."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from orjson import dumps, loads

from streams import clock
from streams.engine import Engine
from streams.errors import BuildError
from streams.faults import retry, route
from streams.jetstream.assignment import assign
from streams.jetstream.connection import jetstream
from streams.jetstream.deliveries import Deliveries
from streams.jetstream.layout import token
from streams.jetstream.lease import take
from streams.jetstream.letters import JetStreamLetters
from streams.jetstream.outbox import Outbox
from streams.jetstream.partition import Partition
from streams.running import Report, Running

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js.kv import KeyValue

    from streams.faults import DeadLetter
    from streams.jetstream.layout import Layout
    from streams.pipeline import Pipeline

__all__ = ["Worker", "members_of"]

_ATTEMPTS = 3
# A partition is compared with what the server knows so often, in seconds.
_LOOK = 1.0


class Worker:
    """Renews its leases five times in their length; takes and hands over as workers come and go.

    A partition that is handed over is read no more, what of it is in the pipeline ends, and the
    next owner goes on at once. A lease that is lost cancels the running: what it had begun is
    nobody's word any more. Another running begins with the partitions that are left.
    """

    def __init__(
        self,
        client: Client,
        layout: Layout,
        pipeline: Pipeline,
        *,
        name: str = "",
        ttl: float = 10.0,
        drain_deadline: float = 20.0,
        limit: tuple[int, int] | None = None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        if ttl <= 0:
            raise BuildError(f"a lease of {ttl:g} s: must be positive seconds")
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.running: Running | None = None
        self.partitions: dict[int, Partition] = {}
        self.restarts = 0
        self._id = token(self.name)
        self._client = client
        self._js = jetstream(client, max(0.5, ttl / 4))
        self._layout = layout
        self._pipeline = pipeline
        self._ttl = ttl
        self._drain_deadline = drain_deadline
        self._limit = limit
        self._warn = warn
        self._since = clock.wall()
        self._count = 0
        self._table: KeyValue | None = None
        self._leaving = False
        self._lost = False
        self._alarm: asyncio.TimerHandle | None = None
        self._work: dict[Partition, asyncio.Task[None]] = {}
        self._outbox = Outbox(client)
        letters = JetStreamLetters(
            lambda: self._outbox, layout.letters, layout.letters_subject, self._id_of
        )
        self._deliveries = Deliveries(layout.stream, letters)
        self._engine = Engine(
            self._deliveries.flowable,
            retry(_ATTEMPTS, then=route(letters)),
            unique_by=layout.identity,
        )

    def begin_drain(self, deadline: float | None = None, *, by_signal: bool = False) -> None:
        """Take in no more, finish what is in, hand all partitions over; `run` then returns."""
        self._leaving = True
        if self.running is not None:
            self.running.begin_drain(deadline, by_signal=by_signal)

    def cancel(self) -> None:
        """Stop at once; what is unfinished goes to other workers when they have the leases."""
        self._leaving = True
        if self.running is not None:
            self.running.cancel()

    async def run(self) -> Report:
        """Work until it is drained, or an error ends the pipeline, which is raised; report."""
        self._count = await self._layout.prepare(self._client)
        self._table = await self._layout.leases(self._js, self._ttl)
        self._floors = await self._layout.floors(self._js)
        self._floors.start()
        await self._outbox.start()
        keeping = asyncio.create_task(self._keep(), name="penstock leases")
        try:
            while True:
                self._lost = False
                self.running = self._pipeline.start(
                    drain_deadline=self._drain_deadline, limit=self._limit, engine=self._engine
                )
                if self._leaving:
                    self.running.begin_drain(self._drain_deadline, by_signal=True)
                for partition in self.partitions.values():
                    partition.begin_anew()
                    self._attend(partition)
                report = await self.running.wait()
                if self._leaving or not self._lost:
                    return report
                self.restarts += 1
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await self._go()
            await self._floors.stop()
            await self._outbox.stop()

    async def _keep(self) -> None:
        """Renew, take and hand over, until this task is cancelled."""
        looked = 0.0
        while True:
            began = clock.monotonic()
            try:
                await self._tick()
            except Exception as error:
                # The servers are away, or choose a leader. Leases end by the clock.
                self._warn(f"worker {self.name}: {type(error).__name__}: {error}")
            self._drop_lost()
            if began - looked >= _LOOK:
                looked = began
                for partition in self.partitions.values():
                    self._attend(partition)
            await asyncio.sleep(max(0.0, self._ttl / 5 - (clock.monotonic() - began)))

    async def _tick(self) -> None:
        table = self._table
        assert table is not None
        renewed = await asyncio.gather(
            table.put(f"m.{self._id}", self._about()),
            *(partition.lease.renew(self._ttl) for partition in self.partitions.values()),
            return_exceptions=True,
        )
        self._drop_lost()
        for error in renewed:
            if isinstance(error, Exception):
                raise error
        if self._lost or self._leaving:
            return
        workers = {self._id, *await members_of(table, self._js, self._layout)}
        mine = {one for one, worker in assign(self._count, workers).items() if worker == self._id}
        for number in set(self.partitions) - mine:
            self._work_on(self.partitions[number], partial(self._hand_over, number))
        await asyncio.gather(*(self._take(one) for one in mine - set(self.partitions)))

    def _drop_lost(self) -> None:
        """Give up what a lease has been lost for, at its deadline at the latest."""
        lost = [one for one in self.partitions.values() if not one.lease.held]
        for partition in lost:
            del self.partitions[partition.number]
            self._work_on(partition, partition.abandon, at_once=True)
        if lost and self.running is not None and not self._leaving:
            numbers = ", ".join(str(partition.number) for partition in lost)
            self._warn(
                f"worker {self.name} lost the lease of partition {numbers}: what it had begun is "
                "given up, and begun again by the owner"
            )
            self._lost = True
            self.running.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        if self.partitions:
            loop = asyncio.get_running_loop()
            first = min(partition.lease.deadline for partition in self.partitions.values())
            self._alarm = loop.call_later(max(0.0, first - clock.monotonic()), self._drop_lost)

    def _attend(self, partition: Partition) -> None:
        self._work_on(partition, partition.look)

    def _work_on(
        self,
        partition: Partition,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        at_once: bool = False,
    ) -> None:
        """Do something about a partition beside the renewals; one thing at a time, or `at_once`
        instead of what is under way."""
        under_way = self._work.get(partition)
        if under_way is not None and not under_way.done():
            if not at_once:
                return
            under_way.cancel()
        task = asyncio.create_task(work(), name=f"penstock partition {partition.number}")
        self._work[partition] = task
        task.add_done_callback(partial(self._worked, partition))

    def _worked(self, partition: Partition, task: asyncio.Task[None]) -> None:
        if self._work.get(partition) is task:
            del self._work[partition]
        if not task.cancelled() and (error := task.exception()) is not None:
            # It is tried again in the next round: opened anew where opening has failed.
            self._warn(
                f"worker {self.name}, partition {partition.number}: {type(error).__name__}: {error}"
            )

    async def _take(self, number: int) -> None:
        assert self._table is not None
        owner = self._id.encode()
        lease = await take(self._table, f"p.{number}", owner, self._ttl, clock.monotonic)
        if lease is not None:
            partition = Partition(
                number,
                lease,
                self._client,
                self._layout,
                self._deliveries,
                self._floors,
                self._attend,
            )
            self.partitions[number] = partition
            self._attend(partition)

    async def _hand_over(self, number: int) -> None:
        partition = self.partitions[number]
        await partition.stop()
        if self.partitions.pop(number, None) is not None:
            await partition.lease.release()

    async def _go(self) -> None:
        """Hand everything over, as far as the servers can be reached."""
        for task in list(self._work.values()):
            task.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        with suppress(Exception):
            async with asyncio.timeout(self._ttl):
                await asyncio.gather(*(self._hand_over(one) for one in list(self.partitions)))
                if self._table is not None:
                    await self._table.delete(f"m.{self._id}")

    def _id_of(self, letter: DeadLetter) -> str:
        """That of the message it came of: it may fail again after a take-over."""
        return f"{self._layout.stream}:{getattr(letter.token, 'sequence', letter.token)}"

    def _about(self) -> bytes:
        statistics: dict[str, Any] = {} if self.running is None else self.running.statistics()
        return dumps(
            {
                "name": self.name,
                "since": self._since,
                "partitions": sorted(self.partitions),
                "finished": statistics.get("finished", 0),
                "failed": statistics.get("failed", 0),
                "in_flight": statistics.get("in_flight", 0),
                "waiting": statistics.get("waiting", 0),
                "restarts": self.restarts,
                "at": clock.wall(),
            }
        )


async def members_of(table: KeyValue, js: Any, layout: Layout) -> dict[str, dict[str, Any]]:
    """The workers that are there, by id, with what each says of itself."""
    from nats.js.errors import NotFoundError

    prefix = f"$KV.{layout.stream}."
    info = await js.stream_info(f"KV_{layout.stream}", subjects_filter=f"{prefix}m.>")
    members: dict[str, dict[str, Any]] = {}
    subjects: dict[str, int] = info.state.subjects or {}
    for subject in subjects:
        with suppress(NotFoundError):
            entry = await table.get(subject.removeprefix(prefix))
            members[subject.rpartition(".")[2]] = loads(entry.value or b"{}")
    return members
