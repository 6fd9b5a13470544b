from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as stock
from reactivex.testing import TestScheduler

from penstock import (
    Backoff,
    Fixed,
    adaptive_flat_map,
    collect,
    from_async_iterable,
    from_iterable,
    ops,
    read_jsonl,
    read_lines,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.testing import (
    COMPLETED,
    CountedSource,
    MemorySource,
    Probe,
    on_scheduler,
    play,
    run_virtual,
)
from tests.helpers.like_stock import assert_like_stock, messages


class Fails:
    """Raises at its calls with these numbers, from 1."""

    def __init__(self, *calls: int) -> None:
        self.calls = 0
        self._fails = calls

    def __call__(self, value: Any) -> Any:
        self.calls += 1
        if self.calls in self._fails:
            raise ValueError(self.calls)
        return value


def test_what_came_before_the_error_comes_again() -> None:
    stream = from_iterable("abc").pipe(ops.map(Fails(3, 5)), ops.retry())
    assert run_virtual(stream.to_list()) == ["a", "b", "a", "a", "b", "c"]


def test_the_error_of_the_last_reading_passes() -> None:
    stream = from_iterable("ab").pipe(ops.map(Fails(2, 4)), ops.retry(2))
    seen = list[str]()
    errors = list[Exception]()
    stream.subscribe(seen.append, errors.append)
    assert (seen, [str(error) for error in errors]) == (["a", "a"], ["4"])


@given(messages(), st.integers(1, 4))
def test_it_is_like_stock(source: Any, times: int) -> None:
    assert_like_stock(lambda: stock.retry(times), source)


@given(messages())
def test_it_is_like_stock_without_a_limit(source: Any) -> None:
    assert_like_stock(lambda: stock.retry(), source, until=320)


def test_the_wait_grows_with_each_reading_that_gave_nothing() -> None:
    backoff = Backoff(first=1, cap=5, jitter=0)
    # Readings 1 to 4 fail at once, the fifth at its second event.
    stream = from_iterable("ab").pipe(ops.map(Fails(1, 2, 3, 4, 6)), ops.retry(backoff=backoff))
    result = TestScheduler().start(lambda: on_scheduler(stream))
    times = [(message.time, str(message.value)) for message in result.messages]
    assert times == [
        (200 + 1 + 2 + 4 + 5, "OnNext(a)"),
        (212 + 1, "OnNext(a)"),
        (213, "OnNext(b)"),
        (213, "OnCompleted()"),
    ]


def test_a_cancel_ends_the_wait() -> None:
    async def story() -> int:
        fails = Fails(1, 2)
        probe = Probe[str](request=5)
        backoff = Backoff(first=5, jitter=0)
        from_iterable("a").pipe(ops.map(fails), ops.retry(backoff=backoff)).connect(probe)
        await asyncio.sleep(1)
        probe.cancel()
        await asyncio.sleep(100)
        return fails.calls

    assert run_virtual(story()) == 1


def test_a_drain_begins_no_other_reading_and_passes_the_error() -> None:
    async def story() -> tuple[int, str]:
        fails = Fails(*range(1, 100))
        backoff = Backoff(first=5, cap=5, jitter=0)
        into: list[str] = []
        stream = from_iterable("a").pipe(ops.map(fails), ops.retry(backoff=backoff))
        async with stream.to(collect(into)).start() as running:
            await asyncio.sleep(7)
            with pytest.raises(ValueError, match="2"):
                await running.drain()
        return fails.calls, running._outcome

    assert run_virtual(story()) == (2, "stopped")


def test_a_working_stage_that_stops_ends_its_reading_and_not_the_pipeline() -> None:
    fails, source, into = Fails(2), MemorySource("abc"), list[str]()

    async def work(value: str) -> str:
        await asyncio.sleep(1)
        return str(fails(value))

    stream = source.pipe(adaptive_flat_map(work, Fixed(1)), ops.retry(2))
    report = run_virtual(stream.to(collect(into)).run())
    assert (report.outcome, report.exit_status) == ("completed", 0)
    # This source does not give again what failed.
    assert (into, source.acked, source.failed) == (["a", "c"], ["a", "c"], ["b"])


def test_the_sum_has_all_readings_and_the_stages_are_listed_once() -> None:
    into: list[str] = []
    stream = from_iterable("ab").pipe(ops.map(Fails(2, 4)), ops.retry(3))
    report = run_virtual(stream.to(collect(into)).run())
    numbers = report.statistics
    assert (numbers["in"], numbers["finished"], numbers["failed"]) == (6, 4, 2)
    assert numbers["unfinished"] == 0
    names = [stage["name"] for stage in numbers["stages"]]
    assert names == ["from_iterable", "map", "retry", "collect"]
    assert numbers["stages"][2]["streams"] == 3


def test_three_thousand_readings_leave_nothing_behind() -> None:
    async def story() -> tuple[int, int, int]:
        stream = from_iterable("a").pipe(ops.map(Fails(*range(1, 3_000))), ops.retry())
        async with stream.to(collect([])).start() as running:
            await running.wait()
            run = running._run
            return len(run.nesting.sources), len(run.nesting.stages), len(run.nesting.inner)

    sources, stages, parts = run_virtual(story())
    assert (sources, parts, stages) == (0, 0, 3)


@given(st.integers(1, 6), st.integers(1, 20))
def test_no_more_is_requested_than_of_it(length: int, n: int) -> None:
    source, probe = CountedSource(range(length)), Probe[int](request=n)
    source.pipe(ops.map(Fails(length)), ops.retry(2)).connect(probe)
    # The event with which the first reading failed was requested too.
    assert source.emitted <= n + 1
    assert probe.values == ([*range(length - 1), *range(length)])[:n]


AGAIN = pytest.mark.parametrize(
    "operator",
    [ops.retry(2), ops.repeat(2), ops.while_do(bool), ops.do_while(bool)],
    ids=["retry", "repeat", "while_do", "do_while"],
)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (read_lines(), "stage 1 'read_lines' cannot begin again: standard input is read once"),
        (
            from_iterable([1]).pipe(ops.merge(read_lines())),
            "'read_lines' cannot begin again: standard input is read once",
        ),
        (from_iterable([1]) + from_iterable(iter([2])), "'from_iterable' cannot begin again: it"),
        (from_iterable(iter("abc")), "it was given an iterator, which is read once"),
        (from_async_iterable(aiter(from_iterable("abc"))), "it was given an iterator"),
    ],
)
@AGAIN
def test_a_source_that_cannot_begin_again_is_refused(source: Any, why: str, operator: Any) -> None:
    with pytest.raises(BuildError, match=why):
        source.pipe(ops.map(str), operator)


@AGAIN
def test_a_named_pipe_that_is_read_by_its_path_is_refused(operator: Any, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for source in (read_lines(pipe), read_jsonl(str(pipe)), from_iterable("a") + read_lines(pipe)):
        with pytest.raises(BuildError, match=r"cannot begin again: .*pipe is a pipe, which is"):
            source.pipe(ops.map(str), operator)


def test_a_device_a_socket_and_an_open_pipe_that_are_read_by_their_paths_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BuildError, match="/dev/null is a device, which is read once"):
        read_lines("/dev/null").pipe(ops.retry(2))
    # The path of a socket may have 107 bytes at most.
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("bound")
        with pytest.raises(BuildError, match="bound is a socket, which is read once"):
            read_lines("bound").pipe(ops.retry(2))
    reader, writer = os.pipe()
    with pytest.raises(BuildError, match=f"/dev/fd/{reader} is a pipe, which is read once"):
        read_lines(f"/dev/fd/{reader}").pipe(ops.retry(2))
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        (ops.retry(), "a"),
        (ops.retry(backoff=Backoff(1)), "a"),
        (ops.repeat(), "abc"),
        (ops.do_while(lambda source: True), "abc"),
        (ops.while_do(lambda source: True), "abc"),
    ],
    ids=["retry", "retry with a wait", "repeat", "do_while", "while_do"],
)
def test_a_pipe_that_was_made_after_the_stream_is_not_read_a_second_time(
    operator: Any, values: str, tmp_path: Path
) -> None:
    path = tmp_path / "later"
    fails = Fails(2 if values == "a" else 0)

    def closing(line: str) -> str:
        # The reader is there: it meets the end behind what was written.
        if not fails.calls:
            os.close(both)
        return str(fails(line))

    seen = list[str]()
    stream = read_lines(path).pipe(ops.map(closing), operator, ops.do_action(seen.append))
    os.mkfifo(path)
    both = os.open(path, os.O_RDWR)
    os.write(both, b"a\nb\nc\n")
    with pytest.raises(BuildError, match=r"cannot begin again: .*later is a pipe") as caught:
        run_virtual(stream.to_list())
    assert seen == list(values)
    if values == "a":
        assert isinstance(caught.value.__cause__, ValueError)


def test_a_file_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("a\nb\n")
    stream = read_lines(path).pipe(ops.map(Fails(2)), ops.retry(2))
    assert run_virtual(stream.to_list()) == ["a", "a", "b"]


def test_a_count_below_one_is_refused() -> None:
    with pytest.raises(BuildError, match="retry_count=0"):
        ops.retry(0)


def test_seconds_in_place_of_a_backoff_are_refused() -> None:
    seconds: Any = 0.1
    with pytest.raises(BuildError, match=r"backoff=0\.1.*give seconds as Backoff\(first"):
        ops.retry(3, backoff=seconds)


def test_a_marble_diagram_of_it() -> None:
    assert play("-1|", ops.retry(3)) == [(1.0, 1), (2.0, COMPLETED)]
