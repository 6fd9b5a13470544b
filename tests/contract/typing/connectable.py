"""Connectable streams behind `pipe`, as pyright must infer them; this file is checked, not run.

To mypy they are streams, whose `connect` may have no argument.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

from reactivex import Observable
from reactivex import operators as stock
from reactivex.subject import Subject

from penstock import Flowable, from_iterable, ops
from penstock.streams.pipelines.flowable import Connectable

numbers = from_iterable([1, 2])
numbers.connect()  # pyright: ignore[reportCallIssue]

assert_type(numbers.pipe(ops.publish()), Connectable[int])
assert_type(numbers.pipe(ops.publish(8)), Connectable[int])
assert_type(numbers.pipe(ops.publish_value(0)), Connectable[int])
assert_type(numbers.pipe(ops.multicast(Subject[int]())), Connectable[int])
assert_type(numbers.pipe(ops.publish()).auto_connect(2), Flowable[int])
assert_type(numbers.pipe(ops.map(lambda n: str(n)), ops.publish(8)), Connectable[str])
assert_type(numbers.pipe(stock.map(str), ops.retry(3), ops.publish()), Connectable[str])
assert_type(numbers.pipe(ops.publish(), ops.ref_count()), Flowable[int])
assert_type(numbers.pipe(ops.publish(), stock.map(str)), Flowable[str])
numbers.pipe(ops.replay(3)).connect().dispose()
numbers.pipe(ops.publish(), ops.ref_count()).connect()  # pyright: ignore[reportCallIssue]


def plain(source: Flowable[int]) -> Observable[str]:
    return source.map(str)


several: list[Callable[[Flowable[Any]], Flowable[Any]]] = [ops.publish(), ops.ref_count()]

assert_type(numbers.pipe(*several), Flowable[Any])
assert_type(numbers.pipe(stock.map(str), *several), Flowable[Any])
assert_type(numbers.pipe(plain), Flowable[str])
assert_type(numbers.pipe(ops.publish(), plain), Flowable[str])
assert_type(numbers.pipe(ops.catch(lambda error, source: source)), Flowable[int])
assert_type(numbers.pipe(), Flowable[int])
