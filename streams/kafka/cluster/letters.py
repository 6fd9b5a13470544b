"""The topic of dead letters: stores, lists and replays events.

It is compacted: a letter has its identity as the key, and a tombstone deletes it. So an event that
is dead-lettered again after a takeover is there once.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from orjson import JSONDecodeError, loads

from penstock.streams.base.errors import BadLine, PublishFailed, StreamMissing
from penstock.streams.failures.policy import DeadLetter, LettersOnly
from penstock.streams.io.letter import Letter, id_of, stub, whole
from penstock.streams.kafka.client import PARTITIONER, error_of, producer_of
from penstock.streams.kafka.cluster.layout import Layout
from penstock.streams.kafka.cluster.records import marks, place_of, records
from penstock.streams.kafka.offsets.partition import Token
from penstock.streams.kafka.record import KafkaRecord, headers_of
from penstock.streams.kafka.writing import Writing, WritingSettings
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

__all__ = ["KafkaLetters", "Replay", "StoredLetter", "letters_of"]

# Letters under way at once.
_WINDOW = 64
# Seconds in which brokers store a letter, or an event that is published again.
_WHO = "penstock"
_PATIENCE = 60.0
# Bytes of a letter. Brokers and clients accept records of some 1,000,000 bytes by default.
_LARGEST = 900_000
# The header of a letter that names the group whose member wrote it.
_GROUP = "penstock.group"


class KafkaLetters(Sink[DeadLetter], LettersOnly):
    """Writes each letter, and accepts it when the brokers have stored it."""

    def __init__(self, layout: Layout) -> None:
        self.info = StageInfo("dead_letters", layout.letters, _WINDOW)
        self._layout = layout

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        layout = self._layout
        settings = WritingSettings(
            layout.letters,
            layout.servers,
            layout.client(
                **{"enable.idempotence": True, "message.timeout.ms": round(_PATIENCE * 1000)}
            ),
            None,
            _WINDOW,
            _PATIENCE,
            None,
            partial(producer_of, who=_WHO),
        )
        return Writing(run, closed, settings, partial(_record_of, group=layout.group))


class _Origin(NamedTuple):
    """Where the event of a letter came from, and the key of its record, as one word."""

    place: str
    key: str

    def __str__(self) -> str:
        return self.place


def _record_of(letter: DeadLetter, group: str) -> KafkaRecord[bytes]:
    message = letter.token.message if isinstance(letter.token, Token) else None
    key = b"" if message is None else message.key() or b""
    headers = () if message is None else headers_of(message)
    value = letter.value
    if message is not None and isinstance(letter.error, BadLine) and not _is_json(message.value()):
        # What could not be read is kept as it is.
        value = message.value()
    origin = _Origin(str(letter.token), urlsafe_b64encode(key).decode("ascii"))
    about = letter._replace(value=value, token=origin)
    body = whole(about)
    if len(body) > _LARGEST:
        body = stub(about)
    id = id_of(group, letter).encode()
    return KafkaRecord(body, id, ((_GROUP, group.encode()), *headers))


def _is_json(data: bytes | None) -> bool:
    try:
        loads(data or b"")
    except JSONDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A letter with the record that it is in."""

    letter: Letter
    message: Message

    @property
    def key(self) -> bytes | None:
        """The key of the event's record."""
        return urlsafe_b64decode(self.letter.key) or None

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """The headers of the event's record."""
        return [pair for pair in headers_of(self.message) if pair[0] != _GROUP]


def letters_of(
    layout: Layout, patience: float, foreign: Callable[[str], None] = lambda text: None
) -> Iterator[StoredLetter]:
    """The letters of the group that are in the topic now, oldest first; of all groups where the
    layout names none. `foreign` is called with a text about each record that is not a letter.

    The topic is read twice. Memory: an offset for each letter. Raises StreamMissing where there is
    no topic of events.
    """
    layout.count(layout.topic, patience)
    try:
        count = layout.count(layout.letters, patience)
    except StreamMissing:
        return
    bounds = marks(layout, layout.letters, count)
    last: dict[bytes | None, tuple[int, int]] = {}
    for message in records(layout, layout.letters, bounds):
        last[message.key()] = place_of(message)
    for message in records(layout, layout.letters, bounds):
        partition, offset = place_of(message)
        data = message.value()
        if data is None or last.get(message.key()) != (partition, offset):
            continue
        # Different in all partitions.
        number = offset * count + partition
        try:
            letter = Letter.of(number, data)
        except BadLine as error:
            foreign(f"record {number} of '{layout.letters}' is not a dead letter: {error}")
            continue
        group = dict(headers_of(message)).get(_GROUP)
        if not layout.group or group == layout.group.encode():
            yield StoredLetter(letter, message)


class Replay:
    """Writes the events of letters to the topic again."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._producer = producer_of(
            layout.client(**{"enable.idempotence": True, "partitioner": PARTITIONER}), _WHO
        )

    def send(self, stored: StoredLetter) -> None:
        """Write the event of a letter, with its key and headers, and delete the letter.

        Where this is interrupted, the letter of an event that was written may still be there.
        Raises EventOmitted for a letter that has not its whole event, PublishFailed, and what else
        the brokers refuse.
        """
        event, letters = stored.letter.event(), self._layout.letters
        self._store(self._layout.topic, event, stored.key, headers=stored.headers)
        message = stored.message
        self._store(letters, None, message.key(), partition=message.partition() or 0)

    def _store(self, topic: str, value: bytes | None, key: bytes | None, **rest: Any) -> None:
        faults: list[KafkaError | None] = []

        def answered(fault: KafkaError | None, _: object) -> None:
            faults.append(fault)

        self._producer.produce(topic, value, key, on_delivery=answered, **rest)
        self._producer.flush(_PATIENCE)
        if not faults:
            raise PublishFailed(f"{topic!r} has confirmed no record for {_PATIENCE:g} s")
        (fault,) = faults
        if fault is not None:
            raise error_of(fault, f"topic {topic!r}", self._layout.servers)
