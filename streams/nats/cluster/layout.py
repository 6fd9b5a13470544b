"""The layout of a pipeline on the servers: a stream of events, one of dead letters, and buckets."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from orjson import loads

from penstock.streams.base.errors import BuildError, StreamDiffers, describe
from penstock.streams.base.keys import By, all_events, key_function, key_name
from penstock.streams.keyed.written import identity_json, key_json
from penstock.streams.nats.client.answers import answered, born_of
from penstock.streams.nats.client.connection import jetstream
from penstock.streams.nats.client.tables import table_of
from penstock.streams.nats.client.tokens import token_of
from penstock.streams.nats.cluster.letters import stream_of_letters
from penstock.streams.nats.cluster.roster import LEASE, Roster
from penstock.streams.nats.partition.batches import LARGEST
from penstock.streams.nats.partition.floors import Floors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.js import JetStreamContext
    from nats.js.api import ConsumerConfig, StreamInfo

    from penstock.streams.nats.client.client import Client
    from penstock.streams.pipelines.pipeline import Pipeline
    from penstock.streams.protocol.stage_info import StageInfo

__all__ = ["PARTITIONS", "Layout", "identity_token", "layout_of", "token"]

PARTITIONS = 64
"""How many partitions a stream gets: some 4 to 8 for each worker there will ever be."""

# Default seconds in which the server drops a repeated identity.
_WINDOW = 10.0
# Seconds after which servers delete a consumer of a partition whose worker was killed.
_FORGOTTEN = 60.0
# Bytes of events that a stream holds; a server reserves them when the stream is created.
_ROOM = 1 << 30
# Events that go into one message where that changes nothing but the cost. Chosen: the cost per
# event has levelled off there.
_BATCH = 128
# The options of the command that are fixed when the stream is created.
_SIZES = ("partitions", "replicas", "room", "batch")
# Characters of a pipeline's name: a stream's name has 255 at most, including the prefix.
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of one pipeline on the servers, and its settings there.

    `identity` and `key` are the fields (or functions) by which events are unique within `window`
    seconds and keep their order. `partitions` and `replicas` are None for an existing stream's or
    the default, and so are `room`, the bytes of events that the stream may hold, and `batch`, the
    events that publishers put into one message at most.
    """

    name: str
    identity: By[Any] | None
    key: By[Any] | None
    window: float = _WINDOW
    partitions: int | None = None
    replicas: int | None = None
    room: int | None = None
    batch: int | None = None

    @property
    def numbers(self) -> range:
        """The partitions, of a layout that `prepare` returned."""
        return range(self.partitions or 0)

    @property
    def in_batches(self) -> bool:
        """Whether messages hold several events."""
        return (self.batch or 1) > 1

    @property
    def usual_batch(self) -> int:
        """The batch size of a new stream without another one.

        Duplicates are dropped within a partition where messages hold several events, so that there
        is one in each unless all events of an identity are in one partition.
        """
        return _BATCH if self.is_identity_in_one_partition else 1

    @property
    def is_identity_in_one_partition(self) -> bool:
        """Whether it is certain that events of one identity have one key, or there are none."""
        return self.identity is None or self.key is None or self.identity == self.key

    @property
    def stream(self) -> str:
        return f"penstock-{self.name}"

    @property
    def doubt(self) -> float:
        """Seconds for which an event that may be stored is retried: later it could be stored
        twice."""
        return max(self.window / 2, self.window - 2.0)

    @property
    def letters(self) -> str:
        return f"penstock-{self.name}-dead"

    @property
    def inlet(self) -> str:
        """The subject to which events are published, without its last token."""
        return f"penstock.{self.name}.in"

    @property
    def news(self) -> str:
        """The subject on which workers announce that they join, leave, or release a partition."""
        return f"penstock.{self.name}.news"

    @property
    def letters_subject(self) -> str:
        return f"penstock.{self.name}.dead"

    def consumer(
        self, partition: int, start: int | None = None, since: float = 0.0
    ) -> ConsumerConfig:
        """A consumer of one partition from message `start` on, or from the time `since`. It lives
        in one server's memory and tracks no acknowledgements, so servers have nothing to replicate;
        it is recreated at will."""
        from datetime import UTC, datetime

        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        policy = DeliverPolicy.BY_START_TIME if start is None else DeliverPolicy.BY_START_SEQUENCE
        return ConsumerConfig(
            filter_subject=self.subject(partition),
            deliver_policy=policy,
            opt_start_seq=start,
            opt_start_time=datetime.fromtimestamp(since, UTC) if start is None else None,
            ack_policy=AckPolicy.NONE,
            num_replicas=1,
            mem_storage=True,
            inactive_threshold=_FORGOTTEN,
        )

    def subject(self, partition: int) -> str:
        """The subjects of all events of a partition."""
        return f"penstock.{self.name}.p.{partition}.>"

    def batches(self, partition: int | str) -> str:
        """The subject of messages with several events. No key's token is equal to it."""
        return f"penstock.{self.name}.p.{partition}.batch"

    def partition_of(self, token: str) -> int:
        """The partition of a key, computed as servers do: 32-bit FNV-1a of its token."""
        code = 2166136261
        for byte in token.encode():
            code = (code ^ byte) * 16777619 & 0xFFFFFFFF
        return code % len(self.numbers)

    def key_of(self, data: bytes) -> str:
        """The token of the key in an event's JSON; an event without a key, or that cannot be read,
        has a unique one."""
        if self.key is not None:
            with suppress(Exception):
                return token(key_function(self.key)(loads(data)))
        return blake2b(data, digest_size=16).hexdigest()

    @property
    def is_sized(self) -> bool:
        """Whether it says how its stream is to be made."""
        return any(getattr(self, one) is not None for one in _SIZES)

    async def exists(self, client: Client) -> bool:
        """Whether its stream has been made. Raises errors of the API, and what silence raises."""
        from nats.js.errors import NotFoundError

        try:
            await jetstream(client).stream_info(self.stream)
        except NotFoundError:
            return False
        return True

    async def prepare(self, client: Client) -> Layout:
        """Create what does not exist yet; returns the layout that exists. Raises StreamDiffers."""
        from nats.js.errors import NotFoundError

        js = jetstream(client, 5)
        try:
            info = await answered(lambda: js.stream_info(self.stream))
        except NotFoundError:
            made = replace(self, batch=self.batch or self.usual_batch)
            info = await made._make(client, js)
        self._compare(info)
        return self.as_there(info)

    async def roster(self, client: Client, ttl: float | None = None) -> Roster:
        """The bucket of workers and the owners of partitions. Its entries expire `ttl` seconds
        after a renewal, by default as it was created. Raises StreamDiffers if that is another
        time."""
        await table_of(jetstream(client), self.stream, self.stream, ttl or LEASE)
        roster = await Roster.open(client, self.stream)
        if ttl is not None and ttl != roster.ttl:
            raise StreamDiffers(
                f"The workers of '{self.name}' have leases of {roster.ttl:g} s, this one was given "
                f"{ttl:g} s, and all must be the same. Leave --lease out. To change it, let all "
                f"workers leave, and delete the stream 'KV_{self.stream}'."
            )
        return roster

    async def floors(self, js: JetStreamContext) -> Floors:
        """The bucket of the partitions' floors."""
        born = born_of(await answered(lambda: js.stream_info(self.stream)))
        return Floors(await table_of(js, self.stream, self._floors), self.stream, born)

    @property
    def _floors(self) -> str:
        # Cannot clash with the bucket of another pipeline.
        return f"penstock_floors-{self.name}"

    async def missing(self, js: JetStreamContext, born: str) -> str:
        """The name of a stream that workers need and that is not there or, if it has the events,
        was created at another time than `born`; empty if all are there."""
        from nats.js.errors import NotFoundError

        for stream in (self.stream, f"KV_{self.stream}", f"KV_{self._floors}"):
            try:
                info = await js.stream_info(stream)
            except NotFoundError:
                return stream
            if stream == self.stream and born_of(info) != born:
                return stream
        return ""

    async def _make(self, client: Client, js: JetStreamContext) -> StreamInfo:
        """Create the stream of a layout that has a batch size."""
        from nats.js.api import DiscardPolicy, RetentionPolicy, StreamConfig, SubjectTransform
        from nats.js.errors import APIError

        partitions = self.partitions or PARTITIONS
        replicas = self.replicas or (3 if len(client.servers) >= 3 else 1)
        config = StreamConfig(
            name=self.stream,
            subjects=[f"{self.inlet}.*", *([self.batches("*")] if self.in_batches else [])],
            num_replicas=replicas,
            # Not a work queue: with the events, that would forget the identities it has seen.
            retention=RetentionPolicy.LIMITS,
            # A full stream refuses new events, which is back-pressure, and keeps the old ones.
            discard=DiscardPolicy.NEW,
            max_bytes=self.room or _ROOM,
            duplicate_window=self.window,
            # For direct reads, which report how many events follow one.
            allow_direct=True,
            subject_transform=SubjectTransform(
                src=f"{self.inlet}.*",
                dest=f"penstock.{self.name}.p.{{{{partition({partitions},1)}}}}.{{{{wildcard(1)}}}}",
            ),
            metadata=self._metadata(),
        )
        letters = stream_of_letters(self.letters, self.letters_subject, replicas)
        untyped: Any = js
        try:
            info: StreamInfo = await answered(lambda: untyped.add_stream(config))
            await answered(lambda: untyped.add_stream(letters))
        except APIError as error:
            raise StreamDiffers(
                f"The servers refuse to make the stream '{self.stream}' of "
                f"{config.max_bytes:,} bytes, kept {replicas} times: {error.description}. "
                "Give it less room (--room) or fewer copies (--replicas), or the servers more."
            ) from error
        return info

    def as_there(self, info: StreamInfo) -> Layout:
        """The same, with the partitions and the batch size of an existing stream."""
        there = info.config.metadata or {}
        return replace(
            self,
            partitions=int(there["penstock.partitions"]),
            batch=int(there.get("penstock.batch", 1)),
        )

    def _metadata(self) -> dict[str, str]:
        return {
            "penstock.partitions": str(self.partitions or PARTITIONS),
            "penstock.batch": str(self.batch or 1),
            "penstock.identity": "" if self.identity is None else key_name(self.identity),
            "penstock.key": "" if self.key is None else key_name(self.key),
        }

    def _compare(self, info: StreamInfo) -> None:
        there = info.config.metadata or {}
        if "penstock.partitions" not in there:
            raise StreamDiffers(
                f"There is a stream '{self.stream}' that penstock did not make. Give this pipeline "
                "another name (--name)."
            )
        known = self.as_there(info)
        wanted = replace(
            self,
            partitions=self.partitions or known.partitions,
            batch=self.batch or known.batch,
        )._metadata()
        differences = {
            name.removeprefix("penstock."): f"is {there.get(name) or 'none'} there, "
            f"{value or 'none'} here"
            for name, value in wanted.items()
            if there.get(name, "") != value
        }
        window = info.config.duplicate_window
        if self.identity is not None and window != self.window:
            differences["the window for duplicates"] = (
                f"is {window:g} s there, {self.window:g} s here"
            )
        for what, there_is, here in (
            ("replicas", info.config.num_replicas, self.replicas),
            ("room", info.config.max_bytes, self.room),
        ):
            if here is not None and here != there_is:
                differences[what] = f"is {there_is} there, {here} here"
        if not differences:
            return
        given = [
            f"--{name}" for name in differences if getattr(self, name, None) and name in _SIZES
        ]
        told = "; ".join(f"{name} {how}" for name, how in differences.items())
        advice = f"Leave {' and '.join(given)} out to use what is there. " if given else ""
        if info.state.last_seq:
            advice += "To change a pipeline's own settings let its workers finish, and delete it."
        else:
            advice += (
                "It has had no events: a worker that was started before the first publish may have "
                "made it. To have other settings stop the workers, delete it, and publish before "
                "you start them again."
            )
        raise StreamDiffers(
            f"The stream '{self.stream}' has other settings: {told}. Nothing was changed. Two "
            f"pipelines need two names (--name). {advice}"
        )


def layout_of(
    pipeline: Pipeline,
    name: str,
    partitions: int | None = None,
    replicas: int | None = None,
    room: int | None = None,
    batch: int | None = None,
) -> Layout:
    """The layout that the stages of a pipeline require. Raises BuildError for an invalid name."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise BuildError(
            f"{name!r} is not a valid name for a pipeline on a server: use letters, digits, - and _"
        )
    if len(name) > _LONGEST_NAME:
        raise BuildError(
            f"{describe(name, 40)} is too long for a pipeline's name on a server: use at most "
            f"{_LONGEST_NAME} characters (--name)"
        )
    given = {"partitions": partitions, "replicas": replicas, "room": room, "batch": batch}
    for option, value in given.items():
        if value is not None and value < 1:
            raise BuildError(f"{option}={value}: at least 1 is needed")
    if batch is not None and batch > LARGEST:
        raise BuildError(f"batch={batch}: at most {LARGEST:,} events go into one message")
    stages = pipeline.describe()
    key = _key_in(stages)
    head = stages[1]
    if head.name == "distinct_within" and head.delivery.store is None:
        return Layout(name, head.placement.by, key, head.placement.seconds or _WINDOW, **given)
    return Layout(name, None, key, _WINDOW, **given)


def _key_in(stages: Sequence[StageInfo]) -> By[Any] | None:
    """The key by which events are in partitions: that of the first stage that groups them, or has
    states. Raises BuildError for states by another one, which would not move with it, and for a
    first `group_by` behind states whose groups would be in several partitions."""
    first: StageInfo | None = None
    is_grouped = False
    # What the key is of the events of each stage, None if it cannot be told.
    called: By[Any] | None = None
    for stage in stages:
        has_states = stage.delivery.store is not None and not stage.is_source
        by: By[Any] | None = stage.placement.by
        if by is None or not (has_states or (stage.name == "group_by" and not is_grouped)):
            continue
        if by is all_events:
            raise BuildError(
                f"{stage} has one state for all events, so that one worker would have them all: "
                "give it by=, or run it in one process, without --on"
            )
        if first is None:
            first, called = stage, by
        elif called is not None and by != called:
            raise BuildError(
                f"{first} puts the events into partitions by {key_name(first.placement.by)}, and "
                f"{stage} would need them by {key_name(by)}: on many machines all events of a key "
                "of both have to be in one partition. Give both the same key, or make the second a "
                "pipeline of its own"
            )
        is_grouped |= stage.name == "group_by"
        if stage.name == "window":
            called = "key"
        elif stage.name in ("join", "lookup"):
            called = None
    return None if first is None else first.placement.by


def token(key: object) -> str:
    """A key as one token of a subject, the same for keys that are equal."""
    return token_of(key_json(key))


def identity_token(key: object) -> str:
    """The same for an identity: another token for each that differs."""
    return token_of(identity_json(key))
