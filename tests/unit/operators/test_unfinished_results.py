"""Handlers that return unfinished work, such as a coroutine, instead of a result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from reactivex import operators

from penstock import (
    Fixed,
    Flowable,
    adaptive_flat_map,
    batch,
    distinct_within,
    for_each,
    from_iterable,
    group_by,
    in_threads,
    rate_limit,
    spread,
)
from penstock.streams.base.errors import BuildError, PenstockError
from penstock.streams.testing import MemorySink, run_virtual
from penstock.streams.testing.plugin import Run


async def save(value: Any) -> Any:
    return value


async def forgets_await(value: Any) -> Any:
    return save(value)


async def forgets_to_await_a_future(value: Any) -> Any:
    return asyncio.get_running_loop().create_future()


def yields(value: Any) -> Any:
    yield value


async def yields_coroutines(value: Any) -> Any:
    yield save(value)


def returns_coroutines_later(value: Any) -> Any:
    return forgets_await(value)


async def returns_a_generator(value: Any) -> Any:
    return yields(value)


async def list_of_coroutines(values: list[Any]) -> Any:
    return [save(value) for value in values]


def list_of_generators(values: list[Any]) -> Any:
    return [yields(value) for value in values]


def returns_a_list_of_coroutines(value: Any) -> Any:
    return [save(value), save(value)]


async def returns_a_list_with_a_coroutine(value: Any) -> Any:
    return (value, save(value)) if value else ()


AWAIT, GENERATOR = "return await", "async generator"
MAPPED = {
    "forgotten await": (forgets_await, AWAIT),
    "future": (forgets_to_await_a_future, AWAIT),
    "generator": (yields, GENERATOR),
    "coroutines of an async generator": (yields_coroutines, "await"),
    "plain, of a coroutine": (returns_coroutines_later, AWAIT),
    "async, of a generator": (returns_a_generator, GENERATOR),
    "plain, of a list of coroutines": (returns_a_list_of_coroutines, "asyncio.gather"),
    "async, of a tuple with a coroutine": (returns_a_list_with_a_coroutine, "asyncio.gather"),
    "in a thread, of a coroutine": (in_threads(1)(lambda value: save(value)), AWAIT),
    "in a thread, of a generator": (in_threads(1)(yields), GENERATOR),
}


def error_of(run: Run, stream: Flowable[Any], sink: Any = None) -> PenstockError:
    with pytest.raises(PenstockError) as raised:
        run(stream.to(sink or MemorySink()).run())
    return raised.value


@pytest.mark.parametrize("name", MAPPED)
@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"limit": Fixed(2)}], ids=str)
def test_a_result_that_nobody_awaited_fails_its_event_by_name(
    run: Run, name: str, options: dict[str, Any]
) -> None:
    handler, advice = MAPPED[name]
    error = error_of(run, from_iterable(range(5)).pipe(adaptive_flat_map(handler, **options)))
    assert type(error).__name__ == "UnfinishedResult"
    assert advice in str(error)
    assert any("adaptive_flat_map" in note for note in error.__notes__)


@pytest.mark.parametrize("handler", [forgets_await, returns_a_generator])
def test_so_it_does_with_a_timeout(run: Run, handler: Any) -> None:
    stream = from_iterable(range(5)).pipe(adaptive_flat_map(handler, timeout=5))
    assert type(error_of(run, stream)).__name__ == "UnfinishedResult"


@pytest.mark.parametrize("handler", [list_of_coroutines, list_of_generators])
def test_a_batch_of_results_that_nobody_awaited_fails_its_events(run: Run, handler: Any) -> None:
    error = error_of(run, from_iterable(range(5)).pipe(batch(handler)))
    assert type(error).__name__ == "UnfinishedResult"


def test_a_batch_of_lists_of_coroutines_fails_its_events(run: Run) -> None:
    def handler(values: list[int]) -> list[Any]:
        return [[save(value)] if value else [] for value in values]

    error = error_of(run, from_iterable(range(5)).pipe(batch(handler)))
    assert type(error).__name__ == "UnfinishedResult"


@pytest.mark.parametrize("handler", [forgets_await, yields])
def test_a_batch_result_that_is_unfinished_work_says_what_to_write(run: Run, handler: Any) -> None:
    error = error_of(run, from_iterable(range(5)).pipe(batch(handler)))
    assert type(error).__name__ == "BatchContractError"


@pytest.mark.parametrize(
    "function",
    [
        forgets_await,
        yields,
        yields_coroutines,
        returns_coroutines_later,
        returns_a_list_of_coroutines,
    ],
)
def test_a_function_of_for_each_that_leaves_its_work_undone_fails_its_event(
    run: Run, function: Any
) -> None:
    error = error_of(run, from_iterable(range(5)), for_each(function))
    assert type(error).__name__ == "UnfinishedResult"
    assert any("for_each" in note for note in error.__notes__)


def test_the_policy_decides_about_such_an_event_too(run: Run) -> None:
    async def sometimes(value: int) -> Any:
        return save(value) if value % 2 else value

    sink = MemorySink()
    stream = from_iterable(range(6)).pipe(adaptive_flat_map(sometimes, on_error="skip"))
    report = run(stream.to(sink).run())
    assert (sink.values, report.statistics["failed"]) == ([0, 2, 4], 3)
    assert report.exit_status == 3


def test_what_a_function_of_for_each_returns_otherwise_does_not_matter(run: Run) -> None:
    report = run(from_iterable(range(6)).to(for_each(lambda value: [value])).run())
    assert report.statistics["finished"] == 6


# Functions of stock operators, which are plain.

unchecked: Any = operators

COROUTINES: list[Callable[[Any], Any]] = [
    lambda value: save(value),
    lambda value: save(value) if value < 7 else value,
]


@pytest.mark.parametrize("function", COROUTINES)
@pytest.mark.parametrize("name", ["map", "filter"])
@pytest.mark.parametrize("rest", [[], [unchecked.scan(lambda a, b: b)]], ids=["chunks", "singly"])
def test_a_coroutine_from_a_function_of_map_or_filter_raises_an_error_that_says_what_to_use(
    run: Run, function: Any, name: str, rest: list[Any]
) -> None:
    operator = getattr(unchecked, name)(function)
    error = error_of(run, from_iterable([5, 6, 7]).pipe(operator, *rest))
    assert type(error).__name__ == "UnfinishedResult"
    assert "adaptive_flat_map" in str(error)
    assert error.__notes__[0] == f"in stage 2 '{name}', on the event 5"


def test_a_filter_looks_at_every_answer(run: Run) -> None:
    operator = unchecked.filter(lambda value: save(value) if value == 7 else "yes")
    error = error_of(run, from_iterable([5, 6, 7]).pipe(operator))
    assert error.__notes__ == ["in stage 2 'filter', on the event 7"]


@pytest.mark.parametrize("name", ["map", "filter", "scan", "do_action", "take_while"])
def test_stock_operators_refuse_an_async_function_and_say_what_awaits_it(name: str) -> None:
    operator: Any = getattr(unchecked, name)
    with pytest.raises(BuildError, match=rf"{name} .*use adaptive_flat_map\(handler\)"):
        from_iterable([1]).pipe(operator(save))


def test_futures_that_a_function_of_map_began_may_go_on(run: Run) -> None:
    async def story() -> list[Any]:
        begun = unchecked.map(lambda value: asyncio.ensure_future(save(value)))
        sink = MemorySink()
        stream = from_iterable([1, 2]).pipe(begun, adaptive_flat_map(lambda future: future))
        await stream.to(sink).run()
        return sink.values

    assert run(story()) == [1, 2]


# Arguments of stock operators, by what they are called with.
ASKED: dict[str, Callable[[Any], Any]] = {
    name: lambda function, name=name: getattr(unchecked, name)(function)  # type: ignore[misc]
    for name in (
        *("all", "average", "count", "distinct_until_changed", "do_action", "filter_indexed"),
        *("find", "find_index", "first", "last", "map_indexed", "max_by", "min_by", "reduce"),
        *("scan", "single", "skip_while", "skip_while_indexed", "some", "sum", "take_while"),
        *("take_while_indexed", "tap", "to_dict"),
    )
} | {
    "contains": lambda function: unchecked.contains(9, function),
    "distinct_until_changed, comparer": lambda f: unchecked.distinct_until_changed(None, f),
    "first_or_default": lambda function: unchecked.first_or_default(function, 0),
    "last_or_default": lambda function: unchecked.last_or_default(0, function),
    "max": lambda function: unchecked.max(function),
    "min": lambda function: unchecked.min(function),
    "reduce, with a seed": lambda function: unchecked.reduce(function, 0),
    "scan, with a seed": lambda function: unchecked.scan(function, 0),
    "single_or_default": lambda function: unchecked.single_or_default(function, 0),
    "to_dict, of an element": lambda function: unchecked.to_dict(str, function),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_coroutine_from_a_function_of_a_stock_operator_is_an_error_that_names_it(
    run: Run, name: str
) -> None:
    operator = ASKED[name](lambda *values: save(values[0]))
    error = error_of(run, from_iterable([5, 6, 7]).pipe(operator))
    assert type(error).__name__ == "UnfinishedResult"
    assert "'<lambda>' returned <coroutine object save" in str(error)
    assert "does not await: give the function to adaptive_flat_map" in str(error)
    assert error.__notes__[0].startswith("in stage ")


def test_a_value_that_is_a_function_is_not_called() -> None:
    scan = unchecked.scan(lambda function, _: function, len)
    assert run_virtual(from_iterable([1, 2]).pipe(scan).to_list()) == [len, len]


KEYS: dict[str, Callable[[Any], Any]] = {
    "group_by": lambda by: adaptive_flat_map_behind(group_by(by)),
    "group_by, with each": lambda by: adaptive_flat_map_behind(
        group_by(by, each=lambda group: group, idle=1)
    ),
    "distinct_within": lambda by: distinct_within(1, by=by),
    "event_time, of distinct_within": lambda by: distinct_within(1, by=str, time=by),
    "rate_limit": lambda by: rate_limit(9, cost=by),
}


def adaptive_flat_map_behind(groups: Any) -> Any:
    return lambda stream: stream.pipe(groups, spread(), adaptive_flat_map(str))


@pytest.mark.parametrize("name", KEYS)
def test_a_coroutine_for_a_key_is_an_error_that_says_what_to_do(run: Run, name: str) -> None:
    error = error_of(run, KEYS[name](lambda value: save(value))(from_iterable([5, 6, 7])))
    assert type(error).__name__ == "UnfinishedResult"
    assert "await it in adaptive_flat_map, and read it from what that" in str(error)
    assert error.__notes__[0] == f"in stage 2 '{name.partition(',')[0]}', on the event 5"
