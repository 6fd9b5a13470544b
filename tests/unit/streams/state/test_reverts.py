"""Results of timers, windows and rows without a partner, reverted while a service is away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import (
    Fixed,
    Flowable,
    Store,
    adaptive_flat_map,
    agg,
    collect,
    event_time,
    from_iterable,
    inbox,
    join,
    stateful,
    tumbling,
    window,
)
from penstock.streams.state.context import Context
from penstock.streams.testing import run_virtual


class Service:
    """Refuses all for so many seconds after it was first called, and takes a moment to do so."""

    def __init__(self, away: float) -> None:
        self.away = away
        self.calls: list[float] = []

    async def send(self, result: Any) -> Any:
        now = asyncio.get_running_loop().time()
        self.calls.append(now)
        await asyncio.sleep(0.0001)
        if now < self.calls[0] + self.away:
            raise ConnectionError("away")
        return result


def timers(stream: Flowable[Any], store: Store) -> Flowable[Any]:
    def step(state: Any, event: Any, ctx: Context) -> Any:
        ctx.timer("due", after=2)
        return event, ()

    return stream.pipe(
        stateful(step, "key", on_timer=lambda state, _, __: (None, [state]), store=store)
    )


def event_timers(stream: Flowable[Any], store: Store) -> Flowable[Any]:
    def step(state: Any, event: Any, ctx: Context) -> Any:
        ctx.timer("due", after=2, clock="event")
        return event, ()

    def on_timer(state: Any, name: str, ctx: Context) -> Any:
        return None, [state]

    stage = stateful(step, "key", on_timer=on_timer, store=store)
    return stream.pipe(event_time("at", idle=1), stage)


def windows(stream: Flowable[Any], store: Store) -> Flowable[Any]:
    timed = stream.pipe(event_time("at", idle=1))
    return timed.pipe(window(tumbling(10), agg.count(), by="key", store=store))


def single_rows(stream: Flowable[Any], store: Store) -> Flowable[Any]:
    others = from_iterable(list[Any]()).pipe(event_time("at"))
    joined = join(others, "key", 2, how="left", store=store)
    return stream.pipe(event_time("at", idle=1), joined)


@pytest.mark.parametrize("results", [timers, event_timers, windows, single_rows])
def test_results_that_are_reverted_are_sent_again_once_per_second(results: Any) -> None:
    service, found = Service(away=5.5), list[Any]()

    async def main() -> None:
        box = inbox(10)
        stream = results(box, Store.memory())
        send = adaptive_flat_map(service.send, on_error="revert")
        running = stream.pipe(send).to(collect(found)).start()
        await box.put({"key": "a", "at": 100.0})
        await asyncio.sleep(30)
        assert len(found) == 1
        await running.drain()

    run_virtual(main())
    after_first = [round(at - service.calls[0], 2) for at in service.calls]
    assert after_first == [0, 1, 2, 3, 4, 5, 6]


def test_the_end_of_the_input_waits_for_windows_that_are_sent_again() -> None:
    service, found = Service(away=0.5), list[Any]()

    async def main() -> None:
        events = from_iterable([{"key": "a", "at": 100.0}, {"key": "b", "at": 120.0}])
        stream = windows(events, Store.memory())
        send = adaptive_flat_map(service.send, Fixed(1), on_error="revert")
        await stream.pipe(send).to(collect(found)).run()

    run_virtual(main())
    assert len(found) == 2
