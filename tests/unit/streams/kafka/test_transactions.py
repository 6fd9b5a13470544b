"""What a transactional writer promises, on virtual time and a model of the brokers."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from math import inf
from threading import Event, Thread, current_thread
from typing import Any
from unittest.mock import AsyncMock, Mock, patch

import pytest
from confluent_kafka import KafkaError, KafkaException
from orjson import loads

from penstock import (
    Fixed,
    Pipeline,
    Running,
    adaptive_flat_map,
    batch,
    collect,
    from_iterable,
    group_by,
    latency_histogram,
    ops,
    read_kafka,
    route,
    spread,
    write_kafka,
)
from penstock.streams.base.errors import (
    BuildError,
    PenstockError,
    ProducerFenced,
    PublishFailed,
    RightsMissing,
)
from penstock.streams.delivery.commit import Part
from penstock.streams.kafka.offsets.partition import Partition, Token
from penstock.streams.kafka.producer import NoAnswer, in_thread, is_member
from penstock.streams.kafka.transactional import TransactionalWriting
from penstock.streams.kafka.transactions import RECORDS, Transactions, TransactionSettings
from penstock.streams.runtime import context
from penstock.streams.testing.plugin import Run
from tests.helpers.kafka.metadata import finished_beside
from tests.helpers.kafka.model import (
    CLUSTER,
    Broker,
    Member,
    ModelProducer,
    Record,
    model_of,
    numbers,
)
from tests.helpers.walks import seeds

ID = {"transactional.id": "id"}


def source(**options: Any) -> Any:
    return read_kafka("t", "g", **options)


def sink(**options: Any) -> Any:
    return write_kafka("out", transactional=True, **options)


def results(broker: Broker, of: str = "out") -> list[int]:
    return [loads(value or b"null")["n"] for topic, value in broker.results if topic == of]


async def settled(seconds: float = 3) -> None:
    """Until the members have joined, read what there is, and committed."""
    await asyncio.sleep(seconds)


async def until(true: Callable[[], bool]) -> None:
    while True:
        if true():
            return
        await asyncio.sleep(0.01)


# What is refused.


def test_options_that_cannot_be_meant_are_refused() -> None:
    for wrong in (
        lambda: write_kafka("t", transactional_id="a"),
        lambda: write_kafka("t", commit_every=1),
        lambda: sink(transactional_id=""),
        lambda: sink(commit_every=-1),
        lambda: sink(config={"transactional.id": "a"}),
    ):
        with pytest.raises(BuildError):
            wrong()


def test_a_sink_that_cannot_be_in_the_transaction_is_named() -> None:
    with pytest.raises(BuildError, match="what collect writes cannot be in the transaction"):
        source().to(sink(), collect([]))
    with pytest.raises(BuildError, match="what write_kafka writes cannot be in the transaction"):
        source().to(sink(), write_kafka("other"))
    source().to(sink(), sink(), latency_histogram())


def test_a_source_that_cannot_be_in_the_transaction_is_named(broker: Broker, run: Run) -> None:
    with pytest.raises(BuildError, match="this pipeline reads from_iterable"):
        run(from_iterable([1]).to(sink()).run())
    with pytest.raises(BuildError, match="a transaction is within one cluster"):
        run(source(servers="a:1").to(sink(servers="b:1")).run())


def test_dead_letters_are_not_part_of_a_transaction(broker: Broker, run: Run) -> None:
    with pytest.raises(BuildError, match="takes results, not dead letters"):
        run(source(on_bad_record=route(sink()), follow=False).to(collect([])).run())


def test_an_event_that_does_not_come_from_the_topics_is_named(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 3))
    with pytest.raises(BuildError, match="was not made from records of read_kafka alone"):
        run(source(follow=False).pipe(ops.start_with({"n": 9})).to(sink()).run())
    assert broker.results == []


# One transaction.


def test_results_and_offsets_are_committed_together_and_in_no_other_way(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 100))

    async def story() -> None:
        running = source().to(sink()).start()
        await settled()
        (producer,) = broker.producers
        assert producer.calls == ["init", "begin", "offsets", "commit"]
        assert results(broker) == list(range(100))
        assert (broker.committed["t", 0], broker.commits) == ((100, ""), 1)
        await running.drain(5)
        assert broker.commits == 1

    run(story())


def test_the_stream_ends_when_its_last_transaction_is_committed(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 100))
    broker.latency = lambda: 2.0
    report = run(source(follow=False).to(sink()).run())
    assert results(broker) == list(range(100))
    assert report.statistics["stages"][-1]["stored"] == 100


def test_a_transaction_waits_for_others_for_a_while_or_until_there_are_many(
    broker: Broker, run: Run
) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        at: list[float] = []
        running = source().to(sink(commit_every=5.0, window=100)).start()
        await settled()
        began = loop.time()
        broker.write(*numbers(0, 10))
        await until(lambda: len(broker.results) == 10)
        at.append(loop.time() - began)
        began = loop.time()
        broker.write(*numbers(10, 60))
        await until(lambda: len(broker.results) == 60)
        at.append(loop.time() - began)
        assert 5 <= at[0] < 5.2
        assert at[1] < 0.2
        await running.drain(5)

    run(story())


def test_an_event_without_a_result_is_committed_too(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 100))
    even = ops.filter(lambda value: value["n"] % 2 == 0)
    run(source(follow=False).pipe(even).to(sink()).run())
    assert results(broker) == list(range(0, 100, 2))
    assert broker.committed["t", 0] == (100, "")


def test_all_results_of_an_event_are_in_one_transaction(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 3))

    async def story() -> None:
        stuck = asyncio.Event()

        async def work(value: dict[str, int]) -> dict[str, int]:
            if value["n"] == 12:
                await stuck.wait()
            return value

        many = ops.flat_map(lambda value: [{"n": 10 * value["n"] + i} for i in range(5)])
        pipeline = source().pipe(many, adaptive_flat_map(work, limit=Fixed(20))).to(sink(window=2))
        running = pipeline.start()
        await settled()
        assert sorted(results(broker)) == [0, 1, 2, 3, 4, 20, 21, 22, 23, 24]
        floor, text = broker.committed["t", 0]
        assert (floor, finished_beside(floor, text)) == (1, [(2, 3)])
        stuck.set()
        await settled()
        assert sorted(results(broker)) == [10 * n + i for n in range(3) for i in range(5)]
        await running.drain(5)

    run(story())


def test_a_result_of_several_records_is_written_when_all_of_them_are_finished(
    two: Broker, run: Run
) -> None:
    two.write(*numbers(0, 4))
    two.write(*numbers(4, 6), partition=1)
    sums = ops.map(lambda values: {"n": sum(value["n"] for value in values)})
    run(source(follow=False).pipe(ops.buffer_with_count(3), sums).to(sink()).run())
    assert sum(results(two)) == 15
    assert len(two.results) == 2
    assert {key: mark[0] for key, mark in two.committed.items()} == {("t", 0): 4, ("t", 1): 2}


def test_two_sinks_are_in_one_transaction(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 10))
    other = write_kafka("other", transactional=True)
    run(source(follow=False).to(sink(), other).run())
    assert Counter(topic for topic, _ in broker.results) == {"out": 10, "other": 10}
    assert broker.commits == 1


def test_a_handler_that_stops_the_pipeline_leaves_nothing_half_done(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 10))

    def work(value: dict[str, int]) -> list[dict[str, int]]:
        if value["n"] == 5:
            raise ValueError("no")
        return [value]

    with pytest.raises(ValueError, match="no"):
        run(source().pipe(adaptive_flat_map(work), ops.flat_map(lambda v: v)).to(sink()).run())
    assert results(broker) == list(range(5))
    assert broker.committed["t", 0] == (5, "")


@pytest.mark.parametrize("returned_first", [True, False])
def test_a_result_is_not_written_when_one_of_its_records_was_returned(
    returned_first: bool, run: Run
) -> None:
    async def story() -> None:
        again: list[Token] = []
        none: Any = Mock()
        transactions = Transactions(
            context.Run(), TransactionSettings("id", True, 10, 0.1, 10, 60, none, none)
        )
        transactions.serve(lambda: None, again.extend)
        partition = Partition(CLUSTER, "t", 0, 0)
        records: list[Any] = [Record(("t", 0), offset, b"") for offset in (0, 1)]
        one, two = (Token(partition, record, record.offset()) for record in records)
        transactions.add(Part(RECORDS, ("out", b"", None, []), [one, two], none))
        steps = [lambda: transactions.take_back(two), lambda: transactions.finish([one])]
        for step in steps if returned_first else reversed(steps):
            step()
        # The other one comes again, because its result is not there.
        assert again == [one]
        assert transactions.due_in() == inf

    run(story())


class Copies:
    """A kind of parts that nothing else knows of: texts, each a record of a topic of its own."""

    async def write(self, transaction: Any, values: list[str], /) -> None:
        await transaction.produce((value, ("copies", value.encode(), None, [])) for value in values)


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_a_further_kind_is_in_the_transaction_that_has_the_records_and_the_results(
    broker: Broker, run: Run, policy: Any
) -> None:
    broker.write(*numbers(0, 20))
    too_large = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    broker.refuse_record = lambda value: too_large if value == b"copy 7" else None
    ends: dict[str, Exception | None] = {}
    before = TransactionalWriting.on_events

    def done(part: Part[Token], error: Exception | None) -> bool:
        assert part.value not in ends
        ends[part.value] = error
        return policy == "skip"

    def on_events(stage: Any, events: list[Any], /) -> None:
        for event in events:
            value = f"copy {event.value['n']}"
            stage._transactions.add(Part(Copies(), value, [event.token], done))
        before(stage, events)

    async def story() -> None:
        with patch.object(TransactionalWriting, "on_events", on_events):
            running = source().to(sink()).start()
            await settled()
            running.cancel()
            await running.wait()

    run(story())
    expected = [n for n in range(20) if n != 7 or policy == "skip"]
    assert results(broker, "out") == expected
    copies = [value for topic, value in broker.results if topic == "copies"]
    assert sorted(copies) == sorted(b"copy %d" % n for n in range(20) if n != 7)
    assert {value for value, error in ends.items() if error is not None} == {"copy 7"}
    assert len(ends) == 20


def test_two_sinks_write_the_records_of_one_topic_in_their_order(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 10))
    run(source(follow=False).to(sink(), sink()).run())
    assert results(broker) == [n for n in range(10) for _ in range(2)]


def alone(broker: Broker, count: int = 1) -> tuple[Transactions, Any, Partition]:
    """Transactions of finished records of one partition, and the consumer; no reader calls them."""
    none: Any = Mock()
    transactions = Transactions(
        context.Run(),
        TransactionSettings("id", True, 10, 0, 10, 60, lambda: broker.producer(ID), none),
    )
    transactions.serve(lambda: None, lambda tokens: None)
    consumer = AsyncMock()
    consumer.consumer_group_metadata.return_value = b"unknown\xff\xff\xff\xffg\0m\0"
    partition = Partition(CLUSTER, "t", 0, 0)
    for offset in range(count):
        partition.ledger.read(offset, None)
        record: Any = Record(("t", 0), offset, b"")
        transactions.finish([Token(partition, record, offset)])
    return transactions, consumer, partition


def test_a_commit_is_confirmed_only_by_a_transaction_of_its_own(broker: Broker, run: Run) -> None:
    async def story() -> None:
        transactions, consumer, partition = alone(broker)
        # While one is in progress, after which no other can be begun for now.
        broker.latency = lambda: 1.0
        await transactions.commit(consumer, [partition])
        slow = KafkaError(KafkaError._TIMED_OUT, "slow", False, True)
        broker.refuse_producer = lambda method: (
            slow if method == "begin" and transactions.committed else None
        )
        assert not await transactions.confirm(consumer, [partition])
        assert transactions.committed == 1
        broker.refuse_producer = lambda method: None
        assert await transactions.confirm(consumer, [partition])
        assert transactions.committed == 2

    run(story())


def test_partitions_leave_as_soon_as_the_transaction_in_progress_has_ended(
    broker: Broker, run: Run
) -> None:
    async def story() -> None:
        transactions, consumer, partition = alone(broker)
        broker.latency = lambda: 1.0
        began = asyncio.get_running_loop().time()
        await transactions.commit(consumer, [partition])
        await transactions.hand_over(consumer, [partition])
        assert transactions.committed == 1
        # The start of the producer, the transaction, its offsets and the commit.
        assert asyncio.get_running_loop().time() == began + 4

    run(story())


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5, 3.5])
def test_no_call_of_the_client_begins_after_a_close_that_was_cancelled(
    broker: Broker, run: Run, seconds: float, is_begun: bool
) -> None:
    async def story() -> None:
        transactions, consumer, partition = alone(broker)
        broker.latency = lambda: 1.0
        if is_begun:
            await transactions.commit(consumer, [partition])
        closing = asyncio.create_task(transactions.close(consumer, [partition]))
        await asyncio.sleep(seconds)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        producer: Any = transactions.producer
        before = list(producer.calls)
        await asyncio.sleep(100)
        assert producer.calls == before
        assert transactions.producer is producer

    run(story())


# Transactions that fail.


@pytest.mark.parametrize("method", ["init", "begin", "offsets", "commit", "abort"])
def test_a_transaction_that_fails_for_now_is_made_again(
    broker: Broker, run: Run, method: str
) -> None:
    broker.write(*numbers(0, 100))
    left = [3]

    def refuse(called: str) -> KafkaError | None:
        if called == "offsets" and method == "abort" and left[0]:
            return KafkaError(KafkaError.ILLEGAL_GENERATION, "abort", False, False, True)
        if called == method and left[0]:
            left[0] -= 1
            return KafkaError(KafkaError._TIMED_OUT, "slow", False, True)
        return None

    broker.refuse_producer = refuse
    run(source(follow=False).to(sink()).run())
    assert left == [0]
    assert results(broker) == list(range(100))
    assert broker.committed["t", 0] == (100, "")


@pytest.mark.parametrize("method", ["init", "begin", "offsets", "abort"])
def test_a_producer_whose_call_never_returns_is_replaced(
    broker: Broker, run: Run, method: str
) -> None:
    broker.write(*numbers(0, 100))
    refused = [KafkaError(KafkaError.ILLEGAL_GENERATION, "abort", False, False, True)]
    left = [1]

    def refuse(called: str) -> KafkaError | None:
        return refused.pop() if method == "abort" and called == "offsets" and refused else None

    def hang(called: str) -> bool:
        if called == method and left[0]:
            left[0] -= 1
            return True
        return False

    broker.refuse_producer, broker.hang = refuse, hang
    run(source(follow=False).to(sink()).run())
    assert results(broker) == list(range(100))
    assert broker.committed["t", 0] == (100, "")
    assert len({one.id for one in broker.producers}) == 1
    assert len(broker.producers) == 2


SPENT = [
    KafkaError(KafkaError.INVALID_TXN_STATE, "fatal", True),
    KafkaError(KafkaError._FENCED, "fenced", True),
    KafkaError(KafkaError._FATAL, "fatal before"),
    KafkaError(KafkaError.PRODUCER_FENCED, "fenced"),
    KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, "timed out"),
    KafkaError(KafkaError.INVALID_PRODUCER_ID_MAPPING, "forgotten"),
]


@pytest.mark.parametrize("fault", SPENT, ids=lambda fault: fault.name())
@pytest.mark.parametrize("method", ["begin", "produce", "offsets", "commit", "abort"])
def test_a_producer_that_is_of_no_use_any_more_is_replaced(
    broker: Broker, run: Run, method: str, fault: KafkaError
) -> None:
    broker.write(*numbers(0, 100))
    first = [KafkaError(KafkaError.ILLEGAL_GENERATION, "abort", False, False, True)]
    once = [fault]

    def refuse(called: str) -> KafkaError | None:
        if method == "abort" and called == "offsets" and first:
            return first.pop()
        return once.pop() if called == method and once else None

    broker.refuse_producer = refuse
    run(source(follow=False).to(sink()).run())
    assert results(broker) == list(range(100))
    assert broker.committed["t", 0] == (100, "")
    assert len({one.id for one in broker.producers}) == 1
    assert len(broker.producers) == 2


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._FATAL,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ],
)
def test_a_record_is_not_refused_for_what_its_producer_is(
    broker: Broker, run: Run, code: int
) -> None:
    broker.write(*numbers(0, 1))
    once = [KafkaError(code)]
    broker.refuse_record = lambda value: once.pop() if once else None
    run(source(follow=False).to(sink()).run())
    assert results(broker) == [0]


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("hangs", [True, False])
@pytest.mark.parametrize("at", ["while it reads", "at its end"])
def test_what_a_commit_has_done_whose_answer_was_lost_is_found_out(
    broker: Broker, run: Run, committed: bool, hangs: bool, at: str
) -> None:
    broker.write(*numbers(0, 100))
    once = [True]

    def now() -> bool:
        return bool(once) and once.pop()

    if committed:
        broker.lose_answer = now
        broker.hang = lambda method: hangs and method == "commit" and len(broker.producers) == 1
    elif hangs:
        broker.hang = lambda method: method == "commit" and now()
    else:
        fatal = KafkaError(KafkaError.INVALID_TXN_STATE, "lost", True)
        broker.refuse_producer = lambda method: fatal if method == "commit" and now() else None

    async def story() -> None:
        if at == "at its end":
            await source(follow=False).to(sink(commit_every=3600)).run()
            return
        running = source().to(sink()).start()
        await settled(60)
        broker.write(*numbers(100, 110))
        await settled()
        await running.drain(5)

    run(story())
    count = 100 if at == "at its end" else 110
    assert results(broker) == list(range(count))
    assert broker.committed["t", 0] == (count, "")
    assert len(broker.producers) == 2


def test_a_producer_whose_transaction_took_too_long_is_replaced_whatever_its_name(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 10))
    fenced = [KafkaError(KafkaError._FENCED, "fenced", True)]
    slow = [11.0]
    broker.latency = lambda: slow.pop() if len(broker.producers[0].calls) == 3 and slow else 0.0
    broker.refuse_producer = lambda method: fenced.pop() if method == "offsets" and fenced else None
    run(source(follow=False).to(sink(transactional_id="one")).run())
    assert results(broker) == list(range(10))
    assert [one.id for one in broker.producers] == ["one", "one"]


def test_a_pipeline_that_runs_twice_at_once_has_two_producers(two: Broker, run: Run) -> None:
    pipeline = source().to(sink())

    async def story() -> None:
        both = [pipeline.start(), pipeline.start()]
        for number in range(5):
            for partition in (0, 1):
                first = 20 * number + 10 * partition
                two.write(*numbers(first, first + 10), partition=partition)
            await settled()
        for running in both:
            await running.drain(5)

    run(story())
    assert sorted(results(two)) == list(range(100))
    assert len({one.id for one in two.producers}) == len(two.producers) == 2


async def test_a_call_in_a_thread_that_does_not_return_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.streams.kafka.producer._LONGEST", 0.01)
    client, going_on = Mock(), Event()
    client.begin_transaction.side_effect = going_on.wait
    producer = in_thread(client)
    with pytest.raises(NoAnswer):
        await producer.begin_transaction()
    going_on.set()


async def test_no_call_waits_for_one_that_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = "penstock.streams.kafka.producer._LONGEST"
    client, going_on = Mock(), Event()
    client.list_topics.side_effect = lambda *_, **__: going_on.wait()
    producer = in_thread(client)
    async with asyncio.timeout(30):
        monkeypatch.setattr(longest, 0.05)
        looking = asyncio.create_task(producer.topic_error("t"))
        await asyncio.sleep(0)
        monkeypatch.setattr(longest, 3600)
        beginning = asyncio.create_task(producer.begin_transaction())
        for call in (looking, beginning, producer.close()):
            with pytest.raises(NoAnswer):
                await call
    going_on.set()
    assert client.begin_transaction.call_count == client.purge.call_count == 0


def test_brokers_that_do_not_answer_for_long_are_named(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 100))
    broker.refuse_producer = lambda method: (
        KafkaError(KafkaError._TIMED_OUT, "slow", False, True) if method == "commit" else None
    )
    with pytest.raises(PublishFailed, match="no transaction was committed for 7 s"):
        run(source(follow=False).to(sink(patience=7)).run())
    assert broker.results == []
    assert broker.committed == {}


SLOW = KafkaError(KafkaError._TIMED_OUT, "slow", False, True)


@pytest.mark.parametrize("rest", ["is not a member", "has no partition"])
def test_time_without_an_attempt_is_not_time_without_success(
    broker: Broker, run: Run, rest: str
) -> None:
    attempts: list[str] = []

    def refuse(method: str) -> KafkaError | None:
        attempts.append(method)
        return SLOW if method == "offsets" else None

    async def story() -> None:
        # More than the seconds for which partitions wait for a last transaction.
        running = source().to(sink(patience=15)).start()
        await settled()
        (member,) = broker.members
        broker.refuse_producer = refuse
        broker.write(*numbers(0, 100))
        await until(lambda: "offsets" in attempts)
        if rest == "is not a member":
            broker.admitting.clear()
            broker.expire(member)
        else:
            other = Member(broker, member.settings)
            broker.members.append(other)
            broker.targets = lambda: {("t", 0): other}  # type: ignore[method-assign]
        await settled(12)
        attempts.clear()
        await settled(30)
        assert attempts == []
        if rest == "is not a member":
            broker.admitting.set()
        else:
            del broker.targets  # type: ignore[method-assign]
            other.kill()
        await until(lambda: "offsets" in attempts)
        broker.refuse_producer = lambda method: None
        await settled()
        await running.drain(5)

    run(story())
    assert results(broker) == list(range(100))


def test_a_producer_that_hangs_after_others_failed_is_replaced_before_that_is_an_error(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 100))
    broker.latency = lambda: 1.0
    left = [4]

    def refuse(method: str) -> KafkaError | None:
        if method == "offsets" and left[0]:
            left[0] -= 1
            return SLOW
        return None

    broker.refuse_producer = refuse
    broker.hang = lambda method: method == "offsets" and len(broker.producers) == 1
    run(source(follow=False).to(sink(patience=25)).run())
    assert results(broker) == list(range(100))
    assert len(broker.producers) == 2


def test_producers_that_hang_one_after_the_other_are_an_error(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 100))
    broker.hang = lambda method: method == "offsets"
    with pytest.raises(PublishFailed, match="the client has not returned"):
        run(source(follow=False).to(sink(patience=25)).run())
    assert broker.committed == {}


@pytest.mark.parametrize(
    ("config", "strategy"),
    [({}, "none"), ({"metadata.recovery.strategy": "rebootstrap"}, "rebootstrap")],
)
def test_a_producer_waits_for_the_brokers_it_knows_unless_told_to_ask_others(
    broker: Broker, run: Run, config: dict[str, str], strategy: str
) -> None:
    run(source(follow=False).to(sink(config=config)).run())
    (producer,) = broker.producers
    assert producer.settings["metadata.recovery.strategy"] == strategy


async def test_a_producer_that_was_fenced_is_closed_without_an_error() -> None:
    client, threads = Mock(), list[Thread]()
    client.purge.side_effect = lambda: threads.append(current_thread())
    client.poll.side_effect = KafkaException(KafkaError(KafkaError._FENCED, "fenced", True))
    await in_thread(client).close()
    (thread,) = threads
    thread.join(30)
    assert not thread.is_alive()


def test_who_is_fenced_by_another_producer_of_its_name_ends(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 10))

    async def story() -> None:
        first = source().to(sink(transactional_id="one")).start()
        await settled()
        broker.producer({"transactional.id": "one"})
        broker.write(*numbers(10, 20))
        with pytest.raises(ProducerFenced, match="'one'"):
            await first.wait()
        assert results(broker) == list(range(10))
        assert broker.committed["t", 0] == (10, "")

    run(story())


def test_a_right_that_is_missing_is_named(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 10))
    denied = KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    broker.refuse_producer = lambda method: KafkaError(denied) if method == "init" else None
    with pytest.raises(RightsMissing, match="Give the user this right"):
        run(source().to(sink()).run())


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_a_result_that_the_brokers_refuse_is_found_among_the_others(
    broker: Broker, run: Run, policy: Any
) -> None:
    broker.write(*numbers(0, 100))
    broker.refuse_record = lambda value: (
        KafkaError(KafkaError.MSG_SIZE_TOO_LARGE) if loads(value or b"")["n"] == 37 else None
    )
    pipeline = source(follow=False).to(sink(on_error=policy))
    if policy == "stop":
        with pytest.raises(PenstockError, match="larger than the brokers"):
            run(pipeline.run())
        assert 37 not in results(broker)
        floor, text = broker.committed.get(("t", 0), (0, ""))
        assert floor <= 37
        assert not any(begin <= 37 < end for begin, end in finished_beside(floor, text))
    else:
        run(pipeline.run())
        assert results(broker) == [n for n in range(100) if n != 37]
        assert broker.committed["t", 0] == (100, "")


# Metadata.


def test_in_a_transaction_nothing_is_forgotten_with_one_stuck_key_and_20_000_others(
    broker: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    # Every other record of the stuck key leaves a hole, and few holes fit.
    broker.most_metadata = 70
    count = 20_000
    stuck_ones = set(range(0, 200, 10))
    broker.write(*(b'{"k": %d, "n": %d}' % (n not in stuck_ones, n) for n in range(count)))

    async def story() -> None:
        stuck = asyncio.Event()
        repeated: list[int] = []

        async def work(value: dict[str, int]) -> dict[str, int]:
            if value["k"] == 0:
                await stuck.wait()
            repeated.append(value["n"])
            return value

        def pipeline() -> Pipeline:
            by = group_by(lambda value: value["n"] if value["k"] else -1, buffer=1024)
            return source().pipe(by, spread(), adaptive_flat_map(work, limit=Fixed(64))).to(sink())

        first = pipeline().start()
        await asyncio.sleep(60)
        floor, text = broker.committed["t", 0]
        assert floor == 0
        assert len(text) <= broker.most_metadata
        known = {n for begin, end in finished_beside(floor, text) for n in range(begin, end)}
        # What is committed is what is written, of every record.
        assert known == set(results(broker))
        said = "what is finished above offset 0 of t, partition 0, does not fit into the metadata"
        assert caplog.text.count(said) == 1
        assert len(results(broker)) < 2000, "records were begun that could not be remembered"
        first.cancel()
        await first.wait()
        # What is finished by now is not repeated.
        before = Counter(results(broker))
        repeated.clear()
        stuck.set()
        second = pipeline().start()
        await asyncio.sleep(600)
        assert not set(before) & set(repeated)
        assert Counter(results(broker)) == Counter(range(count))
        assert broker.committed["t", 0] == (count, "")
        await second.drain(5)

    run(story())


@pytest.mark.parametrize("most", [24, 30, 40, 100, 4096])
def test_a_key_that_is_stuck_for_longer_than_the_session_stops_others_only_until_it_is_done(
    broker: Broker, run: Run, most: int
) -> None:
    broker.most_metadata = most
    count = 2000
    broker.write(*(b'{"k": %d, "n": %d}' % (n % 10, n) for n in range(count)))

    async def story() -> None:
        stuck = asyncio.Event()

        async def work(value: dict[str, int]) -> dict[str, int]:
            if value["k"] == 0:
                await stuck.wait()
            return value

        flow = source().pipe(group_by("k"), spread(), adaptive_flat_map(work, limit=Fixed(64)))
        running = flow.to(sink()).start()
        await asyncio.sleep(300)
        assert len(results(broker)) < count
        assert running.is_ready
        stuck.set()
        await asyncio.sleep(300)
        assert broker.committed["t", 0] == (count, "")
        assert Counter(results(broker)) == Counter(range(count))
        await running.drain(5)

    run(story())


def test_a_stuck_key_does_not_stop_others_whose_end_can_be_remembered(
    broker: Broker, run: Run
) -> None:
    count = 20_000
    broker.write(*numbers(0, count))

    async def story() -> None:
        async def work(value: dict[str, int]) -> dict[str, int]:
            if value["n"] == 7:
                await asyncio.Event().wait()
            return value

        flow = source().pipe(group_by("n"), spread(), adaptive_flat_map(work, limit=Fixed(64)))
        running = flow.to(sink()).start()
        await asyncio.sleep(120)
        assert len(results(broker)) == count - 1
        floor, text = broker.committed["t", 0]
        assert (floor, finished_beside(floor, text)) == (7, [(8, count)])
        running.cancel()
        await running.wait()

    run(story())


@pytest.mark.parametrize(
    ("metadata", "member"),
    [
        (b"CGMDv2:\xff\xff\xff\xffgroup\0\0\1", False),
        (b"CGMDv2:\x07\0\0\0group\0\0\1", False),
        (b"CGMDv2:\xff\xff\xff\xffgroup\0penstock-1\0\1", False),
        (b"CGMDv2:\x07\0\0\0group\0penstock-1\0\1", True),
        (b"CGMDv2:\0\0\0\0group\0penstock-1\0\1", True),
        (b"another format", True),
    ],
)
def test_metadata_of_a_member_has_a_generation_and_a_name(metadata: bytes, member: bool) -> None:
    assert is_member(metadata) is member


# The law.


class _Walk:
    """Members that come, go, freeze and are killed, over partitions that fill; drawn by a seed."""

    def __init__(self, seed: int, hangs: float = 0.0) -> None:
        """Of the calls of producers the share `hangs` never returns."""
        self.drawn = drawn = random.Random(seed)
        self.partitions = drawn.randint(1, 5)
        self.broker = Broker(self.partitions)
        self.keys = drawn.choice([2, 10, 50])
        self.shape = drawn.choice(["one", "one", "filter", "several", "joined"])
        self.written: dict[int, list[int]] = defaultdict(list)
        self.count = 0
        self.running: dict[Running, tuple[Member, str]] = {}
        slow = drawn.choice([0.0, 0.01, 1.0])
        self.broker.latency = lambda: drawn.random() * slow
        faults = drawn.choice([0.0, 0.0, 0.1])
        self.broker.refuse_producer = lambda method: self.fault(method, faults)
        self.broker.hang = lambda method: hangs > 0 and drawn.random() < hangs
        self.broker.lose_answer = lambda: faults > 0 and drawn.random() < faults
        if drawn.random() < 0.3:
            self.broker.most_metadata = drawn.choice([30, 100])

    def fault(self, method: str, share: float) -> KafkaError | None:
        # There are many records in a transaction.
        if self.drawn.random() >= (share / 50 if method == "produce" else share):
            return None
        if method != "init" and self.drawn.random() < 0.3:
            return self.drawn.choice(SPENT)
        if method == "offsets" and self.drawn.random() < 0.5:
            return KafkaError(KafkaError.REBALANCE_IN_PROGRESS, "abort", False, False, True)
        return KafkaError(KafkaError._TIMED_OUT, "slow", False, True)

    def write(self, count: int) -> None:
        for _ in range(count):
            key = self.drawn.randrange(self.keys)
            self.written[key].append(self.count)
            self.broker.write(
                b'{"k": %d, "n": %d}' % (key, self.count), partition=key % self.partitions
            )
            self.count += 1

    def expected(self) -> Counter[tuple[int, int]]:
        """How often each result, of a number and its part, must be there."""
        ns = [n for one in self.written.values() for n in one]
        if self.shape == "filter":
            return Counter((n, 0) for n in ns if n % 3)
        if self.shape == "several":
            return Counter((n, part) for n in ns for part in range(n % 3))
        return Counter((n, 0) for n in ns)

    async def start(self) -> None:
        drawn = self.drawn
        longest = drawn.choice([0.0, 0.05, 1.0])

        async def work(value: dict[str, int]) -> dict[str, int]:
            await asyncio.sleep(drawn.random() * longest)
            return value

        async def many(values: list[dict[str, int]]) -> list[dict[str, int]]:
            await asyncio.sleep(drawn.random() * longest)
            return values

        flow = source(
            handover=drawn.choice([5, 60]),
            config={"session.timeout.ms": drawn.choice([6000, 10_000])},
        ).pipe(group_by("k", buffer=drawn.choice([4, 1024])), spread())
        match self.shape:
            case "filter":
                flow = flow.pipe(
                    adaptive_flat_map(work, limit=Fixed(drawn.choice([1, 3, 30]))),
                    ops.filter(lambda value: value["n"] % 3 != 0),
                )
            case "several":
                parts = ops.flat_map(
                    lambda value: [{**value, "part": i} for i in range(value["n"] % 3)]
                )
                flow = flow.pipe(
                    adaptive_flat_map(work, limit=Fixed(drawn.choice([1, 3, 30]))), parts
                )
            case "joined":
                flow = flow.pipe(
                    batch(many, max_size=drawn.choice([2, 7]), parallel=3),
                    ops.buffer_with_time_or_count(0.2, drawn.choice([2, 5])),
                    ops.filter(bool),
                    ops.map(lambda values: {"all": values}),
                )
            case _:
                flow = flow.pipe(adaptive_flat_map(work, limit=Fixed(drawn.choice([1, 3, 30]))))
        members, producers = len(self.broker.clients), len(self.broker.producers)
        running = flow.to(
            sink(window=drawn.choice([2, 20, 1024]), commit_every=drawn.choice([0, 0.1, 1]))
        ).start()
        # One at a time, so that the walk knows whose member it is.
        await asyncio.sleep(0.01)
        self.running[running] = self.broker.clients[members], self.broker.producers[producers].id

    def producer(self, id: str) -> ModelProducer:
        """The last one with this id: one whose call never returns is replaced."""
        return [one for one in self.broker.producers if one.id == id][-1]

    async def step(self) -> None:
        drawn = self.drawn
        what = drawn.choice(["write", "write", "start", "drain", "kill", "freeze", "wait"])
        if what == "write":
            self.write(drawn.randint(1, 60))
        elif what == "start" and len(self.running) < 4:
            await self.start()
        elif what == "drain" and self.running:
            running = drawn.choice(list(self.running))
            del self.running[running]
            await self.ended(running)
        elif what in ("kill", "freeze") and self.running:
            running = drawn.choice(list(self.running))
            member, id = self.running[running]
            producer = self.producer(id)
            if member not in self.broker.members:
                return
            member.thawed.clear()
            producer.thawed.clear()
            if what == "kill":
                del self.running[running]
                # Nothing that it would still do at its end reaches a broker.
                producer.end(fenced=True) if drawn.random() < 0.5 else None
                self.broker.expire(member)
                running.cancel()
                await asyncio.sleep(0)
                producer.end(fenced=True)
                producer.thawed.set()
                member.thawed.set()
                await running.wait()
            else:
                if drawn.random() < 0.7:
                    self.broker.expire(member)
                await asyncio.sleep(drawn.choice([0.1, 3, 15]))
                member.thawed.set()
                producer.thawed.set()
        await asyncio.sleep(drawn.choice([0, 0.1, 1, 3]))

    async def ended(self, running: Running) -> None:
        await running.drain(3600)

    async def run(self) -> None:
        with model_of(self.broker):
            self.write(self.drawn.randint(0, 100))
            for _ in range(self.drawn.randint(5, 15)):
                await self.step()
            self.broker.refuse_producer = lambda method: None
            self.broker.hang = lambda method: False
            self.broker.lose_answer = lambda: False
            await self.start()
            for _ in range(2000):
                ends = {key: self.broker.end(key) for key in self.broker.logs}
                floors = {key: self.broker.committed.get(key, (0, ""))[0] for key in ends}
                if all(floors[key] == end for key, end in ends.items()):
                    break
                await asyncio.sleep(1)
            else:
                raise AssertionError(f"not done: {floors} of {ends}")
            for running in self.running:
                await self.ended(running)
        found: Counter[tuple[int, int]] = Counter()
        order: dict[int, list[int]] = defaultdict(list)
        for _, value in self.broker.results:
            result = loads(value or b"null")
            for one in result.get("all", [result]):
                found[one["n"], one.get("part", 0)] += 1
                order[one["k"]].append(one["n"])
        assert found == self.expected(), f"{found - self.expected()}, {self.expected() - found}"
        if self.shape != "joined":
            assert all(ns == sorted(ns) for ns in order.values()), f"order of a key in {self.shape}"


@seeds(100)
def test_every_result_is_there_exactly_once_whoever_comes_and_goes(
    seed: int, pytestconfig: pytest.Config, run: Run
) -> None:
    seed += pytestconfig.option.seed * 1000
    walk = _Walk(seed, hangs=0.02 * (seed % 4 == 0))
    try:
        run(walk.run())
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize(
    "seed",
    [13, 11064, 13066, 21093, 22014, 51018, 701020, 749007, 1000693, 2014353, 3033068, 116696043],
)
def test_walks_that_have_found_a_fault_find_it_no_more(seed: int, run: Run) -> None:
    run(_Walk(seed).run())
