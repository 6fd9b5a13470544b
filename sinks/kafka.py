"""Write records to a topic of Apache Kafka.

Items:   a record for each value: an object as JSON, bytes as they are, a `KafkaRecord` with its key
         and headers. Records of one key go to one partition, in order.
Time:    at once; the client joins records that come within a few milliseconds (`linger.ms`). An
         event is accepted when all in-sync replicas have its record. With `transactional` it is
         accepted at once, and its record is written in the next transaction: after `commit_every`
         seconds, or when half of `window` records wait.
Memory:  `window` events under way, and their records in the client. With `transactional` also the
         results of records that are not finished.
Demand:  `window` at first, then a quarter of it at a time as records are stored.
Ends:    when everything under way is stored. Cancel returns those events; they may or may not be
         stored. With `transactional` a record that was read, all its results and its offset are one
         transaction: whatever crashes, readers of what is committed (`isolation.level`) see all of
         them once.
Errors:  CannotConnect, and StreamMissing when the topic does not exist, end the pipeline. A record
         that is not confirmed within `patience` seconds is PublishFailed; that, PayloadTooLarge,
         and a value that is not valid JSON fail the event, and `on_error` applies. The producer is
         idempotent: its own repetitions store nothing twice. ProducerFailed: the client can write
         nothing more. With `transactional` another one takes over then, and transactions that fail
         are repeated for `patience` seconds; those of a reader that has lost its partitions are
         aborted. ProducerFenced: another producer has this `transactional_id`.

    source        --a--b-----|
    brokers       ---a---b--
    write_kafka   ---a---b---|
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from penstock.streams.base.duration import is_duration
from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By, Key, key_name
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import (
    is_count,
    is_positive,
    is_text,
    require_parameters,
)
from penstock.streams.failures.policy import OnError, check_policy, routed_by
from penstock.streams.kafka.client import (
    PARTITIONER,
    Servers,
    checked_config,
    client_settings,
    needs_client,
    producer_of,
    servers_of,
)
from penstock.streams.kafka.producer import TransactionalProducer, in_thread
from penstock.streams.kafka.transactional import TransactionalWriting
from penstock.streams.kafka.transactions import Transactions, TransactionSettings
from penstock.streams.kafka.writing import Writing, WritingSettings, writing_error
from penstock.streams.protocol.stage_info import Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

__all__ = ["write_kafka"]

_COMMIT_EVERY = 0.1
# Milliseconds after which brokers abort the transaction of a producer that is silent. Chosen: as
# Kafka Streams does.
_TRANSACTION = 10_000


@recorded
def write_kafka(
    topic: str | Callable[[Any], str],
    servers: Servers = "localhost:9092",
    key: By[Any] | None = None,
    *,
    transactional: bool = False,
    transactional_id: str | None = None,
    commit_every: float = _COMMIT_EVERY,
    window: int = 1024,
    patience: float = 60.0,
    on_error: OnError = "stop",
    config: Mapping[str, Any] | None = None,
    in_workers: bool = False,
) -> Sink[Any]:
    """Write to `topic`, which may be a function of the value.

    `key` is the field or function by which records are assigned to partitions; without one they are
    spread. Texts are written in UTF-8, bytes as they are, other keys as JSON. `transactional` makes
    reading, results and offsets one transaction; the only source is then one `read_kafka` of the
    same cluster, and all sinks are in the transaction. `transactional_id` is the name by which the
    brokers end the transactions of a process that has crashed as soon as it starts again: each
    process needs its own, and the same after a restart. Without it, they do so after 10 seconds
    (`transaction.timeout.ms`), for which its partitions wait. `config` has other
    settings of the client by their names in librdkafka, such as `compression.type` or `sasl.*`.
    With `in_workers` each process of a run with `workers=` has a client and writes its own results
    (see docs/several-cores.md), without `transactional`, for which the parent's reader is needed.
    Raises BuildError for invalid options and settings, MissingExtra without confluent-kafka.

    >>> from penstock import from_iterable, write_kafka
    >>> print(from_iterable([{"id": 1}]).to(write_kafka("orders", key="id")))
    <Pipeline from_iterable > write_kafka>
    """
    check_policy(on_error, "write_kafka")
    if not is_text(topic) and not callable(topic):
        raise BuildError(f"write_kafka({topic!r}): give the name of a topic")
    if not is_count(window) or not (is_positive(patience) and is_duration(patience)):
        raise BuildError(f"write_kafka(window={window!r}, patience={patience!r}): must be positive")
    if not transactional and (transactional_id is not None or commit_every != _COMMIT_EVERY):
        raise BuildError("write_kafka(transactional_id=, commit_every=) need transactional=True")
    if transactional_id == "" or not commit_every >= 0:
        raise BuildError(
            f"write_kafka(transactional_id={transactional_id!r}, commit_every={commit_every!r}): "
            "a name that is not empty, and at least 0 seconds"
        )
    if transactional and in_workers:
        raise BuildError(
            "write_kafka(transactional=True, in_workers=True): the transactions are those of the "
            "reader, which is in the parent. Leave one of them out"
        )
    if key is not None:
        Key(key, "key")
    if callable(topic):
        require_parameters(topic, "write_kafka(topic=...)", 1)
    needs_client("write_kafka")
    config = checked_config(config, "write_kafka")
    own: dict[str, Any] = {"enable.idempotence": True}
    if transactional:
        timeout = config.get("transaction.timeout.ms", _TRANSACTION)
        own |= {"transactional.id": transactional_id or "", "message.timeout.ms": timeout}
        config = {**config, "transaction.timeout.ms": timeout}
    else:
        own["message.timeout.ms"] = max(1, round(patience * 1000))
    client = client_settings(servers, config, own, "write_kafka")
    client.setdefault("queue.buffering.max.messages", max(100_000, 2 * window))
    client.setdefault("partitioner", PARTITIONER)
    if transactional:
        # When all brokers are away the client would drop the coordinator of the group, and wait for
        # its connection for ever (librdkafka's issue 5511).
        client.setdefault("metadata.recovery.strategy", "none")
    settings = WritingSettings(
        topic,
        servers_of(servers, "write_kafka"),
        client,
        key,
        window,
        patience,
        on_error,
        partial(producer_of, who="write_kafka"),
    )
    if transactional:
        return _Transactional(settings, commit_every)
    return _Kafka(settings, in_workers=in_workers)


class _Kafka(Sink[Any]):
    _until = "until it is stored"

    def __init__(self, settings: WritingSettings, *, in_workers: bool = False) -> None:
        detail = settings.topic if isinstance(settings.topic, str) else "by the value"
        if settings.key is not None:
            detail += f", key {key_name(settings.key)}"
        self.info = StageInfo(
            "write_kafka",
            detail,
            settings.window,
            self._until,
            routed=routed_by(settings.on_error),
            policy=settings.on_error,
            placement=Placement(reads=(settings.key,)),
        )
        self.in_workers = in_workers
        self._settings = settings

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        return Writing(run, closed, self._settings)


class _Transactional(_Kafka):
    _until = "until its transaction is committed"

    def __init__(self, settings: WritingSettings, commit_every: float) -> None:
        super().__init__(settings)
        self._commit_every = commit_every

    def check_beside(self, others: Sequence[Sink[Any]]) -> None:
        for other in others:
            if not other.observes and not isinstance(other, _Transactional):
                raise BuildError(
                    f"write_kafka(transactional=True): what {other.info.name} writes cannot be in "
                    "the transaction. Leave transactional out, or let another pipeline do that "
                    "from the topic that is written here."
                )

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        client = dict(self._settings.client)
        is_named = bool(client["transactional.id"])
        if not is_named:
            # Of each run, so that no other producer has it.
            client["transactional.id"] = f"penstock-{uuid4().hex}"
        settings = self._settings._replace(client=client)
        transactions = Transactions(
            run,
            TransactionSettings(
                client["transactional.id"],
                is_named,
                float(client["transaction.timeout.ms"]) / 1000,
                self._commit_every,
                max(1, settings.window // 2),
                settings.patience,
                lambda: _transactional_producer(dict(settings.client)),
                partial(writing_error, settings=settings),
            ),
        )
        return TransactionalWriting(run, closed, settings, transactions)


def _transactional_producer(settings: dict[str, Any]) -> TransactionalProducer:
    return in_thread(producer_of(settings, "write_kafka"))
