"""The layout of a work pool on the servers: a queue of jobs, dead letters, the master's lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import PayloadTooLarge, StreamDiffers
from penstock.streams.nats.client.answers import answered
from penstock.streams.nats.client.connection import jetstream
from penstock.streams.nats.client.tables import table_of
from penstock.streams.nats.cluster.letters import stream_of_letters

if TYPE_CHECKING:
    from nats.js.kv import KeyValue

    from penstock.streams.nats.client.client import Client

__all__ = ["ALONE", "BEAT", "CONSUMER", "Wire", "check_size"]

CONSUMER = "workers"
"""The one consumer that all workers share."""

ALONE = "alone-"
"""The beginning of a parcel's number if its job is done beside no other."""

BEAT = 2.0
"""Seconds between two heartbeats of a worker."""

# Seconds for which the server remembers the ids of jobs; an election of a leader fits in.
_WINDOW = 10.0
# The most waiting requests of workers.
_WAITING = 4096


@dataclass(frozen=True, slots=True)
class Wire:
    """The servers, and the names of one pool on them.

    Masters and workers exchange plain messages: workers send `hello` with the number of jobs that
    they can hold in all, also on each `call`, and send their `reports` to the master of the
    epic. The server stores only the jobs.
    """

    servers: tuple[str, ...]
    name: str
    attempts: int
    lease: float

    @property
    def stream(self) -> str:
        return f"penstock-work-{self.name}"

    @property
    def letters(self) -> str:
        return f"{self.stream}-dead"

    def subject(self, what: str) -> str:
        """The subject of one kind of messages. On `about` a master answers questions about its
        epic."""
        return f"penstock.work.{self.name}.{what}"

    def jobs(self, epic: str) -> str:
        """The subjects of an epic's parcels of jobs, without the number."""
        return self.subject(f"job.{epic}")

    def reports(self, epic: str) -> str:
        """The subject of workers' reports on an epic's jobs."""
        return self.subject(f"report.{epic}")

    async def prepare(self, client: Client) -> float:
        """Create what does not exist yet; returns the seconds of a worker's lease. Raises
        StreamDiffers."""
        from nats.js.api import ConsumerConfig, RetentionPolicy, StreamConfig
        from nats.js.errors import NotFoundError

        js: Any = jetstream(client, 5)
        subjects = [self.jobs(">")]
        try:
            config = (await answered(lambda: js.stream_info(self.stream))).config
        except NotFoundError:
            replicas = 3 if len(client.servers) >= 3 else 1
            # The letters first: if the queue exists, everything exists.
            letters = stream_of_letters(self.letters, self.subject("dead"), replicas)
            jobs = StreamConfig(
                name=self.stream,
                subjects=subjects,
                num_replicas=replicas,
                retention=RetentionPolicy.WORK_QUEUE,
                duplicate_window=_WINDOW,
            )
            await answered(lambda: js.add_stream(letters))
            await answered(lambda: js.add_stream(jobs))
        else:
            if config.retention != RetentionPolicy.WORK_QUEUE or config.subjects != subjects:
                raise StreamDiffers(
                    f"There is a stream '{self.stream}' that is not a queue of this pool: its "
                    f"subjects are {config.subjects}, its retention is '{config.retention}'. "
                    "Nothing was changed. Give this pool another name."
                )
        try:
            consumer = await answered(lambda: js.consumer_info(self.stream, CONSUMER))
        except NotFoundError:
            workers = ConsumerConfig(
                durable_name=CONSUMER,
                ack_wait=self.lease,
                max_ack_pending=-1,
                max_waiting=_WAITING,
            )
            consumer = await answered(lambda: js.add_consumer(self.stream, workers))
        return float(consumer.config.ack_wait)

    async def leases(self, client: Client) -> tuple[KeyValue, float]:
        """The bucket with the master's lease, and the seconds of a lease there."""
        table = await table_of(jetstream(client, 5), self.stream, self.stream, self.lease)
        return table, (await answered(table.status)).ttl or self.lease


def check_size(what: str, body: bytes, largest: int) -> None:
    """Raise PayloadTooLarge if a message with this body would have more than `largest` bytes."""
    if len(body) > largest:
        raise PayloadTooLarge(
            f"{what} of {len(body):,} bytes is more than the server takes ({largest:,}, by "
            "max_payload in its configuration)"
        )
