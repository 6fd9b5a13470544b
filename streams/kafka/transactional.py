"""The sink stage that writes records in the transactions of the reader that they come from."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from penstock.streams.base.errors import BuildError, PenstockError
from penstock.streams.delivery.commit import Part
from penstock.streams.delivery.marks import MarksOfRun
from penstock.streams.failures.dead_letters import DeadLetterChannel
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.kafka.offsets.moving import MovingOffsets
from penstock.streams.kafka.offsets.partition import Token
from penstock.streams.kafka.offsets.stored import StoredOffsets
from penstock.streams.kafka.producer import NoAnswer
from penstock.streams.kafka.reading import Reading
from penstock.streams.kafka.reason import reason
from penstock.streams.kafka.transactions import RECORDS, Transactions
from penstock.streams.kafka.writing import (
    Encoding,
    Record,
    WritingSettings,
    as_ours,
    writing_error,
)
from penstock.streams.protocol.acknowledgement import Again, Hooks, hooks, revise, roots
from penstock.streams.protocol.event import RETURNED, Event, finish_all, give_back_all
from penstock.streams.protocol.stage import CLOSED, Subscription, is_second
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed

__all__ = ["TransactionalWriting"]


class _StoredRecords:
    """The kind of parts that are records to write in the transaction of a store."""

    def write(self, transaction: Any, values: list[Record], /) -> None:
        for value in values:
            topic, body, key, headers = value
            transaction.produce(value, topic, body, key, headers=headers)


_STORED = _StoredRecords()
_AGAIN = Again()


class TransactionalWriting(BaseSinkStage):
    """One run of `penstock.write_kafka` with `transactional=True`.

    An event is accepted at once; its result waits, with the record that it was made from, for the
    transaction. `_open` results take room, up to the window, except those of records with more
    results to come, because these must not wait for room.

    If the states of the run are in the same cluster, the transactions are those of their store.
    """

    def __init__(
        self, run: Run, closed: Closed, settings: WritingSettings, transactions: Transactions
    ) -> None:
        super().__init__(closed)
        self._run = run
        self._settings = settings
        self._encode = Encoding(run, settings, self)
        self._faults = ErrorPolicy(settings.on_error, run, self)
        self._transactions = transactions
        self._reading: Reading | None = None
        self._within: MarksOfRun | None = None
        self._open = self._stored = self._spare = 0
        self._stride = max(1, settings.window // 4)

    # The start.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if is_second(self, subscription):
            return
        self.upstream = subscription
        try:
            self._reading = self._reader(subscription)
        except BuildError as error:
            self.break_off(error)
            return
        if self._within is None:
            self._run.spawn(self._look_for_topic(), "write_kafka", stage=self)
        subscription.request(self._settings.window)

    def _reader(self, subscription: Subscription) -> Reading:
        """The source, whose commits are from now on made in the transactions of this sink."""
        sources = self._run.nesting.sources
        if isinstance(subscription, DeadLetterChannel):
            raise BuildError(
                "write_kafka(transactional=True) takes results, not dead letters: write these "
                "without it"
            )
        readings = [one for one in sources if isinstance(one, Reading)]
        stores = {
            one.commits.marks_of_run if isinstance(one.commits, MovingOffsets) else one
            for one in readings
        }
        if len(readings) != len(sources) or len(stores) != 1:
            firsts = [info.name for info, _ in self._run.nesting.stages if info.is_source]
            names = ", ".join(firsts) or "nothing"
            raise BuildError(
                f"write_kafka(transactional=True): one read_kafka must be the only source, and "
                f"this pipeline reads {names}. Leave transactional out, or read one set of topics; "
                "or have all of them keep in one store in Kafka what is done, by offsets="
            )
        reading = readings[0]
        if reading.servers != self._settings.servers:
            raise BuildError(
                f"write_kafka(transactional=True) writes to {self._settings.servers}, and "
                f"read_kafka reads from {reading.servers}: a transaction is within one cluster"
            )
        if isinstance(reading.commits, MovingOffsets):
            marks = reading.commits.marks_of_run
            if marks.database == ("kafka", self._settings.servers):
                self._within = marks
                return reading
        if isinstance(reading.commits, StoredOffsets):
            raise BuildError(
                "write_kafka(transactional=True): read_kafka keeps in a store what is done, "
                "together with states, and no transaction has both. Leave transactional out: "
                "states are exact, and records may be written twice after a crash; or leave out "
                "offsets= and what keeps states."
            )
        if isinstance(reading.commits, Transactions):
            # Another sink was first: one transaction serves both.
            self._transactions = reading.commits
        else:
            reading.commit_by(self._transactions)
            self._run.on_close(self._transactions.disconnect)
        self._transactions.on_idle.append(self.end_if_idle)
        return reading

    async def _look_for_topic(self) -> None:
        """End the pipeline at once where no broker answers, or the topic does not exist."""
        from confluent_kafka import KafkaException

        topic = self._settings.topic
        try:
            if isinstance(topic, str):
                fault = await self._transactions.producer.topic_error(topic)
                if fault is not None:
                    raise KafkaException(fault)
        except KafkaException as raised:
            fault = await asyncio.to_thread(reason, raised.args[0], self._settings.client)
            self.break_off(writing_error(fault, self._settings))
        except PenstockError as error:
            self.break_off(error)
        except NoAnswer:
            # A transaction finds out whether the topic can be written to.
            return

    # Events.

    def prepare(self, events: list[Event[Any]], /) -> None:
        if self._within is not None:
            self._within.hold([event for event in events if event.pending > 0])

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._current.call(self, self._accept_all, events)

    def _accept_all(self, events: list[Event[Any]]) -> None:
        accepted: list[Event[Any]] = []
        results: list[Part[Token]] = []
        for place, event in enumerate(events):
            if self.state >= CLOSED:
                give_back_all(events[place:])
                break
            try:
                record = self._encode(event)
                if self._within is not None:
                    self._put_within(self._within, event, record)
                    continue
                tokens = self._tokens(event)
                result = Part(RECORDS, record, tokens, partial(self._settled, event), self._room)
                self._transactions.add(result)
            except Exception as error:
                self._fails(event, error)
                continue
            self._open += 1
            accepted.append(event)
            results.append(result)
        finish_all(accepted)
        for result in results:
            if self._transactions.is_open(result.roots[0]):
                result.release()

    def _put_within(self, store: MarksOfRun, event: Event[Any], record: Record) -> None:
        """Have the store write a result."""
        self._open += 1
        settled = partial(self._settled_within, store, event, hooks(event))
        store.accept(event, Part(_STORED, record, [], settled, self._room))

    def _settled_within(
        self,
        store: MarksOfRun,
        event: Event[Any],
        told: Hooks,
        part: Part[Any],
        error: Exception | None,
    ) -> bool:
        """A result was written by the store, is void, or was refused."""
        if error is not None:
            again = _AGAIN.put(store.again(event), told)
            error = as_ours(error, self._settings)
            if self.state >= CLOSED:
                again.give_back()
            elif not self._faults.survives(again, error):
                again.fail(error)
                self.break_off(error)
        elif part.is_void:
            revise(told, RETURNED)
        else:
            self._stored += 1
        return False

    def _tokens(self, event: Event[Any]) -> list[Token]:
        """The records that the event was made from."""
        if event.origin is self._reading:
            return [event.token]
        found = list(roots(event))
        if not found or any(origin is not self._reading for origin, _ in found):
            raise BuildError(
                "write_kafka(transactional=True): the event was not made from records of "
                "read_kafka alone, so no transaction can have both. Leave transactional out, or "
                "what adds events, such as start_with, or buffers that may be empty."
            )
        return [token for _, token in found]

    def _fails(self, event: Event[Any], error: Exception) -> None:
        if isinstance(error, BuildError) or not self._faults.survives(event, error):
            if event.pending > 0:
                event.fail(error)
            self.break_off(error)
        else:
            self._ask(1)

    # Results.

    def _room(self) -> None:
        self._open -= 1
        self._ask(1)
        if self._within is not None:
            self.end_if_idle()

    def _settled(self, event: Event[Any], result: Part[Token], error: Exception | None) -> bool:
        """A result is committed or void, or was refused; returns whether its records are finished
        without it."""
        if error is None:
            self._stored += not result.is_void
        elif self.state < CLOSED:
            error = as_ours(error, self._settings)
            # The event has ended already; only the policy remains to be applied.
            if self._faults.survives(event, error) and self._faults.gives_up:
                return True
            self.break_off(error)
        return False

    def _ask(self, count: int) -> None:
        if self.state:
            return
        self._spare += count
        if self._spare >= self._stride:
            spare, self._spare = self._spare, 0
            self._run.call_soon(self.info, self._request, spare)

    def _request(self, count: int) -> None:
        if not self.state:
            self.upstream.request(count)

    # The end.

    @property
    def is_idle(self) -> bool:
        return self._open == 0 if self._within is not None else self._transactions.is_idle

    def end_if_idle(self) -> None:
        failure = None if self._within is not None else self._transactions.failure
        if self.state:
            self.error = self.error or failure
            super().end_if_idle()
        elif failure is not None:
            # Nothing more can be committed: the end of the stream is not waited for.
            self.break_off(failure)

    def statistics(self) -> dict[str, Any]:
        """Records `stored`, results that wait for their transaction (`uncommitted`), `transactions`
        that were committed, those that were `aborted`, and producers that were `replaced`."""
        made = self._transactions if self._within is None else self._within
        return {
            "stored": self._stored,
            "uncommitted": self._open,
            "transactions": made.committed,
            "aborted": self._transactions.aborted,
            "replaced": self._transactions.replaced,
        }
