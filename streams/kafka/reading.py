"""The source stage that reads topics as a member of a group: demand, rebalances and commits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from penstock.streams import clock
from penstock.streams.errors import BadLine, PenstockError
from penstock.streams.failures.policy import Route
from penstock.streams.kafka.client import error_of
from penstock.streams.kafka.partition import Partition
from penstock.streams.kafka.progress import finished_in
from penstock.streams.kafka.record import (
    TOMBSTONE,
    KafkaRecord,
    Place,
    headers_of,
    text_of,
    value_of,
)
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.source_stage import SourceStage
from penstock.streams.protocol.stage import StageInfo, Subscriber
from penstock.streams.runtime.context import Run

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, TopicPartition

__all__ = ["Consumer", "OnBadRecord", "Reading", "ReadingSettings", "Since"]

OnBadRecord = Literal["report", "stop"] | Route
Since = Literal["first", "new"]

# Records taken from the client at a time.
_CHUNK = 500
# Seconds for which the client waits for a record. Commits and resumes wait for it to return.
_POLL = 0.1
# Seconds without demand after which partitions are paused: a pause drops what was fetched.
_PATIENCE = 0.5
# Seconds between two commits: what finished in between is repeated after a kill.
_COMMIT = 1.0
# Seconds in which brokers answer.
_ANSWER = 10.0


# ruff: noqa: ASYNC109 (these are the arguments of the client)


class Consumer(Protocol):
    """What is used of `confluent_kafka.aio.AIOConsumer`."""

    async def list_topics(self, topic: str, timeout: float) -> Any: ...
    async def subscribe(self, topics: list[str], **callbacks: Any) -> None: ...
    async def poll(self, timeout: float) -> Message | None: ...
    async def consume(self, num_messages: int, timeout: float) -> list[Message]: ...
    async def committed(
        self, partitions: list[TopicPartition], timeout: float
    ) -> list[TopicPartition]: ...
    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = ..., cached: bool = ...
    ) -> tuple[int, int] | None: ...
    async def incremental_assign(self, partitions: list[TopicPartition]) -> None: ...
    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None: ...
    async def pause(self, partitions: list[TopicPartition]) -> None: ...
    async def resume(self, partitions: list[TopicPartition]) -> None: ...
    async def commit(
        self, *, offsets: list[TopicPartition], asynchronous: bool
    ) -> list[TopicPartition]: ...
    async def close(self) -> None: ...


class ReadingSettings(NamedTuple):
    """The arguments of `penstock.read_kafka`, which documents each."""

    topics: tuple[str, ...]
    group: str
    servers: str
    client: Mapping[str, Any]
    decode: Callable[[bytes], Any]
    records: bool
    follow: bool
    handover: float
    session: float
    retry_after: float
    on_bad_record: OnBadRecord
    consumer: Callable[[dict[str, Any]], Consumer]


class _Token(NamedTuple):
    """A record as the token of its event; kept, because it may have to be emitted again."""

    partition: Partition
    message: Message

    def __str__(self) -> str:
        message = self.message
        return str(Place(message.topic() or "", message.partition() or 0, message.offset() or 0))


class Reading(SourceStage[Any]):
    """One run of `penstock.read_kafka`.

    One task drives the client: it asks for records while there is demand, and else only serves the
    group; it commits; and within it the client announces partitions that come and go. `_arrived`
    records have not gone out; `_again` are those that were returned and go out before them.
    """

    _consumer: Consumer | None = None
    _paused = False
    _withdrawing = False
    # The record that ends the stream, once the events before it are out.
    _failure: BadLine | None = None

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, settings: ReadingSettings
    ) -> None:
        super().__init__(downstream, run, info)
        self.ack = self._acknowledge
        self.nack = self._take_back
        self._settings = settings
        on_bad = settings.on_bad_record
        self._letters = run.letters.open(on_bad.sink) if isinstance(on_bad, Route) else None
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._arrived: deque[_Token] = deque()
        self._again: list[_Token] = []
        self._wanted = asyncio.Event()
        self._left = asyncio.Event()
        self._committed_at = run.now()
        # Until when it is certain that the brokers have not given this reader up.
        self._sure_until = inf
        self._in_doubt = False
        self._skipped = self._expired = self._lost = 0
        # From wall time, which stamps records, to the loop's clock.
        self._offset = run.now() - clock.wall()
        run.lessors.append(self)

    def holds(self, token: _Token, /) -> bool:
        if self.run.now() > self._sure_until:
            self._doubt()
        return token.partition.held

    # Records into the pipeline.

    def produce(self) -> None:
        if self._consumer is None:
            self._consumer = self._settings.consumer(dict(self._settings.client))
            self.run.on_close(self._close)
            self.run.spawn(self._read(), "read_kafka")
        if self._withdrawing or self._in_doubt:
            return
        while self.demand and (self._again or self._arrived) and self._failure is None:
            events: list[Event[Any]] = []
            while (self._again or self._arrived) and len(events) < min(self.demand, _CHUNK):
                token = self._again.pop(0) if self._again else self._arrived.popleft()
                event = self._event(token)
                if self._failure is not None:
                    break
                if event is not None:
                    token.partition.progress.inside += 1
                    events.append(event)
            self.send(events)
            if self._slice.is_over(self.run.now()):
                return
        if self._failure is not None:
            self.error(self._failure)
        elif self._is_caught_up:
            self.complete()
        else:
            self._wanted.set()

    @property
    def _is_caught_up(self) -> bool:
        partitions = self._partitions.values()
        return (
            not self._settings.follow
            and bool(partitions)
            and not self._again
            and not self._arrived
            and all(partition.at_end for partition in partitions)
        )

    @property
    def _room(self) -> int:
        """How many records may be read now."""
        if self.done or self._failure is not None:
            return 0
        return max(0, self.demand - len(self._arrived) - len(self._again))

    def _event(self, token: _Token) -> Event[Any] | None:
        """The event of a record; None for one that has ended here."""
        message = token.message
        stamp = message.timestamp()[1] / 1000
        created = min(stamp + self._offset, self.run.now())
        try:
            value = value_of(message, self._settings.decode, token)
        except BadLine as bad:
            self._bad(token, bad, created)
            return None
        if self._settings.records:
            value = KafkaRecord(
                value,
                message.key(),
                headers_of(message),
                message.topic() or "",
                message.partition() or 0,
                message.offset() or 0,
                stamp,
            )
        elif message.value() is None:
            self.received += 1
            self.drops[TOMBSTONE] = self.drops.get(TOMBSTONE, 0) + 1
            token.partition.finish(message)
            return None
        return Event(value, created, self, token)

    def _bad(self, token: _Token, bad: BadLine, created: float) -> None:
        self.run.errors.count_bad_line(bad)
        if self._letters is not None:
            self.received += 1
            token.partition.progress.inside += 1
            letter = Event(text_of(token.message.value()), created, self, token)
            self._letters.send(letter, bad, str(self.info), 1)
        elif self._settings.on_bad_record == "stop":
            self._failure = bad
        else:
            token.partition.finish(token.message)

    # Outcomes.

    def _acknowledge(self, events: list[Event[Any]]) -> None:
        for event in events:
            token: _Token = event.token
            token.partition.progress.inside -= 1
            token.partition.finish(token.message)
        self._left.set()

    def _take_back(self, events: list[Event[Any]], error: BaseException | None) -> None:
        again: list[_Token] = []
        for event in events:
            token: _Token = event.token
            token.partition.progress.inside -= 1
            if not self.done:
                again.append(token)
        self._left.set()
        if again and error is not None:
            self.run.call_later(self._settings.retry_after, self.info, self._emit_again, again)
        elif again:
            self._emit_again(again)

    def _emit_again(self, tokens: list[_Token]) -> None:
        current = [_Token(token.partition.current, token.message) for token in tokens]
        self._again += [token for token in current if token.partition.held]
        self._again.sort(key=_place)
        self.wake_soon()

    # The group.

    async def _read(self) -> None:
        from confluent_kafka import KafkaException

        consumer, settings = self._consumer, self._settings
        assert consumer is not None
        try:
            for topic in settings.topics:
                if not topic.startswith("^"):
                    await self._find(consumer, topic)
            await consumer.subscribe(
                list(settings.topics),
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._lose,
            )
            while True:
                await self._step(consumer)
        except KafkaException as raised:
            self.error(self._error(raised.args[0]))
        except PenstockError as error:
            self.error(error)

    async def _find(self, consumer: Consumer, topic: str) -> None:
        found = (await consumer.list_topics(topic, timeout=_ANSWER)).topics.get(topic)
        if found is not None and found.error is not None:
            raise self._error(found.error, topic)

    def _error(self, error: KafkaError, topic: str = "") -> PenstockError:
        what = f"read_kafka({topic or ', '.join(self._settings.topics)!r})"
        return error_of(error, what, self._settings.servers)

    async def _step(self, consumer: Consumer) -> None:
        """Read what there is room for, or only serve the group; and commit now and then."""
        room = self._room
        if not room and not self._paused:
            self._wanted.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), _PATIENCE)
            room = self._room
        if bool(room) == self._paused:
            await self._pause(consumer, not room)
        message = await consumer.poll(timeout=_POLL)
        if self._in_doubt:
            await self._confirm(consumer)
        elif self.run.now() > self._sure_until:
            self._doubt()
        else:
            self._sure_until = self.run.now() + self._settings.session
        if message is not None:
            messages = [message]
            # The room may be less than before, by what was returned.
            if (room := min(_CHUNK, self._room) - 1) > 0:
                messages += await consumer.consume(num_messages=room, timeout=0)
            self._came(messages)
        if self.run.now() >= self._committed_at + _COMMIT:
            self._committed_at = self.run.now()
            await self._commit(consumer, self._partitions.values())
            await self._look_at_lag(consumer)

    def _doubt(self) -> None:
        """This process was frozen: the brokers may have given its partitions to others.

        What has not begun goes out again when the brokers have confirmed that it is still ours.
        """
        self._in_doubt, self._sure_until = True, inf
        renewed = {partition: partition.renewed() for partition in self._partitions.values()}
        self._partitions = {(one.topic, one.number): one for one in renewed.values()}
        tokens = [*self._again, *self._arrived]
        self._arrived.clear()
        self._again = [_Token(renewed[partition], message) for partition, message in tokens]
        self._again.sort(key=_place)

    async def _confirm(self, consumer: Consumer) -> None:
        """Ask the brokers by a commit, which they refuse to a reader that they have given up."""
        from confluent_kafka import KafkaException

        marks = [(one, mark) for one in self._partitions.values() if (mark := one.mark())]
        if marks:
            places = [partition.place(*mark) for partition, mark in marks]
            try:
                results = await consumer.commit(offsets=places, asynchronous=False)
            except KafkaException as raised:
                if not _passes(raised.args[0]):
                    raise
                return
            if any(result.error is not None for result in results):
                return
        self._in_doubt = False
        self._sure_until = self.run.now() + self._settings.session
        self.wake_soon()

    async def _pause(self, consumer: Consumer, paused: bool) -> None:
        self._paused = paused
        places = [partition.place() for partition in self._partitions.values()]
        if places:
            await (consumer.pause(places) if paused else consumer.resume(places))

    def _came(self, messages: Iterable[Message]) -> None:
        from confluent_kafka import KafkaError

        for message in messages:
            partition = self._partitions.get((message.topic() or "", message.partition() or 0))
            fault = message.error()
            if fault is not None:
                if fault.code() == KafkaError._PARTITION_EOF:
                    if partition is not None:
                        partition.at_end = True
                elif fault.fatal() or not fault.retriable():
                    raise self._error(fault, message.topic() or "")
            elif partition is None or not partition.held:
                continue
            elif partition.progress.read(message.offset() or 0):
                partition.at_end = False
                self._arrived.append(_Token(partition, message))
            else:
                self._skipped += 1
        self.wake()

    async def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Partitions have come: begin where the group has finished."""
        committed = await consumer.committed(places, timeout=_ANSWER) if places else []
        for place in committed:
            if place.error is not None:
                raise self._error(place.error, place.topic)
            floor = place.offset if place.offset >= 0 else None
            known = [] if floor is None else finished_in(floor, place.metadata)
            key = place.topic, place.partition
            self._partitions[key] = Partition(*key, floor, known)
            if floor is not None:
                await self._look_for_expired(consumer, place)
        if committed:
            await consumer.incremental_assign(committed)
            if self._paused:
                await consumer.pause(committed)

    async def _look_for_expired(self, consumer: Consumer, place: TopicPartition) -> None:
        """Count what was deleted before it was read, which the client passes over in silence."""
        marks = await consumer.get_watermark_offsets(place, timeout=_ANSWER)
        if marks is not None and place.offset < marks[0]:
            self._expired += marks[0] - place.offset
            self.run.errors.warn(
                f"read_kafka: offsets {place.offset} to {marks[0] - 1} of {place.topic}, partition "
                f"{place.partition}, were deleted before they were read (retention of the topic)"
            )

    async def _revoked(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Partitions go to others: finish what has begun, commit, and only then let them go."""
        leaving = self._let_go(places)
        self._withdraw()
        await self._until_left(leaving)
        await self._commit(consumer, leaving)
        self._forget(leaving)
        if places:
            await consumer.incremental_unassign(places)

    async def _lose(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Partitions were taken away, since this reader was silent for too long."""
        lost = self._let_go(places)
        self._withdraw()
        self._forget(lost)
        self._lost += len(lost)
        inside = sum(partition.progress.inside for partition in lost)
        self.run.errors.warn(
            f"read_kafka lost {len(lost)} partitions, because it was silent for too long; of them "
            f"{inside} events are still processed here, whose outcome is not committed"
        )
        if places:
            await consumer.incremental_unassign(places)

    def _let_go(self, places: Iterable[TopicPartition]) -> list[Partition]:
        """Let nothing of these partitions begin any more."""
        found = [self._partitions.get((place.topic, place.partition)) for place in places]
        leaving = [partition for partition in found if partition is not None]
        for partition in leaving:
            partition.held = False
        self._arrived = deque(token for token in self._arrived if token.partition.held)
        self._again = [token for token in self._again if token.partition.held]
        return leaving

    def _withdraw(self) -> None:
        """Take what has not begun out of the pipeline; what is still ours goes in again."""
        self._withdrawing = True
        try:
            for withdraw in reversed(self.run.withdrawals):
                withdraw()
        finally:
            self._withdrawing = False
        self.wake_soon()

    async def _until_left(self, leaving: Sequence[Partition]) -> None:
        """Wait for what has begun, for a little less than the brokers do."""
        until = self.run.now() + self._settings.handover * 0.8
        while any(partition.progress.inside for partition in leaving):
            self._left.clear()
            left = until - self.run.now()
            if left <= 0:
                inside = sum(partition.progress.inside for partition in leaving)
                self.run.errors.warn(
                    f"read_kafka hands partitions over while {inside} of their events are still "
                    f"processed, after {self._settings.handover:g} s (handover=): others begin "
                    "these again"
                )
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._left.wait(), left)

    def _forget(self, leaving: Iterable[Partition]) -> None:
        for partition in leaving:
            key = partition.topic, partition.number
            if self._partitions.get(key) is partition:
                del self._partitions[key]

    async def _commit(self, consumer: Consumer, partitions: Iterable[Partition]) -> None:
        """Commit what has changed; what the brokers do not take now is committed later."""
        from confluent_kafka import KafkaError, KafkaException

        due = [(one, mark) for one in partitions if (mark := one.due()) is not None]
        if not due:
            return
        try:
            results = await consumer.commit(
                offsets=[partition.place(*mark) for partition, mark in due], asynchronous=False
            )
        except KafkaException as raised:
            fault: KafkaError = raised.args[0]
            if fault.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
                for partition, _ in due:
                    partition.remember_less()
            elif not _passes(fault):
                raise
            return
        for (partition, mark), result in zip(due, results, strict=True):
            if result.error is None:
                partition.committed = mark
            elif result.error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
                partition.remember_less()
            elif not _passes(result.error):
                raise self._error(result.error, partition.topic)

    async def _look_at_lag(self, consumer: Consumer) -> None:
        for partition in list(self._partitions.values()):
            marks = await consumer.get_watermark_offsets(partition.place(), cached=True)
            if marks is not None:
                partition.end = marks[1]

    # The end.

    def release(self) -> None:
        self._arrived.clear()
        self._again.clear()

    async def _close(self) -> None:
        from confluent_kafka import KafkaException

        consumer = self._consumer
        assert consumer is not None
        try:
            with suppress(PenstockError, KafkaException):
                await self._commit(consumer, self._partitions.values())
        finally:
            await consumer.close()

    def statistics(self) -> dict[str, Any]:
        """The statistics of every source, and those of the group.

        `partitions` are read here, `lag` is the number of their offsets that are not finished;
        `read_ahead` records wait during a pause; `known` ones had been finished above a floor
        before the last restart; `expired` offsets were deleted before they were read; `lost` counts
        partitions that brokers took away.
        """
        return {
            **super().statistics(),
            "partitions": len(self._partitions),
            "lag": sum(partition.lag for partition in self._partitions.values()),
            "read_ahead": len(self._arrived) + len(self._again),
            "known": self._skipped,
            "expired": self._expired,
            "lost": self._lost,
        }


def _place(token: _Token) -> tuple[str, int, int]:
    message = token.message
    return message.topic() or "", message.partition() or 0, message.offset() or 0


def _passes(fault: KafkaError) -> bool:
    """Whether a commit may succeed later, or is somebody else's by then."""
    from confluent_kafka import KafkaError as Code

    return fault.retriable() or fault.code() in (
        Code.ILLEGAL_GENERATION,
        Code.UNKNOWN_MEMBER_ID,
        Code.REBALANCE_IN_PROGRESS,
        Code.FENCED_INSTANCE_ID,
        Code.STALE_MEMBER_EPOCH,
        Code.NOT_COORDINATOR,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code._TRANSPORT,
        Code._TIMED_OUT,
        Code._WAIT_COORD,
        Code._NO_OFFSET,
        Code._ASSIGNMENT_LOST,
    )
