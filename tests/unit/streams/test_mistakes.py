"""Common mistakes are refused, with what to write instead."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from reactivex import operators as stock

from penstock import (
    WorkPool,
    adaptive_flat_map,
    collect,
    dead_letters,
    distinct_within,
    from_async_iterable,
    from_iterable,
    group_by,
    ops,
    read_jetstream,
    retry,
    run,
    spread,
    write_jetstream,
    write_jsonl,
)
from penstock.streams.base.errors import BuildError, MissingExtra
from penstock.streams.testing import MemorySink, run_virtual

NUMBERS = from_iterable([1, 2, 3])
SPREAD = NUMBERS.pipe(group_by(abs), spread())

# Some calls are the mistakes under test, which a type checker would refuse.
unchecked: Any = ops
unchecked_to: Any = NUMBERS.to
unchecked_from_iterable: Any = from_iterable
unchecked_from_async_iterable: Any = from_async_iterable


async def handler(value: Any) -> Any:
    return value


async def items_later() -> AsyncIterator[int]:
    yield 1


def items() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("mistake", "advice"),
    [
        (
            lambda: NUMBERS.pipe(adaptive_flat_map(abs), write_jsonl()),
            r"\.to\(write_jsonl\(...\)\)",
        ),
        (lambda: NUMBERS.pipe(write_jsonl()), r"write_jsonl\(...\) is a sink"),
        (
            lambda: adaptive_flat_map(abs, on_error=dead_letters("x")),  # type: ignore[call-overload]
            r"on_error=route\(dead_letters\(...\)\)",
        ),
        (
            lambda: distinct_within("n", 10),  # type: ignore[arg-type]
            r"did you mean distinct_within\(10, by='n'\)",
        ),
        (lambda: run(NUMBERS), r"run\(stream\.to\(write_jsonl\(\)\)\)"),  # type: ignore[arg-type]
        (lambda: unchecked_to(write_jsonl), r"write_jsonl makes one: write write_jsonl\(\.\.\.\)$"),
        (lambda: unchecked_to(MemorySink), r"MemorySink makes one: write MemorySink\(\.\.\.\)$"),
        (lambda: unchecked_to(adaptive_flat_map(abs)), r"an operator goes into pipe\(\)"),
        (lambda: unchecked_to(adaptive_flat_map), r"an operator goes into pipe\(\)"),
        (lambda: unchecked_to(spread()), r"an operator goes into pipe\(\)"),
        (lambda: unchecked_to(ops.map(abs)), r"an operator goes into pipe\(\)"),
        (lambda: unchecked_to(ops.merge(NUMBERS)), r"an operator goes into pipe\(\)"),
        (lambda: unchecked_to(NUMBERS), r"not <Flowable from_iterable>"),
        (lambda: unchecked_to(abs), r"not <built-in function abs>; .* for_each\(function\)"),
        (lambda: unchecked_from_iterable(items_later), r"use from_async_iterable\("),
        (lambda: unchecked_from_iterable(items_later()), r"use from_async_iterable\("),
        (lambda: unchecked_from_iterable(handler), r"use from_async_iterable\(.* `yield`"),
        (
            lambda: SPREAD.pipe(ops.with_latest_from(NUMBERS)),
            r"that ends the turns \(adaptive_flat_map or batch\), or before group_by",
        ),
        (lambda: SPREAD.pipe(ops.share()), r"^share after spread\(\) .*, or before group_by"),
        (lambda: unchecked_from_async_iterable([1]), r"\[1\], .* use from_iterable\("),
        (lambda: unchecked_from_async_iterable(items), r"from_iterable\("),
        (lambda: unchecked_from_async_iterable(handler), r"`async def` with `yield`"),
    ],
)
def test_what_is_mistaken_is_refused_with_advice(
    mistake: Callable[[], object], advice: str
) -> None:
    with pytest.raises(BuildError, match=advice):
        mistake()


def test_a_handler_given_to_pipe_leaves_no_coroutine_behind() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(BuildError, match=r"adaptive_flat_map\(handler\)"):
            NUMBERS.pipe(handler)  # type: ignore[call-overload]
        gc.collect()


def test_a_pipeline_is_neither_a_running_nor_a_stream() -> None:
    pipeline: Any = NUMBERS.to(collect([]))

    async def forgotten_start() -> None:
        async with pipeline:
            pass

    async def read() -> None:
        async for _ in pipeline:
            pass

    with pytest.raises(TypeError, match=r"async with pipeline\.start\(\) as running"):
        run_virtual(forgotten_start())
    with pytest.raises(TypeError, match="async for value in stream"):
        run_virtual(read())


def test_an_unhashable_key_of_a_function_is_reported() -> None:
    pipeline = NUMBERS.pipe(group_by(lambda n: [n]), spread()).to(collect([]))  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError) as raised:
        run(pipeline)
    assert raised.value.__notes__[0] == "in stage 2 'group_by', on the event 1"
    assert raised.value.__notes__[1].startswith("a key must be hashable")


@pytest.mark.parametrize(
    "build",
    [
        lambda: read_jetstream("s"),
        lambda: write_jetstream("s"),
        lambda: WorkPool("nats://localhost"),
    ],
)
def test_a_missing_client_of_nats_is_reported_when_the_pipeline_is_built(
    build: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(MissingExtra, match=r"needs nats-py: .*\[cluster\]"):
        build()


@pytest.mark.parametrize(
    ("mistake", "advice"),
    [
        (lambda: unchecked.debounce("1"), r"^debounce\(duetime='1'\): must be seconds or"),
        (lambda: unchecked.delay(float("nan")), r"^delay\(duetime=nan\): must be seconds or"),
        (lambda: unchecked.window_with_time(True), r"^window_with_time\(timespan=True\): must be"),
        (lambda: unchecked.take(-1), r"^take\(count=-1\): must be a whole number of at least 0"),
        (lambda: unchecked.take("x"), r"^take\(count='x'\): must be a whole number"),
        (lambda: unchecked.buffer_with_count(0), r"^buffer_with_count\(count=0\): .* at least 1"),
        (lambda: unchecked.window_with_count(2, 0), r"^window_with_count\(skip=0\): .* at least 1"),
        (lambda: unchecked.catch(ValueError), r"^catch takes a stream or a function, not <class"),
        (lambda: unchecked.zip([1]), r"^zip reads a stream .* \[1\]; wrap it in from_iterable\("),
        (lambda: unchecked.skip(False), r"^skip\(count=False\): must be a whole number"),
        (lambda: unchecked.element_at(1.5), r"^element_at\(index=1.5\): must be a whole number"),
        (lambda: retry(3), r"retry\(3\) is a policy .*the source again is ops.retry\(...\)"),
    ],
)
def test_an_operator_with_a_number_or_a_policy_that_does_not_fit_is_refused_when_it_is_applied(
    mistake: Callable[[], Any], advice: str
) -> None:
    with pytest.raises(BuildError, match=advice):
        NUMBERS.pipe(mistake())


def test_numbers_that_fit_are_taken() -> None:
    operators: list[Any] = [
        unchecked.take(0),
        unchecked.skip_last(0),
        unchecked.buffer_with_count(2, None),
        unchecked.delay(timedelta(seconds=1)),
        unchecked.take_until_with_time(datetime(2100, 1, 1, tzinfo=UTC)),
        unchecked.debounce(-1),
    ]
    for operator in operators:
        NUMBERS.pipe(operator)


@pytest.mark.parametrize("operator", [ops.retry(3), stock.retry(3)])
def test_an_operator_for_a_policy_is_refused_with_both_retries(operator: Any) -> None:
    with pytest.raises(BuildError, match=r"pipe\(\), and reads .*; penstock.retry\(times\) calls"):
        adaptive_flat_map(handler, on_error=operator)


@pytest.mark.parametrize("deadline", ["5", -1, float("nan"), True])
def test_a_deadline_that_is_no_number_of_seconds_is_refused_and_drains_nothing(
    deadline: Any,
) -> None:
    async def story() -> str:
        running = NUMBERS.to(collect([])).start()
        with pytest.raises(BuildError, match=r"^drain\(deadline=.*\): must be seconds, 0 or more"):
            await running.drain(deadline)
        return (await running.wait()).outcome

    assert run_virtual(story()) == "completed"
