from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import pytest
import reactivex
from reactivex import Observable
from reactivex import operators as ops
from reactivex.notification import OnNext

from penstock import (
    Flowable,
    adaptive_flat_map,
    collect,
    distinct_within,
    from_iterable,
    group_by,
    rate_limit,
    spread,
)
from penstock.operators.rx import ref_count
from penstock.streams.base.errors import BuildError
from penstock.streams.testing import CountedSource, Probe, run_virtual


def read(stream: Any, request: int = 1000) -> Probe[Any]:
    probe = Probe[Any](request=request)
    stream.connect(probe)
    return probe


# pipe.


def test_pipe_without_operators_is_the_stream_itself() -> None:
    stream = from_iterable([1])
    assert stream.pipe() is stream


def test_pipe_takes_own_and_stock_operators_and_compositions() -> None:
    both = reactivex.compose(ops.filter(lambda n: n % 2 == 0), ops.map(lambda n: n * 10))
    stream = from_iterable([1, 2, 2, 4]).pipe(
        distinct_within(10, by=lambda n: n), both, ops.skip(1)
    )
    assert isinstance(stream, Flowable)
    assert read(stream).values == [40]


def test_a_stream_is_a_description_and_can_be_run_many_times() -> None:
    source = CountedSource([1, 2])
    stream = source.pipe(ops.map(lambda n: n + 1), ops.pairwise())
    assert source.emitted == 0
    assert [read(stream).values for _ in range(3)] == [[(2, 3)]] * 3
    assert source.emitted == 6


def test_a_stream_says_what_it_is_made_of() -> None:
    stream = from_iterable([1]).pipe(ops.map(str), group_by(0), spread())
    assert repr(stream) == "<Flowable from_iterable > map > group_by > spread>"
    assert [one.info.number for one in stream.chain()] == [1, 2, 3, 4]
    assert str(stream.info) == "stage 4 'spread'"


@pytest.mark.parametrize(
    ("build", "advice"),
    [
        (lambda s: s.pipe(group_by(0), adaptive_flat_map(str)), "insert spread()"),
        (lambda s: s.pipe(group_by(0), group_by(0)), "spread() between"),
        (lambda s: s.pipe(group_by(0), spread(), ops.delay(1)), "each=lambda group"),
        (lambda s: s.pipe(group_by(0)).to(collect([])), "insert spread()"),
        (lambda s: s.pipe(ops.window_with_count(3)).to(collect([])), "buffer_with_count"),
        (lambda s: s.to(), "at least one sink"),
        (lambda s: s.to(print), "for_each"),
        (lambda s: s.run(), "async for"),
        (lambda s: s.__await__(), "async for"),
        (lambda s: s.ref_count(), "share()"),
        (lambda s: ref_count()(reactivex.of(1).publish()), "Flowable.of"),
        (lambda s: s.window_with_count(3).pipe(adaptive_flat_map(str)), "flat_map"),
        (lambda s: s.merge(s.window_with_count(3)), "flat_map"),
        (lambda s: s.window_with_count(3).pipe(ops.merge(s)), "flat_map"),
        (lambda s: s.pipe(ops.partition(bool), ops.map(str)), "the last of a pipe()"),
    ],
)
def test_what_cannot_work_is_an_error_when_built_that_names_what_to_use(
    build: Callable[[Any], Any], advice: str
) -> None:
    source = CountedSource(["a"])
    with pytest.raises(BuildError) as refused:
        build(source)
    assert advice in str(refused.value)
    assert source.emitted == 0


def test_adding_a_stream_reads_it_after_the_other() -> None:
    stream: Any = from_iterable([1])
    stream += from_iterable([2])
    assert read(stream + from_iterable([3])).values == [1, 2, 3]


def test_a_sum_of_many_streams_is_one_stage_that_reads_them_one_after_another() -> None:
    streams = [from_iterable([n]) for n in range(300)]
    total = reduce(add, streams)
    assert repr(total) == "<Flowable from_iterable > concat>"
    assert read(total).values == list(range(300))
    part = streams[0] + streams[1]
    assert read(part + streams[2]).values == [0, 1, 2]
    assert read(part.map(str) + part).values == ["0", "1", 0, 1]
    assert read(part).values == [0, 1]


def test_an_operator_that_was_not_called_is_a_type_error() -> None:
    uncalled: Any = ops.pairwise
    with pytest.raises(TypeError, match=r"call ops\.pairwise"):
        from_iterable([1]).pipe(uncalled)


# The fluent spellings.

FLUENT: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "map": (lambda s: s.map(lambda n: n * 2), [2, 4, 6, 8]),
    "filter": (lambda s: s.filter(lambda n: n > 2), [3, 4]),
    "flat_map": (lambda s: s.flat_map(lambda n: [n, n]), [1, 1, 2, 2, 3, 3, 4, 4]),
    "scan": (lambda s: s.scan(lambda total, n: total + n), [1, 3, 6, 10]),
    "scan from a seed": (lambda s: s.scan(lambda total, n: total + n, 10), [11, 13, 16, 20]),
    "take": (lambda s: s.take(2), [1, 2]),
    "skip": (lambda s: s.skip(2), [3, 4]),
    "pairwise": (lambda s: s.pairwise(), [(1, 2), (2, 3), (3, 4)]),
    "do_action": (lambda s: s.do_action(lambda n: None), [1, 2, 3, 4]),
    "start_with": (lambda s: s.start_with(0), [0, 1, 2, 3, 4]),
    "sum": (lambda s: s.sum(), [10]),
    "sum of keys": (lambda s: s.sum(lambda n: n * 2), [20]),
    "slice": (lambda s: s[1:3], [2, 3]),
    "index": (lambda s: s[2], [3]),
    "to_set": (lambda s: s.to_set(), [{1, 2, 3, 4}]),
    "distinct_until_changed": (lambda s: s.distinct_until_changed(), [1, 2, 3, 4]),
    "reduce": (lambda s: s.reduce(max), [4]),
    "buffer_with_count": (lambda s: s.buffer_with_count(3), [[1, 2, 3], [4]]),
    "pluck": (lambda s: s.map(lambda n: {"n": n}).pluck("n"), [1, 2, 3, 4]),
    "window_with_count": (lambda s: s.window_with_count(3).flat_map(lambda w: w.sum()), [6, 4]),
    "switch_latest": (lambda s: s.window_with_count(3).switch_latest(), [1, 2, 3, 4]),
    "dematerialize": (lambda s: s.map(OnNext).dematerialize(), [1, 2, 3, 4]),
}


@pytest.mark.parametrize("name", FLUENT)
def test_a_fluent_method_does_what_its_operator_does(name: str) -> None:
    build, expected = FLUENT[name]
    stream = build(from_iterable([1, 2, 3, 4]))
    assert isinstance(stream, Flowable)
    assert read(stream).values == expected


@pytest.mark.parametrize("name", FLUENT)
def test_a_fluent_method_keeps_demand(name: str) -> None:
    build, expected = FLUENT[name]
    source = CountedSource([1, 2, 3, 4])
    probe = read(build(source), request=1)
    assert probe.values == expected[:1]
    # One more is enough to see the end, for those that answer at the end.
    assert source.emitted <= (
        4 if len(expected) == 1 or "_with_count" in name or "to" in name else 3
    )
    assert len(source.ledger.unsettled) <= 1


def _fluent_methods() -> list[str]:
    return [
        name
        for name, _ in inspect.getmembers(Observable, inspect.isfunction)
        if name not in ("pipe", "subscribe") and not name.startswith("_")
    ]


@pytest.mark.parametrize("name", _fluent_methods())
def test_no_fluent_method_of_reactivex_goes_past_pipe(name: str) -> None:
    """A release that adds one, or changes one, is noticed."""
    method = getattr(Flowable, name)
    if method.__module__.startswith("penstock.streams."):
        return
    source = inspect.getsource(method)
    names = [*_fluent_methods(), "pipe"]
    assert any(f"self.{other}(" in source or f".{other}(" in source for other in names)
    assert "()(source)" not in source
    assert ")(self" not in source.replace("(self._as_observable())", "(self")


# One stream, connected in many ways.


def test_a_stream_is_always_true() -> None:
    assert bool(from_iterable([]))


def test_every_operator_of_ours_is_a_function_of_a_stream() -> None:
    stream: Any = from_iterable(["a", "b"])
    for operator in (distinct_within(1, by=0), group_by(0), rate_limit(1), adaptive_flat_map(str)):
        assert isinstance(operator(stream), Flowable)


def test_connecting_nobody_is_a_type_error() -> None:
    nobody: Any = None
    with pytest.raises(TypeError, match="needs a subscriber"):
        from_iterable([1]).connect(nobody)


def test_a_stream_that_needs_a_loop_says_so_without_one() -> None:
    async def work(n: int) -> int:
        return n

    probe = read(from_iterable([1]).pipe(adaptive_flat_map(work)))
    assert "needs a running event loop" in str(probe.error)


def test_a_pipeline_runs_a_stream() -> None:
    async def story() -> list[int]:
        done: list[int] = []
        await from_iterable([1, 2]).map(lambda n: n + 1).to(collect(done)).run()
        return done

    assert run_virtual(story()) == [2, 3]


# What is not a list.


@pytest.mark.parametrize(
    "use",
    [list, tuple, set, lambda stream: [*stream], sum],
    ids=["list", "tuple", "set", "star", "sum"],
)
def test_a_stream_cannot_be_iterated_without_async_and_says_what_to_write(
    use: Callable[[Any], Any],
) -> None:
    # With an end, so that the test has one too where it fails.
    stream = from_iterable([1, 2]).pipe(ops.take(2))
    with pytest.raises(TypeError, match=r"`async for value in stream`.*collect"):
        use(Bounded(stream))


def test_a_stream_cannot_be_asked_by_in_and_says_what_to_write() -> None:
    stream = from_iterable([1, 2])
    with pytest.raises(TypeError, match=r"write `async for found in .*ops\.contains\(value\)"):
        assert 1 in stream

    async def as_written() -> list[bool]:
        return [found async for found in stream.pipe(ops.contains(2))]

    assert run_virtual(as_written()) == [True]


class Bounded:
    """Passes its stream's own iteration on, for at most three steps."""

    def __init__(self, stream: Flowable[Any]) -> None:
        self._stream = stream

    def __iter__(self) -> Any:
        return itertools.islice(iter(self._stream), 3)


def test_slices_and_single_places_of_a_stream_are_streams() -> None:
    stream = from_iterable(range(10))
    assert read(stream[2:5]).values == [2, 3, 4]
    assert read(stream[7]).values == [7]


def test_a_stream_is_not_an_iterable_to_make_a_stream_of() -> None:
    with pytest.raises(BuildError, match="is a stream already"):
        from_iterable(from_iterable([1]))  # type: ignore[arg-type]
