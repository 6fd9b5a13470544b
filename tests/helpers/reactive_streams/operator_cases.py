"""Every operator of the library, and some stock ones, as a case over `from_iterable`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import nullcontext
from typing import Any

import reactivex
from reactivex import Observable
from reactivex import operators as ops
from reactivex.abc import DisposableBase, ObserverBase, SchedulerBase
from reactivex.subject import BehaviorSubject

from penstock import (
    Backoff,
    Fixed,
    Flowable,
    Shared,
    Store,
    Window,
    WorkPool,
    adaptive_flat_map,
    agg,
    batch,
    chunk,
    count_over_time,
    distinct_within,
    event_time,
    from_iterable,
    group_by,
    in_processes,
    in_threads,
    join,
    lift,
    lookup,
    monitor,
    rate_limit,
    retry,
    spread,
    stateful,
    table,
    tumbling,
    using,
    violations,
    window,
)
from penstock import ops as ours
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import HOLD
from penstock.streams.temporal.periods.intervals import Period
from tests.helpers.reactive_streams.between import anew, begun
from tests.helpers.reactive_streams.case import Case, numbers_up_to
from tests.helpers.rows_by_key import RowsByKey

__all__ = ["OPERATORS"]


async def _slowly(number: int) -> int:
    await asyncio.sleep(0.1 + number % 3 / 10)
    return number


async def _slowly_with(_: None, number: int) -> int:
    return await _slowly(number)


async def _at_once(number: int) -> int:
    return number


async def _twice(number: int) -> AsyncIterator[int]:
    yield number
    await asyncio.sleep(0.1)
    yield number


class _FailsFirst:
    """Fails at the first attempt with every third number."""

    def __init__(self) -> None:
        self._tried: set[int] = set()

    async def __call__(self, number: int) -> int:
        if number % 3 == 0 and number not in self._tried:
            self._tried.add(number)
            raise ValueError(number)
        self._tried.discard(number)
        return number


def _own(source: Observable[int]) -> Observable[int]:
    """An Rx operator that the library does not know."""

    def subscribe(
        observer: ObserverBase[int], scheduler: SchedulerBase | None = None
    ) -> DisposableBase:
        return source.subscribe(
            lambda number: observer.on_next(number + 1),
            observer.on_error,
            observer.on_completed,
            scheduler=scheduler,
        )

    return Observable(subscribe)


def _operator(
    name: str, operator: Callable[[Any], Any], outputs: Callable[[int], list[Any]], **facts: Any
) -> Case:
    def over(numbers: Iterable[int]) -> Flowable[Any]:
        return from_iterable(numbers).pipe(operator)

    return Case(name, over, outputs, operator, **facts)


async def _all_slowly(numbers: list[int]) -> list[int]:
    await asyncio.sleep(0.1 + len(numbers) / 100)
    return numbers


def _all_at_once(numbers: list[int]) -> list[int]:
    return numbers


def _batch(name: str, handler: Any, **facts: Any) -> Case:
    options = facts.pop("options", {})
    return _operator(
        f"batch {name}",
        batch(handler, 4, **options),
        numbers_up_to,
        **{"waiting_errors": True, **facts},
    )


def _raise(error: Exception, _: Any) -> Any:
    raise error


def _both(*operators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda source: source.pipe(*operators)


def _distinct_in_a_new_store(source: Any) -> Any:
    store = Store.memory(every=0.0)
    return source.pipe(distinct_within(10, by=lambda number: number, store=store))


def _doubled(n: int) -> list[int]:
    return [number for number in range(n) for _ in range(2)]


def _lists(n: int, size: int) -> list[list[int]]:
    return [list(range(i, min(i + size, n))) for i in range(0, n, size)]


def _latest(n: int) -> list[int]:
    """The last of all numbers, which come at once."""
    return list(range(n))[-1:]


def _working(name: str, handler: Any, outputs: Any = numbers_up_to, **facts: Any) -> Case:
    options = facts.pop("options", {})
    return _operator(
        f"adaptive_flat_map {name}",
        adaptive_flat_map(handler, Fixed(4), **options),
        outputs,
        **{"ordered": False, "waiting_errors": True, **facts},
    )


def _offered(ordered: bool) -> Callable[[Any], Any]:
    """Each connection has its own pool, with a worker that ends with it."""

    def operator(source: Flowable[int]) -> Flowable[int]:
        def make(run: Run) -> Flowable[int]:
            pool = WorkPool()
            run.on_close(begun(pool.work(_slowly, Fixed(4))))
            return pool.offer(source, ordered=ordered)

        return anew(make, "offer", source)

    return operator


def _pool(name: str, *, ordered: bool) -> Case:
    return _operator(
        name,
        _offered(ordered),
        numbers_up_to,
        ordered=ordered,
        synchronous=False,
        waiting_errors=True,
    )


OPERATORS = [
    _pool("work pool", ordered=False),
    _pool("work pool, ordered", ordered=True),
    _operator("distinct_within", distinct_within(10, by=lambda number: number), numbers_up_to),
    _operator("distinct_within in a store", _distinct_in_a_new_store, numbers_up_to),
    _operator(
        "group_by, spread",
        _both(group_by(lambda number: number % 3, buffer=16, spill_events=64), spread()),
        numbers_up_to,
        ordered=False,
    ),
    _operator(
        "group_by, spread of 2 feeders",
        _both(group_by(lambda number: number % 3, buffer=16, spill_events=64), spread(feeders=2)),
        numbers_up_to,
        ordered=False,
    ),
    _operator(
        "group_by each map, spread",
        _both(
            group_by(
                lambda number: number % 3,
                buffer=16,
                each=lambda group: group.pipe(ops.map(abs)),
                idle=60,
            ),
            spread(),
        ),
        numbers_up_to,
        ordered=False,
    ),
    _operator(
        "group_by each pairwise, spread",
        _both(
            group_by(
                lambda number: number % 3,
                buffer=16,
                each=lambda group: group.pipe(ops.pairwise()),
                idle=60,
            ),
            spread(),
        ),
        lambda n: [(number, number + 3) for number in range(n - 3)],
        ordered=False,
    ),
    _operator(
        "spread over iterables",
        _both(ops.map(lambda number: [number, number]), spread(feeders=1)),
        _doubled,
        sees_end=False,
    ),
    _operator(
        "spread over many iterables",
        _both(ops.map(lambda number: [number, number]), spread()),
        _doubled,
        sees_end=False,
        ordered=False,
    ),
    _working("plain", abs, ordered=True),
    _working("async", _slowly),
    _working("async at once", _at_once),
    _working("async iterator", _twice, _doubled),
    _working("ordered", _slowly, ordered=True, options={"ordered": True}),
    _working("with timeout", _slowly, options={"timeout": 9.0}),
    _operator(
        "adaptive_flat_map with retry",
        lambda source: source.pipe(
            adaptive_flat_map(_FailsFirst(), Fixed(4), on_error=retry(2, Backoff(0.1)))
        ),
        numbers_up_to,
        ordered=False,
        waiting_errors=True,
    ),
    _operator(
        "adaptive_flat_map with a shared limit",
        lambda source: source.pipe(adaptive_flat_map(_slowly, Shared(Fixed(4)))),
        numbers_up_to,
        ordered=False,
        waiting_errors=True,
    ),
    _working("in_threads", in_threads(2)(abs), calls_in_pool=True),
    _working("in_processes", in_processes(1)(abs), calls_in_pool=True),
    _working("using", using(nullcontext)(_slowly_with)),
    _operator(
        "count_over_time",
        count_over_time(
            begin=lambda number: 2 * number, end=lambda number: 2 * number + 1, lateness=0
        ),
        lambda n: [Period(None, 2 * number, 2 * number + 1, 1) for number in range(n)],
    ),
    _operator(
        "monitor",
        monitor("G(odd -> X !odd)", on_violation="report", odd=lambda number: number % 2),
        numbers_up_to,
    ),
    _operator(
        "violations",
        _both(
            violations("G !odd", restart=True, odd=lambda number: number % 2, evidence=1),
            ops.map(lambda violation: violation.evidence[0]),
        ),
        lambda n: list(range(1, n, 2)),
        sees_end=False,
    ),
    _operator(
        "violations of the end",
        _both(
            violations("F seven", by=lambda number: number, seven=lambda number: number < 0),
            ops.map(lambda violation: violation.key),
        ),
        numbers_up_to,
        pulls=False,
    ),
    _batch("async", _all_slowly),
    _batch("plain", _all_at_once),
    _batch("of three calls", _all_slowly, ordered=False, options={"parallel": 3}),
    _batch("with timeout", _all_slowly, options={"timeout": 9.0}),
    _batch("in_threads", in_threads(2)(_all_at_once), calls_in_pool=True),
    _operator(
        "group_by, spread, batch",
        _both(
            group_by(lambda number: number % 3, buffer=16, spill_events=64),
            spread(),
            batch(_all_slowly, 4, parallel=2),
        ),
        numbers_up_to,
        ordered=False,
        waiting_errors=True,
    ),
    _operator(
        "chunk",
        chunk(2),
        lambda n: _lists(n, 2),
    ),
    _operator(
        "chunk with a wait",
        chunk(2, 0.5),
        lambda n: _lists(n, 2),
    ),
    _operator(
        "stateful",
        stateful(lambda count, number: (count + 1, [number]), lambda n: n % 3, start=0),
        numbers_up_to,
    ),
    _operator("event_time", event_time(lambda number: number, idle=None), numbers_up_to),
    _operator(
        "window",
        _both(
            event_time(lambda number: number, idle=None),
            window(tumbling(1), agg.list(lambda number: number)),
        ),
        lambda n: [Window(None, number, number + 1, [number], 1, True) for number in range(n)],
    ),
    _operator(
        "join",
        _both(
            event_time(lambda number: number, idle=None),
            join(
                from_iterable([]).pipe(event_time(lambda number: number, idle=None)),
                lambda number: number,
                1,
                how="left",
            ),
        ),
        lambda n: [(number, None) for number in range(n)],
    ),
    _operator(
        "lookup in a table",
        lookup(table(from_iterable([]), "key", time="at"), lambda number: number),
        lambda n: [(number, None) for number in range(n)],
    ),
    _operator(
        "lookup in a whole table",
        lookup(table(from_iterable([]), "key", whole=True), lambda number: number),
        lambda n: [(number, None) for number in range(n)],
    ),
    _operator(
        "lookup by times",
        lookup(
            table(from_iterable([]), "key", time="at"),
            lambda number: number,
            as_of=lambda number: number,
        ),
        lambda n: [(number, None) for number in range(n)],
    ),
    _operator(
        "lookup in a database_table",
        lookup(RowsByKey(seconds=0.01).table(ttl=60), lambda number: number),
        lambda n: [(number, None) for number in range(n)],
        synchronous=False,
    ),
    _operator("rate_limit", rate_limit(100, per=1.0, burst=5), numbers_up_to),
    _operator("rate_limit by cost", rate_limit(200, burst=5, cost=lambda n: n % 3), numbers_up_to),
    # One stream after another. An error that they would recover from passes here.
    _operator("catch", ours.catch(_raise), numbers_up_to),
    _operator("concat", ours.concat(from_iterable([])), numbers_up_to),
    _operator("retry", ours.retry(1), numbers_up_to),
    _operator("repeat", ours.repeat(1), numbers_up_to),
    _operator("do_while", ours.do_while(lambda _: False), numbers_up_to),
    _operator("timeout", ours.timeout(100_000.0), numbers_up_to),
    _operator(
        "timeout_with_mapper",
        ours.timeout_with_mapper(reactivex.never(), lambda _: reactivex.never()),
        numbers_up_to,
    ),
    _operator("map", ops.map(lambda number: number + 1), lambda n: list(range(1, n + 1))),
    _operator("filter", ops.filter(lambda number: number % 2 == 0), lambda n: list(range(0, n, 2))),
    _operator("flat_map", ops.flat_map(lambda number: [number, number]), _doubled, sees_end=False),
    _operator("scan", ops.scan(lambda _, number: number, 0), numbers_up_to),
    _operator("take", ops.take(3), lambda n: list(range(min(n, 3)))),
    _operator("pairwise", ops.pairwise(), lambda n: [(i, i + 1) for i in range(n - 1)]),
    _operator(
        "buffer_with_count",
        ops.buffer_with_count(2),
        lambda n: _lists(n, 2),
    ),
    _operator("delay", ops.delay(0.5), numbers_up_to, synchronous=False),
    _operator("start_with", ops.start_with(-1), lambda n: [-1, *range(n)]),
    # Timers and second sources. Empty lists come by the clock, not by the numbers.
    _operator(
        "buffer_with_time",
        _both(ops.buffer_with_time(0.5), ops.filter(bool)),
        lambda n: _lists(n, HOLD),
    ),
    _operator(
        "buffer_with_time_or_count",
        _both(ops.buffer_with_time_or_count(0.5, 3), ops.filter(bool)),
        lambda n: _lists(n, 3),
    ),
    # Of endless numbers that come at once they emit nothing, and read on.
    _operator("debounce", ops.debounce(0.5), _latest, pulls=False),
    _operator("sample", ops.sample(0.5), _latest, synchronous=False, pulls=False),
    _operator(
        "throttle_first",
        ops.throttle_first(100_000.0),
        lambda n: list(range(min(n, 1))),
        pulls=False,
        sees_end=False,
    ),
    _operator("take_until", ops.take_until(reactivex.never()), numbers_up_to),
    _operator("take_until_with_time", ops.take_until_with_time(100_000.0), numbers_up_to),
    _operator("skip_until", ops.skip_until(BehaviorSubject(True)), numbers_up_to),
    _operator(
        "with_latest_from",
        _both(ops.with_latest_from(BehaviorSubject(True)), ops.map(lambda pair: pair[0])),
        numbers_up_to,
    ),
    _operator("lift own", lift(_own, holds=False), lambda n: list(range(1, n + 1))),
    _operator("lift own, holding", lift(_own), lambda n: list(range(1, n + 1))),
    _operator(
        "five in a row",
        _both(
            ops.map(abs),
            distinct_within(10, by=lambda number: number),
            group_by(lambda number: number % 3, buffer=16, spill_events=64),
            spread(),
            adaptive_flat_map(_slowly, Fixed(4)),
        ),
        numbers_up_to,
        ordered=False,
        waiting_errors=True,
    ),
]
