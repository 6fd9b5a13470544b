"""What is derived from a built-in type is as good as that type, compiled too: Cython's own check
refuses it where a parameter is declared by the built-in type."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from enum import IntEnum, StrEnum
from typing import Any

import pytest

from penstock import (
    Context,
    Event,
    Flowable,
    Store,
    adaptive_flat_map,
    agg,
    batch,
    chunk,
    collect,
    distinct_within,
    event_time,
    from_async_iterable,
    from_iterable,
    group_by,
    ops,
    retry,
    sliding,
    spread,
    stateful,
    tumbling,
    window,
)
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.stages.own import DemandStage, SourceStage, Stage
from penstock.streams.testing.plugin import Run


class Number(int):
    pass


class Limits(IntEnum):
    FEW = 2
    MANY = 3


class Cause(StrEnum):
    ODD = "odd"


class DropsOdd(Stage[int, int]):
    def on_events(self, events: list[Event[int]], /) -> None:
        for event in events:
            if event.value % 2:
                event.drop(Cause.ODD)
                self.upstream.request(Number(1))
            else:
                self.downstream.on_events([event])

    def request(self, n: int, /) -> None:
        super().request(Number(n))


def drops_odd(source: Flowable[int]) -> Flowable[int]:
    def attach(downstream: Any, run: Any) -> None:
        source.attach(DropsOdd(downstream), run)

    return Flowable(attach, StageInfo("drops_odd"), source)


class OneByOne(DemandStage):
    """Asks for one event after the other, by a truth."""

    def take(self, events: list[Event[Any]], /) -> None:
        for event in events:
            self.send(event)

    def step(self) -> bool:
        if self.demand and not self.asked and not self.state:
            self.ask(self.demand > 0)
            return True
        return False

    def _end_if_idle(self) -> None:
        self.complete()


def one_by_one(source: Flowable[int]) -> Flowable[int]:
    info = StageInfo("one_by_one")

    def attach(downstream: Any, run: Any) -> None:
        source.attach(OneByOne(downstream, run, info), run)

    return Flowable(attach, info, source)


class Numbers(SourceStage[int]):
    def produce(self) -> None:
        while self.demand:
            if self.received == 9:
                self.complete()
                return
            self.emit(self.received, Number(0), self.received)


def numbers() -> Flowable[int]:
    info = StageInfo("numbers")
    return Flowable(lambda down, run: Numbers(down, run, info).start(), info)


OPERATORS: dict[str, tuple[Callable[[], Any], ...]] = {
    "a source": (),
    "groups": (lambda: group_by(lambda n: n), spread),
    "calls": (lambda: adaptive_flat_map(itself),),
    "batches": (lambda: batch(lambda values: values),),
    "lists": (lambda: chunk(1), lambda: ops.flat_map(itself)),
    "what is new": (lambda: distinct_within(60, by=itself),),
}


def itself(value: Any) -> Any:
    return value


@pytest.mark.parametrize("above", OPERATORS)
def test_a_stage_of_the_user_s_own_may_request_and_drop_by_derived_types(
    above: str, run: Run
) -> None:
    into: list[int] = []
    stages = [make() for make in OPERATORS[above]]
    report = run(numbers().pipe(*stages, drops_odd, one_by_one).to(collect(into)).run())
    assert into == [0, 2, 4, 6, 8]
    assert report.statistics["dropped"] == {"odd": 4}


class Changing:
    """A limiter with members of an enum as its limits."""

    def __init__(self) -> None:
        self.limit = Limits.FEW

    def on_depart(self, now: float, arrived: float, in_flight: int, outcome: Any) -> None:
        self.limit = Limits.MANY if self.limit is Limits.FEW else Limits.FEW

    def on_arrive(self) -> None: ...
    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Any
    ) -> None:
        self.limit = Limits.MANY if self.limit is Limits.FEW else Limits.FEW


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_limit_may_be_the_member_of_an_enum(
    run: Run, ordered: bool, grouped: bool, is_async: bool
) -> None:
    tried: list[int] = []

    def twice(value: int) -> int:
        tried.append(value)
        if tried.count(value) == 1 and value % 3 == 0:
            raise ValueError(value)
        return value

    async def twice_later(value: int) -> int:
        await asyncio.sleep(value % 4)
        return twice(value)

    async def story() -> None:
        stage = adaptive_flat_map(
            twice_later if is_async else twice, Changing(), ordered=ordered, on_error=retry(2)
        )
        groups = (group_by(lambda n: n % 3), spread()) if grouped else ()
        running = from_iterable(range(20)).pipe(*groups, stage).to(collect(into)).start()
        await running.wait()

    into: list[int] = []
    run(story())
    assert sorted(into) == list(range(20))


@pytest.mark.parametrize("clock", ["event", "wall"])
def test_the_name_of_a_timer_may_be_the_member_of_an_enum(run: Run, clock: Any) -> None:
    def step(state: int, value: int, ctx: Context) -> Any:
        ctx.timer(Cause.ODD, after=Number(0), clock=clock)
        return state, []

    def on_timer(state: int, name: str, ctx: Context) -> Any:
        return state, [name]

    async def numbers_with_time() -> AsyncIterator[int]:
        for n in (1, 2, 3):
            yield n
            await asyncio.sleep(1)

    async def story() -> list[str]:
        into: list[str] = []
        counted = stateful(step, itself, start=0, on_timer=on_timer, ttl=Number(99))
        source = from_async_iterable(numbers_with_time).pipe(event_time(itself, Number(1)), counted)
        await source.to(collect(into)).run()
        return into

    assert run(story()) == ["odd"] * 3


def test_windows_may_be_given_by_derived_numbers(run: Run) -> None:
    async def story() -> list[Any]:
        into: list[Any] = []
        counted = window(
            sliding(Number(4), every=Number(2)),
            agg.count(),
            early=Number(1),
            keep=Number(1),
            store=Store.memory(cache=Number(5)),
        )
        stream = from_iterable([Number(n) for n in range(9)]).pipe(event_time(itself, Number(1)))
        await stream.pipe(counted).to(collect(into)).run()
        return [(one.start, one.value) for one in into]

    assert run(story()) == [(-2, 2), (0, 4), (2, 4), (4, 4), (6, 3), (8, 1)]


class Several(list[Any]):
    pass


class Fields(dict[str, Any]):
    pass


def test_values_results_and_states_may_be_of_derived_types(run: Run) -> None:
    async def story() -> list[Any]:
        into: list[Any] = []
        stages = (
            ops.map(lambda n: Fields(n=Number(n), k=Cause.ODD)),
            distinct_within(Number(60), by=lambda fields: Several([fields["n"]])[0]),
            group_by("k"),
            spread(),
            batch(lambda values: Several(values), Number(2)),
            stateful(lambda s, v: (Several([*s, v["n"]]), Several([v])), by="k", start=Several()),
            event_time("n", Number(1)),
            window(
                tumbling(Number(3)),
                {"all": agg.count()},
                by="k",
            ),
        )
        await from_iterable(Several(range(6))).pipe(*stages).to(collect(into)).run()
        return [one.value for one in into]

    assert run(story()) == [{"all": 3}, {"all": 3}]
