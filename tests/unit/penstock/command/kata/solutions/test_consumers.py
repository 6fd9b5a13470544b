from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.command.kata import Event, Observer
from penstock.command.kata.solutions.consumers import (
    ClientProjection,
    FailOnConcurrentModification,
    IgnoreDuplicates,
    NaivePool,
    SmartPool,
    WaitOnConcurrentModification,
)

# Nothing waits this long unless it is broken; then the test fails instead of hanging.
PATIENCE = 10.0


def event(sequence: int = 0, client: int = 1000) -> Event:
    return Event(uuid=f"{client}-{sequence}", client_id=client, created=0.0, sequence=sequence)


class Clock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


class Gate:
    """A handler that reports when it was entered and stays until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._opened = threading.Event()

    def open(self) -> None:
        self._opened.set()

    def __call__(self, event: Event) -> None:
        self.entered.set()
        assert self._opened.wait(PATIENCE)


def test_the_naive_pool_works_on_two_events_of_a_client_at_once() -> None:
    observer = Observer()
    both = threading.Barrier(2)
    # Each of the two waits in the handler for the other one to be there too.
    project = ClientProjection(lambda event: both.wait(PATIENCE), observer)
    with (pool := NaivePool(2, project, grace=PATIENCE)):
        pool(event(0))
        pool(event(1))
    measured = observer.measured("x")
    assert (measured.finished, measured.overlapped) == (2, 1)


def test_the_naive_pool_lets_a_quick_event_overtake_a_slow_one_of_its_client() -> None:
    observer = Observer()
    second_done = threading.Event()

    def handler(event: Event) -> None:
        if event["sequence"] == 0:
            assert second_done.wait(PATIENCE)

    project = ClientProjection(handler, observer)

    def tell(event: Event) -> None:
        project(event)
        second_done.set()

    with (pool := NaivePool(2, tell, grace=PATIENCE)):
        pool(event(0))
        pool(event(1))
    assert observer.measured("x").overtaken == 1


def test_an_event_of_a_busy_client_fails_and_those_of_others_pass() -> None:
    observer = Observer()
    gate = Gate()
    done: list[Event] = []

    def handler(event: Event) -> None:
        if event["sequence"] == 0:
            gate(event)
        done.append(event)

    consume = FailOnConcurrentModification(handler, observer)
    with ThreadPoolExecutor(1) as thread:
        busy = thread.submit(consume, event(0))
        assert gate.entered.wait(PATIENCE)
        observer.arrived(4)
        consume(event(1))
        consume(event(2))
        consume(event(1, client=1001))
        assert observer.measured("x").lost == 2
        gate.open()
        busy.result(PATIENCE)
    consume(event(3))
    assert done == [event(1, client=1001), event(0), event(3)]
    assert observer.measured("x").lost == 2


def test_a_client_is_free_again_after_its_handler_raised() -> None:
    done: list[Event] = []

    def handler(event: Event) -> None:
        if event["sequence"] == 0:
            raise KeyError("boom")
        done.append(event)

    for consume in (
        FailOnConcurrentModification(handler, Observer()),
        WaitOnConcurrentModification(handler, Observer()),
    ):
        with pytest.raises(KeyError):
            consume(event(0))
        consume(event(1))
    assert done == [event(1), event(1)]


def test_an_event_waits_for_its_busy_client_and_is_not_lost() -> None:
    observer = Observer()
    gate = Gate()
    consume = WaitOnConcurrentModification(ClientProjection(gate, observer), observer, PATIENCE)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(consume, event(0))
        assert gate.entered.wait(PATIENCE)
        second = threads.submit(consume, event(1))
        gate.open()
        first.result(PATIENCE)
        second.result(PATIENCE)
    measured = observer.measured("x")
    assert (measured.finished, measured.lost, measured.overlapped) == (2, 0, 0)


def test_an_event_whose_client_stays_busy_for_too_long_is_lost() -> None:
    observer = Observer()
    gate = Gate()
    consume = WaitOnConcurrentModification(gate, observer, patience=0.001)
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(consume, event(0))
        assert gate.entered.wait(PATIENCE)
        consume(event(1))
        assert observer.measured("x").lost == 1
        gate.open()
        first.result(PATIENCE)


def test_how_long_events_waited_for_the_lock_is_measured_whether_or_not_they_got_it() -> None:
    clock = Clock()
    observer = Observer(clock)
    gate = Gate()
    consume = WaitOnConcurrentModification(gate, observer, patience=0.001)
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(consume, event(0))
        assert gate.entered.wait(PATIENCE)
        readings = iter([5.0, 7.0])
        observer.now = lambda: next(readings)
        consume(event(1))
        gate.open()
        first.result(PATIENCE)
    waits = observer.measured("x").lock_waits
    assert waits is not None
    assert waits.count == 2
    assert waits.max == pytest.approx(2, rel=0.001)


def test_the_smart_pool_keeps_a_client_on_its_thread_while_another_client_goes_on() -> None:
    observer = Observer()
    gate = Gate()
    other_done = threading.Event()

    def handler(event: Event) -> None:
        if event["client_id"] == 1001:
            other_done.set()
        elif event["sequence"] == 0:
            gate(event)

    with (pool := SmartPool(2, ClientProjection(handler, observer), grace=PATIENCE)):
        observer.arrived(3)
        pool(event(0))
        pool(event(1))
        pool(event(0, client=1001))
        assert gate.entered.wait(PATIENCE)
        assert other_done.wait(PATIENCE)
        assert observer.waiting == 1
        gate.open()
    measured = observer.measured("x")
    assert (measured.finished, measured.overlapped, measured.overtaken) == (3, 0, 0)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1000, 1009), max_size=60), st.integers(1, 4))
def test_the_smart_pool_never_lets_events_of_a_client_overlap_or_overtake(
    clients: list[int], size: int
) -> None:
    observer = Observer()
    threads: defaultdict[int, set[int]] = defaultdict(set)
    project = ClientProjection(
        lambda event: threads[event["client_id"]].add(threading.get_ident()), observer
    )
    sent: defaultdict[int, int] = defaultdict(int)
    with (pool := SmartPool(size, project, grace=PATIENCE)):
        for client in clients:
            pool(event(sent[client], client))
            sent[client] += 1
    measured = observer.measured("x")
    assert measured.finished == len(clients)
    assert (measured.overlapped, measured.overtaken) == (0, 0)
    assert all(len(idents) == 1 for idents in threads.values())


@pytest.mark.parametrize("kind", [NaivePool, SmartPool])
def test_a_pool_that_is_left_has_no_threads_and_abandons_what_had_not_begun(
    kind: type[NaivePool | SmartPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = threading.active_count()
    observer = Observer()
    gate = Gate()
    shutdown = ThreadPoolExecutor.shutdown

    def shutdown_then_open(
        self: ThreadPoolExecutor, wait: bool = True, *, cancel_futures: bool = False
    ) -> None:
        shutdown(self, wait, cancel_futures=cancel_futures)
        gate.open()

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", shutdown_then_open)
    with (pool := kind(1, ClientProjection(gate, observer), grace=0)):
        observer.arrived(3)
        for sequence in range(3):
            pool(event(sequence))
        assert gate.entered.wait(PATIENCE)
    measured = observer.measured("x")
    assert (measured.finished, measured.unfinished) == (1, 2)
    assert threading.active_count() == before


@pytest.mark.parametrize("kind", [NaivePool, SmartPool])
def test_what_goes_wrong_in_a_pool_is_raised_when_it_is_left(
    kind: type[NaivePool | SmartPool],
) -> None:
    observer = Observer()

    def handler(event: Event) -> None:
        if event["sequence"] == 1:
            raise KeyError("boom")

    def run() -> None:
        with (pool := kind(2, ClientProjection(handler, observer), grace=PATIENCE)):
            for sequence in range(3):
                pool(event(sequence))

    with pytest.raises(ExceptionGroup) as caught:
        run()
    assert [type(error) for error in caught.value.exceptions] == [KeyError]
    assert (observer.measured("x").finished, observer.measured("x").lost) == (2, 1)


@pytest.mark.parametrize("late", [0.0, 7.0])
def test_a_uuid_is_dropped_until_it_is_as_old_as_the_window(late: float) -> None:
    clock = Clock()
    observer = Observer(clock)
    passed: list[float] = []
    consume = IgnoreDuplicates(lambda event: passed.append(event["created"]), observer)
    for time in (0.0, 5.0, 9.999, 10.0, 19.999, 20.0):
        clock.time = time + (late if time else 0)
        consume({**event(), "created": time})
    assert passed == [0.0, 10.0, 20.0]
    assert observer.measured("x").dropped == 3


def test_the_filter_remembers_no_more_than_the_window() -> None:
    consume = IgnoreDuplicates(lambda event: None, Observer(Clock()))
    for second in range(100):
        consume({**event(second), "created": float(second)})
    assert len(consume._seen) == 10
