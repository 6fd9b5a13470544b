"""The operators of Rx that read several streams, or are read by several, as cases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import count
from typing import Any

import reactivex
from reactivex.subject import Subject

from penstock import Flowable, buffer, from_async_iterable, from_iterable
from penstock import ops as _ops
from tests.helpers.reactive_streams.case import Case, numbers_up_to

__all__ = ["RX"]

# What reactivex says of its types does not fit a lambda.
ops: Any = _ops


def _case(
    name: str, operator: Callable[[Any], Any], outputs: Callable[[int], list[Any]], **facts: Any
) -> Case:
    def over(numbers: Iterable[int]) -> Flowable[Any]:
        return from_iterable(numbers).pipe(operator)

    return Case(name, over, outputs, operator, **facts)


def _both(*operators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda source: source.pipe(*operators)


def _one(number: int) -> Flowable[int]:
    return from_iterable([number])


def _doubled(n: int) -> list[int]:
    return [number for number in range(n) for _ in range(2)]


def _with_one(n: int) -> list[tuple[int, int]]:
    return [(-1, number) for number in range(n)]


def _never() -> Flowable[Any]:
    return Flowable.of(reactivex.never(), on_overflow=buffer(1))


def _until_the_end(toggle: Callable[..., Any], *reading: Callable[[Any], Any]) -> Any:
    """`toggle` with one window, which ends with the stream; what reads it may follow."""

    def of(stream: Flowable[Any]) -> Flowable[Any]:
        end = Subject[None]()
        windows = toggle(reactivex.just(-1), lambda _: end)
        return stream.pipe(ops.do_action(on_completed=end.on_completed), windows, *reading)

    return ops.publish(of)


async def _ticks() -> AsyncIterator[None]:
    while True:
        await asyncio.sleep(0.5)
        yield None


def _all_at_once(n: int) -> list[list[int]]:
    return [list(range(n))]


def _once(source: Flowable[Any]) -> Flowable[Any]:
    answers = iter([True, False])
    return source.pipe(ops.while_do(lambda _: next(answers)))


# What is read inside may hold one item at its end until the next is requested.
_INSIDE: dict[str, Any] = {"sees_end": False}
# Of endless numbers nothing comes.
_TO_THE_END: dict[str, Any] = {"pulls": False}

RX = [
    _case("merge", ops.merge(from_iterable(list[int]())), numbers_up_to),
    _case(
        "merge of one a time",
        ops.merge(_one(-1), prefetch=1),
        lambda n: [0, -1, *range(1, n)] if n else [-1],
    ),
    _case("zip", ops.zip(from_iterable(lambda: count())), lambda n: [(i, i) for i in range(n)]),
    _case("combine_latest", lambda source: _one(-1).pipe(ops.combine_latest(source)), _with_one),
    _case(
        "with_latest_from", ops.with_latest_from(_one(-1)), lambda n: [(i, -1) for i in range(n)]
    ),
    _case("take_until a stream", ops.take_until(_never()), numbers_up_to),
    _case("skip_until a stream", ops.skip_until(_one(-1)), numbers_up_to),
    _case(
        "sample a stream",
        ops.sample(from_async_iterable(_ticks)),
        lambda n: list(range(n))[-1:],
        synchronous=False,
        # Of endless numbers that come at once it emits nothing, and reads on.
        pulls=False,
    ),
    _case(
        "partition",
        ops.publish(lambda stream: stream.partition(lambda _: True)[0]),
        numbers_up_to,
    ),
    _case(
        "partition_indexed",
        ops.publish(lambda stream: stream.partition_indexed(lambda _value, _index: True)[0]),
        numbers_up_to,
    ),
    _case("amb", ops.amb(_never()), numbers_up_to),
    _case("merge_all", _both(ops.map(_one), ops.merge_all()), numbers_up_to, **_INSIDE),
    _case("concat_all", _both(ops.map(_one), ops.concat_all()), numbers_up_to, **_INSIDE),
    _case("concat_map", ops.concat_map(lambda n: from_iterable([n, n])), _doubled, **_INSIDE),
    _case("flat_map of 2", ops.flat_map(lambda n: from_iterable([n, n]), 2), _doubled, **_INSIDE),
    _case("switch_map", ops.switch_map(_one), numbers_up_to),
    _case(
        "switch_map_indexed",
        ops.switch_map_indexed(lambda number, _: _one(number)),
        numbers_up_to,
    ),
    _case("flat_map_latest", ops.flat_map_latest(_one), numbers_up_to),
    _case("switch_latest", _both(ops.map(_one), ops.switch_latest()), numbers_up_to),
    _case("exhaust_map", ops.exhaust_map(_one), numbers_up_to),
    _case("exclusive", _both(ops.map(_one), ops.exclusive()), numbers_up_to),
    _case("share", ops.publish(lambda stream: stream.pipe(ops.share(prefetch=1))), numbers_up_to),
    _case("publish", ops.publish(lambda stream: stream), numbers_up_to),
    _case(
        "publish_value",
        ops.publish_value(-1, lambda stream: stream),
        lambda n: [-1, *range(n)],
        early=True,
    ),
    _case("replay, ref_count", _both(ops.replay(2), ops.ref_count()), numbers_up_to),
    _case(
        "multicast",
        ops.multicast(subject_factory=lambda _: Subject(), mapper=lambda stream: stream),
        numbers_up_to,
    ),
    # The mapper is called anew for each subscriber.
    _case("while_do", ops.publish(_once), numbers_up_to),
    _case(
        "on_error_resume_next",
        ops.on_error_resume_next(_one(-1)),
        lambda n: [*range(n), -1],
        resumes=True,
    ),
    _case(
        "sequence_equal",
        ops.sequence_equal(from_iterable(lambda: count())),
        lambda n: [False],
        pulls=False,
    ),
    _case("buffer", ops.buffer(_never()), _all_at_once, **_TO_THE_END),
    _case(
        "buffer_toggle",
        _until_the_end(ops.buffer_toggle),
        _all_at_once,
        **_TO_THE_END,
    ),
    _case("buffer_when", ops.buffer_when(_never), _all_at_once, **_TO_THE_END),
    _case("window", _both(ops.window(_never()), ops.merge_all()), numbers_up_to),
    _case(
        "window_toggle",
        _until_the_end(ops.window_toggle, ops.merge_all()),
        numbers_up_to,
    ),
    _case("window_when", _both(ops.window_when(_never), ops.merge_all()), numbers_up_to),
    _case(
        "window_with_count",
        _both(ops.window_with_count(2), ops.merge_all()),
        numbers_up_to,
    ),
    _case(
        "window_with_time",
        _both(ops.window_with_time(1.0), ops.merge_all()),
        numbers_up_to,
    ),
    _case(
        "window_with_time_or_count",
        _both(ops.window_with_time_or_count(1.0, 2), ops.merge_all()),
        numbers_up_to,
    ),
]
