"""The grader: anybody's consumer on the kata's load. Real threads, and no time but their own."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from inspect import currentframe
from typing import Any

import pytest

from penstock.command.kata import trial as trial_module
from penstock.command.kata.load.events import Event, Load
from penstock.command.kata.load.work import Work
from penstock.command.kata.observe import Measured, Observer
from penstock.command.kata.report.verdict import broken_promises
from penstock.command.kata.solutions.consumer import Candidate
from penstock.command.kata.trial import Trial, TriedEvent
from penstock.streams.base import clock

# Nothing waits this long unless it is broken; then the test fails instead of hanging.
PATIENCE = 10.0

# Everything is due at once.
AT_ONCE = Load(rate=1e9, clients=10, duplicates=0.1, seconds=2e-7)
TEN_OF_ONE_CLIENT = Load(rate=1e9, clients=1, duplicates=0, seconds=1e-8)


def tried(
    make: Callable[[], Any],
    load: Load = AT_ONCE,
    work: Work | None = None,
    grace: float = PATIENCE,
) -> tuple[Measured, Trial]:
    observer = Observer()
    trial = Trial(Candidate("my.py:consumer", make), load, work or Work(0, 0), observer, grace)
    trial.run()
    return observer.measured("x"), trial


def try_function(consume: Callable[[TriedEvent], Any], *args: Any) -> tuple[Measured, Trial]:
    return tried(lambda: consume, *args)


class OnlyOnce:
    """Which events a consumer has not seen yet."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __contains__(self, event: TriedEvent) -> bool:
        is_new = event.uuid not in self._seen
        self._seen.add(event.uuid)
        return is_new


def line_here() -> int:
    frame = currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


# Consumers that are right.


def right_function() -> Any:
    new = OnlyOnce()

    def consume(event: TriedEvent) -> None:
        if event in new:
            event.process()

    return consume


def right_async_function() -> Any:
    new = OnlyOnce()
    locks: dict[int, asyncio.Lock] = {}

    async def consume(event: TriedEvent) -> None:
        if event in new:
            async with locks.setdefault(event.client_id, asyncio.Lock()):
                await event.process_async()

    return consume


class WithFutures:
    """One thread; the future of each event is returned."""

    def __init__(self) -> None:
        self._new = OnlyOnce()
        self._thread = ThreadPoolExecutor(1)

    def submit(self, event: TriedEvent) -> Future[None]:
        return self._thread.submit(event if event in self._new else lambda: None)


class WithShutdown:
    """One thread; the future is forgotten, and the pool is shut down at the end."""

    def __init__(self) -> None:
        self._new = OnlyOnce()
        self._thread = ThreadPoolExecutor(1)

    def submit(self, event: TriedEvent) -> None:
        if event in self._new:
            self._thread.submit(event.process)

    def shutdown(self) -> None:
        self._thread.shutdown()


class WithQueue:
    """A queue, whose put waits for room, and a task for it, which is begun without being asked."""

    def __init__(self) -> None:
        self._new = OnlyOnce()
        self._queue: asyncio.Queue[TriedEvent] = asyncio.Queue(1)
        self._task = asyncio.create_task(self._work())

    async def submit(self, event: TriedEvent) -> None:
        if event in self._new:
            await self._queue.put(event)

    async def _work(self) -> None:
        while True:
            event = await self._queue.get()
            await event.process_async()
            self._queue.task_done()

    async def aclose(self) -> None:
        await self._queue.join()
        self._task.cancel()


class WithTasks:
    """A plain submit that begins a task for each event, and returns it."""

    def __init__(self) -> None:
        self._new = OnlyOnce()
        self._lock = asyncio.Lock()

    def submit(self, event: TriedEvent) -> asyncio.Task[None]:
        return asyncio.create_task(self._work(event))

    async def _work(self, event: TriedEvent) -> None:
        if event in self._new:
            async with self._lock:
                await event.process_async()


RIGHT = [right_function, right_async_function, WithFutures, WithShutdown, WithQueue, WithTasks]


@pytest.mark.parametrize("make", RIGHT, ids=lambda make: make.__name__)
def test_a_consumer_that_is_right_keeps_every_promise(make: Callable[[], Any]) -> None:
    # What a function has begun and not finished is not known, nor which events it dropped.
    grace = 1.0 if make is right_function else PATIENCE
    measured, trial = tried(make, AT_ONCE, None, grace)
    assert broken_promises(measured, trial) == []
    assert (measured.arrived, measured.finished, measured.dropped) == (200, 180, 20)
    assert measured.latency.count == 180


def test_events_come_in_order_with_what_the_load_says_of_them() -> None:
    came: list[tuple[str, int, float]] = []

    async def consume(event: TriedEvent) -> None:
        came.append((event.uuid, event.client_id, event.created))

    observer = Observer()
    load = Load(rate=1e9, clients=10, duplicates=0.1, seconds=2e-7)
    Trial(Candidate("x", lambda: consume), load, Work(0, 0), observer).run()
    sent = [event for _, event in load.schedule(observer.start)]
    assert came == [(event["uuid"], event["client_id"], event["created"]) for event in sent]


def test_a_consumer_is_made_in_the_loop_in_which_it_is_tried() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    def make() -> Any:
        loops.append(asyncio.get_running_loop())

        async def consume(event: TriedEvent) -> None:
            loops.append(asyncio.get_running_loop())

        return consume

    tried(make, TEN_OF_ONE_CLIENT)
    assert len(loops) == 11
    assert len(set(loops)) == 1


def test_an_executor_is_a_consumer() -> None:
    measured, trial = tried(lambda: ThreadPoolExecutor(1), TEN_OF_ONE_CLIENT)
    assert (measured.finished, trial.errors) == (10, {})


# Consumers that are wrong.


class Meeting(Work):
    """Work that ends when as many events are in work as are to meet."""

    def __init__(self, events: int) -> None:
        super().__init__(0, 0)
        object.__setattr__(self, "barrier", asyncio.Barrier(events))

    async def pause(self, event: Event) -> None:
        barrier: asyncio.Barrier = vars(self)["barrier"]
        await barrier.wait()


class LastFirst(Work):
    """Work of which the first event's ends after all others'."""

    def __init__(self, events: int) -> None:
        super().__init__(0, 0)
        object.__setattr__(self, "left", [events - 1])
        object.__setattr__(self, "last", asyncio.Event())

    async def pause(self, event: Event) -> None:
        left, last = vars(self)["left"], vars(self)["last"]
        if event["sequence"] == 0:
            await last.wait()
        else:
            left[0] -= 1
            if not left[0]:
                last.set()


async def process(event: TriedEvent) -> None:
    await event.process_async()


def test_events_of_a_client_that_are_processed_together_are_counted_with_the_client() -> None:
    measured, trial = try_function(process, TEN_OF_ONE_CLIENT, Meeting(10))
    assert (measured.finished, measured.overlapped) == (10, 9)
    assert broken_promises(measured, trial)[0] == (
        "  overlapped: 9 events begun while another of the client was processed; "
        "of 1 client, most of 1000 (9)"
    )


def test_an_event_that_ends_after_a_later_one_of_its_client_is_overtaken() -> None:
    measured, trial = try_function(process, TEN_OF_ONE_CLIENT, LastFirst(10))
    assert measured.overtaken == 1
    assert (
        "  overtaken: 1 event finished after a later one of the client; "
        "of 1 client, most of 1000 (1)"
    ) in broken_promises(measured, trial)


def test_duplicates_that_are_processed_are_counted_and_are_not_dropped() -> None:
    measured, trial = try_function(lambda event: event.process())
    assert (measured.finished, measured.dropped, measured.duplicates_processed) == (200, 0, 20)
    assert broken_promises(measured, trial) == [
        "  duplicates: 20 events processed within 10 s of another with the same uuid"
    ]


def test_an_event_that_nobody_processes_is_lost_unless_it_is_a_duplicate() -> None:
    async def consume(event: TriedEvent) -> None: ...

    measured, trial = try_function(consume)
    assert (measured.lost, measured.dropped, measured.unfinished) == (180, 20, 0)
    assert broken_promises(measured, trial) == [
        "  lost: 180 events not processed, or not to the end"
    ]


def test_a_cancelled_event_is_lost() -> None:
    class Forever(Work):
        async def pause(self, event: Event) -> None:
            await asyncio.sleep(PATIENCE)

    async def consume(event: TriedEvent) -> None:
        task = asyncio.create_task(event.process_async())
        await asyncio.sleep(0)
        task.cancel()

    measured, _ = try_function(consume, TEN_OF_ONE_CLIENT, Forever(0, 0))
    assert (measured.lost, measured.unfinished) == (10, 0)


def test_what_is_processed_after_the_deadline_takes_no_work_and_is_unfinished() -> None:
    worked: list[Event] = []

    class Told(Work):
        def block(self, event: Event) -> None:
            worked.append(event)

    later = [0.0]

    class Late:
        def __init__(self) -> None:
            self._events: list[TriedEvent] = []

        def submit(self, event: TriedEvent) -> None:
            self._events.append(event)

        def close(self) -> None:
            self._events[0].process()
            later[0] = 1000.0
            for event in self._events[2:]:
                event.process()

    observer = Observer(lambda: clock.monotonic() + later[0])
    trial = Trial(Candidate("x", Late), TEN_OF_ONE_CLIENT, Told(0, 0), observer, PATIENCE)
    trial.run()
    measured = observer.measured("x")
    assert len(worked) == 1
    # The one that was never processed is lost, for the consumer has ended.
    assert (measured.finished, measured.unfinished, measured.lost) == (1, 8, 1)
    assert "unfinished: 8 events left" in broken_promises(measured, trial)[-1]


def test_what_a_function_leaves_to_its_threads_is_awaited_and_no_longer() -> None:
    pool = ThreadPoolExecutor(1)
    gate = threading.Event()

    class Gate(Work):
        def block(self, event: Event) -> None:
            assert gate.wait(PATIENCE)

    given: list[TriedEvent] = []

    def consume(event: TriedEvent) -> None:
        given.append(event)
        pool.submit(event.process)
        if len(given) == 10:
            gate.set()

    observer = Observer()
    candidate = Candidate("x", lambda: consume)
    Trial(candidate, TEN_OF_ONE_CLIENT, Gate(0, 0), observer, grace=60).run()
    pool.shutdown()
    measured = observer.measured("x")
    # It has not waited for the deadline.
    assert observer.now() < observer.start + 60
    assert (measured.finished, measured.unfinished, measured.lost) == (10, 0, 0)


def test_what_a_consumer_still_works_on_at_the_deadline_is_unfinished_and_not_lost() -> None:
    gate = threading.Event()

    class Gate(Work):
        def block(self, event: Event) -> None:
            assert gate.wait(PATIENCE)

    pool = ThreadPoolExecutor(1)

    def consume(event: TriedEvent) -> None:
        pool.submit(event.process)

    measured, _ = try_function(consume, TEN_OF_ONE_CLIENT, Gate(0, 0), 0.2)
    assert (measured.unfinished, measured.lost) == (10, 0)
    gate.set()
    pool.shutdown()
    # What ends later is not measured.
    assert measured.finished == 0


# Errors of the consumer's code.


def noted(trial: Trial) -> dict[str, int]:
    """The numbers of the errors by the last part of their line."""
    return {
        f"{line.rpartition('/')[2]}: {text}": count
        for (line, _), (text, count) in trial.errors.items()
    }


def test_errors_are_reported_with_their_line_and_the_other_events_go_on() -> None:
    places: set[int] = set()

    def consume(event: TriedEvent) -> None:
        event.process()
        places.add(line_here() + 1)
        raise KeyError("the first text" if len(places) == 1 else "another")

    measured, trial = try_function(consume, TEN_OF_ONE_CLIENT)
    (line,) = places
    assert noted(trial) == {f"test_trial.py:{line}: KeyError: 'the first text'": 10}
    assert measured.finished == 10
    (told,) = broken_promises(measured, trial)
    assert told.startswith("  error: ")
    assert told.endswith(f"test_trial.py:{line}: KeyError: 'the first text' (10 times)")


def fail() -> None:
    raise LookupError("no")


async def fail_async() -> None:
    fail()


class FailsInFuture:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def submit(self, event: TriedEvent) -> Future[None]:
        event.process()
        return self._pool.submit(fail)


class FailsInTask:
    def submit(self, event: TriedEvent) -> asyncio.Task[None]:
        event.process()
        return asyncio.create_task(fail_async())


class FailsInSubmit:
    async def submit(self, event: TriedEvent) -> None:
        event.process()
        fail()

    def close(self) -> None: ...


class FailsInThread:
    def submit(self, event: TriedEvent) -> None:
        event.process()
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()

    def close(self) -> None: ...


class FailsInCallback:
    async def submit(self, event: TriedEvent) -> None:
        event.process()
        asyncio.get_running_loop().call_soon(fail)

    async def aclose(self) -> None:
        await asyncio.sleep(0)


class FailsInGroup:
    async def submit(self, event: TriedEvent) -> None:
        event.process()
        async with asyncio.TaskGroup() as group:
            group.create_task(fail_async())

    def close(self) -> None: ...


FAILING = [
    FailsInFuture, FailsInTask, FailsInSubmit, FailsInThread, FailsInCallback, FailsInGroup
]  # fmt: skip


@pytest.mark.parametrize("make", FAILING, ids=lambda make: make.__name__)
def test_an_error_is_reported_wherever_it_is_raised(make: Callable[[], Any]) -> None:
    line = fail.__code__.co_firstlineno + 1
    measured, trial = tried(make, TEN_OF_ONE_CLIENT)
    assert noted(trial) == {f"test_trial.py:{line}: LookupError: no": 10}
    assert measured.finished == 10


@pytest.mark.parametrize("name", ["aclose", "close", "shutdown"])
def test_an_error_of_the_close_is_reported(name: str) -> None:
    class Consumer:
        def submit(self, event: TriedEvent) -> None:
            event.process()

    setattr(Consumer, name, lambda self: fail())
    _, trial = tried(Consumer, TEN_OF_ONE_CLIENT)
    assert list(noted(trial).values()) == [1]


def test_an_event_that_is_processed_twice_is_an_error_at_that_line() -> None:
    async def consume(event: TriedEvent) -> None:
        await event.process_async()
        await event.process_async()

    measured, trial = try_function(consume, TEN_OF_ONE_CLIENT)
    line = consume.__code__.co_firstlineno + 2
    told = f"test_trial.py:{line}: RuntimeError: this event was processed before"
    assert noted(trial) == {told: 10}
    assert measured.finished == 10


def test_a_consumer_that_exits_is_reported() -> None:
    def consume(event: TriedEvent) -> None:
        sys.exit(3)

    measured, trial = try_function(consume, TEN_OF_ONE_CLIENT)
    assert list(noted(trial).values()) == [1]
    assert measured.finished == 0
    assert measured.arrived == 10


def test_a_consumer_that_cannot_be_made_is_unfit() -> None:
    _, trial = tried(fail)
    assert isinstance(trial.unfit, LookupError)


def test_a_consumer_that_never_returns_is_stuck_at_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_module, "_PATIENCE", 0.2)
    gate, left = threading.Event(), threading.Event()

    def consume(event: TriedEvent) -> None:
        gate.wait(PATIENCE)
        left.set()

    load = Load(rate=1000, clients=1, duplicates=0, seconds=0.05)
    measured, trial = try_function(consume, load, None, 0.0)
    # Those that came meanwhile are counted as well.
    assert measured.arrived == 50
    line = consume.__code__.co_firstlineno + 1
    assert (trial.stuck or "").endswith(f"test_trial.py:{line}")
    (*_, told) = broken_promises(measured, trial)
    assert told == f"  stuck: at {trial.stuck}, long after the end of the load"
    gate.set()
    assert left.wait(PATIENCE)


def test_only_the_places_with_most_errors_are_listed() -> None:
    measured, trial = tried(right_async_function)
    for n in range(12):
        trial.errors[f"my.py:{n}", "KeyError"] = "KeyError", 12 - n
    lines = broken_promises(measured, trial)
    assert lines[0] == "  error: my.py:0: KeyError (12 times)"
    assert len(lines) == 11
    assert lines[-1] == "  error: at 2 other places"
