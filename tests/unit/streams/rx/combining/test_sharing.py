"""How the reading of a shared stream belongs to the pipeline that reads it."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from reactivex import operators as stock

from penstock import (
    Fixed,
    Inbox,
    Running,
    adaptive_flat_map,
    collect,
    dead_letters,
    for_each,
    from_async_iterable,
    from_iterable,
    inbox,
    read_jsonl,
    route,
)
from penstock import ops as _ops
from penstock.streams.base.errors import BuildError
from penstock.streams.stages.source_stage import BaseSourceStage
from penstock.streams.testing import MemorySource, run_virtual

# What reactivex says of its types does not fit a lambda.
ops: Any = _ops

_SHARED: dict[str, Callable[[Any], Any]] = {
    "share": lambda stream: stream.pipe(ops.share()),
    "publish": lambda stream: stream.pipe(ops.publish(lambda one: one.pipe(ops.map(lambda n: n)))),
    "replay": lambda stream: stream.pipe(ops.replay(5), ops.ref_count()),
    "replay of reactivex": lambda stream: stream.pipe(stock.replay(5), stock.ref_count()),
    "auto_connect": lambda stream: stream.pipe(ops.publish()).auto_connect(),
    "flat_map": lambda stream: from_iterable([0]).pipe(ops.flat_map(lambda _: stream)),
    "switch_map": lambda stream: from_iterable([0]).pipe(ops.switch_map(lambda _: stream)),
}


async def slowly(value: Any) -> Any:
    await asyncio.sleep(0.01)
    return value


async def odd_fails(n: int) -> int:
    if n % 2:
        raise ValueError("odd")
    return n


def in_two_ways(shared: Any) -> Any:
    """The shared stream, read by a working stage and by a filter."""
    worked = shared.pipe(adaptive_flat_map(slowly, limit=Fixed(4)), ops.map(lambda n: ("a", n)))
    return worked.merge(shared.pipe(ops.map(lambda n: ("b", n))))


def sums(numbers: dict[str, Any]) -> tuple[int, ...]:
    return tuple(numbers[name] for name in ("in", "finished", "failed", "returned", "unfinished"))


@pytest.mark.parametrize("name", list(_SHARED))
def test_a_drain_finishes_what_was_put_in_front_of_a_shared_stream(name: str) -> None:
    async def story() -> tuple[list[int], int]:
        entry: Inbox[int] = inbox(1000)
        into = list[int]()
        worked = _SHARED[name](entry).pipe(adaptive_flat_map(slowly, limit=Fixed(2)))
        running: Running = worked.to(collect(into)).start()
        await asyncio.sleep(0)
        for n in range(200):
            await entry.put(n)
        await asyncio.sleep(0.05)
        report = await running.drain(30)
        return into, report.exit_status

    into, status = run_virtual(story())
    assert (sorted(into), status) == (list(range(200)), 0)


@pytest.mark.parametrize("name", ["share", "replay", "auto_connect"])
def test_all_readers_of_a_pipeline_get_the_first_event(name: str) -> None:
    async def story() -> tuple[list[Any], dict[str, Any]]:
        into = list[Any]()
        both = in_two_ways(_SHARED[name](from_iterable(range(10))))
        return into, (await both.to(collect(into)).run()).statistics

    into, numbers = run_virtual(story())
    assert sorted(into) == [(way, n) for way in "ab" for n in range(10)]
    assert sums(numbers) == (10, 10, 0, 0, 0)


def test_readers_of_streams_that_share_a_shared_stream_get_its_first_event() -> None:
    async def story() -> list[int]:
        inner = from_iterable([1, 2, 3]).pipe(ops.share())
        one, other = inner.pipe(ops.share()), inner.pipe(ops.share())
        into = list[int]()
        await one.merge(other).to(collect(into)).run()
        return into

    assert sorted(run_virtual(story())) == [1, 1, 2, 2, 3, 3]


def test_a_position_above_a_shared_stream_is_that_of_what_was_finished(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(30)))

    async def once() -> tuple[int, int]:
        stream: Any = read_jsonl(path, position=tmp_path / "position")
        into = list[Any]()
        worked = stream.pipe(ops.share(), adaptive_flat_map(slowly, limit=Fixed(4)))
        report = await worked.to(collect(into)).run()
        return len(into), report.exit_status

    assert asyncio.run(once()) == (30, 0)
    assert asyncio.run(once()) == (0, 0)


def test_what_fails_above_a_shared_stream_is_in_the_account(tmp_path: Path) -> None:
    letters = tmp_path / "letters.jsonl"

    async def story() -> Any:
        policy = route(dead_letters(letters))
        shared: Any = from_iterable(range(10)).pipe(
            adaptive_flat_map(odd_fails, on_error=policy), ops.share()
        )
        return await shared.merge(shared).to(collect(list[Any]())).run()

    report = asyncio.run(story())
    assert sums(report.statistics) == (10, 5, 5, 0, 0)
    assert (report.exit_status, report.statistics["errors"]) == (3, {"ValueError": 5})
    assert len(letters.read_text().splitlines()) == 5
    stages = [stage["name"] for stage in report.statistics["stages"]]
    assert stages == ["from_iterable", "adaptive_flat_map", "share", "merge", "collect"]


def test_a_pause_and_a_cancel_reach_the_source_of_a_shared_stream() -> None:
    async def story() -> tuple[int, tuple[int, ...], str]:
        entry: Inbox[int] = inbox(1000)
        into = list[Any]()
        running: Running = in_two_ways(entry.pipe(ops.share())).to(collect(into)).start()
        await asyncio.sleep(0)
        running.pause()
        await entry.put(1)
        await asyncio.sleep(1)
        paused = len(into)
        running.resume()
        await asyncio.sleep(1)
        for n in range(100):
            await entry.put(n)
        running.cancel()
        report = await running.wait()
        return paused, sums(report.statistics), report.outcome

    paused, numbers, outcome = run_virtual(story())
    assert paused == 0
    assert numbers == (numbers[0], 1, 0, numbers[0] - 1, 0)
    assert outcome == "cancelled"


def test_an_error_above_a_shared_stream_is_caught_below_it() -> None:
    async def story() -> tuple[list[Any], int]:
        into = list[Any]()
        failing: Any = from_iterable([2, 1]).pipe(adaptive_flat_map(odd_fails), ops.share())
        stream = failing.pipe(ops.catch(from_iterable([7])))
        return into, (await stream.to(collect(into)).run()).exit_status

    assert run_virtual(story())[0][-1] == 7


def test_a_retry_below_a_shared_stream_counts_the_events_of_each_reading_once() -> None:
    calls = list[int]()

    async def third_time(n: int) -> int:
        calls.append(n)
        if len(calls) < 5:
            raise ValueError("not yet")
        return n

    async def story() -> tuple[list[Any], dict[str, Any]]:
        into = list[Any]()
        failing: Any = from_iterable([1, 2]).pipe(adaptive_flat_map(third_time), ops.share())
        report = await failing.pipe(ops.retry(9)).to(collect(into)).run()
        return into, report.statistics

    into, numbers = run_virtual(story())
    assert into == [1, 2]
    assert numbers["in"] == sum(numbers[name] for name in ("finished", "failed", "returned"))
    assert [stage["name"] for stage in numbers["stages"]].count("share") == 1


def test_the_events_of_a_pipeline_end_when_another_that_shares_them_has_finished_too() -> None:
    async def story() -> list[Any]:
        source = MemorySource(range(30))
        shared: Any = source.pipe(ops.share())
        quick, slow = list[int](), list[int]()
        # The first reads the source, and is done with it long before the second.
        first = shared.pipe(adaptive_flat_map(slowly, limit=Fixed(4))).to(collect(quick)).start()
        second = shared.pipe(adaptive_flat_map(slowly, limit=Fixed(1))).to(collect(slow)).start()
        one, other = await first.wait(), await second.wait()
        assert source.unsettled == []
        assert slow == list(range(30 - len(slow), 30))
        return [len(quick), len(slow) > 15, sums(one.statistics), sums(other.statistics)[4]]

    assert run_virtual(story()) == [30, True, (30, 30, 0, 0, 0), 0]


def test_a_drain_of_one_of_two_pipelines_finishes_what_both_have() -> None:
    async def story() -> list[Any]:
        entry: Inbox[int] = inbox(1000)
        shared: Any = entry.pipe(ops.share())
        one, other = list[int](), list[int]()
        first: Running = shared.pipe(adaptive_flat_map(slowly)).to(collect(one)).start()
        second: Running = shared.pipe(adaptive_flat_map(slowly)).to(collect(other)).start()
        await asyncio.sleep(0)
        for n in range(50):
            await entry.put(n)
        await first.drain(10)
        await second.wait()
        return [sorted(one), sorted(other)]

    assert run_virtual(story()) == [list(range(50)), list(range(50))]


def _end_by_take(shared: Any, into: list[int]) -> Running:
    return shared.pipe(ops.take(3)).to(collect(into)).start()


def _end_by_an_error(shared: Any, into: list[int]) -> Running:
    async def third_fails(n: int) -> int:
        if n == 3:
            raise ValueError("third")
        return n

    return shared.pipe(adaptive_flat_map(third_fails)).to(collect(into)).start()


def _end_by_a_cancel(shared: Any, into: list[int]) -> Running:
    async def third_cancels(n: int) -> int:
        if n == 3:
            running.cancel()
        return n

    running: Running = shared.pipe(adaptive_flat_map(third_cancels)).to(collect(into)).start()
    return running


def _end_by_a_cancel_in_a_pause(shared: Any, into: list[int]) -> Running:
    async def third_cancels(n: int) -> int:
        if n == 3:
            running.pause()
            running.cancel()
        return n

    running: Running = shared.pipe(adaptive_flat_map(third_cancels)).to(collect(into)).start()
    return running


@pytest.mark.parametrize("how", ["share", "publish", "replay", "auto_connect"])
@pytest.mark.parametrize(
    "ends", [_end_by_take, _end_by_an_error, _end_by_a_cancel, _end_by_a_cancel_in_a_pause]
)
def test_the_others_read_on_when_the_pipeline_that_reads_the_source_ends(
    how: str, ends: Callable[[Any, list[int]], Running]
) -> None:
    async def story() -> list[Any]:
        entry: Inbox[int] = inbox(1000)
        above: Any = entry.pipe(adaptive_flat_map(slowly, limit=Fixed(2)))
        shared: Any = above.pipe(ops.publish()) if how == "publish" else _SHARED[how](above)
        one, other = list[int](), list[int]()
        first = ends(shared, one)
        second: Running = shared.pipe(adaptive_flat_map(slowly)).to(collect(other)).start()
        await asyncio.sleep(0)
        if how == "publish":
            shared.connect()
        for n in range(20):
            await entry.put(n)
        with suppress(ValueError):
            await first.wait()
        left = first.statistics()
        assert first.report().outcome in ("completed", "stopped", "cancelled")
        assert left["in"] == sum(left[name] for name in ("finished", "failed", "returned"))
        held = ("waiting", "in_flight")
        assert sum(stage.get(name, 0) for stage in left["stages"] for name in held) == 0
        await asyncio.sleep(1)
        for n in range(20, 200):
            await entry.put(n)
        await asyncio.sleep(5)
        second.pause()
        await entry.put(200)
        await asyncio.sleep(1)
        assert len(other) in (200, 199)
        second.resume()
        await asyncio.sleep(1)
        if how in ("share", "replay"):
            # The drain of the last pipeline stops the source, which has these.
            for n in range(201, 300):
                await entry.put(n)
        return [other, sums((await second.drain(5)).statistics)]

    other, (came, *ended, unfinished) = run_virtual(story())
    assert sorted(other) == list(range(300 if how in ("share", "replay") else 201))
    assert (came, unfinished) == (sum(ended), 0)


def test_what_fails_above_a_shared_stream_is_written_when_the_first_pipeline_has_ended(
    tmp_path: Path,
) -> None:
    letters = tmp_path / "letters.jsonl"

    async def story() -> list[int]:
        entry: Inbox[int] = inbox(1000)
        failing: Any = entry.pipe(
            adaptive_flat_map(odd_fails, on_error=route(dead_letters(letters))), ops.share()
        )
        other = list[int]()
        first: Running = failing.pipe(ops.take(1)).to(collect(list[int]())).start()
        second: Running = failing.to(collect(other)).start()
        await asyncio.sleep(0)
        for n in range(3):
            await entry.put(n)
        await first.wait()
        for n in range(3, 20):
            await entry.put(n)
        await second.drain(5)
        return other

    assert sorted(asyncio.run(story())) == list(range(0, 20, 2))
    written = [json.loads(line)["value"] for line in letters.read_text().splitlines()]
    assert sorted(written) == list(range(1, 20, 2))


def test_a_shared_stream_that_is_read_again_and_again_leaves_nothing_in_its_pipeline(
    tmp_path: Path,
) -> None:
    async def story() -> list[tuple[int, int]]:
        policy = route(dead_letters(tmp_path / "letters.jsonl"))
        failing: Any = from_iterable(range(3)).pipe(
            adaptive_flat_map(odd_fails, on_error=policy), ops.share()
        )
        held = list[tuple[int, int]]()
        turns: Inbox[int] = inbox(1)
        again = turns.pipe(ops.concat_map(lambda _: failing))
        running: Running = again.to(collect(list[int]())).start()
        await asyncio.sleep(0)
        run = running._run
        for n in range(20):
            await turns.put(n)
            await asyncio.sleep(1)
            held.append((len(run._flushes), len(run.letters._parts)))
        await running.drain(3)
        return held

    held = run_virtual(story())
    assert held[3:] == held[3:4] * 17


@pytest.mark.parametrize("first", ["the fast one", "the slow one"])
def test_no_more_than_prefetch_wait_for_a_slow_pipeline_whichever_starts_first(first: str) -> None:
    async def rows() -> AsyncIterator[int]:
        for n in range(400):
            await asyncio.sleep(0.001)
            yield n

    async def slow(n: int) -> None:
        await asyncio.sleep(0.02)

    async def story() -> int:
        shared: Any = from_async_iterable(rows).pipe(ops.share(prefetch=4))
        quick = list[int]()
        pipelines = [shared.to(collect(quick)), shared.to(for_each(slow))]
        if first == "the slow one":
            pipelines.reverse()
        runnings = [pipeline.start() for pipeline in pipelines]
        waiting = 0
        for _ in range(300):
            await asyncio.sleep(0.01)
            stages = [stage for one in runnings for stage in one.statistics()["stages"]]
            waiting = max(waiting, *(stage.get("buffered", 0) for stage in stages))
        for running in runnings:
            running.cancel()
            await running.wait()
        return waiting

    assert run_virtual(story()) <= 4


def test_what_branches_with_the_same_numbers_have_sent_is_told_apart() -> None:
    async def story() -> dict[str, int]:
        shared: Any = from_iterable(range(100)).pipe(ops.share())
        all_of_them = shared.pipe(adaptive_flat_map(slowly))
        few = shared.pipe(ops.filter(lambda n: n % 10 == 0))
        running: Running = all_of_them.merge(few).to(collect(list[int]())).start()
        running.record()
        async with running:
            pass
        return {stage["name"]: stage.get("sent") for stage in running.statistics()["stages"]}

    assert run_virtual(story()) == {
        "from_iterable": 100,
        # To both of its readers.
        "share": 200,
        "adaptive_flat_map": 100,
        "filter": 10,
        "merge": 110,
        "collect": None,
    }


def test_traces_go_through_a_shared_stream() -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))

    async def story() -> list[dict[str, Any]]:
        into = list[dict[str, Any]]()
        shared: Any = from_iterable([{"n": n} for n in range(5)]).pipe(ops.share())
        running: Running = (
            shared.pipe(adaptive_flat_map(slowly)).merge(shared).to(collect(into)).start()
        )
        running.trace(provider)
        async with running:
            pass
        return into

    into = run_virtual(story())
    assert len(into) == 10
    assert all("traceparent" in value for value in into)
    names = sorted(span.name for span in spans.get_finished_spans())
    assert names == ["adaptive_flat_map slowly"] * 5 + ["event of from_iterable"] * 5


def test_publish_takes_the_number_of_events_that_may_wait_in_either_way() -> None:
    stages = [
        from_iterable([1]).pipe(way).info for way in (ops.publish(8), ops.publish(prefetch=8))
    ]
    assert [stage.bound for stage in stages] == [8, 8]
    with pytest.raises(BuildError, match="prefetch"):
        ops.publish(0)


@pytest.mark.parametrize("when", ["before", "at once", "later"])
def test_an_event_counts_once_in_a_pipeline_that_does_not_read_the_source(when: str) -> None:
    async def story() -> list[Any]:
        entry: Inbox[int] = inbox(100)
        shared: Any = entry.pipe(ops.publish())
        into = list[Any]()
        if when == "before":
            shared.connect()
        running: Running = in_two_ways(shared).to(collect(into)).start()
        if when == "later":
            await asyncio.sleep(0.01)
        shared.connect()
        await asyncio.sleep(0)
        for n in range(10):
            await entry.put(n)
        await asyncio.sleep(1)
        assert len(into) == 20
        return list(sums((await running.drain(3)).statistics))

    assert run_virtual(story()) == [10, 10, 0, 0, 0]


def test_an_event_counts_once_in_each_of_two_pipelines() -> None:
    async def story() -> list[Any]:
        entry: Inbox[int] = inbox(100)
        shared: Any = entry.pipe(ops.share())
        one, other = list[Any](), list[Any]()
        first: Running = in_two_ways(shared).to(collect(one)).start()
        second: Running = in_two_ways(shared).to(collect(other)).start()
        await asyncio.sleep(0)
        for n in range(10):
            await entry.put(n)
        await asyncio.sleep(1)
        assert len(one) == len(other) == 20
        reports = await first.drain(3), await second.wait()
        return [sums(report.statistics) for report in reports]

    assert run_virtual(story()) == [(10, 10, 0, 0, 0)] * 2


def test_a_pause_and_a_drain_of_the_other_pipeline_are_those_of_its_readers() -> None:
    async def story() -> list[Any]:
        entry: Inbox[int] = inbox(100)
        shared: Any = entry.pipe(ops.share())
        one, other = list[Any](), list[Any]()
        first: Running = shared.to(collect(one)).start()
        second: Running = in_two_ways(shared).to(collect(other)).start()
        await asyncio.sleep(0)
        second.pause()
        for n in range(10):
            await entry.put(n)
        await asyncio.sleep(1)
        held = [len(one), len(other), second.statistics()["unfinished"]]
        second.resume()
        await asyncio.sleep(1)
        report = await second.drain(3)
        for n in range(10):
            await entry.put(n)
        await asyncio.sleep(1)
        await first.drain(3)
        return [held, sums(report.statistics), len(one), len(other)]

    held, numbers, one, other = run_virtual(story())
    assert held[1] == 0
    assert held[2] <= 10
    assert numbers == (10, 10, 0, 0, 0)
    assert (one, other) == (20, 20)


def test_what_one_reader_of_the_other_pipeline_returns_is_returned_there_once() -> None:
    async def story() -> list[Any]:
        entry: Inbox[int] = inbox(100)
        shared: Any = entry.pipe(ops.share())
        first: Running = shared.to(collect(list[int]())).start()
        second: Running = in_two_ways(shared).to(collect(list[Any]())).start()
        await asyncio.sleep(0)
        for n in range(10):
            await entry.put(n)
        # Four are worked on, and the other way has all of them.
        await asyncio.sleep(0.005)
        second.cancel()
        numbers = sums((await second.wait()).statistics)
        return [numbers, sums((await first.drain(3)).statistics)]

    # The source gets back what one of its readers has returned.
    assert run_virtual(story()) == [(10, 0, 0, 10, 0), (10, 0, 0, 10, 0)]


def test_readers_that_come_and_go_in_a_pipeline_that_does_not_read_the_source_leave_nothing() -> (
    None
):
    async def story() -> tuple[list[tuple[int, ...]], tuple[int, ...], int]:
        entry: Inbox[int] = inbox(100)
        shared: Any = entry.pipe(ops.share())
        all_of_them, one_each, alive = list[int](), list[int](), list[int]()
        held = list[tuple[int, ...]]()
        first: Running = shared.to(collect(all_of_them)).start()
        turns: Inbox[int] = inbox(1)
        # Each turn reads the shared stream anew, for one event.
        reading = turns.pipe(ops.concat_map(lambda _: shared.pipe(ops.take(1))))
        second: Running = reading.to(collect(one_each)).start()
        await asyncio.sleep(0)
        for n in range(60):
            await turns.put(n)
            await asyncio.sleep(0)
            await entry.put(n)
            await asyncio.sleep(0.01)
            runs, pauses = second._run.nesting, second._run.pauses
            held.append((len(runs.inner), len(runs.sources), len(runs.stages), len(pauses.sources)))
            if n in (5, 59):
                gc.collect()
                alive.append(sum(isinstance(each, BaseSourceStage) for each in gc.get_objects()))
        numbers = sums((await second.drain(3)).statistics)
        await first.drain(3)
        assert alive[0] == alive[1]
        return held, numbers, len(one_each)

    held, numbers, received = run_virtual(story())
    assert received == 60
    assert numbers == (120, 120, 0, 0, 0)
    assert held[-1] == held[1]


def test_a_shared_stream_that_is_read_on_another_loop_is_refused() -> None:
    entry: Inbox[int] = inbox(10)
    shared: Any = entry.pipe(ops.share())

    async def first() -> None:
        running: Running = shared.to(collect(list[int]())).start()
        await asyncio.sleep(0)
        with ThreadPoolExecutor(1) as threads:
            second = threads.submit(asyncio.run, shared.to(collect(list[int]())).run())
            with pytest.raises(BuildError, match="share is read on another event loop"):
                second.result()
        running.cancel()

    asyncio.run(first())
    # The first has left.
    assert asyncio.run(_one_more(shared, entry)) == [1]


async def _one_more(shared: Any, entry: Inbox[int]) -> list[int]:
    into = list[int]()
    running: Running = shared.to(collect(into)).start()
    await asyncio.sleep(0)
    await entry.put(1)
    await running.drain(3)
    return into
