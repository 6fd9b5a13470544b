from __future__ import annotations

import asyncio
import heapq
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from reactivex import operators as rx

from penstock import (
    Event,
    Fixed,
    Flowable,
    Sink,
    SinkStage,
    adaptive_flat_map,
    agg,
    batch,
    collect,
    distinct_within,
    event_time,
    for_each,
    from_async_iterable,
    from_iterable,
    group_by,
    monitor,
    spread,
    stateful,
    tumbling,
    window,
)
from penstock.streams.diagnostics.blocked_loop import LOOKS, Watchdog
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.stages.own import SourceStage
from penstock.streams.testing import ManualPublisher, VirtualTimeLoop
from penstock.streams.testing.plugin import Run


def virtual() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


class Dog(Watchdog):
    """Checks when the test says so, and by itself at most once an hour."""

    run: Any

    def __init__(self, every: float | None = None) -> None:
        super().__init__(every)

    def watching(self, source: Flowable[Any]) -> Flowable[Any]:
        """The same source; its runs are watched."""
        return Flowable(_OWN["watching"](self, source), source.info)

    def block(self, seconds: float = 1.5) -> None:
        """Block the loop for long enough to be noticed."""
        for _ in range(LOOKS + 1):
            virtual().advance(seconds / (LOOKS + 1))
            self.look()

    def starve(self, share: float) -> None:
        """Let other processes have this share of five seconds."""
        for _ in range(10):
            virtual().starve(0.5 * share)
            virtual().advance(0.5 * (1 - share))
            self.look()


@pytest.fixture
def dog() -> Dog:
    return Dog()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    return lambda: [record.getMessage() for record in caplog.records]


Warnings = Callable[[], list[str]]


def itself(value: Any) -> Any:
    return value


class OwnSource(SourceStage[int]):
    values: list[int]

    def produce(self) -> None:
        while self.demand and self.values:
            self.emit(self.values.pop(0), self.run.now())
        if not self.values:
            self.complete()


def own_source(values: list[int]) -> Flowable[int]:
    def attach(downstream: Any, run: Any) -> None:
        stage = OwnSource(downstream, run, StageInfo("own"))
        stage.values = values
        stage.start()

    return Flowable(attach, StageInfo("own"))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("kind", ["plain", "async", "timed", "mixed", "task"])
def test_a_handler_that_blocks_is_named_while_it_does(
    run: Run, dog: Dog, warnings: Warnings, kind: str, grouped: bool
) -> None:
    told: list[int] = []

    def work(value: int) -> Any:
        dog.block()
        told.append(len(warnings()))
        return asyncio.sleep(0) if kind == "mixed" else value

    async def work_later(value: int) -> Any:
        await asyncio.sleep(0)
        return await asyncio.create_task(inner(value)) if kind == "task" else work(value)

    async def inner(value: int) -> Any:
        return work(value)

    handler: Any = work if kind in ("plain", "mixed") else work_later
    operator: Any = adaptive_flat_map(handler, Fixed(1), timeout=60 if kind == "timed" else None)
    stages: list[Any] = [group_by(itself), spread(), operator] if grouped else [operator]
    run(dog.watching(from_iterable([7])).pipe(*stages).to(collect([])).run())
    # The same block is not reported again when it has ended.
    (warning,) = warnings()
    assert told == [1]
    assert f"'{handler.__name__}' (stage {4 if grouped else 2} 'adaptive_flat_map')" in warning
    if kind == "task":
        assert warning.startswith("the loop has been blocked for 1 s while 'work_later'")
    else:
        assert "has blocked the loop for 1 s on the event 7" in warning
    assert f"{__file__}:" in warning
    assert "in_threads" in warning


def test_an_object_as_a_handler_is_named_by_its_class(
    run: Run, dog: Dog, warnings: Warnings
) -> None:
    class Slow:
        def __call__(self, value: int) -> int:
            dog.block()
            return value

    operator = adaptive_flat_map(Slow(), Fixed(1))
    run(dog.watching(from_iterable([7])).pipe(operator).to(collect([])).run())
    (warning,) = warnings()
    assert "'Slow' (stage 2 'adaptive_flat_map')" in warning


@pytest.mark.parametrize(
    ("where", "stage"),
    [
        ("map", "stage 2 'map'"),
        ("scan", "stage 2 'scan'"),
        ("filter", "stage 2 'filter'"),
        ("map of own source", "stage 2 'map'"),
        ("take_while", "stage 2 'take_while'"),
        ("flat_map", "stage 2 'flat_map'"),
        ("group_by", "stage 2 'group_by'"),
        ("distinct_within", "stage 2 'distinct_within'"),
        ("event_time", "stage 2 'event_time'"),
        ("stateful", "stage 2 'stateful'"),
        ("window", "stage 3 'window'"),
        ("monitor", "stage 2 'monitor'"),
        ("batch", "stage 2 'batch'"),
        ("own sink", "stage 2 'own'"),
        ("async for_each", "stage 2 'for_each'"),
        ("from_async_iterable", "stage 1 'from_async_iterable'"),
        ("for_each", "stage 2 'for_each'"),
        ("from_iterable", "stage 1 'from_iterable'"),
    ],
)
def test_whatever_blocks_is_named(
    run: Run, dog: Dog, warnings: Warnings, where: str, stage: str
) -> None:
    def stuck(*values: Any) -> Any:
        dog.block()
        return values[-1]

    def quick(value: Any) -> None:
        pass

    def generated() -> Iterator[int]:
        yield 1
        yield stuck(7)

    async def generated_later() -> AsyncIterator[int]:
        yield 1
        yield stuck(7)

    async def stuck_later(value: Any) -> None:
        await asyncio.sleep(0)
        stuck(value)

    class OwnStage(SinkStage[Any]):
        def accept(self, event: Event[Any]) -> None:
            stuck(event.value)

    class OwnSink(Sink[Any]):
        info = StageInfo("own")

        def open(self, run: Any, closed: Any) -> OwnStage:
            return OwnStage(closed)

    stages: dict[str, tuple[Any, ...]] = {
        "map": (rx.map(stuck),),
        "map of own source": (rx.map(stuck),),
        "scan": (rx.scan(stuck),),
        "filter": (rx.filter(stuck),),
        "take_while": (rx.take_while(stuck),),
        "flat_map": (rx.flat_map(lambda value: [stuck(value)]),),
        "group_by": (group_by(stuck), spread()),
        "distinct_within": (distinct_within(60, by=stuck),),
        "event_time": (event_time(stuck),),
        "stateful": (stateful(lambda state, value: (state, [stuck(value)]), by=itself, start=0),),
        "window": (event_time(itself), window(tumbling(10), agg.fold(0, stuck))),
        "monitor": (monitor("always p", p=stuck),),
        "batch": (batch(stuck),),
    }
    sources: dict[str, Flowable[Any]] = {
        "from_iterable": from_iterable(generated),
        "from_async_iterable": from_async_iterable(generated_later),
        "map of own source": own_source([1, 7]),
    }
    sinks: dict[str, Sink[Any]] = {
        "for_each": for_each(stuck),
        "async for_each": for_each(stuck_later),
        "own sink": OwnSink(),
    }
    flow = dog.watching(sources.get(where, from_iterable([1, 7]))).pipe(*stages.get(where, ()))
    run(flow.to(sinks.get(where, for_each(quick))).run())
    # The second time is within ten seconds.
    (warning,) = warnings()
    assert stage in warning
    assert f"{__file__}:" in warning


@pytest.mark.parametrize(
    "where", ["map", "filter", "scan", "plain", "async", "for_each", "async for_each"]
)
def test_the_event_is_named_for_which_the_function_is_called(
    run: Run, dog: Dog, warnings: Warnings, where: str
) -> None:
    def stuck(*values: int) -> Any:
        if values[-1] == 3:
            dog.block()
        return True

    async def stuck_later(value: int) -> None:
        await asyncio.sleep(value)
        stuck(value)

    stages: dict[str, Any] = {
        "map": rx.map(stuck),
        "scan": rx.scan(stuck),
        "filter": rx.filter(stuck),
        "plain": adaptive_flat_map(stuck),
        "async": adaptive_flat_map(stuck_later, Fixed(4)),
    }
    sinks = {"for_each": for_each(stuck), "async for_each": for_each(stuck_later)}
    flow = dog.watching(from_iterable(range(1, 6))).pipe(stages.get(where, rx.skip(0)))
    run(flow.to(sinks.get(where, collect([]))).run())
    (warning,) = warnings()
    assert "has blocked the loop for 1 s on the event 3, and is at" in warning


def test_no_event_is_named_where_a_function_is_called_with_several(
    run: Run, dog: Dog, warnings: Warnings
) -> None:
    flow = dog.watching(from_iterable([1, 2, 3])).pipe(batch(lambda values: dog.block()))
    run(flow.to(collect([])).run())
    (warning,) = warnings()
    assert "(stage 2 'batch') has blocked the loop for 1 s, and is at" in warning


def test_the_stage_is_named_that_has_called_in_a_call_of_another(
    run: Run, dog: Dog, warnings: Warnings
) -> None:
    def one(value: int) -> int:
        return value

    def two(value: int) -> None:
        if value == 5:
            dog.block()

    def three(value: int) -> None:
        if value == 4:
            dog.block()

    # The results of the first go on while it is at work, and it is called again after that.
    flow = dog.watching(from_iterable([5, 6, 4])).pipe(
        rx.map(one), adaptive_flat_map(lambda value: two(value) or value), rx.map(three)
    )
    run(flow.to(collect([])).run())
    (first, second) = warnings()
    assert "(stage 3 'adaptive_flat_map') has blocked the loop for 1 s on the event 5" in first
    assert "'three' (stage 4 'map') has blocked the loop for 1 s on the event 4" in second


# Code as if it stood in one of the library's modules.
_OWN: dict[str, Any] = {"__name__": "penstock.streams.own", "LOOKS": LOOKS}
exec(
    """
def busy(dog, loop, *values):
    for _ in range(LOOKS + 1):
        loop.advance(0.5)
        dog.look()
    return values[-1]

def watching(dog, source):
    def attach(downstream, run):
        dog.run = run
        dog.watch(run.loop, run.blocks)
        source.attach(downstream, run)
    return attach

def publish(identity):
    async def publish(value):
        return identity(value)
    return publish
""",
    _OWN,
)


@pytest.mark.parametrize("operator", ["map", "scan", "of a module"])
def test_the_library_s_own_code_is_not_blamed_on_a_function_of_the_user(
    run: Run, dog: Dog, warnings: Warnings, operator: str
) -> None:
    async def story() -> None:
        busy = partial(_OWN["busy"], dog, asyncio.get_running_loop())
        stages: dict[str, Any] = {
            "map": rx.map(busy),
            "scan": rx.scan(busy, 0),
            # Python's own modules, called by the library, count as the library.
            "of a module": rx.map(partial(heapq.nsmallest, 1, key=busy)),
        }
        await dog.watching(from_iterable([[7]])).pipe(stages[operator]).to(collect([])).run()

    run(story())
    (warning,) = warnings()
    assert "penstock's own code has blocked the loop for 1 s, in stage 2 '" in warning
    assert "in_threads" not in warning


def test_a_stage_inside_a_group_is_named_with_the_number_of_the_group_by_it_is_in(
    run: Run, dog: Dog, warnings: Warnings
) -> None:
    def stuck(value: int) -> int:
        dog.block()
        return value

    nested = group_by(itself, each=lambda group: group.pipe(rx.skip(0), rx.map(stuck)), idle=9)
    grouped = group_by(itself, each=lambda group: group.pipe(nested, spread()), idle=9)
    flow = dog.watching(from_iterable([7])).pipe(rx.skip(0), grouped, spread())
    run(flow.to(collect([])).run())
    (warning,) = warnings()
    assert "'stuck' ('map' in 'group_by' in stage 3 'group_by')" in warning


def test_a_second_block_is_reported_after_ten_seconds(
    run: Run, dog: Dog, warnings: Warnings
) -> None:
    def work(value: int) -> None:
        dog.block(3)

    flow = dog.watching(from_iterable(range(7))).pipe(adaptive_flat_map(work))
    run(flow.to(collect([])).run())
    assert ["still" if "stands still" in one else "over" for one in warnings()] == ["still"] * 2


def test_a_loop_that_turns_is_not_blocked(run: Run, dog: Dog, warnings: Warnings) -> None:
    async def work(value: int) -> None:
        for _ in range(LOOKS + 1):
            dog.look()
            await asyncio.sleep(1)

    flow = dog.watching(from_iterable(range(7))).pipe(adaptive_flat_map(work, Fixed(2)))
    run(flow.to(collect([])).run())
    assert warnings() == []


@pytest.mark.parametrize(("share", "told"), [(1.0, False), (0.9, False), (0.75, True), (0.0, True)])
def test_the_time_that_other_processes_had_the_processor_blocks_nothing(
    run: Run, dog: Dog, warnings: Warnings, share: float, told: bool
) -> None:
    def work(value: int) -> None:
        dog.starve(share)
        assert bool(warnings()) is told

    flow = dog.watching(from_iterable([7])).pipe(adaptive_flat_map(work))
    run(flow.to(collect([])).run())


def test_a_loop_iteration_between_two_plain_calls_restarts_the_count(
    run: Run, dog: Dog, warnings: Warnings
) -> None:
    async def story() -> None:
        source = ManualPublisher[float]()
        operator = adaptive_flat_map(virtual().advance)
        running = dog.watching(source).pipe(operator).to(collect([])).start()
        await asyncio.sleep(1)
        virtual().starve(5)
        dog.look()
        await asyncio.sleep(1)
        source.send(0.3)
        assert len(warnings()) == 1
        source.complete()
        await running.wait()

    run(story())


def test_own_code_that_blocks_outside_of_any_stage_is_not_blamed_on_a_handler(
    run: Run, dog: Dog, warnings: Warnings
) -> None:
    async def story() -> None:
        source = ManualPublisher[int]()
        operator = adaptive_flat_map(asyncio.sleep, Fixed(1))
        running = dog.watching(source).pipe(operator).to(collect([])).start()
        await asyncio.sleep(1)
        source.send(5)
        await asyncio.sleep(1)
        virtual().call_soon(_OWN["busy"], dog, virtual(), 0)
        await asyncio.sleep(1)
        (warning,) = warnings()
        assert warning.startswith("penstock's own code has blocked the loop for 1 s, and is at")
        assert "'sleep'" not in warning
        assert "in_threads" not in warning
        source.complete()
        await running.wait()

    run(story())


def test_a_user_s_function_that_an_own_handler_calls_is_named(
    run: Run, dog: Dog, warnings: Warnings
) -> None:
    def identity(value: int) -> int:
        dog.block()
        return value

    flow = dog.watching(from_iterable([7])).pipe(adaptive_flat_map(_OWN["publish"](identity)))
    run(flow.to(collect([])).run())
    (warning,) = warnings()
    assert "'identity' (stage 2 'adaptive_flat_map') has blocked the loop for 1 s" in warning
    assert f"{__file__}:" in warning


def test_a_report_on_own_code_says_how_many_events_its_stage_has_in_flight(
    run: Run, dog: Dog, warnings: Warnings
) -> None:
    async def story() -> None:
        busy = partial(_OWN["busy"], dog, virtual())
        flow = dog.watching(from_iterable([7])).pipe(adaptive_flat_map(_OWN["publish"](busy)))
        await flow.to(collect([])).run()

    run(story())
    (warning,) = warnings()
    assert "in stage 2 'adaptive_flat_map', events in flight: 1, and is at" in warning
    assert "publish" not in warning.partition("and is at")[0]


def test_a_block_by_others_on_the_loop_is_reported_only_while_a_stage_is_at_work(
    run: Run, dog: Dog, warnings: Warnings
) -> None:
    async def story() -> None:
        source = ManualPublisher[int]()
        operator = adaptive_flat_map(asyncio.sleep, Fixed(1))
        running = dog.watching(source).pipe(operator).to(collect([])).start()
        await asyncio.sleep(1)
        dog.block()
        assert warnings() == []
        source.send(5)
        await asyncio.sleep(1)
        dog.block()
        (warning,) = warnings()
        assert "while 'sleep' (stage 2 'adaptive_flat_map') is at work" in warning
        source.complete()
        await running.wait()

    run(story())
    assert len(warnings()) == 1


def test_a_loop_that_is_not_running_is_not_blocked(
    virtual_loop: VirtualTimeLoop, dog: Dog, warnings: Warnings
) -> None:
    source = ManualPublisher[int]()

    async def story() -> Any:
        operator = adaptive_flat_map(asyncio.sleep, Fixed(1))
        running = dog.watching(source).pipe(operator).to(collect([])).start()
        await asyncio.sleep(1)
        source.send(5)
        dog.look()
        return running

    running = virtual_loop.run_until_complete(story())
    for _ in range(LOOKS + 1):
        dog.look()
    assert warnings() == []
    source.complete()
    virtual_loop.run_until_complete(running.wait())


def patrols() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "penstock watchdog"]


async def watched_by(dog: Dog, work: Callable[[int], None]) -> None:
    await dog.watching(from_iterable([1])).pipe(adaptive_flat_map(work)).to(collect([])).run()
    dog.leave(dog.run.loop, dog.run.blocks)


def test_who_comes_and_goes_within_a_turn_does_not_seem_blocked(
    run: Run, warnings: Warnings
) -> None:
    dog = Dog(every=3600)

    def work(value: int) -> None:
        for _ in range(50):
            dog.leave(dog.run.loop, dog.run.blocks)
            dog.watch(dog.run.loop, dog.run.blocks)

    run(watched_by(dog, work))
    assert warnings() == []


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_has_a_thread_of_its_own(run: Run) -> None:
    dog = Dog(every=3600)

    def work(value: int) -> None:
        child = os.fork()
        if not child:
            dog.watch(dog.run.loop, dog.run.blocks)
            os._exit(len(patrols()) != 1)
        assert os.waitpid(child, 0)[1] == 0

    run(watched_by(dog, work))


def test_one_thread_looks_while_pipelines_run() -> None:
    async def story() -> None:
        before = patrols()
        assert before == []
        source = ManualPublisher[int]()
        runnings = [source.to(collect([])).start() for _ in range(2)]
        (patrol,) = patrols()
        for running in runnings:
            assert patrol.is_alive()
            running.cancel()
            await running.wait()
        patrol.join(10)
        assert patrols() == []

    asyncio.run(story())


def test_on_virtual_time_nobody_looks(run: Run) -> None:
    async def story() -> None:
        running = from_iterable([1]).to(collect([])).start()
        assert patrols() == []
        await running.wait()

    run(story())
