"""The article's building blocks: consumers of events, each a decorator of the next.

Source: T. Nurkiewicz, "Small scale stream processing kata. Part 1: thread pools" (2016); the
classes carry its names. They are faithful, flaws included: what is wrong with each of them is
what the kata's table shows.

A consumer is a function of an event. Pools are context managers: leaving one waits at most
`grace` seconds for what was submitted, cancels what has not begun, joins the threads, and
raises what went wrong in them as an ExceptionGroup.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType

from penstock.command.kata.load.events import DUPLICATE_WINDOW, Event
from penstock.command.kata.observe import Observer

__all__ = [
    "ClientProjection",
    "Consumer",
    "FailOnConcurrentModification",
    "IgnoreDuplicates",
    "NaivePool",
    "SmartPool",
    "WaitOnConcurrentModification",
]

Consumer = Callable[[Event], object]


class ClientProjection:
    """Processes the event in the calling thread, and notifies the observer."""

    def __init__(self, handler: Consumer, observer: Observer) -> None:
        self._handler = handler
        self._observer = observer

    def __call__(self, event: Event) -> None:
        self._observer.started(event)
        try:
            self._handler(event)
        except BaseException:
            self._observer.failed(event)
            raise
        self._observer.finished(event)


class _Pool:
    """Executors and what was submitted to them."""

    def __init__(self, executors: Sequence[ThreadPoolExecutor], grace: float) -> None:
        self._executors = executors
        self._grace = grace
        self._pending: set[Future[object]] = set()
        self._errors: list[BaseException] = []

    def _submit(self, executor: ThreadPoolExecutor, consume: Consumer, event: Event) -> None:
        future = executor.submit(consume, event)
        self._pending.add(future)
        future.add_done_callback(self._done)

    def _done(self, future: Future[object]) -> None:
        self._pending.discard(future)
        if not future.cancelled() and (error := future.exception()) is not None:
            self._errors.append(error)

    def __enter__(self) -> None:
        """Threads start when they are needed."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        wait(set(self._pending), timeout=self._grace if error is None else 0)
        # All are stopped before any is joined, or the later ones would work on meanwhile.
        for executor in self._executors:
            executor.shutdown(wait=False, cancel_futures=True)
        for executor in self._executors:
            executor.shutdown()
        if self._errors:
            raise BaseExceptionGroup("events failed in the pool", self._errors)


class NaivePool(_Pool):
    """Hands every event to any free thread of `size`: two of a client may run at once."""

    def __init__(self, size: int, downstream: Consumer, *, grace: float = 1.0) -> None:
        self._executor = ThreadPoolExecutor(size, thread_name_prefix="naive-pool")
        self._downstream = downstream
        super().__init__([self._executor], grace)

    def __call__(self, event: Event) -> None:
        self._submit(self._executor, self._downstream, event)


class SmartPool(_Pool):
    """Hands all events of a client to the same one of `size` threads, in order.

    A client that is slow delays the others of its thread, although other threads are idle.
    """

    def __init__(self, size: int, downstream: Consumer, *, grace: float = 1.0) -> None:
        executors = [
            ThreadPoolExecutor(1, thread_name_prefix=f"smart-pool-{number}")
            for number in range(size)
        ]
        self._downstream = downstream
        super().__init__(executors, grace)

    def __call__(self, event: Event) -> None:
        executor = self._executors[event["client_id"] % len(self._executors)]
        self._submit(executor, self._downstream, event)


class _ClientLocks:
    """One lock per client, for as long as the run."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)

    def of(self, event: Event) -> threading.Lock:
        with self._guard:
            return self._locks[event["client_id"]]


class FailOnConcurrentModification:
    """Passes an event on if nobody works on its client, and otherwise loses it."""

    def __init__(self, downstream: Consumer, observer: Observer) -> None:
        self._downstream = downstream
        self._observer = observer
        self._locks = _ClientLocks()

    def __call__(self, event: Event) -> None:
        lock = self._locks.of(event)
        if not lock.acquire(blocking=False):
            self._observer.lost(event)
            return
        try:
            self._downstream(event)
        finally:
            lock.release()


class WaitOnConcurrentModification:
    """Waits `patience` seconds for the event's client to be free, then loses the event.

    The waiting thread is of no use to anybody else, and a lock that is released goes to any of
    those who wait. (The article's code also unlocks where it never got the lock, which fails.)
    """

    def __init__(self, downstream: Consumer, observer: Observer, patience: float = 1.0) -> None:
        self._downstream = downstream
        self._observer = observer
        self._patience = patience
        self._locks = _ClientLocks()

    def __call__(self, event: Event) -> None:
        lock = self._locks.of(event)
        began = self._observer.now()
        acquired = lock.acquire(timeout=self._patience)
        self._observer.waited(event, self._observer.now() - began)
        if not acquired:
            self._observer.lost(event)
            return
        try:
            self._downstream(event)
        finally:
            lock.release()


class IgnoreDuplicates:
    """Drops an event whose uuid was first seen less than `window` seconds before.

    By the times at which events were created, or a consumer that is behind would let duplicates
    pass. To be called from one thread, with events in the order of these times. Memory: one entry
    per uuid first seen within the window.
    """

    def __init__(
        self,
        downstream: Consumer,
        observer: Observer,
        window: float = DUPLICATE_WINDOW,
    ) -> None:
        self._downstream = downstream
        self._observer = observer
        self._window = window
        self._seen: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        created = event["created"]
        self._forget(created - self._window)
        if event["uuid"] in self._seen:
            self._observer.dropped(event)
            return
        self._seen[event["uuid"]] = created
        self._downstream(event)

    def _forget(self, oldest: float) -> None:
        # All entries live equally long, so the oldest are always in front.
        while self._seen:
            first = next(iter(self._seen))
            if self._seen[first] > oldest:
                return
            del self._seen[first]
