"""A function that cannot be called with what a stage gives it is refused when it is given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from reactivex import operators as ops

import penstock
from penstock import from_iterable, in_threads, read_jsonl, using
from penstock.streams.base.errors import BuildError

SOURCE = from_iterable([{"n": 1}])


def two(first: Any, second: Any) -> None: ...
def three(first: Any, second: Any, third: Any) -> None: ...
def none() -> None: ...
def by_name(value: Any, *, limit: int) -> None: ...
def only_by_name(*, value: Any) -> None: ...
async def two_awaited(first: Any, second: Any) -> None: ...
async def several(first: Any, second: Any) -> Any:
    yield first


def one(value: Any) -> Any: ...
def one_or_two(value: Any, other: int = 1) -> Any: ...
def any_number(*values: Any, **named: Any) -> Any: ...
async def one_awaited(value: Any, *, limit: int = 3) -> Any: ...


# Says of itself that it takes two, and takes one.
@functools.wraps(two)
def wrapping(value: Any) -> Any: ...


class Two:
    def __init__(self, first: Any = None, second: Any = None) -> None: ...
    def __call__(self, first: Any, second: Any) -> None: ...
    def method(self, first: Any, second: Any) -> None: ...


class Pair:
    def __init__(self, first: Any, second: Any) -> None: ...


class One:
    def __init__(self, first: Any = None) -> None: ...
    def __call__(self, value: Any) -> None: ...
    def method(self, value: Any) -> None: ...
    @classmethod
    def by_class(cls, value: Any) -> None: ...
    @staticmethod
    def alone(value: Any) -> None: ...


UNFIT: list[Any] = [
    *(two, three, none, by_name, only_by_name, two_awaited, several, Two(), Two().method),
    *(Pair, functools.partial(two), functools.partial(one, 1), lambda a, b: a, One.method),
]
FIT: list[Any] = [
    *(one, one_or_two, any_number, one_awaited, wrapping, One, One(), One().method, One.by_class),
    *(One.alone, Two, functools.partial(two, 1), functools.partial(two, second=1)),
    # Without a signature, or with one that only says (*args, **kwargs).
    *(int, str, dict, print, min, len, "".join, {}.get, [].append, str.upper, frozenset),
    *(functools.lru_cache(one), staticmethod(one)),
]


@pytest.mark.parametrize("function", UNFIT)
def test_a_handler_that_cannot_take_one_value_is_refused(function: Any) -> None:
    for stage in (penstock.adaptive_flat_map, penstock.batch, penstock.for_each):
        with pytest.raises(BuildError, match=rf"{stage.__name__}\(.*cannot be called with 1 arg"):
            stage(function)


@pytest.mark.parametrize("function", FIT)
def test_no_other_handler_is_refused(function: Any) -> None:
    for stage in (penstock.adaptive_flat_map, penstock.batch, penstock.for_each):
        stage(function)


PLACES: dict[str, Callable[[Any], object]] = {
    "group_by": lambda f: penstock.group_by(f),
    "group_by(each)": lambda f: penstock.group_by("n", each=f, idle=1),
    "distinct_within": lambda f: penstock.distinct_within(5, f),
    "distinct_within(time)": lambda f: penstock.distinct_within(5, "n", f),
    "count_over_time": lambda f: penstock.count_over_time(f),
    "count_over_time(of)": lambda f: penstock.count_over_time("n", "sum", of=f),
    "rate_limit(cost)": lambda f: penstock.rate_limit(5, cost=f),
    "monitor": lambda f: penstock.monitor("G a", f, a=one),
    "monitor(time)": lambda f: penstock.monitor("G[<=5s] a", time=f, a=one),
    "monitor(a)": lambda f: penstock.monitor("G a", a=f),
    "monitor(on_violation)": lambda f: penstock.monitor("G a", a=one, on_violation=f),
    "violations": lambda f: penstock.violations("G a", f, a=one),
    "read_jsonl(decode)": lambda f: read_jsonl(decode=f),
    "read_jsonl(created)": lambda f: read_jsonl(created=f),
    "read_lines(decode)": lambda f: penstock.read_lines(decode=f),
    "read_kafka(decode)": lambda f: penstock.read_kafka("t", "g", decode=f),
    "write_kafka": lambda f: penstock.write_kafka(f),
    "write_kafka(key)": lambda f: penstock.write_kafka("t", key=f),
    "write_jetstream": lambda f: penstock.write_jetstream(f),
    "write_jetstream(id)": lambda f: penstock.write_jetstream("t", id=f),
    "overload": lambda f: penstock.adaptive_flat_map(one, overload=f),
    "in_threads": lambda f: in_threads(2)(f),
    "map": lambda f: SOURCE.pipe(ops.map(f)),
    "filter": lambda f: SOURCE.pipe(ops.filter(f)),
    "flat_map": lambda f: SOURCE.pipe(ops.flat_map(f)),
    "do_action": lambda f: SOURCE.pipe(ops.do_action(f)),
    "take_while": lambda f: SOURCE.pipe(ops.take_while(f)),
    "fluent map": lambda f: SOURCE.map(f),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_function_of_two_values_is_refused_wherever_it_would_get_one(place: str) -> None:
    with pytest.raises(BuildError, match=r"cannot be called with 1 argument: missing a .*'second'"):
        PLACES[place](two)


def test_functions_of_more_values_are_refused_in_their_places() -> None:
    for operator in (ops.scan(one), ops.reduce(one), ops.filter_indexed(one)):
        with pytest.raises(BuildError, match="cannot be called with 2 arguments"):
            SOURCE.pipe(operator)
    with pytest.raises(BuildError, match="cannot be called with 3 arguments"):
        penstock.adaptive_flat_map(one, on_limit_change=two)
    with pytest.raises(BuildError, match="cannot be called with 0 arguments"):
        from_iterable(one)


def test_a_handler_of_a_resource_is_called_with_it_and_a_value() -> None:
    @asynccontextmanager
    async def resource() -> Any:
        yield 1

    async def only_value(value: Any) -> None: ...

    using(resource)(two_awaited)
    with pytest.raises(BuildError, match="cannot be called with 2 arguments"):
        using(resource)(only_value)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
