"""The events of streams that are read inside another one: counted, and named by their places."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import reactivex

from penstock import (
    Fixed,
    Flowable,
    adaptive_flat_map,
    from_iterable,
    ops,
    read_jsonl,
    retry,
    route,
)
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.running.report import Report
from penstock.streams.runtime.context import Run as StreamRun
from penstock.streams.stages.own import SourceStage
from penstock.streams.testing import MemorySink, MemorySource
from penstock.streams.testing.plugin import Run


class _Rows(SourceStage[int]):
    """A source that cannot give its events again."""

    def __init__(self, downstream: Subscriber[int], run: StreamRun, rows: Iterable[int]) -> None:
        super().__init__(downstream, run, StageInfo("rows"))
        self._rows = iter(rows)

    def produce(self) -> None:
        self.produce_from(self._rows)


def rows_of(values: Iterable[int]) -> Flowable[int]:
    return Flowable(lambda below, run: _Rows(below, run, values).start(), StageInfo("rows"))


Read = Callable[[Flowable[Any], Callable[[Any], Any]], Flowable[Any]]

READING: dict[str, Read] = {
    "flat_map": lambda s, f: s.pipe(ops.flat_map(f)),
    "flat_map of one": lambda s, f: s.pipe(ops.flat_map(f, max_concurrent=1)),
    "concat_map": lambda s, f: s.pipe(ops.concat_map(f)),
    "switch_map": lambda s, f: s.pipe(ops.switch_map(f)),
    "exhaust_map": lambda s, f: s.pipe(ops.exhaust_map(f)),
    "merge_all": lambda s, f: s.pipe(ops.map(f), ops.merge_all()),
    "concat_all": lambda s, f: s.pipe(ops.map(f), ops.concat_all()),
    "switch_latest": lambda s, f: s.pipe(ops.map(f), ops.switch_latest()),
    "exclusive": lambda s, f: s.pipe(ops.map(f), ops.exclusive()),
    "adaptive_flat_map": lambda s, f: s.pipe(adaptive_flat_map(lambda one: f(one), Fixed(1))),
}


def is_whole(numbers: dict[str, Any]) -> bool:
    ended = sum(numbers[name] for name in ("finished", "failed", "returned"))
    left = numbers["waiting"] + numbers["in_flight"]
    return bool(numbers["in"] == ended + sum(numbers["dropped"].values()) + left)


def refuse_two(value: Any) -> Any:
    if value["n"] == 2:
        raise ValueError("two")
    return value


def files(folder: Path, count: int) -> list[Path]:
    paths = [folder / f"{number}.jsonl" for number in range(count)]
    for path in paths:
        path.write_text("".join(f'{{"n": {n}}}\n' for n in range(5)))
    return paths


@pytest.mark.parametrize("name", READING)
def test_the_lines_of_files_are_counted_and_named_by_file_and_line(
    run: Run, tmp_path: Path, name: str
) -> None:
    paths, letters, sink = files(tmp_path, 3), MemorySink(), MemorySink()
    stage = adaptive_flat_map(refuse_two, on_error=route(letters))
    pipeline = READING[name](from_iterable(paths), read_jsonl).pipe(stage).to(sink)
    numbers = run(pipeline.run()).statistics
    assert len(sink.values) == 12
    # Three files and their fifteen lines.
    assert (numbers["in"], numbers["finished"], numbers["failed"]) == (18, 15, 3)
    notes = [letter.error.__notes__[0] for letter in letters.values]
    for note, path in zip(notes, paths, strict=True):
        assert note.endswith(f"({path}, line 3)")
    assert [letter.token for letter in letters.values] == [3, 3, 3]


@pytest.mark.parametrize("name", READING)
def test_the_sum_holds_in_every_snapshot(run: Run, name: str) -> None:
    seen: list[dict[str, Any]] = []

    async def story() -> Report:
        async def work(value: int) -> int:
            await asyncio.sleep(1)
            seen.append(running.statistics())
            if value % 3 == 0:
                raise ValueError(value)
            return value

        inner = adaptive_flat_map(work, Fixed(2), on_error="skip")
        stream = READING[name](from_iterable(range(4)), lambda n: rows_of(range(n)).pipe(inner))
        running = stream.to(MemorySink()).start()
        return await running.wait()

    numbers = run(story()).statistics
    assert seen
    assert all(is_whole(one) for one in (*seen, numbers))
    assert any(one["in_flight"] for one in seen)
    assert [one["in"] for one in seen] == sorted(one["in"] for one in seen)
    assert numbers["waiting"] == numbers["in_flight"] == 0


def test_an_event_whose_stream_fails_fails_with_it(run: Run) -> None:
    def rows(n: int) -> Any:
        return rows_of(range(n)).pipe(ops.map(lambda row: 1 // (row - 1)))

    with pytest.raises(ZeroDivisionError) as raised:
        run(from_iterable([5]).pipe(ops.flat_map(rows)).to(MemorySink()).run())
    assert "on the event 1" in raised.value.__notes__[0]


def test_a_failure_inside_from_which_a_stage_goes_on_is_recovered_from(run: Run) -> None:
    def rows(n: int) -> Any:
        broken = rows_of([1, 0]).pipe(ops.map(lambda row: n // row))
        return broken.pipe(ops.catch(from_iterable([-1])))

    within = from_iterable([5]).pipe(ops.flat_map(rows))
    broken = from_iterable([1]).pipe(
        ops.flat_map(lambda n: rows_of([0]).pipe(ops.map(lambda row: n // row)))
    )
    for stream, values in ((within, [5, -1]), (broken.pipe(ops.catch(from_iterable([7]))), [7])):
        sink = MemorySink()
        report = run(stream.to(sink).run())
        numbers = report.statistics
        assert sink.values == values
        assert (numbers["failed"], report.exit_status) == (numbers["recovered"], 0)
        assert is_whole(numbers)


def test_a_call_that_is_tried_again_recovers_from_the_failure_of_its_stream(run: Run) -> None:
    attempts: list[int] = []

    def rows(n: int) -> Any:
        attempts.append(n)
        return rows_of([n]).pipe(ops.map(lambda row: row // (len(attempts) - 1)))

    sink = MemorySink()
    stage = adaptive_flat_map(lambda n: rows(n), on_error=retry(2))
    report = run(from_iterable([5]).pipe(stage).to(sink).run())
    assert sink.values == [5]
    assert (report.statistics["failed"], report.statistics["recovered"]) == (1, 1)
    assert report.exit_status == 0


@pytest.mark.parametrize(
    "values", [lambda n: reactivex.of(n, n, n), lambda n: from_iterable([n, n, n])]
)
def test_plain_values_count_as_made_of_their_event(run: Run, values: Any) -> None:
    for name in READING:
        stream = READING[name](from_iterable([1, 2]), values)
        numbers = run(stream.to(MemorySink()).run()).statistics
        assert (numbers["in"], numbers["finished"]) == (2, 2), name


def test_the_failure_of_a_value_of_an_observable_is_that_of_its_event(run: Run) -> None:
    stream = from_iterable([1, 2]).pipe(ops.flat_map(lambda n: reactivex.of({"n": n}, {"n": 3})))
    stage = adaptive_flat_map(refuse_two, on_error="skip")
    numbers = run(stream.pipe(stage).to(MemorySink()).run()).statistics
    assert (numbers["in"], numbers["finished"], numbers["failed"]) == (2, 1, 1)


def test_a_source_inside_that_gives_again_gets_its_event_back_and_so_does_the_one_outside(
    run: Run,
) -> None:
    async def story() -> None:
        outer, inner, sink = MemorySource("a"), MemorySource([1, 2]), MemorySink(hold=True)
        pipeline = outer.pipe(ops.flat_map(lambda _: inner)).to(sink)
        async with pipeline.start() as running:
            await asyncio.sleep(1)
            running.cancel()
        numbers = running.statistics()
        assert is_whole(numbers)
        assert (numbers["returned"], numbers["in"]) == (2, 2)

    run(story())


@pytest.mark.parametrize("name", READING)
def test_streams_that_have_ended_are_held_no_longer(run: Run, name: str) -> None:
    held: list[int] = []

    async def story() -> None:
        def look(value: int) -> int:
            held.append(len(running._run.nesting.inner))
            return value

        stream = READING[name](from_iterable(range(50)), lambda n: rows_of([n, n]))
        running = stream.pipe(ops.map(look)).to(MemorySink()).start()
        await running.wait()

    run(story())
    assert len(held) == 100
    assert max(held) <= 2
