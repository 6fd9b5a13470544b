from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    adaptive_flat_map,
    collect,
    for_each,
    from_async_iterable,
    from_iterable,
    group_by,
    latency_histogram,
    route,
    spread,
)
from penstock.streams.base.errors import OutputClosed
from penstock.streams.protocol.acknowledgement import Nobody
from penstock.streams.protocol.event import Ending, Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.running.broadcast import Broadcast
from penstock.streams.runtime.context import Run as StreamRun
from penstock.streams.stages.own import SinkStage
from penstock.streams.stages.sink_stage import Closed, Sink
from penstock.streams.testing import CountedSource, MemorySink, MemorySource, run_virtual
from penstock.streams.testing.plugin import Run


@given(st.lists(st.integers(), max_size=20), st.integers(1, 4))
def test_every_sink_gets_every_value_in_order(values: list[int], n: int) -> None:
    sinks = [MemorySink(seconds=i / 10) for i in range(n)]
    run_virtual(from_iterable(values).to(*sinks).run())
    assert [sink.values for sink in sinks] == [values] * n


def test_the_slowest_sink_sets_the_demand(run: Run) -> None:
    async def story() -> None:
        source, fast, slow = CountedSource(range(100)), MemorySink(), MemorySink(hold=True)
        async with source.to(fast, slow).start() as running:
            await asyncio.sleep(1)
            assert source.emitted == 1
            slow.accept(3)
            await asyncio.sleep(1)
            assert source.emitted == 4
            assert fast.values == [0, 1, 2, 3]
            running.cancel()

    run(story())


def test_an_event_is_finished_when_all_have_accepted_it(run: Run) -> None:
    async def story() -> None:
        source, fast, slow = MemorySource(range(2)), MemorySink(), MemorySink(hold=True)
        async with source.to(fast, slow).start():
            await asyncio.sleep(1)
            assert fast.values == [0]
            assert source.acked == []
            slow.accept()
            await asyncio.sleep(1)
            assert source.acked == [0]
            slow.accept()
        assert source.acked == [0, 1]

    run(story())


@pytest.mark.parametrize("first", [True, False])
def test_a_sink_that_observes_leaves_it_to_the_others_to_finish_an_event(
    run: Run, first: bool
) -> None:
    async def story() -> None:
        source, slow = MemorySource(range(2)), MemorySink(hold=True)
        sinks = (latency_histogram(None, report=None), slow)
        async with source.to(*(sinks if first else sinks[::-1])).start() as running:
            await asyncio.sleep(1)
            assert source.acked == []
            slow.accept(2)
        assert source.acked == [0, 1]
        assert running.statistics()["latency"]["waiting"]["count"] == 2

    run(story())


def test_sinks_that_only_observe_finish_an_event_together(run: Run) -> None:
    source = MemorySource(range(3))
    flow = source.to(*[latency_histogram(None, report=None) for _ in range(2)])
    assert run(flow.run()).statistics["finished"] == 3
    assert source.acked == [0, 1, 2]


@pytest.mark.parametrize("first", [True, False])
def test_a_sink_that_asks_for_more_as_it_accepts_ends_no_stream_before_the_others_have_it(
    run: Run, first: bool
) -> None:
    async def work(value: int) -> int:
        await asyncio.sleep(1)
        return value

    async def story() -> None:
        sinks = (for_each(seen.append), latency_histogram(None, report=None))
        # A generator: its end is seen when one more is asked for.
        flow = from_iterable(n for n in range(2)).pipe(adaptive_flat_map(work))
        report = await flow.to(*(sinks if first else sinks[::-1])).run()
        assert (report.statistics["finished"], seen) == (2, [0, 1])

    seen: list[int] = []
    run(story())


@pytest.mark.parametrize("broken_first", [True, False])
@pytest.mark.parametrize("seconds", [0, 1])
def test_an_event_fails_if_one_sink_fails_although_another_accepted_it(
    run: Run, broken_first: bool, seconds: float
) -> None:
    source, good, broken = MemorySource(range(9)), MemorySink(seconds=seconds), MemorySink()
    broken.fail(ValueError("sink"))
    sinks = (broken, good) if broken_first else (good, broken)
    with pytest.raises(ValueError, match="sink") as raised:
        run(source.to(*sinks).run())
    number = 2 if broken_first else 3
    assert raised.value.__notes__ == [f"in stage {number} 'memory', on the event 0"]
    assert source.failed == [0]
    assert source.unsettled == []
    assert good.closed == broken.closed == 1


def test_when_one_fails_the_others_finish_what_they_have_accepted(run: Run) -> None:
    async def story() -> None:
        source, slow, broken = MemorySource(range(9)), MemorySink(seconds=5), MemorySink()
        running = source.to(slow, broken).start()
        await asyncio.sleep(1)
        broken.fail(ValueError("sink"))
        with pytest.raises(ValueError, match="sink"):
            await running.wait()
        # The second value came to both; the slow one still took it.
        assert slow.accepted == [(5, 0), (10, 1)]
        assert source.acked == [0]
        assert source.failed == [1]

    run(story())


class Closing(Sink[Any]):
    """A sink whose reader goes away at its third value."""

    info = StageInfo("closing")

    def open(self, run: StreamRun, closed: Closed) -> SinkStage[Any]:
        class Stage(SinkStage[Any]):
            taken = 0

            def on_events(self, events: list[Any], /) -> None:
                for event in events:
                    self.taken += 1
                    if self.taken == 3:
                        self.break_off(OutputClosed("the reader went away"))
                    if self.taken >= 3:
                        event.give_back()
                    else:
                        event.finish()

        return Stage(closed)


@pytest.mark.parametrize("first", [True, False])
def test_a_reader_that_goes_away_ends_all_sinks_without_an_error(run: Run, first: bool) -> None:
    source, other = MemorySource(range(9)), MemorySink()
    sinks = (Closing(), other) if first else (other, Closing())
    report = run(source.to(*sinks).run())
    assert report.outcome == "output closed"
    assert report.exit_status == 0
    assert source.acked == [0, 1]
    assert source.returned == [2]


def test_a_broken_sink_takes_nothing_more_of_a_list(run: Run) -> None:
    class Picky(Closing):
        def open(self, run: StreamRun, closed: Closed) -> SinkStage[Any]:
            class Stage(SinkStage[Any]):
                def accept(self, event: Any) -> None:
                    taken.append(event.value)
                    if event.value == 300:
                        raise ValueError("picky")

            return Stage(closed)

    taken: list[int] = []
    into: list[int] = []
    with pytest.raises(ValueError, match="picky") as raised:
        run(from_iterable(range(2000)).to(Picky(), collect(into)).run())
    assert taken == list(range(301))
    assert raised.value.__notes__ == ["in stage 2 'closing', on the event 300"]


def test_one_dead_letter_sink_may_serve_several(run: Run) -> None:
    def fails(value: int) -> None:
        raise ValueError(value)

    dead = MemorySink()
    policy = route(dead)
    report = run(
        from_iterable(range(3))
        .to(for_each(fails, on_error=policy), for_each(fails, on_error=policy))
        .run()
    )
    assert len(dead.values) == 6
    assert dead.closed == 1
    assert report.statistics["failed"] == 3


def test_what_a_sink_asks_for_in_a_signal_goes_up_when_all_sinks_have_had_it() -> None:
    told: list[str] = []

    class Asking(Subscriber[Any]):
        upstream: Any

        def __init__(self, name: str) -> None:
            self.name = name

        def on_subscribe(self, subscription: Any) -> None:
            self.upstream = subscription
            subscription.request(1)

        def on_events(self, events: list[Event[Any]], /) -> None:
            self.upstream.request(1)
            told.append(self.name)

    class Upstream:
        def request(self, n: int) -> None:
            told.append(f"asked for {n}")

        def cancel(self) -> None: ...

    slow, quick = Asking("slow"), Asking("quick")
    fork = Broadcast([slow, quick])
    fork.on_subscribe(Upstream())
    # From now on the slow one's request alone would go up.
    quick.upstream.request(9)
    told.clear()
    fork.on_events([Event(1, 0.0, Nobody())])
    assert told == ["slow", "quick", "asked for 1"]


def test_a_stream_that_fails_tells_each_sink_so_also_one_that_is_busy(run: Run) -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1
        yield 2
        raise ValueError("no more")

    async def story() -> None:
        first, busy = MemorySink(), MemorySink(seconds=1)
        flow = from_async_iterable(numbers).pipe(group_by(lambda number: number), spread())
        with pytest.raises(ValueError, match="no more"):
            await flow.to(first, busy).run()
        assert (first.closed, busy.closed) == (1, 1)

    run(story())


def test_an_event_that_was_returned_while_it_waited_does_not_end_again() -> None:
    # As when an exit has passed, and the loop goes on to cancel the tasks.
    endings: list[Ending] = []

    class Origin:
        def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
            endings.extend(ending for _ in events)

    class Accepting(Subscriber[Any]):
        def on_subscribe(self, subscription: Any) -> None: ...

        def on_events(self, events: list[Event[Any]], /) -> None:
            for event in events:
                event.finish()

    event, other = Event(1, 0.0, Origin()), Event(2, 0.0, Origin())
    event.give_back()
    Broadcast([Accepting(), Accepting()]).on_events([event, other])
    assert endings == [Ending.RETURNED, Ending.FINISHED]
