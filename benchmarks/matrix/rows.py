"""The rows: which handler, which limit, which options, how many keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, cast

from benchmarks.workload import CLIENTS, LIMIT, Event, Result, project, project_at_once
from penstock import Fixed, Flowable, Shared, adaptive_flat_map, retry
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.stages.own import Stage

__all__ = ["HANDLERS", "ROWS", "Handler", "Row", "own_stage"]

Operator = Callable[[Flowable[Any]], Flowable[Any]]


@dataclass(frozen=True)
class Handler:
    """A handler of ours, what the workers by hand await for it, and how many events take 0.2 s."""

    ours: Callable[[Event], Any]
    by_hand: Callable[[Event], Awaitable[Result]]
    events: int


async def yielding(event: Event) -> Result:
    await asyncio.sleep(0)
    return project(event)


async def waiting(event: Event) -> Result:
    await asyncio.sleep(0.001)
    return project(event)


async def results(event: Event) -> AsyncIterator[Result]:
    await asyncio.sleep(0)
    yield project(event)


async def consumed(event: Event) -> Result:
    """The iterator by hand."""
    last: Result = {}
    async for result in results(event):
        last = result
    return last


async def waiting_twice(event: Event) -> Result:
    """Two stages by hand."""
    return await yielding(await yielding(event))


HANDLERS: Mapping[str, Handler] = {
    "plain": Handler(project, project_at_once, 40_000),
    "no wait": Handler(project_at_once, project_at_once, 40_000),
    "sleep(0)": Handler(yielding, yielding, 30_000),
    "sleep(1 ms)": Handler(waiting, waiting, 12_000),
    "iterator": Handler(results, consumed, 20_000),
}


class _Own(Stage[Any, Any]):
    """A stage that does nothing, and that is not the library's."""

    def on_events(self, events: list[Any], /) -> None:
        self.downstream.on_events(events)


def own_stage(source: Flowable[Any]) -> Flowable[Any]:
    """`source` behind a stage of a user's own."""
    info = StageInfo("own")
    return source.then(lambda downstream, run, _: cast(Any, _Own(downstream)), info)


@dataclass(frozen=True)
class Row:
    """A pipeline. `at_once` is the number for the workers by hand and the `Fixed` row; None for
    the number at which the default settles.
    """

    handler: str
    limit: str = "Fixed(64)"
    option: str = ""
    keys: int = len(CLIENTS)
    at_once: int | None = LIMIT
    stages: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def name(self) -> str:
        keys = f"{self.keys:,} keys" if self.keys != len(CLIENTS) else ""
        stages = f"{self.stages} stages" if self.stages > 1 else ""
        return ", ".join(filter(None, (self.handler, self.limit, self.option, keys, stages)))

    def fixed(self, at_once: int) -> Row:
        """The row with which it is compared."""
        return replace(self, limit=f"Fixed({at_once})", option="", settings={}, at_once=at_once)

    def working(self) -> list[Operator]:
        """The working stages of a new pipeline."""
        limit: Any = {"default": None, "(64, 1000)": (64, 1000)}.get(self.limit)
        if self.limit.startswith("Fixed"):
            limit = Fixed(self.at_once or LIMIT)
        if self.option == "shared":
            limit = Shared(limit)
        handler = HANDLERS[self.handler].ours
        return [adaptive_flat_map(handler, limit, **self.settings) for _ in range(self.stages)]

    def by_hand(self) -> Callable[[Event], Awaitable[Result]]:
        """The function that the workers by hand await."""
        return waiting_twice if self.stages > 1 else HANDLERS[self.handler].by_hand


OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "timeout": {"timeout": 5.0},
    "ordered": {"ordered": True},
    "retry": {"on_error": retry(3)},
    "shared": {},
}


def _all() -> tuple[Row, ...]:
    plain = [name for name in HANDLERS if name != "iterator"]
    rows = [Row(name) for name in plain]
    for name, limit in product(plain, ("default", "(64, 1000)")):
        # A default that starts at 64 stays there or above; one that starts at 1 finds its own.
        at_once = None if limit == "default" else LIMIT
        rows.append(Row(name, limit, at_once=at_once))
        rows += [
            Row(name, limit, option, at_once=at_once, settings=settings)
            for option, settings in OPTIONS.items()
            if not (name == "plain" and option == "timeout")  # refused: nothing interrupts it
        ]
    rows += [Row("iterator"), Row("iterator", "default", at_once=None)]
    rows += [Row("sleep(0)", keys=keys) for keys in (1, 4, 1_000, 30_000)]
    rows += [Row("sleep(0)", f"Fixed({few})", at_once=few) for few in (1, 2)]
    rows.append(Row("sleep(0)", stages=2))
    # What a stage of a user's own costs, in front of all others: next to the same without.
    rows.append(Row("plain", option="own stage"))
    # What a live page costs: next to the same without.
    rows += [Row(name, option="recorded") for name in plain]
    return tuple(rows)


ROWS = _all()
