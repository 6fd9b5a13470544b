"""Every source and operator of the library, as the tests of the rules see them.

All streams are over the numbers 0, 1, 2, ... A case says what comes of the first n of them.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import reactivex
from reactivex import Observable
from reactivex import operators as ops
from reactivex.abc import DisposableBase, ObserverBase, SchedulerBase
from reactivex.disposable import Disposable

import streams
from operators import (
    adaptive_flat_map,
    distinct_within,
    group_by,
    in_processes,
    in_threads,
    rate_limit,
    spread,
)
from sources import read_jsonl
from streams import (
    Backoff,
    Event,
    Fixed,
    Flowable,
    from_async_iterable,
    from_iterable,
    lift,
    retry,
)
from streams.run import Run
from streams.stage import StageInfo, Subscriber, Subscription
from streams.testing import CountedSource, MemorySource

__all__ = ["CASES", "OPERATORS", "SOURCES", "Case", "Numbers"]

PACE = 0.01
"""Seconds between two values of a plain Observable."""


class Numbers:
    """0, 1, 2, ... `n` of them; then the end, or `error`. Knows how often it is open."""

    def __init__(
        self,
        n: int | None = None,
        error: Exception | None = None,
        closing_error: Exception | None = None,
    ) -> None:
        self.n = n
        self.error = error
        self.closing_error = closing_error
        self.opened = self.closed = 0

    def __iter__(self) -> Iterator[int]:
        self.opened += 1
        try:
            for number in count():
                if number == self.n:
                    if self.error is not None:
                        raise self.error
                    return
                yield number
        finally:
            self.closed += 1
            if self.closing_error is not None:
                raise self.closing_error


@dataclass(frozen=True)
class Case:
    """One source, or one operator over `from_iterable`.

    `over(numbers)` is the stream. `outputs(n)` are the values that come of 0 .. n - 1.
    `operator` is what stands between a publisher and a subscriber, None for a source.
    """

    name: str
    over: Callable[[Iterable[int]], Flowable[Any]]
    outputs: Callable[[int], list[Any]]
    operator: Callable[[Any], Any] | None = None
    ordered: bool = True
    """Whether the values have an order that the inputs decide."""
    lossless: bool = True
    """Whether values that nobody has asked for wait."""
    synchronous: bool = True
    """Whether values come inside `request` (rules 3.10 and 3.11)."""
    opens_empty: bool = True
    """Whether the stream exists without any value (a group does not)."""
    waiting_errors: bool = False
    """Whether an error lets what is in flight finish first, as documented."""
    pulls: bool = True
    """Whether the numbers are pulled one by one, and may be endless or raise."""
    calls_in_pool: bool = False
    ends_inside: bool = True
    """Whether a short stream's end comes inside `request` where its values do."""
    sees_end: bool = True
    """Whether the end is known with the last value; what takes items out of iterators would
    have to pull ahead of the demand."""

    def of(self, n: int) -> Flowable[Any]:
        """The stream over the first n numbers."""
        return self.over(range(n))

    def shown(self, value: Any) -> Any:
        """A value as `outputs` has it: a group is shown by its key."""
        return value.key if isinstance(value, streams.Group) else value

    def seen(self, values: Iterable[Any]) -> list[Any]:
        """Values as a list that can be compared with `wanted`."""
        shown = [self.shown(value) for value in values]
        return shown if self.ordered else sorted(shown)

    def wanted(self, n: int) -> list[Any]:
        """What should come of n numbers, to be compared with `seen`."""
        return self.outputs(n) if self.ordered else sorted(self.outputs(n))

    def __str__(self) -> str:
        return self.name


def numbers_up_to(n: int) -> list[Any]:
    return list(range(n))


# Sources.


async def _async_numbers(numbers: Iterable[int]) -> AsyncIterator[int]:
    iterator = iter(numbers)
    try:
        for number in iterator:
            yield number
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def _observable(numbers: Iterable[int]) -> Observable[int]:
    """A plain Observable: a value every PACE seconds, whoever has asked for it or not."""

    def subscribe(
        observer: ObserverBase[int], scheduler: SchedulerBase | None = None
    ) -> DisposableBase:
        loop = asyncio.get_running_loop()
        iterator = iter(numbers)
        disposed = False
        timer = loop.call_later(PACE, lambda: emit())

        def emit() -> None:
            nonlocal timer
            try:
                number = next(iterator)
            except StopIteration:
                observer.on_completed()
            except Exception as error:
                observer.on_error(error)
            else:
                observer.on_next(number)
                if not disposed:
                    timer = loop.call_later(PACE, emit)

        def dispose() -> None:
            nonlocal disposed
            disposed = True
            timer.cancel()
            close = getattr(iterator, "close", None)
            if close is not None and not getattr(iterator, "gi_running", False):
                close()

        return Disposable(dispose)

    return reactivex.create(subscribe)


def _only_group(numbers: Iterable[int], grouped: Callable[[Any], Any]) -> Flowable[int]:
    """The one group of a stream whose events all have the same key."""

    def attach(subscriber: Subscriber[Any], run: Run) -> None:
        from_iterable(numbers).pipe(grouped).attach(_FirstGroup(subscriber, run), run)

    return Flowable(attach, StageInfo("group"))


class _FirstGroup:
    """Reads the first group a little later, when its events have been read ahead.

    A group ends when it holds neither an event nor a turn; at once, it would with each event.
    """

    def __init__(self, subscriber: Subscriber[Any], run: Run) -> None:
        self._subscriber = subscriber
        self._run = run
        self._ending: tuple[BaseException | None] | None = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._above = subscription
        subscription.request(1)

    def on_next(self, event: Event[Any], /) -> None:
        self._run.loop.call_soon(self._read, event.value)

    def _read(self, group: Flowable[Any]) -> None:
        if self._ending is None:
            group.attach(_Relay(self._subscriber, self._above), self._run)
        else:
            (error,) = self._ending
            assert error is not None
            self._subscriber.on_subscribe(_Nothing())
            self._subscriber.on_error(error)

    def on_error(self, error: BaseException, /) -> None:
        self._ending = (error,)

    def on_completed(self) -> None:
        pass


class _Nothing:
    def request(self, n: int, /) -> None:
        pass

    def cancel(self) -> None:
        pass


class _Relay:
    """Cancels the stream of groups with the group."""

    def __init__(self, subscriber: Subscriber[Any], above: Subscription) -> None:
        self._subscriber = subscriber
        self._above = above
        self.on_next = subscriber.on_next
        self.on_error = subscriber.on_error
        self.on_completed = subscriber.on_completed

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._group = subscription
        self.request = subscription.request
        self._subscriber.on_subscribe(self)

    def cancel(self) -> None:
        self._above.cancel()
        self._group.cancel()

    request: Callable[[int], None]


def _lines(numbers: Iterable[int]) -> Flowable[int]:
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as file:
        file.writelines(json.dumps({"n": number}) + "\n" for number in numbers)

    def attach(subscriber: Subscriber[Any], run: Run) -> None:
        read_jsonl(file.name).attach(_Unpacked(subscriber, Path(file.name)), run)

    return Flowable(attach, StageInfo("read_jsonl"))


class _Unpacked:
    """Shows {"n": 3} as 3."""

    def __init__(self, subscriber: Subscriber[Any], file: Path) -> None:
        self._file = file
        self._subscriber = subscriber
        self.on_subscribe = subscriber.on_subscribe
        self.on_error = subscriber.on_error
        self.on_completed = subscriber.on_completed

    def on_next(self, event: Event[Any], /) -> None:
        event.value = event.value["n"]
        self._subscriber.on_next(event)


def _of(overflow: streams.border.Overflow) -> Callable[[Iterable[int]], Flowable[int]]:
    return lambda numbers: Flowable.of(_observable(numbers), overflow)


def _source(name: str, over: Callable[[Iterable[int]], Flowable[Any]], **facts: Any) -> Case:
    return Case(name, over, numbers_up_to, **facts)


_plain = partial(_source, synchronous=False)
_grouped = partial(_source, opens_empty=False)

SOURCES = [
    _source("from_iterable", from_iterable),
    _plain(
        "from_async_iterable",
        lambda numbers: from_async_iterable(lambda: _async_numbers(numbers)),
        sees_end=False,
    ),
    _plain("of buffer", _of(streams.buffer(1_000_000))),
    _plain("of drop_oldest", _of(streams.drop_oldest(3)), lossless=False),
    _plain("of drop_newest", _of(streams.drop_newest(3)), lossless=False),
    _plain("of latest", _of(streams.latest()), lossless=False),
    _plain("of error", _of(streams.error()), lossless=False),
    _grouped("group", lambda numbers: _only_group(numbers, group_by(lambda _: "all"))),
    _grouped(
        "group with each",
        lambda numbers: _only_group(
            numbers,
            group_by(lambda _: "all", each=lambda group: group.pipe(ops.map(abs)), idle=60),
        ),
    ),
    _source("CountedSource", CountedSource, sees_end=False),
    _source("MemorySource", MemorySource, pulls=False, sees_end=False),
    _source("read_jsonl", _lines, pulls=False, sees_end=False),
]


# Operators.


async def _slowly(number: int) -> int:
    await asyncio.sleep(0.1 + number % 3 / 10)
    return number


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
    """An Rx operator that the library has never heard of."""

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


def _both(*operators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda source: source.pipe(*operators)


def _doubled(n: int) -> list[int]:
    return [number for number in range(n) for _ in range(2)]


def _working(name: str, handler: Any, outputs: Any = numbers_up_to, **facts: Any) -> Case:
    options = facts.pop("options", {})
    return _operator(
        f"adaptive_flat_map {name}",
        adaptive_flat_map(handler, Fixed(4), **options),
        outputs,
        **{"ordered": False, "waiting_errors": True, **facts},
    )


OPERATORS = [
    _operator("distinct_within", distinct_within(10, by=lambda number: number), numbers_up_to),
    _operator("group_by", group_by(lambda number: number, buffer=16), numbers_up_to),
    _operator(
        "group_by, spread",
        _both(group_by(lambda number: number % 3, buffer=16), spread()),
        numbers_up_to,
        ordered=False,
    ),
    _operator(
        "group_by, spread of 2 feeders",
        _both(group_by(lambda number: number % 3, buffer=16), spread(feeders=2)),
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
    _working("in_threads", in_threads(2)(abs), calls_in_pool=True),
    _working("in_processes", in_processes(1)(abs), calls_in_pool=True),
    _operator("rate_limit", rate_limit(100, per=1.0, burst=5), numbers_up_to),
    _operator("map", ops.map(lambda number: number + 1), lambda n: list(range(1, n + 1))),
    _operator("filter", ops.filter(lambda number: number % 2 == 0), lambda n: list(range(0, n, 2))),
    _operator("flat_map", ops.flat_map(lambda number: [number, number]), _doubled, sees_end=False),
    _operator("scan", ops.scan(lambda _, number: number, 0), numbers_up_to),
    _operator("take", ops.take(3), lambda n: list(range(min(n, 3)))),
    _operator("pairwise", ops.pairwise(), lambda n: [(i, i + 1) for i in range(n - 1)]),
    _operator(
        "buffer_with_count",
        ops.buffer_with_count(2),
        lambda n: [list(range(i, min(i + 2, n))) for i in range(0, n, 2)],
    ),
    _operator("delay", ops.delay(0.5), numbers_up_to, synchronous=False),
    _operator("start_with", ops.start_with(-1), lambda n: [-1, *range(n)]),
    _operator("lift own", lift(_own, holds=False), lambda n: list(range(1, n + 1))),
    _operator("lift own, holding", lift(_own), lambda n: list(range(1, n + 1))),
    _operator(
        "five in a row",
        _both(
            ops.map(abs),
            distinct_within(10, by=lambda number: number),
            group_by(lambda number: number % 3, buffer=16),
            spread(),
            adaptive_flat_map(_slowly, Fixed(4)),
        ),
        numbers_up_to,
        ordered=False,
        waiting_errors=True,
    ),
]

CASES = [*SOURCES, *OPERATORS]
