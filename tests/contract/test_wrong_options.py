"""Every public function and class refuses what is of a wrong type by an error that says what is
needed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import reactivex
from reactivex import operators as ops

import penstock
from penstock import agg, from_iterable, tumbling
from penstock.streams.base.errors import BuildError

# What the other arguments are, where they are needed.
GIVEN: dict[str, tuple[Any, ...]] = {
    "adaptive_flat_map": (str,),
    "batch": (list,),
    "calendar": ("day",),
    "chunk": (5,),
    "collect": ([],),
    "count_over_time": ("from",),
    "database_table": ("sqlite:///shop.db", "plans", "user", 60),
    "dead_letters": ("letters.jsonl",),
    "distinct_within": (10, "n"),
    "event_time": ("at",),
    "for_each": (print,),
    "from_async_iterable": (list[Any],),
    "from_iterable": ([1],),
    "group_by": ("n",),
    "in_processes": (2,),
    "in_threads": (2,),
    "inbox": (5,),
    "join": (from_iterable([1]), "n", 10),
    "lift": (ops.map(str),),
    "lookup": (penstock.table(from_iterable([1]), "n", time="n"), "n"),
    "monitor": ("G a", "n"),
    "objective": ("p99 < 1s", 0.9),
    "queue_stats": ("sqlite:///queue.db",),
    "rate_limit": (5,),
    "read_jetstream": ("t",),
    "read_kafka": ("t", "g"),
    "read_table": ("sqlite:///queue.db",),
    "retry": (3,),
    "session": (10,),
    "sliding": (60, 10),
    "stateful": (max, "n"),
    "table": (from_iterable([1]).pipe(penstock.event_time("n")), "n"),
    "violations": ("G a", "n"),
    "window": (tumbling(10), agg.count()),
    "write_jetstream": ("t",),
    "write_kafka": ("t",),
    "write_table": ("sqlite:///queue.db",),
}
WRONG: list[Any] = [
    *("x", b"x", "-5", -1, 0, 5.5, True, None, float("nan"), float("inf")),
    *([], {}, [1], (1, 2, 3), object(), print),
]


def _functions() -> list[str]:
    found = [(name, getattr(penstock, name)) for name in sorted(penstock.__all__)]
    # All but `run`, which reads the pipeline that it is given.
    return [n for n, one in found if callable(one) and not inspect.isclass(one) and n != "run"]


def _calls(name: str) -> list[tuple[str, Callable[[], Any]]]:
    """A call of the function for each of its options and each wrong value."""
    function, given = getattr(penstock, name), GIVEN.get(name, ())
    calls: list[tuple[str, Callable[[], Any]]] = []

    def add(option: str, value: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        calls.append((f"{name}({option}={value!r})", lambda: function(*args, **options)))

    for place, option in enumerate(inspect.signature(function).parameters.values()):
        for value in WRONG:
            if option.kind in (option.VAR_POSITIONAL, option.VAR_KEYWORD):
                continue
            if place < len(given):
                args = (*given[:place], value, *given[place + 1 :])
                add(option.name, value, args, {})
            else:
                add(option.name, value, given, {option.name: value})
    return calls


@pytest.mark.parametrize("name", _functions())
def test_an_option_of_a_wrong_type_is_refused_when_the_pipeline_is_built(name: str) -> None:
    for text, call in _calls(name):
        try:
            made = call()
        except BuildError as error:
            if str(error).startswith("by=") and "(by=" not in text:
                pytest.fail(f"{text} is refused as another option: {error}")
            continue
        except Exception as error:
            pytest.fail(f"{text}: {type(error).__name__}: {error}")
        if inspect.iscoroutine(made):
            made.close()


def _classes() -> list[str]:
    found = [(name, getattr(penstock, name)) for name in sorted(penstock.__all__)]
    # Those that a program makes: an abstract class and a protocol have no objects of their own.
    return [
        name
        for name, one in found
        if inspect.isclass(one)
        and not inspect.isabstract(one)
        and not issubclass(one, BaseException)
        and not getattr(one, "_is_protocol", False)
    ]


# Also objects that are right elsewhere.
OBJECTS: list[Any] = [
    *WRONG,
    *(reactivex.of(1), ops.map(str), penstock.from_iterable([1]), penstock.collect([])),
    *(penstock.Fixed(3), penstock.group_by("n"), ValueError("x"), str),
]


# Of compiled classes, which have no signature.
NEEDED = {"Event": 3, "SinkStage": 1}


def _needed(name: str, kind: type) -> int:
    """How many arguments the class cannot do without."""
    try:
        parameters = inspect.signature(kind).parameters.values()
    except ValueError:
        return NEEDED[name]
    return sum(
        parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in parameters
    )


@pytest.mark.parametrize("name", _classes())
def test_a_class_refuses_objects_of_a_wrong_type_by_an_error_of_its_own(name: str) -> None:
    kind = getattr(penstock, name)
    for value in OBJECTS:
        try:
            kind(*[value] * _needed(name, kind))
        except Exception as error:
            if not _is_named(error):
                pytest.fail(f"{name}({value!r}): {type(error).__name__}: {error}")


@pytest.mark.parametrize("value", OBJECTS, ids=lambda value: type(value).__name__)
def test_a_pipeline_refuses_what_is_no_operator_no_sink_and_no_strategy(value: Any) -> None:
    source = penstock.from_iterable([1])
    calls: list[Callable[[], object]] = [
        lambda: source.pipe(value),
        lambda: source.pipe(lambda first, second: first),  # type: ignore[arg-type]  # pyright: ignore
        lambda: source.to(value),
        lambda: penstock.Flowable.of(value, penstock.latest()),
        lambda: penstock.Flowable.of(reactivex.of(1), value),
        lambda: penstock.Pipeline(value, (penstock.collect([]),)),
        lambda: penstock.Pipeline(source, value),
        lambda: penstock.group_by("n")(value),
        lambda: penstock.spread()(value),
        lambda: penstock.in_threads(2)(value),
    ]
    for call in calls:
        try:
            call()
        except Exception as error:
            if not _is_named(error):
                pytest.fail(f"{type(error).__name__}: {error}")


def _is_named(error: Exception) -> bool:
    return any(kind.__module__.startswith("penstock.") for kind in type(error).__mro__)
