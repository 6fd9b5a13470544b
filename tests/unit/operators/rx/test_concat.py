from __future__ import annotations

import asyncio
from typing import Any

import reactivex
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as stock

from penstock import collect, from_iterable, ops
from penstock.streams.testing import COMPLETED, CountedSource, Probe, play, run_virtual
from tests.helpers.like_stock import assert_like_stock, messages


def test_another_stream_begins_when_the_one_before_has_ended() -> None:
    seen = play("-1|", ops.concat(from_iterable("a"), from_iterable("b")))
    assert seen == [(1.0, 1), (2.0, "a"), (2.0, "b"), (2.0, COMPLETED)]


@given(messages(), messages(), messages())
def test_it_is_like_stock(source: Any, second: Any, third: Any) -> None:
    assert_like_stock(lambda two, three: stock.concat(two(), three()), source, second, third)


@given(st.lists(st.integers(0, 4), max_size=4), st.integers(1, 12))
def test_of_each_stream_no_more_is_read_than_is_requested(lengths: list[int], n: int) -> None:
    sources = [CountedSource(range(length)) for length in (2, *lengths)]
    probe = Probe[int](request=n)
    sources[0].pipe(ops.concat(*sources[1:])).connect(probe)
    wanted = [value for length in (2, *lengths) for value in range(length)][:n]
    assert probe.values == wanted
    assert sum(source.emitted for source in sources) == len(wanted)


def test_the_same_stream_may_come_several_times() -> None:
    source = from_iterable("ab")
    into: list[str] = []
    report = run_virtual(source.pipe(ops.concat(source, source)).to(collect(into)).run())
    assert "".join(into) == "ababab"
    assert (report.statistics["in"], report.statistics["finished"]) == (6, 6)


def test_the_plus_sign_and_the_stock_operator_lead_to_it() -> None:
    source = from_iterable("a")
    for stream in (source + reactivex.of("b"), source.pipe(stock.concat(reactivex.of("b")))):
        assert stream.info.name == "concat"
        assert run_virtual(stream.to_list()) == ["a", "b"]


def test_many_streams_that_end_at_once_do_not_block_the_loop() -> None:
    async def story() -> list[str]:
        seen = list[str]()
        empty = [from_iterable(list[str]()) for _ in range(100)]
        stream = from_iterable("a").pipe(ops.concat(*empty, from_iterable("z")))
        reading = asyncio.create_task(stream.to_list())
        for _ in range(5):
            await asyncio.sleep(0)
        seen.append("between")
        return seen + await reading

    assert run_virtual(story()) == ["between", "a", "z"]
