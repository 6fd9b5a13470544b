from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Fixed, adaptive_flat_map, collect, for_each
from penstock.streams.base.errors import BuildError, HandlerCancelled
from penstock.streams.failures.policy import DeadLetter, route
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.testing import CountedSource, MemorySource, VirtualTimeLoop
from penstock.streams.testing.plugin import Run


def test_a_plain_function_is_called_with_each_value_in_order(run: Run) -> None:
    seen: list[int] = []
    report = run(CountedSource(range(1000)).to(for_each(seen.append)).run())
    assert seen == list(range(1000))
    assert report.statistics["finished"] == 1000


@pytest.mark.parametrize("kind", ["async", "plain that returns an awaitable"])
def test_calls_are_awaited_one_after_the_other(
    run: Run, virtual_loop: VirtualTimeLoop, kind: str
) -> None:
    seen: list[tuple[float, int]] = []

    async def slow(n: int) -> None:
        await asyncio.sleep(1)
        seen.append((virtual_loop.time(), n))

    function: Any = slow if kind == "async" else lambda n: slow(n)
    run(CountedSource(range(3)).to(for_each(function)).run())
    assert seen == [(1.0, 0), (2.0, 1), (3.0, 2)]


def test_an_async_function_is_asked_for_one_event_at_a_time(run: Run) -> None:
    source = CountedSource(range(100))

    async def slow(n: int) -> None:
        assert source.emitted <= n + 1
        await asyncio.sleep(1)

    run(source.to(for_each(slow)).run())
    assert source.emitted == 100


def test_a_plain_function_that_returns_awaitables_keeps_its_bound(run: Run) -> None:
    source = CountedSource(range(2000))
    done: list[int] = []

    async def slow(n: int) -> None:
        await asyncio.sleep(1)
        done.append(n)
        assert source.emitted <= len(done) + 256

    run(source.to(for_each(lambda n: slow(n))).run())
    assert done == list(range(2000))


def fail_at_one(n: int) -> None:
    if n == 1:
        raise ValueError("one")


async def fail_at_one_later(n: int) -> None:
    await asyncio.sleep(1)
    fail_at_one(n)


FAILING = pytest.mark.parametrize("function", [fail_at_one, fail_at_one_later])


@FAILING
def test_an_error_stops_the_pipeline_and_names_stage_and_event(run: Run, function: Any) -> None:
    running: list[Any] = []

    async def story() -> None:
        running.append(CountedSource(range(3)).to(for_each(function)).start())
        await running[0].wait()

    with pytest.raises(ValueError, match="one") as caught:
        run(story())
    assert "for_each" in caught.value.__notes__[0]
    numbers = running[0].statistics()
    assert numbers["failed"] == 1
    assert numbers["in"] == numbers["finished"] + numbers["failed"] + numbers["returned"]


@FAILING
def test_skip_and_route_go_on(run: Run, function: Any) -> None:
    letters: list[DeadLetter] = []
    sink = for_each(function, on_error=route(collect(letters)))
    report = run(CountedSource(range(3)).to(sink).run())
    assert (report.statistics["finished"], report.statistics["failed"]) == (2, 1)
    assert [letter.value for letter in letters] == [1]
    report = run(CountedSource(range(3)).to(for_each(function, on_error="skip")).run())
    assert (report.statistics["finished"], report.statistics["failed"]) == (2, 1)


@pytest.mark.parametrize("kind", ["async", "plain that returns an awaitable"])
def test_cancel_ends_the_call_under_way_and_gives_back_what_is_unfinished(
    run: Run, kind: str
) -> None:
    ended: list[str] = []

    async def stuck(n: int) -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    function: Any = stuck if kind == "async" else lambda n: stuck(n)

    async def story() -> dict[str, Any]:
        async with CountedSource(range(10)).to(for_each(function)).start() as running:
            await asyncio.sleep(5)
            assert running.statistics()["in_flight"] == 1
            running.cancel()
        return running.statistics()

    numbers = run(story())
    assert ended == ["cancelled"]
    assert numbers["returned"] == numbers["in"] > 0


def test_a_cancel_before_the_first_call_is_awaited_leaves_no_coroutine(run: Run) -> None:
    async def never(_: int) -> None:
        raise AssertionError("it must not begin")

    async def story() -> None:
        running = CountedSource([1]).to(for_each(lambda n: never(n))).start()
        # Right after the stream has begun, before the worker's first step.
        asyncio.get_running_loop().call_soon(running.cancel)
        await running.wait()

    run(story())


def test_a_call_that_cancels_itself_is_an_error_of_its_event(run: Run) -> None:
    async def odd(_: int) -> None:
        raise asyncio.CancelledError

    with pytest.raises(HandlerCancelled, match="odd"):
        run(CountedSource([1]).to(for_each(odd)).run())


def test_a_drain_waits_for_the_call_under_way(run: Run) -> None:
    done: list[int] = []

    async def slow(n: int) -> None:
        await asyncio.sleep(1)
        done.append(n)

    async def story() -> None:
        async with CountedSource(range(100)).to(for_each(slow)).start() as running:
            await asyncio.sleep(0.5)
            await running.drain(10)

    run(story())
    assert done == [0]


def test_an_error_of_the_stream_comes_after_what_was_accepted(run: Run) -> None:
    done: list[int] = []

    async def slow(n: int) -> None:
        await asyncio.sleep(1)
        done.append(n)

    def broken() -> Any:
        yield 1
        raise OSError("the source broke")

    with pytest.raises(OSError, match="the source broke"):
        run(Flowable.from_iterable(broken()).to(for_each(lambda n: slow(n))).run())
    assert done == [1]


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(BuildError, match="function of one value"):
        for_each(17)  # type: ignore[arg-type]


def test_a_call_of_a_function_in_place_of_the_function_is_named_as_that() -> None:
    async def save(value: int) -> None: ...

    with pytest.raises(BuildError, match=r"called already: give save itself"):
        for_each(save(1))  # type: ignore[arg-type]


def test_an_error_names_the_sinks_own_place_in_the_pipeline(run: Run) -> None:
    def fails(value: int) -> None:
        raise ValueError(value)

    letters: list[DeadLetter] = []
    sinks = for_each(fails, on_error="skip"), for_each(fails, on_error=route(collect(letters)))
    run(CountedSource([7]).to(*sinks).run())
    (letter,) = letters
    assert letter.stage == "stage 3 'for_each'"
    assert letter.error.__notes__ == ["in stage 3 'for_each', on the event 7"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("plain", [True, False])
def test_what_ends_the_program_says_where_it_was_raised(
    kind: type[BaseException], plain: bool
) -> None:
    async def later(value: int) -> None:
        leave(value)

    def leave(value: int) -> None:
        if value == 2:
            raise kind("enough")

    source = MemorySource(range(5))
    with pytest.raises(kind) as raised, asyncio.Runner() as runner:
        runner.run(source.to(for_each(leave if plain else later)).run())
    assert raised.value.__notes__ == ["in stage 2 'for_each', on the event 2"]
    assert 2 in source.returned


def test_a_function_that_cancels_its_own_task_ends_the_pipeline_and_says_where(run: Run) -> None:
    async def leave(value: int) -> None:
        if value == 2:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

    source = MemorySource(range(5))
    with pytest.raises(HandlerCancelled) as raised:
        run(source.to(for_each(leave)).run())
    assert raised.value.__notes__ == ["in stage 2 'for_each', on the event 2"]
    assert isinstance(raised.value.__cause__, asyncio.CancelledError)
    assert source.acked == [0, 1]
    assert source.returned[0] == 2
    assert source.unsettled == []


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_a_function_that_cancels_its_own_task_and_awaits_nothing_does_not_hang(
    run: Run, policy: Any
) -> None:
    async def leave(value: int) -> None:
        if value == 2:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

    source = MemorySource(range(9))
    paced = source.pipe(adaptive_flat_map(lambda value: asyncio.sleep(1, value), Fixed(1)))
    with pytest.raises(HandlerCancelled, match=r"^the task 'for_each' was cancelled, and not by"):
        run(paced.to(for_each(leave, on_error=policy)).run())
    assert (source.acked, source.unsettled) == ([0, 1, 2], [])
