"""repeat, while_do and do_while: a source that is read several times."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as stock

from penstock import chunk, collect, for_each, from_iterable, group_by, ops, spread
from penstock.streams.base.errors import BuildError, UnfinishedResult
from penstock.streams.testing import CountedSource, Probe, run_virtual
from tests.helpers.like_stock import assert_like_stock, messages


@given(st.lists(st.integers(), max_size=5), st.integers(1, 5))
def test_the_source_is_read_so_many_times(items: list[int], times: int) -> None:
    assert run_virtual(from_iterable(items).pipe(ops.repeat(times)).to_list()) == items * times


@given(messages(), st.integers(1, 4))
def test_repeat_is_like_stock(source: Any, times: int) -> None:
    assert_like_stock(lambda: stock.repeat(times), source)


@given(messages())
def test_repeat_is_like_stock_without_a_limit(source: Any) -> None:
    assert_like_stock(lambda: stock.repeat(), source, until=320)


def counted(times: int) -> Any:
    asked = itertools.count(1)
    return lambda _: next(asked) <= times


@given(messages(), st.integers(0, 3))
def test_while_do_is_like_stock(source: Any, times: int) -> None:
    assert_like_stock(lambda: stock.while_do(counted(times)), source)


@given(messages(), st.integers(0, 3))
def test_do_while_is_like_stock(source: Any, times: int) -> None:
    assert_like_stock(lambda: stock.do_while(counted(times)), source)


@given(st.integers(1, 5), st.integers(1, 40))
def test_an_endless_repeat_reads_as_much_as_is_requested(length: int, n: int) -> None:
    source, probe = CountedSource(range(length)), Probe[int](request=n)
    source.pipe(ops.repeat()).connect(probe)
    assert probe.values == list(itertools.islice(itertools.cycle(range(length)), n))
    assert source.emitted == n
    assert source.ledger.unsettled == []


def test_an_empty_source_that_repeats_for_ever_does_not_block_the_loop() -> None:
    async def story() -> float:
        probe = Probe[int](request=1)
        from_iterable(list[int]()).pipe(ops.repeat()).connect(probe)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        probe.cancel()
        await asyncio.sleep(1)
        return asyncio.get_running_loop().time()

    assert run_virtual(story()) == 1.0


def test_a_drain_ends_with_the_reading_in_progress() -> None:
    async def story() -> tuple[str, int, list[int]]:
        into: list[int] = []

        async def slowly(value: int) -> None:
            await asyncio.sleep(1)
            into.append(value)

        source = CountedSource(range(10))
        async with source.pipe(ops.repeat()).to(for_each(slowly)).start() as running:
            await asyncio.sleep(13.5)
            report = await running.drain()
        return report.outcome, report.statistics["unfinished"], into

    outcome, unfinished, into = run_virtual(story())
    assert (outcome, unfinished) == ("completed", 0)
    assert into[:14] == [*range(10), *range(4)]
    assert len(into) < 20


def test_events_of_earlier_readings_count_until_they_have_ended() -> None:
    async def story() -> None:
        probe = Probe[list[int]](request=1, hold=True)
        source = CountedSource([1])
        source.pipe(ops.repeat(3), chunk(3)).connect(probe)
        await asyncio.sleep(1)
        assert probe.values == [[1, 1, 1]]
        assert source.ledger.unsettled == [1, 1, 1]
        probe.events[0].finish()
        assert source.ledger.unsettled == []

    run_virtual(story())


def test_the_sum_has_every_reading() -> None:
    report = run_virtual(from_iterable("ab").pipe(ops.repeat(3)).to(collect([])).run())
    assert (report.statistics["in"], report.statistics["finished"]) == (6, 6)


def test_the_condition_gets_the_source_and_its_error_passes() -> None:
    source = from_iterable("a")
    seen = list[Any]()
    assert run_virtual(source.pipe(ops.while_do(seen.append)).to_list()) == []  # type: ignore[arg-type]
    assert run_virtual(source.pipe(ops.do_while(seen.append)).to_list()) == ["a"]  # type: ignore[arg-type]
    assert seen == [source, source]

    def broken(_: Any) -> bool:
        raise KeyError("x")

    for operator in (ops.while_do(broken), ops.do_while(broken)):
        with pytest.raises(KeyError):
            run_virtual(source.pipe(operator).to_list())


def test_a_count_below_one_is_refused() -> None:
    with pytest.raises(BuildError, match="repeat_count=0"):
        ops.repeat(0)


def test_a_group_cannot_be_read_again() -> None:
    grouped = group_by(lambda n: n, each=lambda group: group.pipe(stock.repeat(2)), idle=9)
    with pytest.raises(BuildError, match="a group is read once"):
        run_virtual(from_iterable([1]).pipe(grouped, spread()).to_list())


async def holds(_: Any) -> bool:
    return False


async def holds_by_turns(_: Any) -> Any:
    yield False


def holds_for_one(_: Any) -> Any:
    yield False


@pytest.mark.parametrize("name", ["while_do", "do_while"])
@pytest.mark.parametrize("condition", [holds, holds_by_turns, holds_for_one, None, True])
def test_a_condition_whose_answer_would_always_hold_is_refused(name: str, condition: Any) -> None:
    with pytest.raises(BuildError, match=rf"^{name}\(condition=.*plain function"):
        getattr(ops, name)(condition)


@pytest.mark.parametrize("name", ["while_do", "do_while"])
def test_a_coroutine_for_an_answer_is_an_error_that_says_what_to_return(name: str) -> None:
    repeated = getattr(ops, name)(lambda source: holds(source))
    with pytest.raises(UnfinishedResult, match=rf"which {name} does not await: return True or"):
        run_virtual(from_iterable([1, 2]).pipe(repeated).to_list())
