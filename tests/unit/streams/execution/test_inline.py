from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as rx

from penstock import Fixed, adaptive_flat_map, collect, from_iterable, group_by, spread
from penstock.streams.testing import CountedSource, MemorySink, MemorySource, Probe, run_virtual
from penstock.streams.testing.plugin import Run


@given(
    st.lists(st.sampled_from(["plain", "later", "fails", "several", "slow"]), max_size=40),
    st.lists(st.integers(1, 7), max_size=40),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)
def test_whatever_a_plain_handler_returns_nothing_is_lost_or_overtakes(
    kinds: list[str], requests: list[int], limit: int, ordered: bool, grouped: bool
) -> None:
    async def later(value: int) -> int:
        await asyncio.sleep(value % 3 * 0.1)
        return value

    async def several(value: int) -> Any:
        for _ in range(2):
            await asyncio.sleep(0.1)
            yield value

    def handler(value: int) -> Any:
        kind = kinds[value]
        if kind == "fails":
            raise ValueError
        if kind == "slow":
            asyncio.get_running_loop().advance(0.02)  # type: ignore[attr-defined]
        return {"later": later, "several": several}.get(kind, lambda n: n)(value)

    async def story() -> None:
        source, probe = MemorySource(range(len(kinds))), Probe[int](request=1)
        work = adaptive_flat_map(handler, Fixed(limit), ordered=ordered, on_error="skip")
        groups: tuple[Any, ...] = (group_by(lambda n: n % 3), spread()) if grouped else ()
        source.pipe(*groups, work).connect(probe)
        for n in requests:
            await asyncio.sleep(0.15)
            assert len(probe.values) <= probe.requested
            probe.request(n)
        probe.request(1000)
        await asyncio.sleep(100)
        assert probe.completed
        expected: list[int] = []
        for value, kind in enumerate(kinds):
            expected += [value] * {"fails": 0, "several": 2}.get(kind, 1)
        assert sorted(probe.values) == expected
        if ordered and not grouped:
            assert probe.values == expected
        if grouped:
            for key in range(3):
                own = [value for value in probe.values if value % 3 == key]
                assert own == [value for value in expected if value % 3 == key]
        assert sorted(source.acked) == list(range(len(kinds)))

    run_virtual(story())


def test_every_result_is_delivered_before_a_slow_call_is_over(run: Run) -> None:
    seen: list[tuple[float, int]] = []

    def handler(value: int) -> int:
        loop = asyncio.get_running_loop()
        if value == 5:
            loop.advance(1)  # type: ignore[attr-defined]
        return value

    flow = CountedSource(range(9)).pipe(
        adaptive_flat_map(handler),
        rx.do_action(lambda n: seen.append((asyncio.get_running_loop().time(), n))),
    )
    run(flow.to(MemorySink()).run())
    assert [n for _, n in seen] == list(range(9))
    assert [time for time, n in seen if n > 5] == [1, 1, 1]


def test_a_reader_that_cancels_inside_of_a_chunk_gets_nothing_more(run: Run) -> None:
    async def story() -> None:
        source = MemorySource(range(1000))
        probe = Probe[int](
            request=1000, on_event=lambda probe, event: event.value == 300 and probe.cancel()
        )
        flow = source.pipe(group_by(lambda n: n), spread(), adaptive_flat_map(lambda n: n))
        flow.connect(probe)
        await asyncio.sleep(1)
        assert probe.values == list(range(301))
        assert source.unsettled == []

    run(story())


def test_a_stride_is_not_more_than_what_is_wanted(run: Run) -> None:
    async def story() -> None:
        called: list[int] = []

        def handler(value: int) -> int:
            called.append(value)
            return value

        probe = Probe[int](request=500)
        from_iterable(range(5000)).pipe(adaptive_flat_map(handler)).connect(probe)
        await asyncio.sleep(1)
        assert called == probe.values == list(range(500))
        probe.request(3)
        await asyncio.sleep(1)
        assert called == probe.values == list(range(503))
        probe.cancel()

    run(story())


def test_in_flight_is_seen_from_inside_the_call(run: Run) -> None:
    seen: list[int] = []
    into: list[int] = []

    async def story() -> None:
        def handler(value: int) -> int:
            seen.append(running.statistics()["in_flight"])
            return value

        running = CountedSource(range(3)).pipe(adaptive_flat_map(handler)).to(collect(into)).start()
        await running.wait()

    run(story())
    assert seen == [1, 1, 1]
