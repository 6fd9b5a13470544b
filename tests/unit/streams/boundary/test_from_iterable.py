from __future__ import annotations

import asyncio
import csv
import gc
import io
import os
from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum
from itertools import chain, count, islice
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from penstock import Flowable, adaptive_flat_map, from_async_iterable, from_iterable, ops, spread
from penstock.streams.base.errors import BuildError, HandlerCancelled
from penstock.streams.runtime.context import Run as PipelineRun
from penstock.streams.testing import MemorySink, Probe
from penstock.streams.testing.plugin import Run


class Seconds:
    """One more number per second, each given out once."""

    def __init__(self) -> None:
        self.taken = 0

    async def numbers(self) -> AsyncIterator[int]:
        while True:
            await asyncio.sleep(1)
            self.taken += 1
            yield self.taken


class Stubborn:
    """Gives an item out even to a caller that is cancelled while waiting for it."""

    def __aiter__(self) -> Stubborn:
        return self

    async def __anext__(self) -> int:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            return 7
        raise StopAsyncIteration


async def paused_while_pulling(source: Seconds) -> tuple[Any, MemorySink]:
    sink = MemorySink()
    running = from_async_iterable(source.numbers).to(sink).start()
    await asyncio.sleep(0.5)
    running.pause()
    await asyncio.sleep(100)
    assert (source.taken, sink.values) == (1, [])
    assert running.statistics()["stages"][0]["buffered"] == 1
    return running, sink


def test_an_item_that_came_during_a_pause_is_emitted_by_a_drain(run: Run) -> None:
    async def story() -> None:
        source = Seconds()
        running, sink = await paused_while_pulling(source)
        report = await running.drain()
        assert sink.values == [1]
        assert (report.statistics["in"], report.statistics["finished"]) == (1, 1)
        assert source.taken == 1

    run(story())


def test_an_item_that_came_during_a_pause_is_returned_by_a_cancel(run: Run) -> None:
    async def story() -> None:
        running, sink = await paused_while_pulling(Seconds())
        running.cancel()
        report = await running.wait()
        assert sink.values == []
        assert (report.statistics["in"], report.statistics["returned"]) == (1, 1)

    run(story())


def test_an_item_that_came_during_a_pause_goes_first_when_the_stream_goes_on(run: Run) -> None:
    async def story() -> None:
        running, sink = await paused_while_pulling(Seconds())
        running.resume()
        assert sink.values == [1]
        await asyncio.sleep(2.5)
        assert sink.values == [1, 2, 3]
        running.cancel()
        report = await running.wait()
        assert (report.statistics["in"], report.statistics["finished"]) == (3, 3)

    run(story())


def test_an_item_that_is_given_to_a_cancelled_pull_is_returned(run: Run) -> None:
    async def story() -> None:
        running = from_async_iterable(Stubborn()).to(MemorySink()).start()
        await asyncio.sleep(1)
        running.cancel()
        report = await running.wait()
        assert (report.statistics["in"], report.statistics["returned"]) == (1, 1)

    run(story())


def test_a_generator_function_is_called_for_each_run_at_its_first_request(run: Run) -> None:
    calls: list[str] = []

    def numbers() -> Iterator[int]:
        calls.append("begun")
        yield from (1, 2)

    for stream in (from_iterable(numbers), Flowable.from_iterable(numbers)):
        calls.clear()
        for runs in (1, 2):
            sink = MemorySink()
            pipeline = stream.to(sink)
            assert len(calls) == runs - 1
            run(pipeline.run())
            assert sink.values == [1, 2]
            assert len(calls) == runs


@pytest.mark.parametrize("ends", ["cancel", "begin_drain"])
def test_a_generator_that_ends_its_own_pipeline_gives_no_more(ends: str, run: Run) -> None:
    running: Any = None
    given = list[int]()

    def numbers() -> Iterator[int]:
        for n in range(40):
            if n == 3:
                getattr(running, ends)()
            given.append(n)
            yield n

    async def story() -> None:
        nonlocal running
        sink = MemorySink()
        running = from_iterable(numbers).to(sink).start()
        report = await running.wait()
        found = report.statistics
        assert len(given) < 40
        assert found["in"] == len(given) == found["finished"] + found["returned"]
        assert sink.values == given[: found["finished"]]
        assert (found["returned"] > 0) == (ends == "cancel")

    run(story())


class Twice:
    def __init__(self) -> None:
        self.left = 2

    def __aiter__(self) -> Twice:
        return self

    async def __anext__(self) -> int:
        if not self.left:
            raise StopAsyncIteration
        self.left -= 1
        return 7


class Color(Enum):
    RED = 1
    BLUE = 2


def test_a_class_is_called_unless_it_is_iterable_itself(run: Run) -> None:
    async def story() -> None:
        counted = from_iterable(count)
        assert await counted.to_list(limit=2) == [0, 1]
        assert await from_iterable(Color).to_list() == [Color.RED, Color.BLUE]
        assert await from_async_iterable(Twice).to_list() == [7, 7]

    run(story())


def test_what_is_not_iterable_and_makes_no_iterable_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="an iterable or a function that makes one, not int"):
        from_iterable(7)  # type: ignore[arg-type]


@pytest.mark.parametrize("nothing", [[], (), range(0)])
def test_what_is_known_to_be_empty_ends_before_anything_is_asked_for(nothing: Any) -> None:
    probe = Probe[Any]()
    from_iterable(nothing).connect(probe)
    assert probe.completed


def test_what_might_be_empty_is_not_touched_before_it_is_asked_for() -> None:
    class Shy(list[int]):
        def __len__(self) -> int:
            raise AssertionError

    probe = Probe[Any]()
    from_iterable(Shy()).connect(probe)
    assert not probe.completed


async def cancelled_from_inside() -> AsyncIterator[int]:
    yield 1
    awaited = asyncio.get_running_loop().create_future()
    awaited.cancel()
    await awaited


def test_an_async_iterable_that_is_cancelled_from_inside_fails_the_stream(run: Run) -> None:
    async def story() -> None:
        sink = MemorySink()
        with pytest.raises(HandlerCancelled, match="async iterable of stage 1 'from_async") as told:
            await from_async_iterable(cancelled_from_inside).to(sink).run()
        assert sink.values == [1]
        assert isinstance(told.value.__cause__, asyncio.CancelledError)

    run(story())


def test_a_pull_that_its_run_ends_is_no_error_of_the_stream(run: Run) -> None:
    async def story() -> None:
        probe, whole = Probe[int](request=2), PipelineRun()
        from_async_iterable(Seconds().numbers).attach(probe, whole)
        await asyncio.sleep(1.5)
        await whole.close()
        assert (probe.values, probe.error, probe.completed) == ([1], None, False)
        probe.cancel()

    run(story())


def broken() -> Iterator[int]:
    yield 1
    raise ERROR


async def broken_async() -> AsyncIterator[int]:
    yield 1
    raise ERROR


def not_made() -> Iterator[int]:
    raise ERROR


ERROR = OSError("gone")


@pytest.mark.parametrize(
    ("stream", "name"),
    [
        (from_iterable(broken), "from_iterable"),
        (from_iterable(not_made), "from_iterable"),
        (from_async_iterable(broken_async), "from_async_iterable"),
    ],
)
def test_an_exception_of_an_iterable_has_one_note_of_its_stage(
    run: Run, stream: Flowable[int], name: str
) -> None:
    ERROR.__notes__ = []
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            run(stream.to(MemorySink()).run())
    assert ERROR.__notes__ == [f"in stage 1 '{name}'"]


@pytest.mark.parametrize("is_left_early", [False, True])
def test_a_generator_that_an_earlier_run_has_used_up_is_an_error_and_not_the_end(
    run: Run, is_left_early: bool
) -> None:
    limit = 2 if is_left_early else None
    later = items_later()
    for stream, name in (
        (from_iterable(number for number in range(5)), "from_iterable"),
        (from_async_iterable(later), "from_async_iterable"),
    ):
        assert len(run(stream.to_list(limit))) == (limit or 5)
        with pytest.raises(BuildError, match=r"has ended, .* give the function") as raised:
            run(stream.to_list())
        assert raised.value.__notes__ == [f"in stage 1 '{name}'"]


async def items_later() -> AsyncIterator[int]:
    for number in range(5):
        yield number


def test_an_iterator_that_is_no_generator_is_read_on_by_the_next_run(run: Run) -> None:
    stream = from_iterable(iter(range(5)))
    assert run(stream.to_list(2)) == [0, 1]
    assert run(stream.to_list()) == [2, 3, 4]


class Later(AsyncIterator[int]):
    """An async iterator that is not a generator."""

    def __init__(self) -> None:
        self._items = iter(range(5))

    async def __anext__(self) -> int:
        for item in self._items:
            return item
        raise StopAsyncIteration


def opened() -> Any:
    return io.StringIO("0\n1\n2\n3\n4\n")


ONCE: dict[str, Callable[[], Any]] = {
    "map": lambda: map(abs, range(5)),
    "filter": lambda: filter(None, range(1, 6)),
    "zip": lambda: zip(range(5), range(5), strict=True),
    "enumerate": lambda: enumerate(range(5)),
    "reversed": lambda: reversed(range(5)),
    "iter": lambda: iter([0, 1, 2, 3, 4]),
    "csv.reader": lambda: csv.reader(opened()),
    "csv.DictReader": lambda: csv.DictReader(opened(), ["n"]),
    "open file": opened,
    "islice": lambda: islice(count(), 5),
    "chain": lambda: chain([0, 1], [2, 3, 4]),
    "generator": lambda: (number for number in range(5)),
    "async generator": items_later,
    "async iterator": Later,
}


class Handing:
    """An iterable that is not its own iterator, and returns the same one each time."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        items: Iterator[Any] = self._items
        return items

    def __aiter__(self) -> AsyncIterator[Any]:
        items: AsyncIterator[Any] = self._items
        return items


def stream_of(items: Any) -> Flowable[Any]:
    is_async = hasattr(items, "__anext__")
    return from_async_iterable(items) if is_async else from_iterable(items)


@pytest.mark.parametrize("name", ONCE)
def test_an_iterator_that_has_been_read_to_its_end_is_an_error_in_every_other_run(
    run: Run, name: str
) -> None:
    stream = stream_of(ONCE[name]())
    assert len(run(stream.to_list())) == 5
    for _ in range(2):
        with pytest.raises(BuildError, match=r"has ended, .* give the function"):
            run(stream.to_list())


@pytest.mark.parametrize("name", ONCE)
def test_an_iterator_whose_items_have_all_been_read_is_an_error_if_its_end_was_not_seen(
    run: Run, name: str
) -> None:
    stream = stream_of(ONCE[name]())
    assert len(run(stream.to_list(5))) == 5
    with pytest.raises(BuildError, match=r"has ended, .* give the function"):
        run(stream.to_list())


@pytest.mark.parametrize("name", ONCE)
def test_two_streams_of_one_iterator_do_not_share_it_out(run: Run, name: str) -> None:
    items = ONCE[name]()
    both = stream_of(items).pipe(ops.merge(stream_of(items)))
    with pytest.raises(BuildError, match=r"is being read by another stream|has ended"):
        run(both.to_list())


@pytest.mark.parametrize("name", ONCE)
def test_one_pipeline_does_not_read_an_iterator_twice(run: Run, name: str) -> None:
    stream = stream_of(ONCE[name]())
    sink = MemorySink()
    with pytest.raises(BuildError, match="has ended"):
        run(stream.pipe(ops.concat(stream)).to(sink).run())
    assert len(sink.values) == 5


def test_a_directory_that_was_left_early_is_an_error_and_not_the_end(
    run: Run, tmp_path: Path
) -> None:
    for name in "abc":
        (tmp_path / name).touch()
    stream = from_iterable(os.scandir(tmp_path))
    assert len(run(stream.to_list(1))) == 1
    with pytest.raises(BuildError, match="has ended"):
        run(stream.to_list())


@pytest.mark.parametrize(
    "items", [iter(()), map(abs, ()), filter(None, [0, 0])], ids=["iter", "map", "filter"]
)
def test_an_iterator_without_items_is_empty_the_first_time(run: Run, items: Any) -> None:
    stream = from_iterable(items)
    assert run(stream.to_list()) == []
    with pytest.raises(BuildError, match="has ended"):
        run(stream.to_list())


def test_what_makes_an_iterator_for_each_run_can_be_run_many_times(run: Run) -> None:
    for stream in (from_iterable(lambda: map(abs, range(5))), from_iterable([0, 1, 2, 3, 4])):
        for _ in range(2):
            assert run(stream.to_list()) == [0, 1, 2, 3, 4]


def made_by_function(items: Any) -> Flowable[Any]:
    is_async = hasattr(items, "__anext__")
    return from_async_iterable(lambda: items) if is_async else from_iterable(lambda: items)


def handed(items: Any) -> Flowable[Any]:
    handing = Handing(items)
    is_async = hasattr(items, "__anext__")
    return from_async_iterable(handing) if is_async else from_iterable(handing)


@pytest.mark.parametrize("stream_from", [made_by_function, handed])
@pytest.mark.parametrize("name", ONCE)
def test_the_same_iterator_from_a_function_is_the_same_error(
    run: Run, name: str, stream_from: Callable[[Any], Flowable[Any]]
) -> None:
    items = ONCE[name]()
    stream = stream_from(items)
    assert len(run(stream.to_list())) == 5
    for again in (stream, stream_from(items)):
        with pytest.raises(BuildError, match=r"has ended, .* give the function"):
            run(again.to_list())


def test_a_function_that_returns_what_was_read_in_part_goes_on_behind_that(run: Run) -> None:
    items = iter(range(5))
    stream = from_iterable(lambda: items)
    assert run(stream.to_list(2)) == [0, 1]
    assert run(stream.to_list()) == [2, 3, 4]


EXPANDING: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "flat_map": lambda stream, answer: stream.pipe(ops.flat_map(answer)),
    "flat_map_indexed": lambda stream, answer: stream.pipe(
        ops.flat_map_indexed(lambda value, _: answer(value))
    ),
    "spread": lambda stream, answer: stream.pipe(ops.map(answer), spread()),
    "flat_map of streams": lambda stream, answer: stream.pipe(
        ops.flat_map(lambda value: stream_of(answer(value)))
    ),
    "concat_map": lambda stream, answer: stream.pipe(
        ops.concat_map(lambda value: stream_of(answer(value)))
    ),
    "adaptive_flat_map": lambda stream, answer: stream.pipe(adaptive_flat_map(answer)),
}
PLAIN_ONLY = ("flat_map", "flat_map_indexed")
ASYNC_ONLY = ("adaptive_flat_map",)


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        (name, operator)
        for name in ONCE
        for operator in EXPANDING
        if operator not in (PLAIN_ONLY if name.startswith("async") else ASYNC_ONLY)
    ],
)
def test_an_event_is_not_answered_with_the_iterator_of_another(
    run: Run, name: str, operator: str
) -> None:
    items = ONCE[name]()
    stream = EXPANDING[operator](from_iterable([1, 2]), lambda _: items)
    with pytest.raises(BuildError, match=r"has ended, .* give the function|is being read by"):
        run(stream.to(MemorySink()).run())


@pytest.mark.parametrize("name", ONCE)
def test_events_are_answered_with_a_new_iterator_each(run: Run, name: str) -> None:
    stream = EXPANDING["spread"](from_iterable([1, 2]), lambda _: ONCE[name]())
    assert len(run(stream.to_list())) == 10


def test_the_iterators_of_thousands_of_events_are_not_kept(run: Run) -> None:
    class Kept:
        def __call__(self, value: int) -> int:
            return value

    kept = WeakSet[Kept]()

    def answer(value: int) -> Iterator[int]:
        function = Kept()
        kept.add(function)
        return map(function, [value])

    stream: Any = from_iterable(range(1_000)).pipe(ops.flat_map(answer))
    assert run(stream.to_list()) == list(range(1_000))
    gc.collect()
    assert len(kept) <= 65


def test_an_iterator_that_an_operator_reads_beside_its_stream_is_read_once(run: Run) -> None:
    stream: Any = from_iterable("abc").pipe(ops.zip_with_iterable(map(abs, [1, 2, 3])))
    assert run(stream.to_list()) == [("a", 1), ("b", 2), ("c", 3)]
    with pytest.raises(BuildError, match="has ended"):
        run(stream.to_list())
