"""A worker on NATS JetStream: requests jobs, renews their leases, and reports their outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.streams.base.errors import PenstockError
from penstock.streams.base.take_front import taken
from penstock.streams.delivery.leased_source import LeasedSource
from penstock.streams.nats.client.connection import connect
from penstock.streams.nats.client.place import place_of
from penstock.streams.nats.client.requests import Requests
from penstock.streams.nats.streams.leases import Leases
from penstock.streams.nats.streams.replies import ACK, TERM, Replies, later
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.tasks import new_task
from penstock.streams.work_pulling.job_message import Parcel, RemoteJob, jobs_in
from penstock.streams.work_pulling.reports import Reports
from penstock.streams.work_pulling.wire import BEAT, CONSUMER, Wire

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from penstock.streams.failures.policy import DeadLetter
    from penstock.streams.nats.client.client import Client
    from penstock.streams.nats.client.message import Message

__all__ = ["JetStreamWorker"]

# Besides the jobs in progress, a worker holds those that it finishes in this many seconds, so that
# it need not wait for the servers; only quick jobs, or other workers would be idle while jobs wait
# here.
_AHEAD = 0.02
_MOST_AHEAD = 512
# Seconds after which a job of a lost master is looked at again.
_LATER = 5.0
# Seconds over which the rate is measured, and between two announcements of the capacity.
_MEASURED, _PAUSE = 0.05, 0.01
# The least fraction of the time that counts as busy.
_BUSY = 0.125


class JetStreamWorker(LeasedSource[RemoteJob]):
    """The jobs of one run of a worker, as its source. It never ends by itself.

    Jobs of the parcels that the leases hold have arrived, are in the pipeline, or are not reported
    yet. A job whose lease ran out before it began is returned instead of begun, and one that comes
    while another has to be alone.
    """

    _client: Client | None = None
    _requests: Requests | None = None
    _replies: Replies
    _leases: Leases[str, Parcel]
    _reports: Reports
    _stopping: asyncio.Task[None] | None = None

    def __init__(self, downstream: Subscriber[Any], run: Run, info: StageInfo, wire: Wire) -> None:
        super().__init__(downstream, run, info)
        self.id = uuid4().hex[:12]
        self.ack = self._acknowledge
        self.nack = self._came_back
        self._wire = wire
        self._in_pipe = 0
        # The job that waits until it is alone here, or is.
        self._alone: RemoteJob | None = None
        # The number of jobs in the last parcel.
        self._size = 1
        self._ahead = 0
        self._finished_then, self._then = 0, 0.0
        # Since when the worker has been idle for lack of jobs, and its earlier idle time.
        self._dry_since: float | None = None
        self._dry = 0.0
        self._announced_capacity = -1
        self._news = asyncio.Event()

    @property
    def capacity(self) -> int:
        """How many jobs the worker can hold in all."""
        return 0 if self.state else self.demand + self._ahead + self._in_pipe

    # Connecting.

    def open(self) -> None:
        self.run.on_close(self._disconnect)
        self.run.spawn(self._open(), "jobs", stage=self)

    def event(self, token: RemoteJob, now: float, /) -> Event[Any]:
        self._in_pipe += 1
        return Event(token.value, now, self, token)

    def has_room(self) -> None:
        if self.demand and self._dry_since is None:
            self._dry_since = self.run.now()
        if self._requests is not None:
            self._requests.look()
            if self.capacity != self._announced_capacity:
                self._news.set()

    async def _open(self) -> None:
        wire = self._wire
        try:
            client: Any = await connect(wire.servers, name=f"worker of {wire.name}", counts=False)
            self._client = client
            lease = await wire.prepare(client)
            await client.listen(wire.subject("call"), self._called)
        except PenstockError as error:
            self.fail(error)
            return
        if self.state:
            return
        self._replies = Replies(client)
        self._reports = Reports(client, wire, self)
        self._requests = Requests(client, wire.stream, CONSUMER, self._room, self._came, self.fail)
        self._leases = Leases(client, wire.stream, CONSUMER, lease, self.run.now)
        await self._requests.start()
        self.run.spawn(self._renew(), "leases of jobs", stage=self)
        self.run.spawn(self._greet(), "greetings", stage=self)

    async def _renew(self) -> None:
        while True:
            await self._leases.renew()

    def holds(self, token: RemoteJob, /) -> bool:
        return token.parcel.lease.held

    async def _called(self, message: Msg) -> None:
        self._announced_capacity = -1
        self._news.set()

    async def _greet(self) -> None:
        """Say hello at intervals, and when another number of jobs fits."""
        from nats.errors import Error

        assert self._client is not None
        while True:
            self._news.clear()
            with suppress(Error):
                await self._client.publish(self._wire.subject("hello"), self._reports.hello())
            await asyncio.sleep(_PAUSE)
            try:
                async with asyncio.timeout(BEAT):
                    await self._news.wait()
            except TimeoutError:
                self._trim()

    def announced(self, capacity: int) -> None:
        """The master is being informed of the capacity."""
        self._announced_capacity = capacity

    # Jobs.

    def _room(self) -> int:
        """How many messages may be on request."""
        if self.state or self._alone is not None:
            return 0
        return -(-(self.demand + self._ahead - len(self.arrived)) // self._size)

    def _came(self, message: Message) -> None:
        leases = self._leases
        if (known := leases.held.get(message.subject)) is not None:
            # Its lease was over: another worker may still ask for what has not begun.
            known.reply = message.reply
            return
        try:
            jobs = jobs_in(message)
        except ValueError as error:
            # Nobody waits for it, and no other worker could read it either.
            self._replies.send(message.reply, TERM)
            self.run.errors.warn(
                f"a message of {len(message.data):,} bytes on {message.subject} is not a parcel of "
                f"jobs, and was taken out of the queue: {error}"
            )
            return
        self._count_dry(self.run.now())
        self._dry_since = None
        parcel = leases.held[message.subject] = Parcel(message, len(jobs), leases.newest)
        self._size = len(jobs)
        again = place_of(message.reply).delivered > 1
        for number, generation, value in jobs:
            job = RemoteJob(self, parcel, number, generation, value)
            if again:
                self._reports.tell("asked", job, partial(self._settle, job))
            elif self.state or self._alone is not None:
                self.give_back((job,))
            elif parcel.is_alone:
                self._alone = job
                self.give_back(taken(self.arrived, len(self.arrived)))
                self._left(())
            else:
                self.arrived.append(job)
        self.wake_soon()

    def _left(self, events: Sequence[Event[Any]]) -> None:
        """These have left the pipeline: a job that waits to be alone may be."""
        self._in_pipe -= len(events)
        job = self._alone
        if job is None or self._in_pipe:
            return
        if events and events[0].token is job:
            self._alone = None
            self.wake_soon()
        else:
            self._reports.tell("alone", job, partial(self._begin_alone, job))

    def _begin_alone(self, job: RemoteJob, known: bool) -> None:
        if self.state or not known:
            self.give_back((job,))
        else:
            self.arrived.append(job)
        self.wake_soon()

    def _settle(self, job: RemoteJob, known: bool) -> None:
        """A job is done with; `known` says whether its master knows."""
        parcel = job.parcel
        parcel.open -= 1
        parcel.known &= known
        if not parcel.open:
            del self._leases.held[parcel.subject]
            # Without a master, the next one clears the queue.
            self._replies.send(parcel.reply, ACK if parcel.known else later(_LATER))

    def give_back(self, tokens: Iterable[RemoteJob], /) -> None:
        """Return jobs to other workers, without counting an attempt."""
        for job in tokens:
            if job is self._alone:
                self._alone = None
            self._reports.tell("returned", job, partial(self._settle, job))

    # Outcomes.

    def succeeded(self, event: Event[Any], reported: Callable[[], None]) -> None:
        def answered(known: bool) -> None:
            if known:
                event.finish()
            else:
                event.drop("no master")
            reported()
            self._measure()

        job: RemoteJob = event.token
        try:
            self._reports.done(job, event.value, answered)
        except Exception as error:
            # The result cannot be encoded as JSON, or is too large.
            self._reports.failed(job, error, 1, answered)

    def failed_for_good(self, event: Event[DeadLetter], reported: Callable[[], None]) -> None:
        def answered(known: bool) -> None:
            event.finish()
            reported()
            self._measure()

        letter = event.value
        self._reports.failed(event.token, letter.error, letter.attempts, answered)

    def _measure(self) -> None:
        """Jobs finished per second of busy time, counting those known to the master.

        The rate over all the time would keep the read-ahead too small once it is too small.
        """
        now = self.run.now()
        took = now - self._then
        if took >= _MEASURED:
            self._count_dry(now)
            finished = self._finished + self.counts["failed"]
            rate = (finished - self._finished_then) / max(took - self._dry, took * _BUSY)
            self._finished_then, self._then, self._dry = finished, now, 0.0
            self._ahead = min(_MOST_AHEAD, int(rate * _AHEAD))
            self.wake_soon()

    def _count_dry(self, now: float) -> None:
        if self._dry_since is not None:
            self._dry += now - self._dry_since
            self._dry_since = now

    def _trim(self) -> None:
        """Return jobs that would wait here to others, because jobs have become slower."""
        self._measure()
        while len(self.arrived) > self.demand + self._ahead:
            self.give_back((self.arrived.pop(),))

    def _acknowledge(self, events: list[Event[Any]]) -> None:
        self._left(events)
        for event in events:
            self._settle(event.token, True)

    def _came_back(self, events: list[Event[Any]], error: BaseException | None) -> None:
        self._left(events)
        for event in events:
            if error is None:
                self.give_back((event.token,))
            else:
                # It stopped its worker: it counts as lost.
                self._reports.tell("asked", event.token, partial(self._settle, event.token))

    # The end.

    def release(self) -> None:
        super().release()
        if self._requests is None:
            return
        self._stopping = new_task(self._requests.stop(), "penstock jobs", self.run.loop)
        self._news.set()

    async def _disconnect(self) -> None:
        from nats.errors import Error

        client = self._client
        if client is None:
            return
        if self._stopping is not None:
            await self._stopping
        if self._requests is not None:
            await self._requests.stop()
            await self._reports.flush()
            await self._replies.flush()
            with suppress(Error):
                await client.publish(self._wire.subject("hello"), self._reports.hello())
        await client.close()

    def statistics(self) -> dict[str, Any]:
        """The statistics of every source, and the jobs `read_ahead`."""
        return {**super().statistics(), "read_ahead": len(self.arrived)}
