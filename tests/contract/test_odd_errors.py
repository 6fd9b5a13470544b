"""Errors of the user's that refuse what is done with errors fail their events as any others do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import (
    Backoff,
    adaptive_flat_map,
    batch,
    distinct_within,
    for_each,
    from_iterable,
    group_by,
    monitor,
    rate_limit,
    retry,
    route,
    spread,
)
from penstock import ops as _ops
from penstock.command.pipelines.report import as_json
from penstock.streams.testing import MemorySink, MemorySource, no_leaks, run_virtual

# What reactivex says of its types does not fit a lambda.
ops: Any = _ops


class Odd(Exception):
    """What the errors have in common."""


@dataclass(frozen=True)
class Frozen(Odd):
    code: int = 3


class WithoutNotes(Odd):
    def __init__(self) -> None:
        self.__notes__: Any = None


class WithOddNotes(Odd):
    def __init__(self) -> None:
        self.__notes__: Any = ["one", 2]


class Unprintable(Odd):
    def __str__(self) -> str:
        raise ValueError("str")

    __repr__ = __str__


class Incomparable(Odd):
    def __eq__(self, other: object) -> bool:
        raise ValueError("eq")

    __hash__ = None  # type: ignore[assignment]


Function = Callable[[Any], Any]


def later(f: Function) -> Function:
    async def call(value: Any) -> Any:
        await asyncio.sleep(0.1)
        return f(value)

    return call


def works(f: Function, policy: Any, **options: Any) -> tuple[Any, ...]:
    return (adaptive_flat_map(later(f), on_error=policy, **options),)


STOPS: dict[str, Callable[[Function], tuple[Any, ...]]] = {
    "map": lambda f: (ops.map(f),),
    "filter": lambda f: (ops.filter(lambda value: f(value) is not None),),
    "scan": lambda f: (ops.scan(lambda _, value: f(value), 0),),
    "flat_map": lambda f: (ops.flat_map(lambda value: [f(value)]),),
    "a stream of flat_map": lambda f: (
        ops.flat_map(lambda value: from_iterable([value]).pipe(ops.map(f))),
    ),
    "concat_map": lambda f: (ops.concat_map(lambda value: from_iterable([f(value)])),),
    "each": lambda f: (
        group_by(lambda v: v, each=lambda g: g.pipe(ops.map(f)), idle=1),
        spread(),
    ),
    "key": lambda f: (group_by(f), spread()),
    "handler": lambda f: (adaptive_flat_map(f),),
    "async handler": lambda f: works(f, "stop"),
    "batch": lambda f: (batch(lambda values: list(map(f, values))),),
    "wait": lambda f: works(fails, retry(2, wait=lambda _: f(2))),
}
GOES_ON: dict[str, Callable[[Function], tuple[Any, ...]]] = {
    "handler": lambda f: (adaptive_flat_map(f, on_error="skip"),),
    "async handler": lambda f: works(f, "skip"),
    "timeout": lambda f: works(f, "skip", timeout=1),
    "retry": lambda f: works(f, retry(2, Backoff(0), then="skip")),
    "route": lambda f: works(f, route(MemorySink())),
    "batch": lambda f: (batch(lambda values: list(map(f, values)), on_error="skip"),),
    "key": lambda f: (group_by(f, on_error="skip"), spread()),
    "distinct_within": lambda f: (distinct_within(9, f, on_error="skip"),),
    "cost": lambda f: (rate_limit(9, cost=lambda value: 1 + 0 * f(value), on_error="skip"),),
    "monitor": lambda f: (monitor("G a", a=lambda value: f(value) >= 0, on_error="skip"),),
}


def fails(value: Any) -> Any:
    raise OSError(value)


def run_with(
    kind: type[Odd], make: Callable[[Function], tuple[Any, ...]] | None, policy: Any = "stop"
) -> tuple[MemorySource[int], BaseException | None, dict[str, Any]]:
    source = MemorySource(range(4))
    caught: list[BaseException] = []

    def raises(value: Any) -> Any:
        if value == 2:
            raise kind
        return value

    async def story() -> dict[str, Any]:
        async with no_leaks():
            if make is None:
                running = source.to(for_each(raises, on_error=policy)).start()
            else:
                running = source.pipe(*make(raises)).to(MemorySink()).start()
            try:
                await running.wait()
            except Odd as error:
                caught.append(error)
        report = running.report()
        assert repr(report)
        assert json.loads(as_json(report, report.exit_status))
        return running.statistics()

    numbers = run_virtual(story())
    assert source.unsettled == []
    return source, (caught[0] if caught else None), numbers


KINDS = [Frozen, WithoutNotes, WithOddNotes, Unprintable, Incomparable]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*STOPS, "sink"])
def test_an_odd_error_stops_the_pipeline_and_has_the_note_of_its_stage(
    name: str, kind: type[Odd]
) -> None:
    source, error, numbers = run_with(kind, STOPS.get(name))
    assert type(error) is kind
    assert any("in " in note and "stage" in note for note in error.__notes__)
    assert (numbers["unfinished"], 2 in source.acked) == (0, False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*GOES_ON, "sink"])
def test_an_odd_error_fails_its_event_where_the_policy_is_to_go_on(
    name: str, kind: type[Odd]
) -> None:
    source, error, numbers = run_with(kind, GOES_ON.get(name), "skip")
    assert (error, source.failed, source.returned) == (None, [], [])
    assert (numbers["failed"], numbers["errors"]) == (1, {kind.__name__: 1})
