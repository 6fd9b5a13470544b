"""The sink stage that writes records, each until the brokers have stored it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.streams.base.errors import (
    PayloadTooLarge,
    PenstockError,
    ProducerFailed,
    PublishFailed,
)
from penstock.streams.base.keys import By, key_function
from penstock.streams.execution.handler import called_name
from penstock.streams.failures.policy import DeadLetter, OnError
from penstock.streams.io.confirmed_sink import ConfirmedSink
from penstock.streams.io.encoding import encoded
from penstock.streams.io.letter_line import letter_line
from penstock.streams.kafka.client import error_of
from penstock.streams.kafka.reason import reason
from penstock.streams.kafka.record import KafkaRecord
from penstock.streams.keyed.written import key_json
from penstock.streams.protocol.event import Event
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from penstock.streams.runtime.observing import TracedCalls

__all__ = ["Producer", "Record", "Writing", "WritingSettings"]

# Seconds for which a thread waits for the next answer of the brokers.
_POLL = 0.5
# Seconds in which brokers answer.
_ANSWER = 10.0


class Producer(Protocol):
    """The methods of `confluent_kafka.Producer` that are used."""

    def produce(self, topic: str, value: bytes | None, key: bytes | None, **rest: Any) -> None: ...
    def poll(self, timeout: float) -> int: ...
    def list_topics(self, topic: str = ..., timeout: float = ...) -> Any: ...
    def purge(self) -> None: ...


class WritingSettings(NamedTuple):
    """The arguments of `penstock.write_kafka`, which documents each."""

    topic: str | Callable[[Any], str]
    servers: str
    client: Mapping[str, Any]
    key: By[Any] | None
    window: int
    patience: float
    on_error: OnError | None
    producer: Callable[[dict[str, Any]], Producer]


class Writing(ConfirmedSink):
    """One run of `penstock.write_kafka`.

    While events are under way, a thread waits for the answers of the brokers; the client writes
    them in batches by itself. `record_of`, if given, makes the record of a value.
    """

    def __init__(
        self,
        run: Run,
        closed: Closed,
        settings: WritingSettings,
        record_of: Callable[[Any], KafkaRecord[Any]] | None = None,
    ) -> None:
        stride = max(1, settings.window // 4)
        super().__init__(run, closed, settings.window, stride, settings.on_error)
        self._run = run
        self._settings = settings
        self._record_of = record_of
        self._encode = Encoding(run, settings, self)
        self._producer = settings.producer(dict(settings.client))
        self._threads = ThreadPoolExecutor(1, "penstock write_kafka")
        # Answers that the thread has got, and whether one waits for more.
        self._answers: deque[tuple[Event[Any], KafkaError | None]] = deque()
        self._waits = False
        self._stored = 0
        run.on_close(self._close_client)
        run.spawn(self._connect(), "write_kafka", stage=self)

    async def _connect(self) -> None:
        """End the pipeline at once where no broker answers, or the topic does not exist."""
        from confluent_kafka import KafkaException

        topic = self._settings.topic if isinstance(self._settings.topic, str) else ""
        named = {"topic": topic} if topic else {}
        ask = partial(self._producer.list_topics, timeout=_ANSWER, **named)
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._threads, ask)
            found = answer.topics.get(topic)
            if found is not None and found.error is not None:
                raise KafkaException(found.error)
        except KafkaException as error:
            ask = partial(reason, error.args[0], self._settings.client)
            fault = await loop.run_in_executor(self._threads, ask)
            self.break_off(writing_error(fault, self._settings))

    # Events.

    def on_events(self, events: list[Event[Any]], /) -> None:
        super().on_events(events)
        if self.under_way and not self._waits:
            self._waits = True
            self._run.spawn(self._wait(), "write_kafka", stage=self)

    def _accept_all(self, events: list[Event[Any]]) -> None:
        if self._record_of is not None:
            for event in events:
                event.value = self._record_of(event.value)
        super()._accept_all(events)

    def send(self, event: Event[Any], /) -> None:
        topic, body, key, headers = self._encode(event)
        self._producer.produce(topic, body, key, headers=headers, on_delivery=self._answer(event))

    def as_ours(self, error: Exception) -> Exception:
        return as_ours(error, self._settings)

    def _answer(self, event: Event[Any]) -> Callable[[KafkaError | None, Any], None]:
        answers = self._answers
        # Called in the thread; what it leaves behind is handled on the loop.
        return lambda fault, _: answers.append((event, fault))

    async def _wait(self) -> None:
        """Handle answers as they come, as long as there are any to wait for."""
        loop = asyncio.get_running_loop()
        try:
            while self.under_way:
                await loop.run_in_executor(self._threads, self._producer.poll, _POLL)
                self._settle()
        finally:
            self._waits = False

    def _settle(self) -> None:
        answers = self._answers
        while answers:
            event, fault = answers.popleft()
            if fault is not None:
                self.failed(event, writing_error(fault, self._settings))
            else:
                self._stored += 1
                self.stored(event)

    # The end.

    async def _close_client(self) -> None:
        loop = asyncio.get_running_loop()
        # What is still here was given back.
        self._producer.purge()
        await loop.run_in_executor(self._threads, self._producer.poll, 0)
        self._threads.shutdown(wait=False)

    def statistics(self) -> dict[str, Any]:
        """Records `stored`, and those `in_flight` to the brokers."""
        return {"stored": self._stored, "in_flight": len(self.under_way)}


Record = tuple[str, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""The topic, the value, the key and the headers of a record."""


class Encoding:
    """Makes a record of an event. Raises what the user's functions raise, and TypeError for what
    cannot be JSON."""

    def __init__(self, run: Run, settings: WritingSettings, sink: BaseSinkStage) -> None:
        self._run = run
        self._sink = sink
        self._letter_line = letter_line(run.now)
        self._topic = settings.topic
        self._key = None if settings.key is None else key_function(settings.key)
        self._calls = called_name(settings.topic, settings.key)
        self._traced: TracedCalls | None = None

    def _place(self, value: Any) -> tuple[str, Any]:
        """The topic and the key for a value."""
        topic = self._topic if isinstance(self._topic, str) else self._topic(value)
        return topic, None if self._key is None else self._key(value)

    def __call__(self, event: Event[Any]) -> Record:
        value: Any = event.value
        headers: list[tuple[str, bytes | None]] = []
        tracing = self._run.tracing
        if tracing is None or not self._calls:
            topic, key = self._place(value)
        else:
            if self._traced is None:
                self._traced = tracing.calls(self._sink.info, self._calls, None)
            topic, key = self._traced.call(self._place, event)
        if isinstance(value, KafkaRecord):
            own, headers, value = _parts(event.value)
            key = own if self._key is None else key
        if tracing is not None:
            new = tracing.headers_of(event)
            headers = [pair for pair in headers if pair[0] not in new]
            headers += [(name, text.encode()) for name, text in new.items()]
        if type(value) is DeadLetter:
            value = self._letter_line(value)
        body = value if value is None or isinstance(value, bytes) else encoded(value)
        return topic, body, _key_bytes(key), headers


def as_ours(error: Exception, settings: WritingSettings) -> Exception:
    """The error of the client as ours; others as they are."""
    from confluent_kafka import KafkaException

    if isinstance(error, BufferError):
        return PublishFailed(
            "write_kafka: the records under way are larger than the client's buffer; lower "
            "window=, or raise queue.buffering.max.kbytes in config="
        )
    return writing_error(error.args[0], settings) if isinstance(error, KafkaException) else error


def writing_error(fault: KafkaError, settings: WritingSettings) -> PenstockError:
    """The error for the brokers' answer to a record, which says what to do."""
    from confluent_kafka import KafkaError as Code

    code = fault.code()
    if fault.fatal() or code == Code._FATAL:
        return ProducerFailed(
            f"write_kafka: the client can write nothing more ({fault.str()}); what is not "
            "confirmed is processed again. Start the pipeline again."
        )
    if code == Code.MSG_SIZE_TOO_LARGE:
        return PayloadTooLarge(
            f"write_kafka: the record is larger than the brokers or the client accept "
            f"({fault.str()}); raise message.max.bytes on both, or write less"
        )
    if code in (Code._MSG_TIMED_OUT, Code._TIMED_OUT_QUEUE, Code.REQUEST_TIMED_OUT):
        return PublishFailed(
            f"write_kafka: the brokers have not confirmed the record within "
            f"{settings.patience:g} s ({fault.str()}); it may be stored"
        )
    topic = settings.topic
    what = f"write_kafka({topic if isinstance(topic, str) else 'by the value'!r})"
    return error_of(fault, what, settings.servers)


def _parts(record: KafkaRecord[Any]) -> tuple[Any, list[tuple[str, bytes | None]], Any]:
    return record.key, list(record.headers), record.value


def _key_bytes(key: Any) -> bytes | None:
    """A key as Kafka has it: bytes as they are, texts in UTF-8, all else as JSON, the same for keys
    that are equal."""
    if key is None or isinstance(key, bytes):
        return key
    return key.encode() if isinstance(key, str) else key_json(key)
