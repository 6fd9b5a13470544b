"""What a handler may rely on of the task that it runs in, on both loops."""

from __future__ import annotations

import asyncio
import gc
import inspect
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from contextvars import ContextVar
from functools import partial
from itertools import repeat
from typing import Any, NoReturn, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from aiohttp import ClientSession, ClientTimeout, web

from penstock import (
    Backoff,
    Fixed,
    adaptive_flat_map,
    collect,
    from_iterable,
    group_by,
    retry,
    spread,
)
from penstock.streams.base.errors import HandlerCancelled
from penstock.streams.running.report import Report

T = TypeVar("T")
Go = Callable[..., Any]

NUMBERS = list(range(20))
LATE = 0.005
"""Seconds after which calls in these tests are interrupted, that would take FOREVER."""
FOREVER = 60


@pytest.fixture(params=["asyncio", "uvloop"])
def go(request: pytest.FixtureRequest) -> Go:
    """Run a coroutine in a new loop of either kind."""

    def go(story: Coroutine[Any, Any, T], *, debug: bool = False) -> T:
        factory = None
        if request.param == "uvloop":
            factory = pytest.importorskip("uvloop").new_event_loop
        with asyncio.Runner(debug=debug, loop_factory=factory) as runner:
            return runner.run(asyncio.wait_for(story, FOREVER / 2))

    return go


async def results(
    handler: Callable[[int], Any], numbers: Iterable[int] = NUMBERS, limit: int = 4, **options: Any
) -> list[Any]:
    """The results of these calls, sorted."""
    out: list[Any] = []
    stage = adaptive_flat_map(handler, Fixed(limit), **options)
    await from_iterable(numbers).pipe(stage).to(collect(out)).run()
    return sorted(out)


def current() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def only_yields() -> NoReturn:
    for _ in repeat(None):
        await asyncio.sleep(0)
    raise AssertionError


# The task itself.


def test_the_task_is_one_of_the_loop_named_after_the_handler_and_the_same_after_each_wait(
    go: Go,
) -> None:
    names: set[str] = set()

    async def look(number: int) -> int:
        task = current()
        assert isinstance(task, asyncio.Task)
        assert task in asyncio.all_tasks()
        assert not task.done()
        for seconds in (0, 0.001, 0):
            await asyncio.sleep(seconds)
            assert current() is task
        names.add(task.get_name())
        return number

    assert go(results(look)) == NUMBERS
    assert {name.split(" look")[0] for name in names} == {"penstock adaptive_flat_map"}


def test_calls_that_run_together_have_a_task_each(go: Go) -> None:
    running: set[Any] = set()

    async def look(number: int) -> int:
        task = current()
        assert task not in running
        running.add(task)
        together = len(running)
        for seconds in (0, 0.001, 0):
            await asyncio.sleep(seconds)
        running.remove(task)
        return together

    assert go(results(look))[-1] == 4


def test_no_task_is_the_current_one_between_two_calls(go: Go) -> None:
    seen: list[Any] = []

    async def look(number: int) -> int:
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: seen.append(asyncio.current_task()))
        await asyncio.sleep(0.001 * (number % 2))
        return number

    assert go(results(look)) == NUMBERS
    assert seen == [None] * len(NUMBERS)


def test_the_stack_of_the_task_shows_the_handler(go: Go) -> None:
    found: dict[str, Any] = {}

    async def waiting(number: int) -> None:
        task = current()

        def look() -> None:
            coroutine: Any = task.get_coro()
            found["state"] = inspect.getcoroutinestate(coroutine)
            names: list[str] = []
            found["names"] = names
            while coroutine is not None:
                names.append(getattr(coroutine, "__name__", ""))
                coroutine = getattr(coroutine, "cr_await", None)

        asyncio.get_running_loop().call_later(0.002, look)
        await asyncio.sleep(0.01)

    go(results(waiting, [0]))
    assert found["state"] == "CORO_SUSPENDED"
    assert "waiting" in found["names"]


# Time limits and groups of tasks.


@pytest.mark.parametrize("first", [0, 0.001])
def test_a_timeout_ends_a_part_of_a_call(go: Go, first: float) -> None:
    async def hurried(number: int) -> int:
        try:
            async with asyncio.timeout(LATE):
                await asyncio.sleep(first)
                await asyncio.sleep(FOREVER)
        except TimeoutError:
            assert not current().cancelling()
            await asyncio.sleep(0)
        return number

    assert go(results(hurried)) == NUMBERS


def test_a_timeout_ends_a_part_of_a_call_that_only_yields(go: Go) -> None:
    async def hurried(number: int) -> int:
        try:
            async with asyncio.timeout(LATE):
                await only_yields()
        except TimeoutError:
            return number

    assert go(results(hurried)) == NUMBERS


def test_wait_for_ends_a_part_of_a_call(go: Go) -> None:
    async def hurried(number: int) -> int:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(FOREVER), LATE)
        return number

    assert go(results(hurried)) == NUMBERS


def test_the_timeout_of_a_stage_fails_only_the_calls_that_are_late(go: Go) -> None:
    async def often_late(number: int) -> int:
        await asyncio.sleep(0)
        if number % 2:
            await asyncio.sleep(FOREVER)
        return number

    # Long enough for those that are not late, on a machine that is busy.
    assert go(results(often_late, timeout=0.2, on_error="skip")) == NUMBERS[::2]


def test_a_group_of_tasks_runs_in_a_call(go: Go) -> None:
    async def child(number: int) -> int:
        await asyncio.sleep(0.001 * (number % 3))
        return number

    async def both(number: int) -> int:
        async with asyncio.TaskGroup() as group:
            one, other = group.create_task(child(number)), group.create_task(child(number + 1))
        return one.result() + other.result()

    assert go(results(both)) == [2 * number + 1 for number in NUMBERS]


def test_a_call_survives_a_group_of_tasks_that_fails(go: Go) -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    async def survives(number: int) -> int:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())
                await asyncio.sleep(FOREVER)
        except* KeyError:
            pass
        assert not current().cancelling()
        await asyncio.sleep(0)
        return number

    assert go(results(survives)) == NUMBERS


def test_work_that_is_shielded_goes_on_after_the_timeout_of_a_call(go: Go) -> None:
    done: list[int] = []

    work: list[asyncio.Future[None]] = []

    async def long(number: int) -> None:
        await asyncio.sleep(4 * LATE)
        done.append(number)

    async def hurried(number: int) -> int:
        work.append(asyncio.ensure_future(long(number)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(LATE):
                await asyncio.shield(work[-1])
        return number

    async def story() -> list[Any]:
        out = await results(hurried)
        await asyncio.gather(*work)
        return out

    assert go(story()) == sorted(done) == NUMBERS


# Cancellations.


@pytest.mark.parametrize("wait", [None, 0, 0.001])
def test_a_call_that_cancels_its_task_stops_the_pipeline(go: Go, wait: float | None) -> None:
    async def cancels(number: int) -> int:
        if number == 3:
            current().cancel()
            if wait is not None:
                await asyncio.sleep(wait)
                raise AssertionError("went on after its cancellation")
        await asyncio.sleep(0)
        return number

    with pytest.raises(HandlerCancelled, match="not by the pipeline"):
        go(results(cancels, on_error="skip"))


def test_a_call_that_undoes_its_cancellation_goes_on(go: Go) -> None:
    async def cancels_and_goes_on(number: int) -> int:
        task = current()
        for seconds in (0, 0.001):
            task.cancel("by itself")
            with pytest.raises(asyncio.CancelledError, match="by itself"):
                await asyncio.sleep(seconds)
            assert task.uncancel() == 0
            await asyncio.sleep(seconds)
        return number

    assert go(results(cancels_and_goes_on)) == NUMBERS


def test_a_cancellation_that_is_undone_at_once_is_thrown_where_it_is_in_any_task(go: Go) -> None:
    # Not since Python 3.13.
    async def undoes(number: int) -> str:
        current().cancel()
        current().uncancel()
        try:
            await asyncio.sleep(0.001 * (number % 2))
        except asyncio.CancelledError:
            return "thrown"
        return "not thrown"

    for number in range(2):
        assert go(results(undoes, [number])) == [go(undoes(number))]


def test_a_call_that_raises_a_cancellation_fails(go: Go) -> None:
    async def raises(number: int) -> int:
        await asyncio.sleep(0)
        if number == 3:
            raise asyncio.CancelledError
        return number

    left = [number for number in NUMBERS if number != 3]
    assert go(results(raises, on_error="skip")) == left


@pytest.mark.parametrize("wait", [only_yields, partial(asyncio.sleep, FOREVER)])
def test_cancelling_the_pipeline_cancels_the_calls_which_may_wait_in_their_clean_up(
    go: Go, wait: Callable[[], Awaitable[None]]
) -> None:
    begun: list[int] = []
    cancelled: list[int] = []
    cleaned: list[int] = []
    all_begun = asyncio.Event()

    async def endless(number: int) -> None:
        begun.append(number)
        if len(begun) == 4:
            all_begun.set()
        try:
            await wait()
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            cleaned.append(number)

    async def story() -> None:
        stage = adaptive_flat_map(endless, Fixed(4))
        async with from_iterable(NUMBERS).pipe(stage).to(collect([])).start() as running:
            await all_begun.wait()
            await asyncio.sleep(0.001)
            running.cancel()

    go(story())
    assert begun == sorted(cancelled) == sorted(cleaned) == [0, 1, 2, 3]


def test_a_pipeline_whose_call_is_cancelled_by_a_stranger_stops(go: Go) -> None:
    async def cancelled(number: int) -> int:
        if number == 5:
            asyncio.get_running_loop().call_later(LATE, current().cancel)
            await asyncio.sleep(FOREVER)
        await asyncio.sleep(0)
        return number

    with pytest.raises(HandlerCancelled, match="not by the pipeline"):
        go(results(cancelled, on_error="skip"))


def test_a_cancellation_passes_on_to_what_a_call_awaits(go: Go) -> None:
    ends: list[str] = []

    async def inner() -> None:
        try:
            await asyncio.sleep(FOREVER)
        except asyncio.CancelledError as error:
            ends.append(str(error))
            raise

    async def awaits(number: int) -> int:
        work = asyncio.create_task(inner())
        # It has begun.
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(LATE, current().cancel, f"late {number}")
        with pytest.raises(asyncio.CancelledError):
            await work
        assert work.cancelled()
        current().uncancel()
        return number

    assert go(results(awaits)) == NUMBERS
    assert sorted(ends) == sorted(f"late {number}" for number in NUMBERS)


# Context variables.


def test_a_call_keeps_its_context_variables_over_its_waits(go: Go) -> None:
    own: ContextVar[Any] = ContextVar("own", default="none")
    outer: ContextVar[str] = ContextVar("outer", default="none")
    seen: list[tuple[Any, str]] = []

    async def sets(number: int) -> int:
        seen.append((own.get(), outer.get()))
        own.set(number)
        for seconds in (0, 0.001):
            await asyncio.sleep(seconds)
            assert own.get() == number
        return number

    async def story() -> list[Any]:
        outer.set("of the start")
        return await results(sets)

    assert go(story()) == NUMBERS
    assert set(seen) == {("none", "of the start")}


def test_a_call_can_reset_a_context_variable_after_a_wait(go: Go) -> None:
    own: ContextVar[Any] = ContextVar("own")

    async def resets(number: int) -> int:
        token = own.set(number)
        for seconds in (0, 0.001):
            await asyncio.sleep(seconds)
        own.reset(token)
        return number

    assert go(results(resets)) == NUMBERS


def test_what_a_call_schedules_has_its_context_variables(go: Go) -> None:
    own: ContextVar[Any] = ContextVar("own", default="none")
    seen: list[Any] = []

    async def child() -> None:
        seen.append(own.get())

    async def starts(number: int) -> int:
        await asyncio.sleep(0)
        own.set(number)
        asyncio.get_running_loop().call_soon(lambda: seen.append(own.get()))
        await asyncio.create_task(child())
        return number

    assert go(results(starts)) == NUMBERS
    assert sorted(seen) == sorted(2 * NUMBERS)


# What calls wait for.


def test_calls_wait_for_each_other(go: Go) -> None:
    async def story() -> list[Any]:
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in NUMBERS]

        async def in_pairs(number: int) -> int:
            if number % 2:
                futures[number].set_result(number)
                await asyncio.sleep(0)
                return number
            result: int = await futures[number + 1]
            return result

        return await results(in_pairs, limit=len(NUMBERS))

    assert go(story()) == sorted(2 * NUMBERS[1::2])


def test_a_lock_lets_one_call_in_at_a_time(go: Go) -> None:
    inside: list[int] = []

    async def story() -> list[Any]:
        lock = asyncio.Lock()

        async def locked(number: int) -> int:
            async with lock:
                inside.append(number)
                assert len(inside) == 1
                await asyncio.sleep(0)
                await asyncio.sleep(0.001)
                inside.clear()
            return number

        return await results(locked)

    assert go(story()) == NUMBERS


def test_sleep_0_lets_run_what_is_scheduled(go: Go) -> None:
    async def schedules(number: int) -> int:
        ran: list[bool] = []
        if not number % 3:
            await asyncio.sleep(0.001)
        for _ in range(3):
            asyncio.get_running_loop().call_soon(ran.append, True)
            await asyncio.sleep(0)
            assert ran
            ran.clear()
        return number

    assert go(results(schedules)) == NUMBERS


def test_a_future_that_is_done_lets_run_what_is_scheduled(go: Go) -> None:
    # As a task does: what it awaited goes on in an iteration of its own.
    async def schedules(number: int) -> int:
        loop = asyncio.get_running_loop()
        ran: list[bool] = []
        future = loop.create_future()
        loop.call_soon(future.set_result, number)
        loop.call_soon(ran.append, True)
        result: int = await future
        assert ran
        return result

    assert go(results(schedules)) == NUMBERS


class _Yields:
    """Awaited, it yields something, as no asyncio future does."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __await__(self) -> Any:
        yield self._value


@pytest.mark.parametrize("value", [1, "future"])
def test_a_call_that_yields_anything_but_a_future_fails(go: Go, value: Any) -> None:
    async def yields(number: int) -> int:
        if number == 3:
            future = asyncio.get_running_loop().create_future()
            # Without `await` it does not say that it is to be waited for.
            await _Yields(future if value == "future" else value)
        return number

    left = [number for number in NUMBERS if number != 3]
    assert go(results(yields, on_error="skip")) == left
    with pytest.raises(RuntimeError, match="yield"):
        go(results(yields))


def test_a_call_that_awaits_a_future_of_another_loop_fails(go: Go) -> None:
    other = asyncio.new_event_loop()
    future = other.create_future()

    async def awaits(number: int) -> Any:
        return await future

    try:
        with pytest.raises(RuntimeError, match="different loop"):
            go(results(awaits, [0]))
    finally:
        other.close()


def test_a_call_that_awaits_its_own_task_fails(go: Go) -> None:
    async def awaits_itself(number: int) -> None:
        await current()

    with pytest.raises(RuntimeError, match="await on itself"):
        go(results(awaits_itself, [0]))


class Own:
    """A future that is none of asyncio's, in the form that tasks wait for."""

    _asyncio_future_blocking = False

    def __init__(self, error: Exception | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._error = error

    def add_done_callback(self, call: Callable[[Any], object], *, context: Any = None) -> None:
        if self._error is not None:
            raise self._error
        self._loop.call_soon(call, self, context=context)

    def __await__(self) -> Generator[Any, None, int]:
        self._asyncio_future_blocking = True
        yield self
        return 5


def test_a_call_may_await_a_future_that_has_its_loop_as_an_attribute_only(go: Go) -> None:
    async def awaits(number: int) -> int:
        return await Own()

    assert go(results(awaits, [0, 1])) == [5, 5]


def test_a_call_that_awaits_a_future_which_cannot_be_waited_for_fails(go: Go) -> None:
    async def awaits(number: int) -> int:
        return await Own(ValueError("nobody may wait"))

    with pytest.raises(ValueError, match="nobody may wait"):
        go(results(awaits, [0]))


def test_a_cancellation_is_not_lost_if_the_call_then_yields_what_is_no_future(go: Go) -> None:
    class Bad:
        def __await__(self) -> Generator[Any, None, None]:
            yield self

    async def cancels_itself(number: int) -> None:
        current().cancel()
        await Bad()

    with pytest.raises(HandlerCancelled):
        go(results(cancels_itself, [0]))


# Errors and results.


def test_the_traceback_of_an_error_ends_in_the_handler_and_what_it_called(go: Go) -> None:
    async def deep(number: int) -> None:
        await asyncio.sleep(0)
        raise ValueError(number)

    async def calls(number: int) -> None:
        await deep(number)

    with pytest.raises(ValueError, match="0") as raised:
        go(results(calls))
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert [frame.name for frame in frames[-2:]] == ["calls", "deep"]
    lines = [frame.line for frame in frames[-2:]]
    assert lines == ["await deep(number)", "raise ValueError(number)"]


@pytest.mark.parametrize("error", [StopIteration, StopAsyncIteration, GeneratorExit])
@pytest.mark.parametrize("waits", [False, True])
def test_an_error_that_ends_iterators_fails_a_call(
    go: Go, error: type[BaseException], waits: bool
) -> None:
    async def fails(number: int) -> None:
        if waits:
            await asyncio.sleep(0)
        raise error

    with pytest.raises((error, RuntimeError)):
        go(results(fails))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_exit_in_a_call_lets_the_other_calls_clean_up(
    go: Go, error: type[BaseException]
) -> None:
    cleaned: list[int] = []

    async def leaves(number: int) -> None:
        try:
            await asyncio.sleep(0)
            if number == 1:
                raise error
            await asyncio.sleep(FOREVER)
        finally:
            await asyncio.sleep(0)
            cleaned.append(number)

    with pytest.raises(error):
        go(results(leaves))
    assert sorted(cleaned) == [0, 1, 2, 3]


def test_an_exception_may_be_a_result(go: Go) -> None:
    async def returns(number: int) -> Any:
        await asyncio.sleep(0)
        return StopIteration(number)

    async def story() -> list[Any]:
        out: list[Any] = []
        stage = adaptive_flat_map(returns, Fixed(4))
        await from_iterable(NUMBERS).pipe(stage).to(collect(out)).run()
        return out

    assert sorted(error.value for error in go(story())) == NUMBERS


def test_a_tuple_may_be_a_result(go: Go) -> None:
    async def returns(number: int) -> tuple[int, int]:
        await asyncio.sleep(0)
        return number, number

    assert go(results(returns)) == [(number, number) for number in NUMBERS]


def test_nothing_of_a_call_is_left_at_its_end(go: Go) -> None:
    async def yields(number: int) -> int:
        await asyncio.sleep(0)
        return number

    go(results(yields))
    gc.collect()
    left = [one for one in gc.get_objects() if inspect.iscoroutine(one)]
    assert [one for one in left if one.__name__ == "yields"] == []


def test_a_call_may_be_of_any_awaitable(go: Go) -> None:
    class Awaited:
        def __init__(self, number: int) -> None:
            self._number = number

        def __await__(self) -> Any:
            yield from asyncio.sleep(0).__await__()
            yield from asyncio.sleep(0.001).__await__()
            return self._number

    def later(number: int) -> Any:
        return asyncio.ensure_future(asyncio.sleep(0.001, number))

    assert go(results(Awaited)) == NUMBERS
    assert go(results(later)) == NUMBERS


def test_an_async_generator_sends_several_results(go: Go) -> None:
    async def several(number: int) -> AsyncIterator[int]:
        for place in range(3):
            await asyncio.sleep(0)
            yield number * 10 + place

    async def returned(number: int) -> AsyncIterator[int]:
        await asyncio.sleep(0)
        return several(number)

    expected = [number * 10 + place for number in NUMBERS for place in range(3)]
    assert go(results(several)) == go(results(returned)) == expected


def test_a_call_is_tried_again(go: Go) -> None:
    tried: dict[int, int] = {}

    async def fails_at_first(number: int) -> int:
        tried[number] = tried.get(number, 0) + 1
        await asyncio.sleep(0)
        if tried[number] < 3 and number % 2:
            raise OSError
        return number

    policy = retry(5, Backoff(0.001), "stop")
    assert go(results(fails_at_first, on_error=policy)) == NUMBERS
    assert tried == {number: 1 + 2 * (number % 2) for number in NUMBERS}


def test_the_events_of_a_group_are_called_in_order_and_one_at_a_time(go: Go) -> None:
    running: set[int] = set()
    order: dict[int, list[int]] = {}

    async def one_at_a_time(event: dict[str, int]) -> None:
        group, number = event["group"], event["number"]
        assert group not in running
        running.add(group)
        await asyncio.sleep(0)
        if not number % 7:
            await asyncio.sleep(0.0005)
        order.setdefault(group, []).append(number)
        running.remove(group)

    def story() -> Awaitable[Report]:
        events = [{"group": number % 9, "number": number} for number in range(500)]
        grouped = from_iterable(events).pipe(group_by("group"), spread())
        return grouped.pipe(adaptive_flat_map(one_at_a_time, Fixed(5))).to(collect([])).run()

    go(story())
    assert order == {group: list(range(group, 500, 9)) for group in range(9)}


def test_calls_run_in_debug_mode(go: Go) -> None:
    async def waits(number: int) -> int:
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return number

    assert go(results(waits), debug=True) == NUMBERS


# Libraries that look at the current task.


def test_scopes_groups_and_threads_of_anyio_work_in_a_call(go: Go) -> None:
    async def uses_anyio(number: int) -> int:
        assert anyio.get_current_task().name == current().get_name()
        with anyio.move_on_after(LATE) as scope:
            await anyio.lowlevel.checkpoint()
            await anyio.sleep(FOREVER)
        assert scope.cancelled_caught
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0.001)
        with anyio.CancelScope() as inner:
            inner.cancel()
            await anyio.lowlevel.checkpoint()
            raise AssertionError("went on in a scope that is cancelled")
        return await anyio.to_thread.run_sync(lambda: number)

    assert go(results(uses_anyio)) == NUMBERS


def test_a_scope_of_anyio_ends_a_call_that_only_yields(go: Go) -> None:
    async def hurried(number: int) -> int:
        with anyio.move_on_after(LATE):
            await only_yields()
        return number

    assert go(results(hurried)) == NUMBERS


def test_the_timeout_of_an_aiohttp_client_ends_only_the_request_that_is_late(go: Go) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.query["n"] == "3":
            await asyncio.sleep(FOREVER)
        return web.Response(text=request.query["n"])

    async def story() -> list[Any]:
        app = web.Application()
        app.router.add_get("/", answer)
        runner = web.AppRunner(app, shutdown_timeout=0.01)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0]
        # Long enough for the others, on a machine that is busy.
        async with ClientSession(timeout=ClientTimeout(total=1)) as session:

            async def fetch(number: int) -> int:
                try:
                    async with session.get(f"http://{host}:{port}/?n={number}") as response:
                        return int(await response.text())
                except TimeoutError:
                    return -1

            out = await results(fetch)
        await runner.cleanup()
        return out

    assert go(story()) == sorted([-1, *(number for number in NUMBERS if number != 3)])
