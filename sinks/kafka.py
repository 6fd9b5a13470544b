"""Write records to a topic of Apache Kafka.

Items:   a record for each value: an object as JSON, bytes as they are, a `KafkaRecord` with its key
         and headers. Records of one key go to one partition, in order.
Time:    at once; the client joins records that come within a few milliseconds (`linger.ms`). An
         event is accepted when all in-sync replicas have its record.
Memory:  `window` events under way, and their records in the client.
Demand:  `window` at first, then a quarter of it at a time as records are stored.
Ends:    when everything under way is stored. Cancel returns those events; they may or may not be
         stored.
Errors:  CannotConnect, and StreamMissing when the topic does not exist, end the pipeline. A record
         that is not confirmed within `patience` seconds is PublishFailed; that, PayloadTooLarge,
         and a value that is not valid JSON fail the event, and `on_error` applies. The producer is
         idempotent: its own repetitions store nothing twice.

    source        --a--b-----|
    brokers       ---a---b--
    write_kafka   ---a---b---|
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.streams.errors import BuildError
from penstock.streams.failures.policy import OnError, check_policy, routed_by
from penstock.streams.kafka.client import (
    PARTITIONER,
    Servers,
    client_settings,
    needs_client,
    servers_of,
    settings_refused,
)
from penstock.streams.kafka.writing import Writing, WritingSettings
from penstock.streams.keyed.key import By, key_name
from penstock.streams.protocol.sink_stage import Closed, Sink, SinkStage
from penstock.streams.protocol.stage import StageInfo
from penstock.streams.runtime.context import Run

__all__ = ["write_kafka"]


def write_kafka(
    topic: str | Callable[[Any], str],
    servers: Servers = "localhost:9092",
    key: By[Any] | None = None,
    *,
    window: int = 1024,
    patience: float = 60.0,
    on_error: OnError = "stop",
    config: Mapping[str, Any] | None = None,
) -> Sink[Any]:
    """Write to `topic`, which may be a function of the value.

    `key` is the field or function by which records are assigned to partitions; without one they are
    spread. Texts are written in UTF-8, bytes as they are, other keys as JSON. `config` has other
    settings of the client by their names in librdkafka, such as `compression.type` or `sasl.*`.
    Raises BuildError for invalid options and settings, MissingExtra without confluent-kafka.
    """
    check_policy(on_error, "write_kafka")
    if not topic:
        raise BuildError(f"write_kafka({topic!r}): give the name of a topic")
    if window < 1 or not patience > 0:
        raise BuildError(f"write_kafka(window={window!r}, patience={patience!r}): must be positive")
    needs_client("write_kafka")
    client = client_settings(
        servers,
        config,
        {"enable.idempotence": True, "message.timeout.ms": max(1, round(patience * 1000))},
        "write_kafka",
    )
    client.setdefault("queue.buffering.max.messages", max(100_000, 2 * window))
    client.setdefault("partitioner", PARTITIONER)
    return _Kafka(
        WritingSettings(
            topic,
            servers_of(servers, "write_kafka"),
            client,
            key,
            window,
            patience,
            on_error,
            _producer,
        )
    )


class _Kafka(Sink[Any]):
    def __init__(self, settings: WritingSettings) -> None:
        detail = settings.topic if isinstance(settings.topic, str) else "by the value"
        if settings.key is not None:
            detail += f", key {key_name(settings.key)}"
        self.info = StageInfo(
            "write_kafka",
            detail,
            settings.window,
            "until it is stored",
            routed=routed_by(settings.on_error),
        )
        self._settings = settings

    def open(self, run: Run, closed: Closed) -> SinkStage[Any]:
        return Writing(run, closed, self._settings)


def _producer(settings: dict[str, Any]) -> Any:
    from confluent_kafka import KafkaException, Producer

    try:
        return Producer(settings)
    except KafkaException as error:
        raise settings_refused(error, "write_kafka") from None
