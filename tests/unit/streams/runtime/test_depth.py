from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Flowable,
    Inbox,
    adaptive_flat_map,
    collect,
    distinct_within,
    from_iterable,
    inbox,
    ops,
)
from penstock.streams.base.errors import TooManyStages
from penstock.streams.testing import VirtualTimeLoop
from penstock.streams.testing.plugin import Run

OPERATORS: dict[str, Callable[[], Any]] = {
    "distinct_within": lambda: distinct_within(60, by=lambda value: value),
    "map": lambda: ops.map(lambda value: value),
    "scan": lambda: ops.scan(lambda _, value: value),
    "take_while": lambda: ops.take_while(lambda value: True),
    "with_latest_from": lambda: ops.with_latest_from(from_iterable([0])),
    "adaptive_flat_map": lambda: adaptive_flat_map(lambda value: value),
}


def chained(name: str, count: int) -> Flowable[Any]:
    stream: Flowable[Any] = from_iterable(range(5))
    for _ in range(count):
        stream = stream.pipe(OPERATORS[name]())
    return stream


# By `with_latest_from` each stage reads one more stream.
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("last", [[], [ops.to_list()]])
def test_every_event_passes_through_as_many_stages_as_a_pipeline_may_have(
    name: str, last: list[Any], run: Run
) -> None:
    values: list[Any] = []
    stages = 95 if name == "with_latest_from" else 195
    before = sys.getrecursionlimit()
    report = run(chained(name, stages).pipe(*last).to(collect(values)).run())
    assert report.outcome == "completed"
    assert report.statistics["finished"] == report.statistics["in"]
    assert len(values) == (1 if last else 5)
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("last", [[], [ops.to_list()]])
def test_a_stream_of_as_many_stages_is_read_by_hand(name: str, last: list[Any], run: Run) -> None:
    stream = chained(name, 95 if name == "with_latest_from" else 195).pipe(*last)
    before = sys.getrecursionlimit()

    async def story() -> None:
        read = [value async for value in stream]
        observed: list[Any] = []
        ended = asyncio.get_running_loop().create_future()
        stream.subscribe(observed.append, ended.set_exception, lambda: ended.set_result(None))
        await ended
        assert len(read) == len(observed) == (1 if last else 5)
        with pytest.raises(TooManyStages):
            _ = [value async for value in chained(name, 400)]

    run(story())
    assert sys.getrecursionlimit() == before


def test_a_stream_is_read_by_hand_without_a_loop() -> None:
    before, values = sys.getrecursionlimit(), list[int]()
    stream = chained("map", 195)
    stream.subscribe(values.append)
    assert values == list(range(5))
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize("name", OPERATORS)
def test_a_pipeline_with_more_stages_is_refused_before_anything_is_read(
    name: str, run: Run
) -> None:
    async def story() -> None:
        with pytest.raises(TooManyStages, match=r"has [\d,]+ stages.* enough for 200 stages"):
            chained(name, 400).to(collect([])).start()
        await asyncio.sleep(0)

    run(story())


def test_of_pipelines_that_run_together_the_one_with_most_stages_decides_on_the_room(
    run: Run,
) -> None:
    before = sys.getrecursionlimit()

    async def story() -> None:
        short, long = (chained("map", count).to(collect([])).start() for count in (30, 100))
        room = sys.getrecursionlimit()
        await long.wait()
        await short.wait()
        assert room > before + 100 * 10

    run(story())
    assert sys.getrecursionlimit() == before


def test_a_limit_that_the_program_sets_while_a_pipeline_runs_is_kept(run: Run) -> None:
    before = sys.getrecursionlimit()

    async def story() -> None:
        running = chained("map", 100).to(collect([])).start()
        sys.setrecursionlimit(7777)
        await running.wait()

    try:
        run(story())
        assert sys.getrecursionlimit() == 7777
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize("read", ["merge", "concat", "zip"])
@pytest.mark.parametrize(("streams", "stages"), [(300, 0), (10, 60)])
def test_streams_that_a_stage_reads_beside_each_other_may_have_more_stages_together(
    read: str, streams: int, stages: int, run: Run
) -> None:
    values: list[Any] = []
    first, *others = (chained("map", stages) for _ in range(streams))
    run(first.pipe(getattr(ops, read)(*others)).to(collect(values)).run())
    assert len(values) == (5 if read == "zip" else 5 * streams)


def test_the_stages_of_two_streams_that_one_stage_reads_count_together(run: Run) -> None:
    async def story() -> None:
        merged = chained("map", 110).pipe(ops.merge(chained("map", 100)))
        with pytest.raises(TooManyStages, match="has 214 stages in a row"):
            merged.to(collect([])).start()
        await asyncio.sleep(0)

    run(story())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_closed_before_the_end_leaves_the_limit_as_it_was() -> None:
    async def begun() -> None:
        entry: Inbox[int] = inbox(1)
        stream: Flowable[int] = entry
        for _ in range(150):
            stream = stream.pipe(ops.map(lambda value: value))
        stream.to(collect([])).start()
        await asyncio.sleep(0)
        assert sys.getrecursionlimit() > before

    before = sys.getrecursionlimit()
    loop = VirtualTimeLoop()
    loop.run_until_complete(begun())
    loop.close()
    del loop
    gc.collect()
    assert sys.getrecursionlimit() == before
