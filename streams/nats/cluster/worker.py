"""A worker: owns a share of the partitions, and runs the pipeline on their events."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.streams.base import clock
from penstock.streams.base.errors import BuildError, StreamMissing
from penstock.streams.failures.policy import retry, route
from penstock.streams.nats.client.answers import answered, has_no_answer
from penstock.streams.nats.client.outbox import Outbox
from penstock.streams.nats.cluster.assignment import assign
from penstock.streams.nats.cluster.deliveries import Deliveries
from penstock.streams.nats.cluster.layout import token
from penstock.streams.nats.cluster.letters import JetStreamLetters, id_of
from penstock.streams.nats.cluster.members import News, about
from penstock.streams.nats.cluster.roster import LEASE
from penstock.streams.nats.partition.partition import Partition
from penstock.streams.pipelines.pipeline import Engine
from penstock.streams.pipelines.running import Report, Running
from penstock.streams.runtime.tasks import new_task

if TYPE_CHECKING:
    from penstock.streams.nats.client.client import Client
    from penstock.streams.nats.cluster.layout import Layout
    from penstock.streams.nats.cluster.roster import Roster
    from penstock.streams.pipelines.pipeline import Pipeline

__all__ = ["ATTEMPTS", "Worker"]

Beside = Callable[[Running], Awaitable[AbstractAsyncContextManager[object]]]

ATTEMPTS = 3
"""The default number of attempts for an event."""

# Seconds until failed work on a partition is tried again, and after which a worker says that
# another one has what is its own share.
_LOOK, _SAY = 1.0, 10.0
# Least seconds between two looks at the roster.
_GATHERED = 0.02


class Worker:
    """Renews its leases five times in their length; takes and hands over partitions as workers join
    and leave, which they announce, and which it also checks twenty times in that length.

    A partition that is handed over is no longer read; its events in the pipeline are finished, and
    the next owner continues at once. A lost lease cancels the run: its unfinished work does not
    count. Another run begins with the remaining partitions. A worker whose streams have been
    deleted ends with StreamMissing. One that comes before the first publisher, and was not told how
    to make the stream, waits for it.
    """

    def __init__(
        self,
        client: Client,
        layout: Layout,
        pipeline: Pipeline,
        *,
        name: str = "",
        ttl: float | None = None,
        attempts: int = ATTEMPTS,
        drain_deadline: float = 20.0,
        limit: tuple[int, int] | None = None,
        warn: Callable[[str], None] = lambda text: None,
        beside: Beside | None = None,
    ) -> None:
        """`beside` is entered with each run, from its start to its end."""
        if ttl is not None and ttl <= 0:
            raise BuildError(f"a lease of {ttl:g} s: must be positive seconds")
        if attempts < 1:
            raise BuildError(f"{attempts} attempts: at least 1 is needed")
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.running: Running | None = None
        self.partitions: dict[int, Partition] = {}
        self.restarts = 0
        # Two workers may have been given one name, by mistake or on purpose.
        self._id = f"{token(self.name)}-{uuid4().hex[:8]}"
        self._client = client
        self._layout = layout
        self._pipeline = pipeline
        self._ttl_wanted, self._ttl = ttl, LEASE
        self._attempts = attempts
        # The last owners of partitions whose leases this worker lost although its loop was running.
        self._blameless: dict[int, str] = {}
        self._drain_deadline = drain_deadline
        self._limit = limit
        self._warn = warn
        self._beside = beside
        self._since = clock.wall()
        self._roster: Roster | None = None
        # Whether it has announced itself.
        self._known = False
        self._news = News(client, layout.news)
        self._leaving = False
        self._lost = False
        # Whether the streams may have been deleted, since when they are not there, and the error.
        self._doubtful = False
        self._missing_since = inf
        self._failure: Exception | None = None
        # What was warned of, and when last.
        self._warned: set[str] = set()
        self._failed_at = -inf
        # Since when not all of its share is there, and whether that was said.
        self._lacks_since, self._lacks_warned = inf, False
        self._alarm: asyncio.TimerHandle | None = None
        self._work: dict[Partition, asyncio.Task[None]] = {}
        self._outbox = Outbox(client)
        letters = JetStreamLetters(
            lambda: self._outbox,
            layout.letters,
            layout.letters_subject,
            partial(id_of, layout.stream),
        )
        self._deliveries = Deliveries(layout.stream, letters)
        self._engine = Engine(
            self._deliveries.flowable,
            retry(attempts, then=route(letters)),
            unique_by=layout.identity,
            moves_states=True,
        )

    @property
    def layout(self) -> Layout:
        """The layout, as it is on the servers once it has begun."""
        return self._layout

    @property
    def id(self) -> str:
        """The name by which it owns partitions."""
        return self._id

    def begin_drain(self, deadline: float | None = None, *, by_signal: bool = False) -> None:
        """Take in no more, finish what has begun, hand all partitions over; `run` then returns."""
        self._leaving = True
        for number, partition in self.partitions.items():
            partition.leave()
            self._work_on(partition, partial(self._hand_over, number), at_once=True)
        if self.running is not None:
            self.running.begin_drain(deadline, by_signal=by_signal)

    def cancel(self) -> None:
        """Stop at once; what is unfinished goes to other workers when they have the leases."""
        self._leaving = True
        if self.running is not None:
            self.running.cancel()

    async def run(self) -> Report:
        """Work until drained; returns the report. Raises the error that ends the pipeline,
        StreamMissing when its streams are not there any more, and StreamDiffers when they have
        other settings."""
        if self._layout.is_sized or await answered(lambda: self._layout.exists(self._client)):
            await self._open()
        await self._news.start()
        await self._outbox.start()
        keeping = new_task(self._keep(), "penstock leases")
        try:
            while True:
                self._lost = False
                self.running = self._pipeline.start(
                    drain_deadline=self._drain_deadline, limit=self._limit, engine=self._engine
                )
                async with AsyncExitStack() as beside:
                    if self._beside is not None:
                        await beside.enter_async_context(await self._beside(self.running))
                    if self._leaving:
                        self.running.begin_drain(self._drain_deadline, by_signal=True)
                    for partition in self.partitions.values():
                        partition.begin_anew()
                        self._attend(partition)
                    report = await self.running.wait()
                if self._failure is not None:
                    raise self._failure
                if self._leaving or not self._lost:
                    return report
                self.restarts += 1
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await self._go()
            await self._news.stop()
            if self._roster is not None:
                await self._floors.stop()
            await self._outbox.stop()

    async def _open(self) -> None:
        """Learn the layout, and make what does not exist yet."""
        self._layout = await self._layout.prepare(self._client)
        roster = await self._layout.roster(self._client, self._ttl_wanted)
        self._ttl = roster.ttl
        self._floors = await self._layout.floors(roster.js)
        self._floors.start()
        self._roster = roster

    async def _wait_for_stream(self) -> None:
        """Wait until the first publisher has made the stream, who decides on its size."""
        self._warn(
            f"worker {self.name} waits for '{self._layout.name}', which has no stream yet: the "
            "first `penstock publish` makes it, or a worker that is given --partitions"
        )
        there = False
        while not there:
            await asyncio.sleep(_LOOK)
            try:
                there = await self._layout.exists(self._client)
            except Exception as error:
                # The servers are unavailable, or electing a leader.
                self._failed(error)

    async def _keep(self) -> None:
        """Renew, take and hand over, until this task is cancelled."""
        if self._roster is None:
            await self._wait_for_stream()
            try:
                await self._open()
            except Exception as error:
                assert self.running is not None
                self._failure = error
                self.running.cancel()
                return
        roster = self._roster
        assert roster is not None
        renewed = looked = checked = -inf
        while True:
            began = clock.monotonic()
            self._news.clear()
            try:
                if began >= renewed + self._ttl / 5:
                    renewed = began
                    await self._renew()
                if not self._lost and not self._leaving:
                    await self._share()
            except Exception as error:
                # The servers are unavailable, or electing a leader. Leases expire by the clock.
                self._failed(error)
            # Some are not used for as long as nothing happens.
            if self._doubtful or began >= checked + self._ttl:
                checked = began
                await self._look_for_streams()
            self._drop_lost()
            if began >= looked + _LOOK:
                looked = began
                for partition in self.partitions.values():
                    self._attend(partition)
            # News from several workers is handled together.
            await asyncio.sleep(_GATHERED)
            due = min(renewed + self._ttl / 5, began + self._ttl / 20, roster.soonest)
            await self._news.wait(max(0.0, due - clock.monotonic()))

    async def _renew(self) -> None:
        roster = self._roster
        assert roster is not None
        renewed = await asyncio.gather(
            roster.announce(
                self._id,
                about(
                    *(self.name, self._since, self.partitions, self.restarts, self.running),
                    self._deliveries.restoring(),
                ),
            ),
            *(partition.lease.write(self._ttl) for partition in self.partitions.values()),
            return_exceptions=True,
        )
        self._drop_lost()
        for error in renewed:
            if isinstance(error, Exception):
                raise error
        if not self._known:
            self._known = True
            await self._news.publish()

    async def _share(self) -> None:
        """Hand over the partitions of others' shares, and take free ones of our own share."""
        assert self._roster is not None
        members = await self._roster.members()
        shares = assign(len(self._layout.numbers), {self._id, *members})
        mine = {one for one, worker in shares.items() if worker == self._id}
        for number in set(self.partitions) - mine:
            self._work_on(self.partitions[number], partial(self._hand_over, number))
        await asyncio.gather(*(self._take(one) for one in mine - set(self.partitions)))
        await self._say_what_is_missing(mine, members)

    async def _say_what_is_missing(
        self, mine: set[int], members: dict[str, dict[str, Any]]
    ) -> None:
        """Say it once if others have partitions of the share of this worker for long, or if there
        are too few for all."""
        missing, now = sorted(mine - set(self.partitions)), clock.monotonic()
        if mine and not missing:
            self._lacks_since = inf
            return
        self._lacks_since = min(self._lacks_since, now)
        waited = now - self._lacks_since
        if waited < max(_SAY, 2 * self._ttl) or self._lacks_warned:
            return
        self._lacks_warned = True
        self._deliveries.silences += 1
        if not missing:
            self._warn(
                f"worker {self.name} has nothing to do, because '{self._layout.name}' has more "
                f"workers ({len(members)}) than partitions ({len(self._layout.numbers)}). It takes "
                "over when another one leaves"
            )
            return
        assert self._roster is not None
        owner = members.get(await self._roster.owner(missing[0]), {}).get("name", "nobody")
        self._warn(
            f"worker {self.name} has waited {waited:.0f} s for partition {missing[0]} of its share "
            f"(and {len(missing) - 1} more), which {owner} has: a partition is handed over "
            "when the calls that have begun have ended"
        )

    def _drop_lost(self) -> None:
        """Abandon partitions whose lease is lost, at its deadline at the latest."""
        lost = [one for one in self.partitions.values() if not one.lease.held]
        for partition in lost:
            if clock.monotonic() < partition.lease.until + self._ttl / 5:
                # The loop was not blocked: the servers were unavailable, or the lease was deleted.
                self._blameless[partition.number] = partition.owner
            del self.partitions[partition.number]
            self._work_on(partition, partition.abandon, at_once=True)
        if lost and self.running is not None:
            numbers = ", ".join(str(partition.number) for partition in lost)
            self._warn(
                f"worker {self.name} lost the lease of partition {numbers}: what it had begun is "
                "abandoned, and begun again by the new owner"
            )
            self._lost = True
            self.running.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        if self.partitions:
            loop = asyncio.get_running_loop()
            first = min(partition.lease.until for partition in self.partitions.values())
            self._alarm = loop.call_later(max(0.0, first - clock.monotonic()), self._drop_lost)

    def _failed(self, error: BaseException, where: str = "") -> None:
        """Warn of an error, once until there has been none for as long as a lease."""
        from nats.js.errors import NoStreamResponseError, NotFoundError

        now = clock.monotonic()
        if now > self._failed_at + self._ttl:
            self._warned.clear()
        self._failed_at = now
        self._doubtful |= isinstance(error, (NotFoundError, NoStreamResponseError))
        text = f"worker {self.name}{where}: {type(error).__name__}: {error}"
        if has_no_answer(error):
            text = (
                f"worker {self.name} waits for the NATS servers of '{self._layout.name}', which do "
                f"not answer ({type(error).__name__}): they have no leader, or most of them are "
                "away. It tries again; what it holds is left to others when its leases run out"
            )
            if text not in self._warned:
                self._deliveries.silences += 1
        if not self._client.is_connected:
            text = f"worker {self.name} is not connected: {self._client.last_error}"
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)

    async def _look_for_streams(self) -> None:
        """End when streams are not there for as long as a lease: those that servers forget while
        they start come back."""
        from nats.errors import Error

        assert self._roster is not None
        try:
            missing = await self._layout.missing(self._roster.js, self._floors.born)
        except (Error, TimeoutError):
            return
        self._doubtful = bool(missing)
        if not missing:
            self._missing_since = inf
            return
        now = clock.monotonic()
        self._missing_since = min(self._missing_since, now)
        if now < self._missing_since + self._ttl or self.running is None:
            return
        self._failure = StreamMissing(
            f"The stream '{missing}' has been deleted or created again, or the servers have lost "
            f"it; without it the workers of '{self._layout.name}' cannot know what is done. Start "
            "them again: what is missing is created, the stream of the events by a publisher."
        )
        self.running.cancel()

    def _attend(self, partition: Partition) -> None:
        # Its consumer is gone, perhaps with its stream.
        self._doubtful |= partition.reads_anew
        self._work_on(partition, partition.look)

    def _work_on(
        self,
        partition: Partition,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        at_once: bool = False,
    ) -> None:
        """Run work on a partition concurrently with the renewals; one task at a time, or `at_once`
        in place of the present one."""
        under_way = self._work.get(partition)
        if under_way is not None and not under_way.done():
            if not at_once:
                return
            under_way.cancel()
        task = new_task(work(), f"penstock partition {partition.number}")
        self._work[partition] = task
        task.add_done_callback(partial(self._worked, partition))

    def _worked(self, partition: Partition, task: asyncio.Task[None]) -> None:
        if self._work.get(partition) is task:
            del self._work[partition]
        if not task.cancelled() and (error := task.exception()) is not None:
            # It is tried again in the next round: opened anew where opening has failed.
            self._failed(error, f", partition {partition.number}")

    async def _take(self, number: int) -> None:
        assert self._roster is not None
        lease = await self._roster.take(number, self._id.encode())
        if lease is not None:
            partition = Partition(
                number,
                lease,
                self._client,
                self._layout,
                self._deliveries,
                self._floors,
                self._attend,
                attempts=self._attempts,
                blameless=self._blameless.pop(number, ""),
            )
            self.partitions[number] = partition
            self._attend(partition)

    async def _hand_over(self, number: int) -> None:
        partition = self.partitions[number]
        await partition.stop()
        if self.partitions.pop(number, None) is not None:
            await partition.lease.release()
            await self._news.publish()

    async def _go(self) -> None:
        """Hand everything over, as far as the servers can be reached."""
        for task in list(self._work.values()):
            task.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        with suppress(Exception):
            async with asyncio.timeout(self._ttl):
                if self._roster is not None:
                    await self._roster.leave(self._id)
                await asyncio.gather(*(self._hand_over(one) for one in list(self.partitions)))
