"""A master on NATS JetStream: publishes jobs as workers have room, and receives their reports."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from orjson import Fragment, dumps

from penstock.streams.base import clock
from penstock.streams.base.errors import (
    JobFailed,
    LeaseLost,
    PenstockError,
    PoolBusy,
    RightsMissing,
)
from penstock.streams.io.encoding import encoded
from penstock.streams.nats.client.answers import answered
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.outbox import Outbox
from penstock.streams.nats.cluster.lease_entry import LeaseEntry, take
from penstock.streams.nats.cluster.letters import JetStreamLetters
from penstock.streams.protocol.event import Event
from penstock.streams.work_pulling.decoding import hello_in, report_in
from penstock.streams.work_pulling.wire import ALONE, BEAT, Wire, check_size

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from penstock.streams.failures.policy import DeadLetter
    from penstock.streams.nats.client.client import Client
    from penstock.streams.work_pulling.offering import Offering

__all__ = ["JetStreamMaster"]

# A parcel holds the jobs of this many seconds, by the rate measured over this many, and at most
# this many jobs.
_MOMENT, _MEASURED, _LARGEST = 0.002, 0.05, 64
# The most bytes of a parcel with several jobs, and the overhead of a message.
_BYTES, _FRAME = 65536, 4096
# Seconds after which a silent worker no longer counts.
_GONE = 3.5 * BEAT


class JetStreamMaster:
    """The dispatcher of one run of a master.

    It knows the capacity of each worker, and never has more jobs out than all workers can hold
    together. Jobs travel in parcels, of one job each unless they are quick. A parcel that is
    delivered a second time is not processed: its unreported jobs go out again, each by itself, so
    that a job that kills its workers affects no others. A job that has cost one worker fewer than
    it has attempts goes out to be done alone. It fails for good when it has then cost as many as it
    has attempts.
    """

    offering: Offering

    def __init__(self, wire: Wire, *, patient: bool) -> None:
        self.epic = uuid4().hex[:16]
        self._wire = wire
        self._patient = patient
        self._client: Client | None = None
        self._lease: LeaseEntry | None = None
        self._seconds = wire.lease
        self._outbox: Outbox | None = None
        self._letters = 0
        # Messages that do not come from a worker.
        self.foreign = 0
        self._ready = self._closed = False
        self._crew = _Crew()
        self._began = clock.monotonic()
        # The jobs of the next parcel, and the number of parcels.
        self._packed: list[tuple[int, int, Fragment]] = []
        self._bytes = self._parcels = 0
        self._size = 1
        self._results, self._results_then, self._then = 0, 0, clock.monotonic()
        # For jobs that went out again: how often, and how often because a worker was lost.
        self._generation: dict[int, int] = {}
        self._lost: dict[int, int] = {}
        self._suspect_after = max(1, wire.attempts - 1)
        # Those that have begun, or are about to, beside no other.
        self._alone: set[int] = set()
        # Results that arrived after their job had gone out again; the last of each.
        self._late: dict[int, Any] = {}

    @property
    def room(self) -> int:
        return self._crew.capacity - self.offering.out if self._ready else 0

    @property
    def workers(self) -> int:
        return len(self._crew)

    @property
    def waits_for(self) -> str:
        pool = f"the work pool '{self._wire.name}'"
        if not self._ready:
            return f"the servers, or for the end of another epic in {pool}"
        return "" if self.workers else f"a worker: none has come to {pool}"

    @property
    def letters(self) -> JetStreamLetters:
        """The pool's own dead-letter stream."""
        wire = self._wire
        return JetStreamLetters(self._way_out, wire.letters, wire.subject("dead"), self._number)

    def _way_out(self) -> Outbox:
        assert self._outbox is not None
        return self._outbox

    def _number(self, letter: DeadLetter) -> str:
        self._letters += 1
        return f"{self.epic}.{self._letters}"

    # Life.

    def open(self, offering: Offering) -> None:
        self.offering = offering
        offering.run.on_close(self._disconnect)
        offering.run.spawn(self._begin(), "offer")

    async def _begin(self) -> None:
        wire = self._wire
        try:
            client: Any = await connect(wire.servers, name=f"master of {wire.name}", counts=False)
            self._client = client
            await wire.prepare(client)
            lease = self._lease = await self._be_the_only_one()
            # Jobs left by a dead master, whose results nobody would read.
            js = jetstream(client, 5)
            await answered(lambda: js.purge_stream(wire.stream, subject=wire.jobs(">")))
            self._outbox = Outbox(client)
            await self._outbox.start()
            await client.listen(wire.subject("hello"), self._greeted)
            await client.listen(wire.reports(self.epic), self._reported)
            await client.listen(wire.subject("about"), self._asked)
            self._ready = True
            await client.publish(wire.subject("call"), b"")
        except PenstockError as error:
            self.offering.stop(error)
            return
        await self._stay(lease)

    async def _be_the_only_one(self) -> LeaseEntry:
        assert self._client is not None
        wire = self._wire
        table, self._seconds = await wire.leases(self._client)
        me = self.epic.encode()
        while True:
            lease = await answered(
                lambda: take(table, "master", me, self._seconds, clock.monotonic)
            )
            if lease is not None:
                return lease
            if not self._patient:
                raise PoolBusy(
                    f"the work pool '{wire.name}' has an epic under way already (or its master "
                    f"died less than {self._seconds:g} s ago); wait for its end, or "
                    'offer(..., when_busy="wait") to be next'
                )
            await asyncio.sleep(min(1.0, self._seconds / 5))

    async def _stay(self, lease: LeaseEntry) -> None:
        """Renew the lease and forget silent workers, until the end."""
        from nats.errors import Error

        due = 0.0
        while lease.held:
            now = clock.monotonic()
            if now >= due:
                due = now + self._seconds / 5
                # While no server answers, the lease may expire.
                with suppress(Error, TimeoutError):
                    await lease.write(self._seconds)
            self._crew.forget_the_silent()
            await asyncio.sleep(min(BEAT, self._seconds / 5))
        self.offering.stop(
            LeaseLost(
                f"the master of the work pool '{self._wire.name}' could not renew its lease for "
                f"{self._seconds:g} s: another may have begun. Check the servers."
            )
        )

    def close(self) -> None:
        self._closed = True

    async def _disconnect(self) -> None:
        from nats.errors import Error

        client = self._client
        if client is None:
            return
        if self._outbox is not None:
            await self._outbox.stop()
        if self._lease is not None:
            with suppress(Error, TimeoutError):
                js = jetstream(client)
                await js.purge_stream(self._wire.stream, subject=self._wire.jobs(self.epic) + ".>")
            await self._lease.release()
        await client.close()

    # Jobs.

    def hand_out(self, number: int, event: Event[Any]) -> None:
        assert self._client is not None
        try:
            body = encoded(event.value)
            largest = self._client.max_payload - _FRAME
            check_size("a job", body, largest)
        except Exception as error:
            self.offering.call_soon(self.offering.failed, number, error, 0)
            return
        generation = self._generation.get(number, 0)
        if generation or self._bytes + len(body) > _BYTES:
            self._send()
        if not self._packed:
            self.offering.call_soon(self._send)
        self._packed.append((number, generation, Fragment(body)))
        self._bytes += len(body)
        if generation or len(self._packed) >= self._size:
            self._send(ALONE if self._is_suspect(number) else "")

    def _is_suspect(self, number: int) -> bool:
        """Whether a job has cost so many workers that it may be the cause."""
        return self._lost.get(number, 0) >= self._suspect_after

    def _send(self, kind: str = "") -> None:
        """The packed jobs go out, within the same loop iteration at the latest."""
        if not self._packed or self._closed:
            return
        assert self._outbox is not None
        packed, self._packed, self._bytes = self._packed, [], 0
        self._parcels += 1
        numbers = [number for number, _, _ in packed]
        self._outbox.send(
            f"{self._wire.jobs(self.epic)}.{kind}{self._parcels}",
            dumps(packed),
            f"{self.epic}.{self._parcels}",
            lambda error, known: self._published(numbers, error),
        )

    def _published(self, numbers: list[int], error: Exception | None) -> None:
        if isinstance(error, RightsMissing):
            # No other job could be published either.
            self.offering.stop(error)
        elif error is not None:
            for number in numbers:
                self._give_up(number, error, 0)

    def _measure(self) -> None:
        """A parcel holds the jobs that all workers together do in a moment."""
        now = clock.monotonic()
        took = now - self._then
        if took >= _MEASURED:
            rate = (self._results - self._results_then) / took
            self._results_then, self._then = self._results, now
            self._size = max(1, min(_LARGEST, int(rate * _MOMENT)))

    # Workers.

    async def _greeted(self, message: Msg) -> None:
        try:
            hello = hello_in(message.data)
        except ValueError as error:
            self._foreign(message, error)
            return
        self._crew.hear(*hello)
        self.offering.look()

    def _foreign(self, message: Msg, error: ValueError) -> None:
        """Another program uses a subject of the pool."""
        self.foreign += 1
        if self.foreign == 1:
            self.offering.run.errors.warn(
                f"a message of {len(message.data):,} bytes on {message.subject} is not a worker's, "
                f"and was ignored: {error}"
            )

    async def _asked(self, message: Msg) -> None:
        """Answer a request for the progress of the epic."""
        if not message.reply:
            return
        assert self._client is not None
        use = self.offering.use
        about = {
            "epic": self.epic,
            "seconds": clock.monotonic() - self._began,
            "done": self._results,
            "failed": self._letters,
            "out": self.offering.out,
            "workers": len(self._crew),
            "capacity": self._crew.capacity,
            "busy": use.busy,
            "gain": use.gain,
            "pays": use.pays,
        }
        await self._client.publish(message.reply, dumps(about))

    async def _reported(self, message: Msg) -> None:
        from nats.errors import Error

        try:
            report = report_in(message.data)
        except ValueError as error:
            self._foreign(message, error)
            return
        self._crew.hear(*report.hello)
        if not self._closed:
            for number, generation, value in report.done:
                self._done(number, generation, value)
            for number, generation, kind, text, attempts in report.failed:
                if self._is_current(number, generation):
                    self._give_up(number, JobFailed(f"{kind}: {text}"), attempts)
            self._alone |= {job[0] for job in report.alone if self._is_current(*job)}
            for number, generation in report.returned:
                self._again(number, generation, lost=False)
            for number, generation in report.asked:
                self._again(number, generation, lost=True)
            self._measure()
        assert self._client is not None
        # Without an answer the worker reports again.
        with suppress(Error):
            await self._client.publish(message.reply, b"")
        self.offering.look()

    def _is_current(self, number: int, generation: int) -> bool:
        """Whether this delivery of a job is the current one."""
        return (
            self.offering.job(number) is not None and self._generation.get(number, 0) == generation
        )

    def _done(self, number: int, generation: int, value: Any) -> None:
        if self._is_current(number, generation):
            self._succeeded(number, value)
        elif self.offering.job(number) is not None:
            self._late[number] = value

    def _succeeded(self, number: int, value: Any) -> None:
        self._results += 1
        self.offering.succeeded(number, value)

    def _give_up(self, number: int, error: Exception, attempts: int) -> None:
        if number in self._late:
            self._succeeded(number, self._late[number])
        else:
            self.offering.failed(number, error, attempts)

    def _again(self, number: int, generation: int, *, lost: bool) -> None:
        """A delivery of a job was not finished, unless that is known already."""
        if not self._is_current(number, generation):
            return
        if number in self._late:
            self._succeeded(number, self._late[number])
            return
        if lost:
            times = self._lost.get(number, 0)
            # Beside others it may be as innocent as these, however often.
            if times < self._suspect_after or number in self._alone:
                self._lost[number] = times = times + 1
            alone = times - self._suspect_after
            if alone >= self._wire.attempts:
                text = f"workers that had it alone were never heard of again: {alone}"
                self.offering.failed(number, JobFailed(text), alone)
                return
        event = self.offering.job(number)
        assert event is not None
        self._alone.discard(number)
        self._generation[number] = generation + 1
        self.hand_out(number, event)

    def over(self, number: int) -> None:
        """A job is no longer out."""
        if self._generation:
            self._generation.pop(number, None)
            self._lost.pop(number, None)
            self._alone.discard(number)
            self._late.pop(number, None)


class _Crew:
    """The workers known to a master: the capacity of each by its id; `capacity` is the total."""

    def __init__(self) -> None:
        self.capacity = 0
        self._workers: dict[str, tuple[int, float]] = {}

    def hear(self, worker: str, capacity: int) -> None:
        """Record how many jobs a worker can hold in all; 0 when it leaves."""
        before, _ = self._workers.pop(worker, (0, 0.0))
        if capacity:
            self._workers[worker] = capacity, clock.monotonic()
        self.capacity += capacity - before

    def forget_the_silent(self) -> None:
        """Forget silent workers; to be called periodically."""
        gone = clock.monotonic() - _GONE
        for worker in [one for one, (_, heard) in self._workers.items() if heard < gone]:
            self.hear(worker, 0)

    def __len__(self) -> int:
        return len(self._workers)
