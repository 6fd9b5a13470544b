"""Warm copies: a thread reads the partitions of a changelog that other members have."""

from __future__ import annotations

import logging
from collections.abc import Set
from threading import Event, Lock, Thread
from typing import Any

from penstock.streams.base.errors import CannotOpen
from penstock.streams.state.copy import Copy
from penstock.streams.state.kafka.changelog import changes_in
from penstock.streams.state.kafka.topic import Topic

__all__ = ["Standby"]

log = logging.getLogger("penstock")

# Records that are put into a copy at once, and seconds for which the client waits for them.
_MOST = 5_000
_POLL = 0.2


class Standby:
    """Copies of `count` partitions, without those that this run has or is about to have.

    `lag` is how many records the copies are behind, as far as the client knows.
    """

    def __init__(self, topic: Topic, copy: Copy, count: int, own: Set[int]) -> None:
        self.lag = 0
        self._topic = topic
        self._copy = copy
        self._count = count
        self._own = own
        # While a batch is written, or it changes whose a partition is.
        self._lock = Lock()
        self._ends = Event()
        self._thread = Thread(None, self._follow, "penstock standby", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Wait until nothing is written of what is this run's by now."""
        with self._lock:
            return

    def close(self) -> None:
        self._ends.set()
        self._thread.join(10.0)

    def _follow(self) -> None:
        from confluent_kafka import Consumer, KafkaException

        consumer: Any = Consumer(self._topic.reading("earliest"))
        try:
            assigned: set[int] = set()
            while not self._ends.is_set():
                wanted = set(range(self._count)) - set(self._own)
                if wanted != assigned:
                    self._assign(consumer, wanted)
                    assigned = wanted
                self._take(consumer.consume(_MOST, _POLL))
                self._look(consumer, assigned)
        except (KafkaException, CannotOpen) as error:
            log.warning("standby copies are not kept any more: %s", error)
        finally:
            consumer.close()

    def _assign(self, consumer: Any, partitions: set[int]) -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        places: list[Any] = []
        for number in sorted(partitions):
            at = self._copy.next(number)
            places.append(
                TopicPartition(self._topic.name, number, OFFSET_BEGINNING if at is None else at)
            )
        consumer.assign(places)

    def _take(self, messages: list[Any]) -> None:
        from confluent_kafka import KafkaError, KafkaException

        records: dict[int, list[tuple[bytes, bytes | None]]] = {}
        ends: dict[int, int] = {}
        for message in messages:
            number, fault = message.partition(), message.error()
            if fault is None:
                records.setdefault(number, []).append((message.key() or b"", message.value()))
                ends[number] = message.offset() + 1
            elif fault.code() == KafkaError._PARTITION_EOF:
                ends[number] = max(message.offset(), ends.get(number, 0))
            elif fault.fatal():
                raise KafkaException(fault)
        for number, end in ends.items():
            with self._lock:
                before = self._copy.next(number)
                if number not in self._own and (before is None or end > before):
                    self._copy.change(number, changes_in(records.get(number, ())), end)

    def _look(self, consumer: Any, partitions: set[int]) -> None:
        from confluent_kafka import TopicPartition

        lag = 0
        for number in partitions:
            place = TopicPartition(self._topic.name, number)
            _, end = consumer.get_watermark_offsets(place, cached=True)
            lag += max(0, end - (self._copy.next(number) or 0))
        self.lag = lag
