from __future__ import annotations

import asyncio
import re
from itertools import pairwise
from typing import Any

import pytest

from penstock import Fixed, adaptive_flat_map, from_iterable, group_by, in_threads, spread
from penstock.streams.testing import (
    CountedSource,
    ManualPublisher,
    MemorySink,
    Stalled,
    VirtualTimeLoop,
    run_virtual,
)
from penstock.streams.testing.plugin import Run


def block(seconds: float) -> None:
    """Block the loop, as `time.sleep` does."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.advance(seconds)


def starve(seconds: float) -> None:
    """Let other processes have the processor for this long."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.starve(seconds)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


# A warning that names handler and stage.


async def careless(seconds: float) -> None:
    block(seconds)


async def careless_later(seconds: float) -> None:
    await asyncio.sleep(1)
    block(seconds)
    await asyncio.sleep(1)


@pytest.mark.parametrize("handler", [careless, careless_later, lambda n: careless_later(n)])
def test_an_async_handler_that_blocks_the_loop_is_named(
    run: Run, caplog: pytest.LogCaptureFixture, handler: Any
) -> None:
    run(CountedSource([0.3]).pipe(adaptive_flat_map(handler, Fixed(1))).to(MemorySink()).run())
    (warning,) = warnings(caplog)
    # At most the time between two checks is not seen.
    assert re.match(r"the loop was blocked for 0\.(2[5-9]|30) s", warning)
    assert f"'{handler.__name__}' (stage 2 'adaptive_flat_map') was at work" in warning
    assert "in_threads" in warning


@pytest.mark.parametrize("grouped", [False, True])
def test_a_plain_handler_that_blocks_the_loop_is_named(
    run: Run, caplog: pytest.LogCaptureFixture, grouped: bool
) -> None:
    operator = adaptive_flat_map(block)
    source = CountedSource([0.3])
    flow = (
        source.pipe(group_by(lambda n: n), spread(), operator) if grouped else source.pipe(operator)
    )
    run(flow.to(MemorySink()).run())
    (warning,) = warnings(caplog)
    assert f"'block' (stage {4 if grouped else 2} 'adaptive_flat_map') blocked the loop" in warning
    assert "for 0.30 s" in warning


@pytest.mark.parametrize("handler", [careless, block, lambda n: careless(n)])
def test_short_calls_are_not_a_reason_to_warn(
    run: Run, caplog: pytest.LogCaptureFixture, handler: Any
) -> None:
    # Two of them in a row, without a loop iteration between them, are below 0.1 s.
    values = [0.04] * 50
    run(CountedSource(values).pipe(adaptive_flat_map(handler, Fixed(1))).to(MemorySink()).run())
    assert warnings(caplog) == []


@pytest.mark.parametrize("handler", [careless, block])
def test_the_warning_comes_once_in_ten_seconds(
    run: Run, caplog: pytest.LogCaptureFixture, handler: Any
) -> None:
    # Twenty-one seconds.
    values = [0.3] * 70
    run(CountedSource(values).pipe(adaptive_flat_map(handler, Fixed(1))).to(MemorySink()).run())
    assert len(warnings(caplog)) == 3


async def starved(seconds: float) -> None:
    starve(seconds)


async def starved_later(seconds: float) -> None:
    await asyncio.sleep(1)
    starve(seconds)
    await asyncio.sleep(1)


@pytest.mark.parametrize("handler", [starved, starved_later, starve, lambda n: starved_later(n)])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_machine_that_is_busy_with_other_processes_blocks_nothing(
    run: Run, caplog: pytest.LogCaptureFixture, handler: Any, grouped: bool
) -> None:
    operator = adaptive_flat_map(handler, Fixed(1))
    stages: list[Any] = [group_by(lambda n: n), spread(), operator] if grouped else [operator]
    run(CountedSource([0.3] * 5).pipe(*stages).to(MemorySink()).run())
    assert warnings(caplog) == []


async def beside_threads(own: float) -> None:
    """0.3 s pass while other threads compute, and this one computes for `own` seconds."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.compute(own, others=0.3)
    loop.advance(0.3)


@pytest.mark.parametrize(("own", "said"), [(0.0, []), (0.1, []), (0.25, ["0.20"])])
def test_a_handler_has_blocked_the_loop_only_if_its_thread_or_no_other_has_computed(
    run: Run, caplog: pytest.LogCaptureFixture, own: float, said: list[str]
) -> None:
    run(
        CountedSource([own])
        .pipe(adaptive_flat_map(beside_threads, Fixed(1)))
        .to(MemorySink())
        .run()
    )
    assert [text.split("blocked for ")[1][:4] for text in warnings(caplog)] == said


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_block_on_a_busy_machine_is_reported_without_the_time_of_other_processes(
    run: Run, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    def plain(seconds: float) -> None:
        starve(1)
        block(seconds)

    async def later(seconds: float) -> None:
        plain(seconds)

    handler: Any = later if kind == "async" else plain
    run(CountedSource([0.3]).pipe(adaptive_flat_map(handler, Fixed(1))).to(MemorySink()).run())
    (warning,) = warnings(caplog)
    assert re.search(r"blocked (the loop )?for 0\.(2[5-9]|30) s", warning)


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_handler_of_the_library_s_own_is_not_named(
    run: Run, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    async def project(seconds: float) -> None:
        block(seconds)

    handler: Any = project if kind == "async" else lambda seconds: block(seconds)
    handler.__module__ = "penstock.command.kata.solutions.reference"
    run(CountedSource([0.3]).pipe(adaptive_flat_map(handler, Fixed(1))).to(MemorySink()).run())
    (warning,) = warnings(caplog)
    assert "stage 2 'adaptive_flat_map'" in warning
    assert f"'{handler.__name__}'" not in warning
    assert "in_threads" not in warning
    if kind == "async":
        assert "stage 2 'adaptive_flat_map' was at work, events in flight now: 0" in warning


def test_a_long_wait_before_the_block_does_not_hide_it(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(value: int) -> None:
        await asyncio.sleep(8)
        block(0.5)

    run(CountedSource([1]).pipe(adaptive_flat_map(handler, Fixed(1))).to(MemorySink()).run())
    assert len(warnings(caplog)) == 1


def test_a_pause_between_events_is_not_a_block(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        source = ManualPublisher[float]()
        handler = lambda _: asyncio.sleep(0)  # noqa: E731
        running = source.pipe(adaptive_flat_map(handler, Fixed(1))).to(MemorySink()).start()
        await asyncio.sleep(1)
        for _ in range(3):
            source.send(0)
            await asyncio.sleep(5)
        source.complete()
        await running.wait()

    run(story())
    assert warnings(caplog) == []


def test_work_in_threads_blocks_nothing(
    virtual_loop: VirtualTimeLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        with virtual_loop.hold():
            operator = adaptive_flat_map(in_threads(2)(abs), Fixed(2))
            await CountedSource([-1, -2]).pipe(operator).to(MemorySink()).run()

    virtual_loop.run_until_complete(story())
    assert warnings(caplog) == []


def test_a_deadlock_in_virtual_time_is_still_noticed() -> None:
    async def hangs(value: int) -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stalled) as stalled:
        run_virtual(
            CountedSource([1]).pipe(adaptive_flat_map(hangs, Fixed(1))).to(MemorySink()).run(),
            stall=0.01,
        )
    assert stalled.value.time < 60
    assert any("adaptive_flat_map hangs" in line for line in stalled.value.waiting)


def test_without_a_loop_there_is_nothing_to_block() -> None:
    seen: list[int] = []
    from_iterable([1, 2]).pipe(adaptive_flat_map(lambda n: n)).subscribe(seen.append)
    assert seen == [1, 2]


# Slow plain handlers and the loop.


@pytest.mark.parametrize("kind", ["plain", "grouped", "mixed", "async", "timed"])
def test_a_slow_handler_that_never_waits_yields_to_the_loop(run: Run, kind: str) -> None:
    turns: list[float] = []

    def handler(value: int) -> Any:
        # Quick at first, so that the chunks have grown when it becomes slow.
        if value > 600:
            block(0.02)
        return asyncio.sleep(0) if kind == "mixed" and value % 50 == 0 else value

    async def never_waits(value: int) -> Any:
        return handler(value)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        source = CountedSource(range(1000))
        chosen: Any = never_waits if kind in ("async", "timed") else handler
        timeout = 9 if kind == "timed" else None
        # Each of the asynchronous calls in flight has a step before the next loop iteration.
        limit = Fixed(1 if chosen is never_waits else 4)
        operator = adaptive_flat_map(chosen, limit, timeout=timeout)
        flow = (
            source.pipe(group_by(lambda n: n % 7), spread(), operator)
            if kind == "grouped"
            else source.pipe(operator)
        )
        async with flow.to(MemorySink()).start() as running:
            while running.statistics()["state"] == "running":
                turns.append(loop.time())
                await asyncio.sleep(0)
            assert running.statistics()["finished"] == 1000

    run(story())
    assert max(after - before for before, after in pairwise(turns)) < 0.05


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("what", ["pause", "cancel", "drain", "retune"])
def test_control_gets_through_to_a_slow_plain_handler(run: Run, what: str, grouped: bool) -> None:
    done: list[int] = []

    def handler(value: int) -> None:
        block(0.05)
        done.append(value)

    async def story() -> None:
        source = CountedSource(range(2000))
        operator = adaptive_flat_map(handler)
        flow = (
            source.pipe(group_by(lambda n: n % 7, 50), spread(), operator)
            if grouped
            else source.pipe(operator)
        )
        running = flow.to(MemorySink()).start()
        await asyncio.sleep(1)
        if what == "retune":
            running.retune(Fixed(3))
            assert running.statistics()["limit"] == 3
        elif what == "pause":
            running.pause()
            await asyncio.sleep(60)
            assert len(done) < 100
            running.resume()
            await asyncio.sleep(0)
        elif what == "drain":
            await running.drain()
            assert len(done) < 100
            assert running.statistics()["returned"] == 0
        running.cancel()
        await running.wait()
        before = len(done)
        await asyncio.sleep(60)
        assert len(done) == before < 1000
        assert running.statistics()["unfinished"] == 0

    run(story())
