"""The article's steps towards a solution of the kata, each of which can be run and measured.

    sequential          one thread, nothing else: ten times too slow
    naive-pool          a pool of 10: one client's events overlap and overtake each other
    fail-on-concurrent  a pool of 10, a lock per client: loses events of a busy client
    wait-on-concurrent  a pool of 10 that waits for the lock: threads idle, order is by luck
    smart-pool          a thread for each twelfth of the clients, behind the duplicates filter

Only the last one has the filter, as in the article. The numbers of threads are the article's,
unless another one is given.

Source: T. Nurkiewicz, "Small scale stream processing kata. Part 1: thread pools" (2016).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from penstock.command.kata.load.events import Load
from penstock.command.kata.load.feed import feed
from penstock.command.kata.load.work import Work
from penstock.command.kata.observe import Measured, Observer
from penstock.command.kata.solutions.consumers import (
    ClientProjection,
    Consumer,
    FailOnConcurrentModification,
    IgnoreDuplicates,
    NaivePool,
    SmartPool,
    WaitOnConcurrentModification,
)
from penstock.streams.base import clock

__all__ = ["POOLS", "VARIANTS", "run_variant"]

# The consumer that takes the events, and the pool that has to be closed after the last.
Wiring = tuple[Consumer, AbstractContextManager[None]]


def _sequential(project: Consumer, observer: Observer, grace: float, size: int) -> Wiring:
    return project, nullcontext()


def _naive_pool(project: Consumer, observer: Observer, grace: float, size: int) -> Wiring:
    pool = NaivePool(size, project, grace=grace)
    return pool, pool


def _fail_on_concurrent(project: Consumer, observer: Observer, grace: float, size: int) -> Wiring:
    pool = NaivePool(size, FailOnConcurrentModification(project, observer), grace=grace)
    return pool, pool


def _wait_on_concurrent(project: Consumer, observer: Observer, grace: float, size: int) -> Wiring:
    pool = NaivePool(size, WaitOnConcurrentModification(project, observer), grace=grace)
    return pool, pool


def _smart_pool(project: Consumer, observer: Observer, grace: float, size: int) -> Wiring:
    pool = SmartPool(size, project, grace=grace)
    return IgnoreDuplicates(pool, observer), pool


# How each is wired, and the threads of its pool: 0 if it has none.
_WIRINGS: dict[str, tuple[Callable[[Consumer, Observer, float, int], Wiring], int]] = {
    "sequential": (_sequential, 0),
    "naive-pool": (_naive_pool, 10),
    "fail-on-concurrent": (_fail_on_concurrent, 10),
    "wait-on-concurrent": (_wait_on_concurrent, 10),
    "smart-pool": (_smart_pool, 12),
}

VARIANTS: tuple[str, ...] = tuple(_WIRINGS)
POOLS: tuple[str, ...] = tuple(name for name, (_, size) in _WIRINGS.items() if size)
"""Those that have a pool of threads."""


def run_variant(
    name: str,
    load: Load,
    handler: Consumer | None = None,
    *,
    pool: int | None = None,
    grace: float = 1.0,
    now: Callable[[], float] = clock.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    observer: Observer | None = None,
) -> Measured:
    """Run one of VARIANTS on a load, and measure what became of its events.

    `handler` is called with each event in the variant's threads and blocks for as long as the
    work takes (`Work().block` where none is given). `pool` is the number of threads, if the variant
    has a pool and the article's number is not to be used. After the end of the load the variant has
    `grace` seconds to catch up; what still waits then is abandoned and measured as unfinished.
    `now` and `sleep` are the time of the feed and of the observer. Give an `observer` of that
    time to know what was measured when this is interrupted.

    Blocks the calling thread for the load's seconds and as much of the grace as is needed; no
    thread is left when it returns. Raises ValueError for an unknown name, and what the handler
    raised (from a pool, in an ExceptionGroup).
    """
    if name not in _WIRINGS:
        raise ValueError(f"{name!r} is not a variant of the kata; there are {', '.join(VARIANTS)}")
    observer = observer or Observer(now)
    project = ClientProjection(handler or Work().block, observer)
    wire, size = _WIRINGS[name]
    consume, threads = wire(project, observer, grace, pool or size)
    with threads:
        feed(load, consume, observer, grace=grace, sleep=sleep)
    return observer.measured(name)
