"""Handlers of every kind: a def, an async def, an object, one that answers at once or later."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from penstock import Fixed, adaptive_flat_map
from penstock.streams.testing import CountedSource, MemorySink
from penstock.streams.testing.plugin import Run
from tests.helpers.gauge import Gauge, declared, later


class Callable_:
    async def __call__(self, value: int) -> int:
        return await declared(value)


def plain_later(_: str, value: int) -> Any:
    return later(value)


async def declared_later(_: str, value: int) -> int:
    return await declared(value)


@pytest.mark.parametrize(
    "handler",
    [
        declared,
        later,
        Callable_(),
        lambda value: later(value),
        partial(declared_later, "x"),
        partial(plain_later, "x"),
        partial(Callable_()),
        lambda value: asyncio.ensure_future(later(value)),
    ],
    ids=["async def", "def", "object", "lambda", "partial", "plain partial", "wrapped", "future"],
)
@pytest.mark.parametrize("ordered", [False, True])
def test_def_and_async_def_give_the_same_results_at_the_same_times(
    run: Run, handler: Any, ordered: bool
) -> None:
    sink = MemorySink()
    operator = adaptive_flat_map(handler, Fixed(2), ordered=ordered)
    run(CountedSource(range(5)).pipe(operator).to(sink).run())
    assert sink.accepted == [(1, 0), (1, 1), (2, 2), (2, 3), (3, 4)]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_handler_may_answer_at_once_or_later(run: Run, ordered: bool) -> None:
    def cached(value: int) -> Any:
        return later(value) if value % 10 == 9 else value

    sink = MemorySink()
    operator = adaptive_flat_map(cached, Fixed(3), ordered=ordered)
    run(CountedSource(range(100)).pipe(operator).to(sink).run())
    assert sorted(sink.values) == list(range(100))
    if ordered:
        assert sink.values == list(range(100))


def test_a_handler_that_begins_to_answer_later_keeps_its_limit(run: Run) -> None:
    gauge = Gauge()
    sink = MemorySink()
    # By then a chunk of many events is in progress.
    operator = adaptive_flat_map(lambda n: n if n < 200 else gauge(n), Fixed(3))
    run(CountedSource(range(600)).pipe(operator).to(sink).run())
    assert gauge.peak == 3
    assert sorted(sink.values) == list(range(600))
