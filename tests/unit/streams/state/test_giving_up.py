"""Servers that are away while a run ends: it ends with an error that says what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from threading import Event as ThreadEvent
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.streams.base.errors import DatabaseUnavailable
from penstock.streams.delivery.marks import Participant
from penstock.streams.protocol.event import Event
from penstock.streams.runtime.context import Run
from penstock.streams.state.backend import GivesUp, NotNow, Unit, Unknown
from penstock.streams.state.commits import Commits
from penstock.streams.state.jetstream.backend import JetStream
from penstock.streams.state.jetstream.moving import MovingJetStream
from penstock.streams.state.kafka.backend import Kafka
from penstock.streams.state.kafka.changelog import COMMIT
from penstock.streams.state.kafka.topic import Topic
from penstock.streams.state.memory import Memory
from penstock.streams.testing import run_virtual
from penstock.streams.testing.ledger import Ledger

DEADLINE = 7.0


class Away(Memory):
    """A backend whose servers are away for the first `times` commits."""

    def __init__(self, times: float) -> None:
        super().__init__()
        self.times = times

    def commit(self, unit: Unit) -> None:
        self.times -= 1
        if self.times >= 0:
            raise NotNow("the brokers are away")
        super().commit(unit)


class Source(Participant):
    def marks(self, events: Any) -> Any:
        return [("it", b"done")]


class Member(Participant):
    """The source of events whose tokens are the numbers of their partitions."""

    lends = True

    def partition_of(self, event: Event[Any]) -> int:
        number: int = event.token
        return number

    def partition_of_mark(self, name: str) -> int:
        return int(name)

    def marks(self, events: Any) -> Any:
        return [(str(event.token), b"done") for event in events]

    def fence(self) -> Any:
        return SimpleNamespace(), [7]


def end_event(commits: Commits, ledger: Ledger) -> None:
    """An event begins and ends; its commit is due."""
    event = ledger.enter(Event(0, 0.0, ledger, 0))
    commits.hold([event])
    event.finish()


def ended(
    backend: Memory, end: Callable[[Run, Commits, Ledger], Any] = lambda *_: None
) -> tuple[Exception | None, float, int]:
    """Two events end, and so does their run; returns the error of its end, how long that took, and
    how many events were told to have ended."""

    async def story() -> tuple[Exception | None, float, int]:
        run, ledger = Run(DEADLINE), Ledger()
        backend.open()
        commits = Commits(run, backend, 0.0, "Store('it')")
        run.stores.append(commits)
        commits.keep(ledger, Source())
        for _ in range(2):
            end_event(commits, ledger)
        await asyncio.sleep(3)
        end(run, commits, ledger)
        began, error = run.now(), None
        try:
            await run.close()
        except Exception as raised:
            error = raised
        return error, run.now() - began, len(ledger.endings)

    return run_virtual(story())


def test_a_store_that_takes_no_commit_is_waited_for_until_the_deadline_of_the_drain() -> None:
    error, seconds, endings = ended(Away(float("inf")))
    assert isinstance(error, DatabaseUnavailable)
    assert "Store('it')" in str(error)
    assert "2 events" in str(error)
    assert "the brokers are away" in str(error)
    assert "come again" in str(error)
    assert DEADLINE <= seconds < DEADLINE + 1
    # Nobody was told that they are done.
    assert endings == 0


def test_a_store_that_takes_a_commit_before_the_deadline_is_waited_for() -> None:
    error, seconds, endings = ended(Away(60))
    assert (error, endings) == (None, 2)
    assert 1 < seconds < DEADLINE


def test_a_store_is_waited_for_only_some_seconds_by_a_run_that_is_cancelled() -> None:
    error, seconds, _ = ended(Away(float("inf")), lambda run, *_: run.hurry())
    assert isinstance(error, DatabaseUnavailable)
    assert seconds < DEADLINE


def test_a_store_that_goes_on_taking_commits_is_not_given_up() -> None:
    class Slow(Memory):
        """Takes a commit every six seconds; another event ends within the first one."""

        asked = 0
        more: Callable[[], None]

        def commit(self, unit: Unit) -> None:
            self.asked += 1
            if self.asked % 60:
                raise NotNow("a rebalance")
            super().commit(unit)
            if self.asked == 60:
                self.more()

    def end(run: Run, commits: Commits, ledger: Ledger) -> None:
        backend.more = lambda: end_event(commits, ledger)

    backend = Slow()
    error, seconds, endings = ended(backend, end)
    assert (error, endings) == (None, 3)
    assert seconds > DEADLINE


def test_a_commit_of_which_nothing_is_known_ends_the_run_with_an_error_that_says_so() -> None:
    class Waits(Memory):
        """Waits for servers until it is given up."""

        in_thread = True

        def __init__(self) -> None:
            super().__init__()
            self.given_up = ThreadEvent()

        def commit(self, unit: Unit) -> None:
            assert self.given_up.wait(60)
            raise Unknown("no broker answers")

        def give_up(self) -> None:
            self.given_up.set()

    async def story() -> Any:
        run, ledger = Run(0.05), Ledger()
        backend = Waits()
        backend.open()
        commits = Commits(run, backend, 0.0, "Store('it')")
        commits.keep(ledger, Source())
        end_event(commits, ledger)
        await asyncio.sleep(0.01)
        with pytest.raises(DatabaseUnavailable, match="1 event") as raised:
            await run.close()
        assert "not known" in str(raised.value)
        assert "no broker answers" in str(raised.value)
        assert "next run" in str(raised.value)
        assert ledger.endings == []

    asyncio.run(story())


# Kafka.


class Broken:
    """A producer whose brokers vanish within a commit, and come back if `returns`: then the next
    producer is made."""

    made = 0

    def __init__(self, _: Any) -> None:
        Broken.made += 1
        self.number = Broken.made

    def init_transactions(self, _: float) -> None:
        if self.number > 1 and not Broken.returns.is_set():
            Broken.asked.set()
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker", False, True))

    def begin_transaction(self) -> None: ...

    def produce(self, topic: str, value: Any, key: Any, **rest: Any) -> None:
        if key == COMMIT:
            Broken.commit = value

    def send_offsets_to_transaction(self, *_: Any) -> None: ...

    def commit_transaction(self, _: float) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL, "gone", True))

    def purge(self) -> None: ...

    def abort_transaction(self, _: float) -> None: ...

    asked: ThreadEvent
    returns: ThreadEvent
    commit: bytes


@pytest.fixture
def kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kafka:
    Broken.made, Broken.asked, Broken.returns = 0, ThreadEvent(), ThreadEvent()
    monkeypatch.setattr("confluent_kafka.Producer", Broken)
    monkeypatch.setattr(Topic, "prepare", lambda *_: ("an id", 1))
    monkeypatch.setattr(Topic, "end", lambda *_: (0, 0))
    backend = Kafka("localhost:1", "states", str(tmp_path))
    backend.open()
    backend.adopt(0, 1)
    return backend


def unit() -> Unit:
    metadata = SimpleNamespace()
    return Unit(partitions={0: Unit(marks={"it": b"done"})}, fences=[(metadata, [7])])


def test_brokers_that_vanish_within_a_commit_are_asked_until_the_run_gives_them_up(
    kafka: Kafka,
) -> None:
    async def story() -> None:
        commit = asyncio.get_running_loop().run_in_executor(None, kafka.commit, unit())
        assert await asyncio.to_thread(Broken.asked.wait, 60)
        assert not commit.done()
        kafka.give_up()
        with pytest.raises(Unknown, match="no broker"):
            await commit

    asyncio.run(story())
    # What comes after it is not tried.
    with pytest.raises(NotNow):
        kafka.commit(unit())
    kafka.close()


def test_a_call_of_the_client_that_does_not_return_is_not_waited_for_once_it_is_given_up(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ends, has_returned = ThreadEvent(), ThreadEvent(), ThreadEvent()

    def hangs(*_: Any) -> None:
        begun.set()
        ends.wait(10)
        has_returned.set()

    async def story(method: str, error: type[Exception]) -> None:
        begun.clear()
        monkeypatch.setattr(Broken, method, hangs)
        commit = asyncio.get_running_loop().run_in_executor(None, kafka.commit, unit())
        assert await asyncio.to_thread(begun.wait, 60)
        kafka.give_up()
        with pytest.raises(error):
            await commit
        assert not has_returned.is_set()

    try:
        # Before it is to be committed nothing of it is written.
        asyncio.run(story("begin_transaction", NotNow))
    finally:
        ends.set()
    kafka.close()


def test_a_run_that_begins_after_one_that_was_given_up_waits_for_brokers_again(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.give_up()
    kafka.close()
    monkeypatch.setattr(Broken, "commit_transaction", lambda *_: None)
    kafka.open()
    kafka.adopt(0, 1)
    kafka.commit(unit())
    assert kafka.marks() == [("it", b"done")]
    kafka.close()


def test_a_producer_that_does_not_return_is_replaced_until_a_commit_is_known(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, ends = ThreadEvent(), ThreadEvent()

    def init(producer: Broken, _: float) -> None:
        if producer.number == 2:
            hung.set()
            ends.wait(60)

    monkeypatch.setattr("penstock.streams.state.kafka.transactions._LONGEST", 0.05)
    monkeypatch.setattr(Broken, "init_transactions", init)
    try:
        # The changelog does not have it.
        with pytest.raises(NotNow):
            kafka.commit(unit())
    finally:
        ends.set()
    assert hung.is_set()
    assert Broken.made == 3
    kafka.close()


def test_a_commit_that_is_cancelled_with_the_end_of_the_loop_is_given_up(kafka: Kafka) -> None:
    async def story() -> None:
        run, ledger = Run(), Ledger()
        commits = Commits(run, kafka, 0.0, "Store('it')")
        commits.keep(ledger, Member())
        await commits.adopt(0, 1)
        end_event(commits, ledger)
        assert await asyncio.to_thread(Broken.asked.wait, 60)
        closing = asyncio.ensure_future(run.close())
        await asyncio.sleep(0.01)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing

    # It ends when the threads of the loop have ended.
    asyncio.run(story())
    kafka.close()


# NATS.


def test_servers_of_nats_that_vanish_within_a_commit_are_not_waited_for_once_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = ThreadEvent()

    async def hangs(*_: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("penstock.streams.state.jetstream.backend.write", hangs)
    backend = MovingJetStream("nats://localhost:1/states")
    backend.open()
    partition: Any = SimpleNamespace(messages=lambda unit: [])
    backend._show({0: partition})

    async def story() -> None:
        commit = asyncio.get_running_loop().run_in_executor(None, backend.commit, unit())
        assert await asyncio.to_thread(begun.wait, 60)
        assert not commit.done()
        backend.give_up()
        with pytest.raises(Unknown, match="no NATS server"):
            await commit

    asyncio.run(story())
    with pytest.raises(NotNow):
        backend.commit(unit())
    backend.close()


def test_the_stores_that_wait_for_servers_can_be_given_up(tmp_path: Path) -> None:
    assert isinstance(MovingJetStream("nats://localhost:1/states"), GivesUp)
    assert isinstance(JetStream("nats://localhost:1/states"), GivesUp)
    assert isinstance(Kafka("localhost:1", "states", str(tmp_path)), GivesUp)
