"""`stateful` in event time: what `ctx` says, and when timers of the watermark fire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from math import inf
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Fixed,
    Pipeline,
    Running,
    Store,
    adaptive_flat_map,
    agg,
    collect,
    event_time,
    for_each,
    from_iterable,
    inbox,
    ops,
    read_jsonl,
    run,
    stateful,
    tumbling,
    window,
)
from penstock.streams.base.errors import WrongType
from penstock.streams.testing import run_virtual
from tests.helpers.until import until

Put = Callable[..., Coroutine[Any, Any, None]]


def alarm(state: Any, event: Any, ctx: Any) -> Any:
    """Sets the timer that an event asks for; keeps the times of all events."""
    for name, at in event.get("timers", {}).items():
        ctx.timer(name, at=at, clock="event")
    for name in event.get("cancels", ()):
        ctx.cancel(name)
    return [*(state or ()), event["at"]], ()


def fired(state: Any, name: str, ctx: Any) -> Any:
    return state, [(ctx.key, name, ctx.time, len(state or ()))]


def played(
    play: Callable[[Put, Running], Coroutine[Any, Any, None]],
    *before: Any,
    step: Any = alarm,
    on_timer: Any = fired,
    idle: float | None = 30.0,
    lateness: float = 0.0,
    **options: Any,
) -> list[tuple[Any, ...]]:
    """The results, each behind the second in which it came, while events are put in as `play`
    says."""
    found: list[tuple[Any, ...]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        box = inbox(1000)
        stages = event_time("at", lateness, idle, None), *before
        stage: Any = stateful(step, by="key", on_timer=on_timer, **options)
        running = (
            box.pipe(*stages, stage)
            .to(for_each(lambda one: found.append((round(loop.time() - began, 3), *one))))
            .start()
        )

        async def put(at: float, key: str = "a", **fields: Any) -> None:
            await box.put({"at": at, "key": key, **fields})

        await play(put, running)
        running.cancel()

    run_virtual(main())
    return found


def test_a_timer_fires_when_the_watermark_reaches_it() -> None:
    async def play(put: Put, running: Running) -> None:
        await put(100, timers={"due": 110})
        await asyncio.sleep(1)
        await put(109)
        await asyncio.sleep(1)
        await put(110)
        await asyncio.sleep(1)

    assert played(play) == [(2.0, "a", "due", 110, 3)]


def test_silence_makes_it_fire() -> None:
    async def play(put: Put, running: Running) -> None:
        await put(100, timers={"due": 140})
        await asyncio.sleep(100)

    assert played(play) == [(40.0, "a", "due", 140, 1)]
    assert played(play, lateness=7) == [(47.0, "a", "due", 140, 1)]
    assert played(play, idle=None) == []


def test_it_waits_for_an_event_in_a_slow_handler() -> None:
    async def work(value: Any) -> Any:
        await asyncio.sleep(value.get("takes", 0))
        return value

    async def play(put: Put, running: Running) -> None:
        await put(100, timers={"due": 110})
        await put(105, takes=7)
        await put(125)
        await asyncio.sleep(20)

    assert played(play, adaptive_flat_map(work, Fixed(4))) == [(7.0, "a", "due", 110, 3)]


def test_timers_of_all_keys_fire_in_the_order_of_time() -> None:
    async def play(put: Put, running: Running) -> None:
        for key in "abcd":
            times = [100 + ord(key) % 4 + 5 * n for n in range(3)]
            await put(100, key=key, timers={f"{time}": time for time in times})
        await put(200)
        await asyncio.sleep(1)

    due = [time for _, _, _, time, _ in played(play)]
    assert len(due) == 12
    assert due == sorted(due)


def test_one_set_in_the_past_of_the_watermark_fires_after_the_step() -> None:
    async def play(put: Put, running: Running) -> None:
        await put(100)
        await asyncio.sleep(1)
        await put(90, timers={"due": 95})
        await asyncio.sleep(1)

    assert played(play) == [(1.0, "a", "due", 95, 2)]


def test_one_that_is_set_again_or_cancelled_does_not_fire() -> None:
    async def play(put: Put, running: Running) -> None:
        await put(100, timers={"moved": 110, "gone": 110})
        await put(105, timers={"moved": 115}, cancels=["gone"])
        await put(112)
        await asyncio.sleep(1)
        await put(120)
        await asyncio.sleep(1)

    assert played(play) == [(1.0, "a", "moved", 115, 4)]


def test_a_name_is_that_of_one_timer_by_either_clock() -> None:
    def step(state: Any, event: Any, ctx: Any) -> Any:
        ctx.timer("due", after=5, clock=event["clock"])
        return event["clock"], ()

    def late(state: Any, name: str, ctx: Any) -> Any:
        return state, [(state,)]

    async def play(put: Put, running: Running) -> None:
        await put(100, clock="event")
        await put(101, clock="wall")
        await put(200, key="b", clock="wall")
        await put(201, key="b", clock="event")
        await asyncio.sleep(10)
        await put(300, key="c", clock="event")
        await asyncio.sleep(1)

    assert played(play, step=step, on_timer=late, idle=None) == [(5.0, "wall"), (10.0, "event")]


def test_after_counts_from_the_event_or_the_timer() -> None:
    def step(state: Any, event: Any, ctx: Any) -> Any:
        if event.get("first"):
            ctx.timer("one", after=10, clock="event")
        return ctx.time, ()

    def next_(state: Any, name: str, ctx: Any) -> Any:
        if name == "one":
            ctx.timer("two", after=7, clock="event")
        return state, [(name, ctx.time)]

    async def play(put: Put, running: Running) -> None:
        await put(100)
        await put(95, first=True)
        await put(200)
        await asyncio.sleep(1)

    found = played(play, step=step, on_timer=next_)
    assert found == [(0.0, "one", 105.0), (0.0, "two", 112.0)]


def test_time_is_that_of_the_event_also_if_it_is_late_and_the_watermark_is_what_has_come() -> None:
    def step(state: Any, event: Any, ctx: Any) -> Any:
        return None, [(ctx.time, ctx.watermark)]

    async def play(put: Put, running: Running) -> None:
        for at in (100, 110, 90):
            await put(at)
            await asyncio.sleep(1)

    seen = played(play, step=step, lateness=5)
    assert seen == [(0.0, 100.0, -inf), (1.0, 110.0, 95.0), (2.0, 90.0, 105.0)]


def test_an_event_made_of_others_has_the_least_of_their_times() -> None:
    def step(state: Any, events: Any, ctx: Any) -> Any:
        return None, [ctx.time]

    events = [{"at": 9}, {"at": 7}, {"at": 8}]
    found: list[float] = []
    stages: Any = [event_time("at"), ops.buffer_with_count(3), stateful(step, by=len)]
    run(from_iterable(events).pipe(*stages).to(collect(found)))
    assert found == [7.0]


def test_without_event_time_in_front_both_are_refused_by_name() -> None:
    def timer(state: Any, event: Any, ctx: Any) -> Any:
        ctx.timer("due", at=5, clock="event")

    def watermark(state: Any, event: Any, ctx: Any) -> Any:
        return ctx.watermark, ()

    for step, what in ((timer, r'ctx.timer\(\'due\', clock="event"\)'), (watermark, "ctx.water")):
        stage: Any = stateful(step, by="key", on_timer=fired)
        with pytest.raises(WrongType, match=f"{what}.* needs the times of events: put event_time"):
            run(from_iterable([{"key": 1}]).pipe(stage).to(collect([])))


@pytest.mark.parametrize(
    "options",
    [{}, {"at": 1, "after": 1}, {"at": inf}, {"after": -1}, {"at": "soon"}, {"after": True}],
)
def test_a_timer_without_one_finite_time_is_refused(options: Any) -> None:
    def step(state: Any, event: Any, ctx: Any) -> Any:
        ctx.timer("due", clock="event", **options)

    stage: Any = stateful(step, by="key", on_timer=fired)
    with pytest.raises(WrongType, match="give one of the two"):
        run(from_iterable([{"key": 1, "at": 1}]).pipe(event_time("at"), stage).to(collect([])))


def test_another_clock_is_refused() -> None:
    def step(state: Any, event: Any, ctx: Any) -> Any:
        ctx.timer("due", at=1, clock="sun")

    stage: Any = stateful(step, by="key", on_timer=fired)
    with pytest.raises(WrongType, match='"wall" or "event" is needed'):
        run(from_iterable([{"key": 1}]).pipe(stage).to(collect([])))


def test_the_end_of_the_input_makes_all_fire_and_one_that_sets_itself_again_once() -> None:
    def again(state: Any, name: str, ctx: Any) -> Any:
        if name == "tick":
            ctx.timer("tick", after=10, clock="event")
            ctx.timer("tock", after=1, clock="event")
        return state, [(name, ctx.time)]

    events = [{"at": 100, "key": 1, "timers": {"tick": 110}}, {"at": 125, "key": 1}]
    found: list[Any] = []
    stage: Any = stateful(alarm, by="key", on_timer=again)
    run(from_iterable(events).pipe(event_time("at"), stage).to(collect(found)))
    # Up to 125 by the events.
    assert found[:4] == [("tick", 110), ("tock", 111), ("tick", 120), ("tock", 121)]
    assert found[4:] == [("tick", 130), ("tock", 131)]


def test_a_drain_leaves_timers_to_the_next_run_with_the_watermark(tmp_path: Path) -> None:
    path, store = tmp_path / "in.jsonl", Store(tmp_path / "state")
    lines = [{"at": 100, "key": "a", "timers": {"due": 110, "later": 150}}, {"at": 105, "key": "a"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found: list[Any] = []

    def pipeline(follow: bool) -> Pipeline:
        stage: Any = stateful(alarm, by="key", on_timer=fired, store=store)
        source = read_jsonl(path, position=store, follow=follow)
        return source.pipe(event_time("at", idle=None), stage).to(collect(found))

    async def drained(n: int) -> None:
        running = pipeline(follow=True).start()
        await until(lambda: sum(running.statistics()["dropped"].values()) >= n)
        await running.drain()

    asyncio.run(drained(2))
    asyncio.run(drained(0))
    assert found == []
    with path.open("a") as file:
        file.write(json.dumps({"at": 111, "key": "b"}) + "\n")
    asyncio.run(drained(1))
    assert found == [("a", "due", 110.0, 2)]
    run(pipeline(follow=False))
    assert found[1:] == [("a", "later", 150.0, 2)]


def test_a_deleted_state_has_no_timers() -> None:
    def step(state: Any, event: Any, ctx: Any) -> Any:
        ctx.timer("due", at=110, clock="event")
        return (None if event.get("goes") else 1), ()

    async def play(put: Put, running: Running) -> None:
        await put(100, key="a")
        await put(100, key="b")
        await put(101, key="a", goes=True)
        await put(120, key="c", goes=True)
        await asyncio.sleep(1)

    found = played(play, step=step, on_timer=lambda n, name, ctx: (n, [(ctx.key,)]))
    assert found == [(0.0, "b")]


def test_one_whose_function_fails_is_over() -> None:
    calls: list[str] = []

    def broken(state: Any, name: str, ctx: Any) -> Any:
        calls.append(name)
        raise ValueError("no")

    async def play(put: Put, running: Running) -> None:
        await put(100, timers={"due": 110})
        await put(120)
        await put(130)
        await asyncio.sleep(1)

    assert played(play, on_timer=broken, on_error="skip") == []
    assert calls == ["due"]


def test_an_event_on_its_way_to_a_window_behind_is_not_late_for_it() -> None:
    found: list[Any] = []

    async def work(event: Any) -> Any:
        await asyncio.sleep(event["takes"])
        return event

    def step(state: Any, event: Any, ctx: Any) -> Any:
        return ctx.time, [event]

    events = [{"at": 1, "key": 1, "takes": 5}, {"at": 25, "key": 1, "takes": 0}]

    async def main() -> None:
        box = inbox(10)
        stages: Any = [
            event_time("at", max_ahead=None, idle=None),
            stateful(step, by="key", on_timer=fired),
            adaptive_flat_map(work, Fixed(2)),
            window(tumbling(10), agg.count()),
        ]
        running = box.pipe(*stages).to(collect(found)).start()
        for event in events:
            await box.put(event)
        await asyncio.sleep(10)
        running.cancel()

    run_virtual(main())
    assert [(one.start, one.value) for one in found] == [(0.0, 1)]


def test_the_watermark_is_known_in_the_next_run(tmp_path: Path) -> None:
    path, store = tmp_path / "in.jsonl", Store(tmp_path / "state")
    found: list[Any] = []

    def step(state: Any, event: Any, ctx: Any) -> Any:
        return 1, [(ctx.time, ctx.watermark)]

    async def drained(at: float) -> None:
        with path.open("a") as file:
            file.write(json.dumps({"at": at, "key": "a"}) + "\n")
        stage: Any = stateful(step, by="key", store=store)
        source = read_jsonl(path, position=store, follow=True)
        running = source.pipe(event_time("at", 5, idle=None), stage).to(collect(found)).start()
        before = len(found)
        await until(lambda: len(found) > before)
        await running.drain()

    for at in (100, 90):
        asyncio.run(drained(at))
    assert found == [(100, -inf), (90, 95)]
