"""Sinks that each worker opens: what they promise, and what they are refused for."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Event,
    Fixed,
    Flowable,
    Sink,
    SinkStage,
    adaptive_flat_map,
    collect,
    dead_letters,
    for_each,
    from_iterable,
    group_by,
    latency_histogram,
    ops,
    read_table,
    route,
    spread,
    write_jsonl,
    write_kafka,
    write_table,
)
from penstock.streams.base.errors import BuildError, CannotOpen
from penstock.streams.pipelines.running import Report, Running
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import Closed
from penstock.streams.testing.loop import run_virtual
from penstock.streams.workers.messages import Complete, Completed, Ended, Over, Parts
from penstock.streams.workers.placement import section_of
from tests.helpers.local_workers import LocalCrew, random_delay


def run_with(
    workers: LocalCrew | int,
    stream: Flowable[Any],
    *sinks: Sink[Any],
    beside: Callable[[Running], Any] | None = None,
) -> Report:
    """Run it with these workers; 0: in one process."""
    crew = LocalCrew(workers) if isinstance(workers, int) and workers else workers or None

    async def main() -> Report:
        async with stream.to(*sinks).start(workers=crew) as running:
            if beside is not None:
                await beside(running)
            return await running.wait()

    return run_virtual(main())


def same(value: Any) -> Any:
    return value


async def waiting(value: Any) -> Any:
    await asyncio.sleep(0.01)
    return value


def forever() -> Iterator[int]:
    value = 0
    while True:
        yield value
        value += 1


class Batches(Sink[Any]):
    """Writes `size` values at a time, and the rest at the end of the stream."""

    in_workers = True

    def __init__(self, into: list[list[Any]], size: int) -> None:
        self.info = StageInfo("batches", bound=size)
        self.into = into
        self.size = size
        self.opened = 0

    def open(self, run: Run, closed: Closed) -> SinkStage[Any]:
        self.opened += 1
        return _Batches(closed, self)


class _Batches(SinkStage[Any]):
    def __init__(self, closed: Closed, sink: Batches) -> None:
        super().__init__(closed)
        self.asks_first = sink.size
        self._sink = sink
        self._held: list[Event[Any]] = []

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._held += events
        if len(self._held) == self._sink.size:
            self._write()

    def _write(self) -> None:
        held, self._held = self._held, []
        self._sink.into.append([event.value for event in held])
        for event in held:
            event.finish()
        if not self.state:
            self.upstream.request(len(held))

    def end(self, error: BaseException | None) -> None:
        if self._held:
            self._write()
        super().end(error)

    def give_back(self) -> None:
        for event in self._held:
            event.give_back()


# What goes where.


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_each_worker_opens_the_sink_and_sends_no_results(workers: int) -> None:
    into: list[list[Any]] = []
    sink, crew = Batches(into, 5), LocalCrew(workers)
    report = run_with(crew, from_iterable(range(101)).pipe(adaptive_flat_map(same)), sink)
    assert sorted(value for values in into for value in values) == list(range(101))
    assert report.statistics["finished"] == 101
    assert sink.opened == workers
    for worker in range(workers):
        sent = crew.messages(worker)[1]
        assert not [message for message in sent if isinstance(message, Ended | Parts)]
        assert [message for message in sent if isinstance(message, Over)]


def test_without_workers_the_sink_is_opened_once() -> None:
    into: list[list[Any]] = []
    sink = Batches(into, 5)
    run_with(0, from_iterable(range(7)).pipe(adaptive_flat_map(same)), sink)
    assert into == [[0, 1, 2, 3, 4], [5, 6]]
    assert sink.opened == 1


def test_the_sink_is_opened_where_no_event_comes() -> None:
    sink = Batches([], 5)
    run_with(2, from_iterable([]).pipe(adaptive_flat_map(same)), sink)
    assert sink.opened == 2


@pytest.mark.parametrize("handler", [same, waiting])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_go_to_the_sinks_in_the_workers_and_to_those_of_the_parent(
    workers: int, handler: Any
) -> None:
    there: list[Any] = []
    here: list[Any] = []
    report = run_with(
        workers,
        from_iterable(range(700)).pipe(adaptive_flat_map(handler)),
        *(collect(here), for_each(there.append, in_workers=True)),
    )
    assert sorted(there) == sorted(here) == list(range(700))
    assert report.statistics["finished"] == 700


def test_several_results_of_an_event_go_to_both() -> None:
    async def twice(value: int) -> Any:
        yield value
        yield value

    there: list[Any] = []
    here: list[Any] = []
    stream = from_iterable(range(50)).pipe(adaptive_flat_map(twice))
    report = run_with(2, stream, collect(here), for_each(there.append, in_workers=True))
    assert Counter(there) == Counter(here) == Counter(dict.fromkeys(range(50), 2))
    assert report.statistics["finished"] == 50


def test_results_for_a_sink_that_only_measures_come_without_their_values() -> None:
    there: list[Any] = []
    crew = LocalCrew(2)
    report = run_with(
        crew,
        from_iterable(range(30)).pipe(adaptive_flat_map(waiting)),
        *(for_each(there.append, in_workers=True), latency_histogram(report=None)),
    )
    assert report.statistics["latency"]["total"]["count"] == 30
    assert report.statistics["latency"]["service"]["median"] == pytest.approx(0.01, rel=0.1)
    sent = [one for worker in (0, 1) for one in crew.messages(worker)[1] if isinstance(one, Parts)]
    assert {value for message in sent for value in message.results} == {b""}


def test_results_for_json_lines_are_encoded_there_and_go_to_the_other_sink_as_they_are(
    tmp_path: Path,
) -> None:
    there: list[Any] = []
    stream = from_iterable(range(6)).pipe(adaptive_flat_map(lambda value: {"a": value}))
    output = write_jsonl(tmp_path / "out.jsonl")
    run_with(2, stream, for_each(there.append, in_workers=True), output)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert sorted(lines) == [f'{{"a":{value}}}' for value in range(6)]
    assert sorted(value["a"] for value in there) == list(range(6))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_results_that_a_sink_in_the_workers_drops_go_to_the_parent(workers: int) -> None:
    class Picky(Batches):
        def open(self, run: Run, closed: Closed) -> SinkStage[Any]:
            return _Picky(closed)

    here: list[int] = []
    stream = from_iterable(range(9)).pipe(adaptive_flat_map(same))
    report = run_with(workers, stream, Picky([], 1), collect(here))
    assert sorted(here) == list(range(9))
    assert report.statistics["unfinished"] == 0


class _Picky(SinkStage[Any]):
    asks_first = 20

    def on_events(self, events: list[Event[Any]], /) -> None:
        for event in events:
            if event.value % 2:
                event.finish()
            else:
                event.drop("even")


# Promises.


def test_an_event_is_acknowledged_only_when_the_sink_in_the_worker_has_accepted_it() -> None:
    accepted: list[int] = []

    async def slowly(value: int) -> None:
        await asyncio.sleep(1)
        accepted.append(value)

    async def look(running: Running) -> None:
        for seconds in range(5):
            await asyncio.sleep(1)
            assert running.statistics()["finished"] <= len(accepted) <= 2 * (seconds + 1)

    stream = from_iterable(range(20)).pipe(adaptive_flat_map(same))
    run_with(2, stream, for_each(slowly, in_workers=True), beside=look)
    assert sorted(accepted) == list(range(20))


def test_a_slow_sink_in_the_workers_bounds_what_is_taken_in() -> None:
    async def slowly(value: int) -> None:
        await asyncio.sleep(1)

    taken = 0

    def values() -> Any:
        nonlocal taken
        for value in range(1_000):
            taken += 1
            yield value

    stream = from_iterable(values()).pipe(adaptive_flat_map(same, limit=Fixed(4), window=8))
    sink = for_each(slowly, in_workers=True)
    bound = section_of(stream.chain(), [sink]).bound()
    most = 0

    async def look(running: Running) -> None:
        nonlocal most
        await asyncio.sleep(20)
        most = running.statistics()["unfinished"]
        running.cancel()

    assert run_with(2, stream, sink, beside=look).outcome == "cancelled"
    assert bound == 4 + 8 + 1
    assert 2 <= most <= bound
    assert taken < 300


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_sinks_get_the_results_of_a_key_in_their_order(workers: int) -> None:
    there: list[tuple[int, int]] = []

    async def handler(value: tuple[int, int]) -> tuple[int, int]:
        await asyncio.sleep(value[1] % 3 * 0.01)
        return value

    async def write(value: tuple[int, int]) -> None:
        await asyncio.sleep(value[1] % 2 * 0.002)
        there.append(value)

    events = [(number % 7, number) for number in range(200)]
    stream = from_iterable(events).pipe(
        group_by(lambda value: value[0]), spread(), adaptive_flat_map(handler)
    )
    crew = LocalCrew(workers, random_delay(workers, 0.02))
    run_with(crew, stream, for_each(write, in_workers=True))
    for key in range(7):
        assert [value for value in there if value[0] == key] == [
            value for value in events if value[0] == key
        ]


@pytest.mark.parametrize("at", [0.05, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("workers", [2, 3])
def test_a_worker_that_is_killed_loses_nothing_of_what_its_sink_has_taken(
    workers: int, at: float
) -> None:
    there: list[int] = []
    here: list[int] = []

    async def write(value: int) -> None:
        await asyncio.sleep(0.01)
        there.append(value)

    async def kill(running: Running) -> None:
        await asyncio.sleep(at)
        crew.kill(0)

    crew = LocalCrew(workers, random_delay(workers, 0.005))
    stream = from_iterable(range(300)).pipe(adaptive_flat_map(waiting))
    sinks = for_each(write, in_workers=True), collect(here)
    report = run_with(crew, stream, *sinks, beside=kill)
    assert set(there) == set(here) == set(range(300))
    assert report.statistics["finished"] == 300
    assert crew.started == workers + 1


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_sink_writes_at_the_end_of_the_stream_what_it_held_until_then(workers: int) -> None:
    into: list[list[Any]] = []
    stream = from_iterable(range(23)).pipe(adaptive_flat_map(waiting))
    run_with(workers, stream, Batches(into, 10))
    assert sorted(value for values in into for value in values) == list(range(23))


@pytest.mark.parametrize("killed", [0, 1])
def test_a_worker_that_is_killed_at_the_end_of_the_stream_loses_nothing(killed: int) -> None:
    into: list[int] = []

    async def write(value: int) -> None:
        # Of the first worker all is done when the second is killed, or the other way round.
        await asyncio.sleep(2.0 if value % 2 == killed else 0.01)
        into.append(value)

    async def kill(running: Running) -> None:
        await asyncio.sleep(5)
        assert len(crew.alive) == 2
        crew.kill(killed)

    crew = LocalCrew(2)
    stream = from_iterable(range(12)).pipe(group_by(lambda n: n % 2), spread(), WORK)
    report = run_with(crew, stream, for_each(write, in_workers=True), beside=kill)
    assert set(into) == set(range(12))
    assert report.statistics["finished"] == 12


@pytest.mark.parametrize("seconds", [0.01, 1.5])
def test_a_worker_that_has_ended_is_started_again_for_events_of_one_that_was_killed(
    seconds: float,
) -> None:
    into: list[int] = []

    async def write(value: int) -> None:
        await asyncio.sleep(20 if value in crew.values(1) and not into.count(-1) else seconds)
        into.append(value)

    async def kill(running: Running) -> None:
        await asyncio.sleep(5)
        # With slow writes it still ends.
        assert isinstance(crew.messages(0)[1][-1], Completed) == (seconds == 0.01)
        assert any(isinstance(message, Complete) for message in crew.messages(0)[0])
        # From now on there are slots for the first worker only.
        running.retune(Fixed(1))
        await asyncio.sleep(1)
        crew.kill(1)
        into.append(-1)

    crew = LocalCrew(2)
    stream = from_iterable(range(12)).pipe(adaptive_flat_map(same, limit=Fixed(2)))
    report = run_with(crew, stream, for_each(write, in_workers=True), beside=kill)
    assert sorted(into) == [-1, *range(12)]
    assert report.statistics["finished"] == 12
    assert crew.started == 4


WORK = adaptive_flat_map(same)


# Errors.


def outcome(workers: int, *sinks: Sink[Any]) -> Any:
    try:
        report = run_with(workers, from_iterable(range(9)).pipe(WORK), *sinks)
    except Exception as error:
        return type(error), str(error), error.__notes__
    numbers = report.statistics
    return report.exit_status, numbers["finished"], numbers["failed"], numbers["errors"]


def bad(value: int) -> None:
    if value == 4:
        raise ValueError(f"not {value}")


async def badly(value: int) -> None:
    bad(value)


@pytest.mark.parametrize("function", [bad, badly])
@pytest.mark.parametrize("on_error", ["stop", "skip", "revert"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_an_error_of_the_sink_ends_as_it_does_in_one_process(
    workers: int, on_error: Any, function: Any
) -> None:
    there = for_each(function, on_error=on_error, in_workers=True)
    assert outcome(workers, there) == outcome(0, there)
    assert outcome(workers, collect([]), there) == outcome(0, collect([]), there)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_events_that_fail_in_the_sink_are_dead_letters_of_the_parent(
    workers: int, tmp_path: Path
) -> None:
    letters = dead_letters(tmp_path / "letters.jsonl")
    sink = for_each(bad, on_error=route(letters), in_workers=True)
    assert outcome(workers, sink) == (3, 8, 1, {"ValueError": 1})
    (line,) = (tmp_path / "letters.jsonl").read_text().splitlines()
    assert '"value":4' in line
    assert '"stage":"stage 3 \'for_each\'"' in line


def test_a_sink_that_routes_without_saying_so_is_refused() -> None:
    from penstock.streams.failures.error_policy import ErrorPolicy

    class Routing(Batches):
        def open(self, run: Run, closed: Closed) -> SinkStage[Any]:
            stage = super().open(run, closed)
            ErrorPolicy(route(collect([])), run, stage)
            return stage

    with pytest.raises(BuildError, match="give its `info` its on_error as `policy`"):
        run_with(2, from_iterable(range(3)).pipe(WORK), Routing([], 2))


def test_a_sink_that_cannot_be_opened_ends_the_pipeline(caplog: pytest.LogCaptureFixture) -> None:
    class Missing(Batches):
        def open(self, run: Run, closed: Closed) -> SinkStage[Any]:
            raise CannotOpen("there is no such place")

    with pytest.raises(CannotOpen, match="no such place"):
        run_with(3, from_iterable(range(3)).pipe(WORK), Missing([], 2))
    # The workers have all failed in the same way.
    assert caplog.messages == []


def test_an_error_of_what_a_sink_has_opened_ends_the_pipeline_when_it_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unclosed(Batches):
        def open(self, run: Run, closed: Closed) -> SinkStage[Any]:
            async def close() -> None:
                raise OSError("cannot be closed")

            run.on_close(close)
            return super().open(run, closed)

    with pytest.raises(OSError, match="cannot be closed"):
        run_with(2, from_iterable(range(3)).pipe(WORK), Unclosed([], 2))
    assert caplog.messages == []


def test_a_sink_that_ends_by_itself_is_refused_by_an_error() -> None:
    class First(Batches):
        def open(self, run: Run, closed: Closed) -> SinkStage[Any]:
            return _First(closed)

    with pytest.raises(BuildError, match="closed before the end of the stream"):
        run_with(2, from_iterable(forever()).pipe(WORK), First([], 2))


class _First(SinkStage[Any]):
    def accept(self, event: Event[Any]) -> None:
        if event.value > 10:
            self.upstream.cancel()
            self.close()


def test_after_an_error_the_sinks_of_other_workers_write_what_they_have_taken() -> None:
    there: list[int] = []

    async def write(value: int) -> None:
        await asyncio.sleep(0.1)
        if value == 0:
            raise ValueError("no")
        there.append(value)

    crew = LocalCrew(2)
    stream = from_iterable(range(40)).pipe(adaptive_flat_map(same, limit=Fixed(4), window=4))
    with pytest.raises(ValueError, match="no") as caught:
        run_with(crew, stream, for_each(write, in_workers=True))
    assert caught.value.__notes__ == ["in stage 3 'for_each', on the event 0"]
    assert there
    assert len(there) < 20


def test_after_an_error_nothing_begins_in_workers_that_know_of_the_end_of_the_stream() -> None:
    began: list[int] = []

    async def handler(value: int) -> int:
        began.append(value)
        await asyncio.sleep(1)
        if value == 2:
            raise ValueError("no")
        return value

    there: list[int] = []
    crew = LocalCrew(2)
    stream = from_iterable(range(40)).pipe(
        group_by(lambda number: number % 4), spread(), adaptive_flat_map(handler, limit=Fixed(2))
    )
    with pytest.raises(ValueError, match="no"):
        run_with(crew, stream, for_each(there.append, in_workers=True))
    assert any(isinstance(message, Complete) for message in crew.messages(0)[0])
    assert len(began) < 10


def test_what_a_sink_in_a_worker_skips_after_an_error_still_goes_to_the_parent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(value: int) -> int:
        await asyncio.sleep(0.1 if value == 0 else 1)
        if value == 0:
            raise ValueError("no")
        return value

    def refuse(value: int) -> None:
        raise OSError("not written")

    here: list[int] = []
    stream = from_iterable(range(4)).pipe(adaptive_flat_map(handler, limit=Fixed(4)))
    with pytest.raises(ValueError, match="no"):
        run_with(2, stream, for_each(refuse, on_error="skip", in_workers=True), collect(here))
    assert sorted(here) == [1, 2, 3]
    assert len(caplog.messages) == 3
    assert all(message.startswith("OSError: not written") for message in caplog.messages)


def test_an_error_of_a_sink_after_the_one_that_ends_the_pipeline_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(value: int) -> int:
        if value == 0:
            await asyncio.sleep(0.1)
            raise ValueError("no")
        return value

    async def write(value: int) -> None:
        await asyncio.sleep(1)
        raise OSError("not written")

    stream = from_iterable(range(2)).pipe(adaptive_flat_map(handler, limit=Fixed(2)))
    with pytest.raises(ValueError, match="no"):
        run_with(2, stream, for_each(write, in_workers=True))
    (message,) = caplog.messages
    assert message.startswith("after the first error: OSError: not written (in stage 3 'for_each'")


# The end.


def test_a_drain_writes_what_was_taken_in() -> None:
    into: list[list[Any]] = []

    async def drain(running: Running) -> None:
        await asyncio.sleep(0.5)
        report = await running.drain()
        assert report.statistics["unfinished"] == 0

    stream = from_iterable(forever()).pipe(adaptive_flat_map(waiting, limit=Fixed(6)))
    report = run_with(2, stream, Batches(into, 7), beside=drain)
    assert sum(map(len, into)) == report.statistics["finished"] == report.statistics["in"] > 100


def test_cancel_returns_what_the_sinks_have_not_accepted() -> None:
    there: list[int] = []

    async def write(value: int) -> None:
        await asyncio.sleep(1)
        there.append(value)

    async def cancel(running: Running) -> None:
        await asyncio.sleep(3.5)
        running.cancel()

    stream = from_iterable(range(300)).pipe(WORK)
    report = run_with(2, stream, for_each(write, in_workers=True), beside=cancel)
    numbers = report.statistics
    assert report.outcome == "cancelled"
    assert len(there) == numbers["finished"] == 6
    assert numbers["returned"] == numbers["in"] - 6


# Statistics.


def test_the_numbers_of_the_sink_are_those_of_all_workers_and_of_each() -> None:
    async def write(value: int) -> None:
        await asyncio.sleep(0.01)
        bad(value % 5)

    stream = from_iterable(range(40)).pipe(WORK)
    here: list[int] = []
    sinks = for_each(write, on_error="skip", in_workers=True), collect(here)
    report = run_with(2, stream, *sinks)
    stages = report.statistics["stages"]
    assert [stage["name"] for stage in stages] == [
        "from_iterable",
        "adaptive_flat_map",
        "for_each",
        "collect",
    ]
    sink = stages[2]
    assert sink["skipped"] == 8
    assert sink["in_flight"] == sink["waiting"] == 0
    assert [worker["skipped"] for worker in sink["by_worker"]] == [4, 4]
    assert report.statistics["failed"] == 8


def test_a_live_page_measures_the_events_that_sinks_in_workers_get() -> None:
    there: list[int] = []

    async def look(running: Running) -> None:
        recorder = running.record()
        await asyncio.sleep(0.001)
        await running.wait()
        assert recorder.latency()["total"]["count"] == 50
        assert running.statistics()["latency"]["service"]["median"] == pytest.approx(0.01, rel=0.1)

    stream = from_iterable(range(50)).pipe(adaptive_flat_map(waiting))
    report = run_with(2, stream, for_each(there.append, in_workers=True), beside=look)
    assert sorted(there) == list(range(50))
    assert report.statistics["stages"][1]["sent"] == 50


# Refusals.


def test_a_sink_below_a_stage_of_the_parent_cannot_be_opened_in_workers() -> None:
    sink = for_each(print, in_workers=True)
    stream = from_iterable([1]).pipe(WORK, ops.map(str), ops.scan(max))
    expected = (
        r"stage 5 'for_each' cannot be opened in the workers, because stage 4 'scan' above it runs "
        r"in the parent\. Leave in_workers=True out"
    )
    with pytest.raises(BuildError, match=expected):
        section_of(stream.chain(), [sink])


def test_a_sink_of_ordered_results_cannot_be_opened_in_workers() -> None:
    sink = for_each(print, in_workers=True)
    stream = from_iterable([1]).pipe(adaptive_flat_map(same, ordered=True))
    with pytest.raises(BuildError, match=r"stage 2 'adaptive_flat_map' has ordered=True, and only"):
        section_of(stream.chain(), [sink])


def test_a_sink_whose_transactions_are_those_of_a_reader_cannot_be_opened_in_workers() -> None:
    with pytest.raises(BuildError, match="the transactions are those of the reader"):
        write_kafka("topic", transactional=True, in_workers=True)


def test_rows_that_are_written_with_those_of_the_source_are_the_parents(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'work.db'}"
    run_with(0, from_iterable([{"a": 1}]), write_table(url, "work"))
    stream = read_table(url, "work", follow=False).pipe(WORK)
    with pytest.raises(BuildError, match="leave in_workers out"):
        run_with(2, stream, write_table(url, "results", in_workers=True))
    # Into another database they are two transactions anyway.
    other = tmp_path / "other.db"
    run_with(2, stream, write_table(f"sqlite:///{other}", "results", in_workers=True))
    with closing(sqlite3.connect(other)) as database:
        assert database.execute("select count(*) from results").fetchone() == (1,)
