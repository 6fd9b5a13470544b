"""What is directly behind a `join`: windows, timers and joins by the times of its results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf, nextafter
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    Fixed,
    Store,
    adaptive_flat_map,
    agg,
    collect,
    event_time,
    for_each,
    from_iterable,
    inbox,
    join,
    ops,
    run,
    stateful,
    tumbling,
    window,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.event_time import line
from penstock.streams.testing import run_virtual

_MINUTES = tumbling(60)


def counts(**options: Any) -> Callable[[Any], Any]:
    made: Any = window
    return cast(Callable[[Any], Any], made(_MINUTES, agg.count(), **options))


def row(at: float, key: Any = "k") -> dict[str, Any]:
    return {"at": at, "key": key}


def timed(rows: list[Any], lateness: float = 0.0) -> Any:
    return from_iterable(rows).pipe(event_time("at", lateness, idle=None, max_ahead=None))


def windows_of(joined: Any, *stages: Any) -> list[tuple[float, Any]]:
    """When the windows of a stream begin, and how many events are in each."""
    found: list[Any] = []
    report = run(joined.pipe(*stages, window(_MINUTES, agg.count())).to(collect(found)))
    (numbers,) = (one for one in report.statistics["stages"] if one["name"] == "window")
    assert numbers["late"] == 0
    return [(one.start, one.value) for one in found]


def test_a_result_counts_at_the_lesser_time_of_its_rows() -> None:
    left = [row(10), row(100, "alone"), row(130)]
    joined = timed(left).pipe(join(timed([row(70), row(125)]), "key", 60, how="left"))
    # 10 with 70, 130 with 70 and with 125, and 100 without a partner.
    assert windows_of(joined) == [(0, 1), (60, 2), (120, 1)]


def test_a_row_without_a_partner_is_not_late_behind_pairs_that_are_newer() -> None:
    left = [row(1, "alone"), *(row(at, at) for at in range(2, 300))]
    joined = timed(left).pipe(join(timed(left[1:]), "key", 100, how="left"))
    assert windows_of(joined) == [(0, 59), (60, 60), (120, 60), (180, 60), (240, 60)]


def in_silence(
    *stages: Callable[[Any], Any], within: float, how: Any = "left", seconds: float = 500
) -> list[tuple[float, Any]]:
    """The results of one row of the left stream at 100, each with the second in which it comes."""
    found: list[tuple[float, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        boxes = inbox(10), inbox(10)
        left, right = (box.pipe(event_time("at", idle=30, max_ahead=None)) for box in boxes)

        def note(value: Any) -> None:
            found.append((round(loop.time() - began, 3), value))

        joined = left.pipe(join(right, "key", within, how=how), *stages)
        running = joined.to(for_each(note)).start()
        await boxes[0].put(row(100))
        await boxes[1].put(row(95))
        await asyncio.sleep(seconds)
        running.cancel()

    run_virtual(main())
    return found


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
def test_silence_closes_a_window_behind_a_join(how: Any) -> None:
    # The clock has come to 120 + within after 20 + within seconds; it counts after 30.
    for within, second in ((5, 30.0), (10, 30.0), (50, 70.0), (300, 320.0)):
        ((at, one),) = in_silence(counts(), within=within, how=how)
        assert (at, one.start, one.value) == (second, 60, 1)


def test_silence_closes_a_window_behind_two_joins() -> None:
    def key(_: Any) -> str:
        return "k"

    joined: Any = join(timed([row(110)]), key, 15, how="left")
    ((at, one),) = in_silence(joined, counts(), within=50)
    assert (at, one.start, one.value) == (85.0, 60, 1)


def test_timers_behind_a_join_fire_by_the_times_of_its_results() -> None:
    def step(state: Any, pair: Any, ctx: Any) -> Any:
        ctx.timer("over", after=40, clock="event")
        return ctx.time, ()

    def over(state: Any, timer: Any, ctx: Any) -> Any:
        return None, [(state, ctx.time)]

    timers = stateful(step, by=lambda pair: pair[0]["key"], on_timer=over)
    assert in_silence(timers, within=10) == [(45.0, (95.0, 135.0))]


@pytest.mark.parametrize("within", [10, 100])
def test_a_stream_that_is_merged_with_a_silent_join_waits_for_its_rows_and_no_longer(
    within: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "_LEAD", 5)
    found: list[tuple[float, float, int]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        boxes = [inbox(1000) for _ in range(3)]
        left, right, other = (box.pipe(event_time("at", idle=30, max_ahead=None)) for box in boxes)
        joined = left.pipe(join(right, "key", within, how="left"))

        def note(one: Any) -> None:
            found.append((round(loop.time() - began), one.start, one.value))

        both: Any = joined.pipe(ops.merge(other))
        running = both.pipe(window(_MINUTES, agg.count())).to(for_each(note)).start()
        await boxes[0].put(row(100))
        for at in range(0, 600, 10):
            await boxes[2].put(row(at))
        await asyncio.sleep(300)
        running.cancel()

    run_virtual(main())
    # The row of the join at 100 is in its window too: it has left when the clock has come to 100 +
    # within. Then all is silent after 30 seconds more.
    assert [(start, count) for _, start, count in found] == [
        (0, 6),
        (60, 7),
        *((start, 6) for start in range(120, 600, 60)),
    ]
    assert all(30 <= at <= within + 70 for at, *_ in found)


def test_a_join_waits_for_a_stream_that_is_merged_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "_LEAD", 5)
    read = 0

    def rows() -> Any:
        nonlocal read
        for at in range(2_000):
            read += 1
            yield row(at, at)

    async def main() -> None:
        slow = inbox(10)
        left = from_iterable(rows()).pipe(event_time("at", idle=None, max_ahead=None))
        joined = left.pipe(join(timed([row(1)]), "key", 1, how="left"))
        other = slow.pipe(event_time("at", idle=None, max_ahead=None))
        both: Any = joined.pipe(ops.merge(other))
        running = both.pipe(window(_MINUTES, agg.count())).to(for_each(lambda _: None)).start()
        await slow.put(row(1))
        await asyncio.sleep(10)
        assert read < 500
        await slow.put(row(5_000))
        await asyncio.sleep(10)
        assert read == 2_000
        running.cancel()

    run_virtual(main())


def test_times_may_be_read_from_the_results_of_a_join_as_well() -> None:
    left, right = [row(10), row(100)], [row(70), row(110)]

    def joined() -> Any:
        return timed(left).pipe(join(timed(right), "key", 60))

    def later(pair: Any) -> float:
        return max(one["at"] for one in pair)

    found: list[Any] = []
    run(joined().pipe(window(_MINUTES, agg.count(), time=later, lateness=120)).to(collect(found)))
    expected = [(60, 3)]
    assert [(one.start, one.value) for one in found] == expected
    assert windows_of(joined(), event_time(later, lateness=120)) == expected
    with pytest.raises(BuildError, match="reads the times that the event_time in front gives"):
        joined().pipe(event_time(later), window(_MINUTES, agg.count(), time=later))


def test_a_result_that_is_reverted_and_comes_again_is_not_late() -> None:
    store, found, failed = Store.memory(), list[Any](), list[Any]()

    async def shaky(pair: Any) -> Any:
        if pair[0]["at"] == 100 and not failed:
            failed.append(pair)
            raise OSError("away")
        return pair

    async def main() -> None:
        boxes = inbox(10), inbox(10)
        left, right = (box.pipe(event_time("at", idle=5, max_ahead=None)) for box in boxes)
        pairs = left.pipe(join(right, "key", 10, how="left", store=store))
        handled: Any = adaptive_flat_map(shaky, Fixed(1), on_error="revert")
        counted = counts(store=store)
        running = pairs.pipe(handled, counted).to(collect(found)).start()
        await boxes[0].put(row(100))
        await boxes[0].put(row(140))
        await asyncio.sleep(100)
        running.cancel()

    run_virtual(main())
    assert len(failed) == 1
    assert [(one.start, one.value) for one in found] == [(60, 1), (120, 1)]


_numbers = st.floats(-2e9, 2e9)


@given(_numbers, st.floats(0, 2e9), st.integers(-3, 3))
def test_the_watermark_below_is_never_behind_a_row_that_rounding_has_kept(
    time: float, within: float, steps: int
) -> None:
    watermark = time + within
    for _ in range(abs(steps)):
        watermark = nextafter(watermark, inf if steps > 0 else -inf)
    if time + within >= watermark:
        assert nextafter(watermark, -inf) - within <= time
