from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from reactivex import operators as ops

from penstock import (
    DeadLetter,
    Fixed,
    Inbox,
    Pipeline,
    Running,
    adaptive_flat_map,
    collect,
    distinct_within,
    for_each,
    from_async_iterable,
    from_iterable,
    group_by,
    inbox,
    retry,
    route,
    spread,
)
from penstock.streams.base.errors import (
    BadArgument,
    BufferFull,
    BuildError,
    DrainTimeout,
    InboxClosed,
    NoLoop,
    Returned,
)
from penstock.streams.runtime.context import Run as StreamRun
from penstock.streams.testing import MemorySink, Probe
from penstock.streams.testing.plugin import Run
from tests.helpers.until import until


class Trouble(Exception):
    pass


async def a_second(value: int) -> int:
    await asyncio.sleep(1)
    return value


def slowly(numbers: Inbox[int], into: list[int]) -> Pipeline:
    """One at a time, a second each."""
    return numbers.pipe(adaptive_flat_map(a_second, limit=Fixed(1))).to(collect(into))


async def endless() -> AsyncIterator[int]:
    yield 0
    await asyncio.Event().wait()


async def outcome(put: Coroutine[Any, Any, Any]) -> str:
    """The outcome of a put: "fine" or the name of its error."""
    try:
        await put
    except Exception as error:
        return type(error).__name__
    return "fine"


def test_what_is_put_comes_out_in_order(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(3)
        seen: list[int] = []
        async with numbers.to(collect(seen)).start() as running:
            for number in range(20):
                await numbers.put(number)
            report = await running.drain()
        assert seen == list(range(20))
        assert report.outcome == "completed"
        assert (report.statistics["in"], report.statistics["finished"]) == (20, 20)

    run(story())


def test_a_put_waits_while_nobody_asks_for_more(run: Run) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        numbers: Inbox[int] = inbox(1)
        seen: list[int] = []
        async with slowly(numbers, seen).start() as running:
            await asyncio.sleep(0)
            times: list[float] = []
            for number in range(6):
                await numbers.put(number)
                times.append(loop.time())
            # One is worked on, one waits in the inbox, and room for the next comes each second.
            assert times == [0, 0, 1, 2, 3, 4]
            await running.drain()
        assert seen == list(range(6))

    run(story())


def test_put_nowait_raises_when_the_inbox_is_full_and_nothing_is_lost(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(2)
        seen: list[int] = []
        with pytest.raises(BufferFull, match="no running pipeline"):
            numbers.put_nowait(-1)
        async with slowly(numbers, seen).start() as running:
            await asyncio.sleep(0)
            numbers.put_nowait(0)
            numbers.put_nowait(1)
            with pytest.raises(BufferFull, match="has room for 2"):
                numbers.put_nowait(2)
            await asyncio.sleep(0.1)
            numbers.put_nowait(3)
            await running.drain()
        assert seen == [0, 1, 3]

    run(story())


def test_callers_that_wait_for_room_are_let_in_in_order_and_nobody_overtakes(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(1)
        seen: list[int] = []
        async with slowly(numbers, seen).start() as running:
            puts = [asyncio.create_task(numbers.put(number)) for number in range(8)]
            await asyncio.sleep(0.5)
            assert running.statistics()["stages"][0]["callers"] == 6
            with pytest.raises(BufferFull):
                numbers.put_nowait(99)
            await asyncio.gather(*puts)
            await running.drain()
        assert seen == list(range(8))

    run(story())


def test_leaving_the_block_closes_the_inbox_and_finishes_what_was_put(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(3)
        seen: list[int] = []
        async with slowly(numbers, seen).start():
            for number in range(3):
                await numbers.put(number)
        assert seen == [0, 1, 2]
        with pytest.raises(InboxClosed):
            await numbers.put(3)

    run(story())


def test_leaving_the_block_at_once_ends_a_running_that_has_not_begun(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(3)
        async with slowly(numbers, []).start() as running:
            pass
        assert running.report().outcome == "completed"

    run(story())


def test_before_a_running_begins_a_put_waits(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(1)
        seen: list[int] = []
        puts = [asyncio.create_task(numbers.put(number, wait=True)) for number in range(3)]
        await asyncio.sleep(10)
        assert not any(put.done() for put in puts)
        async with numbers.to(collect(seen)).start() as running:
            await asyncio.gather(*puts)
            await running.drain()
        assert seen == [0, 1, 2]

    run(story())


def test_a_put_that_waits_returns_when_every_sink_has_accepted_what_came_of_it(run: Run) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        numbers: Inbox[int] = inbox(10)
        slow = MemorySink(seconds=3)
        stream = numbers.pipe(adaptive_flat_map(a_second), ops.flat_map(lambda n: [n, n]))
        async with stream.to(slow, MemorySink()).start() as running:
            await numbers.put(1, wait=True)
            # A second of work, then two results of three seconds each.
            assert (loop.time(), slow.values) == (7, [1, 1])
            await running.drain()

    run(story())


def test_a_put_that_waits_raises_the_events_own_error(run: Run) -> None:
    letters = MemorySink()

    def fails(number: int) -> int:
        if number:
            raise Trouble(number)
        return number

    async def story() -> None:
        for policy in ("skip", route(letters), retry(2, then="skip")):
            numbers: Inbox[int] = inbox(10)
            stream = numbers.pipe(adaptive_flat_map(fails, on_error=policy))
            async with stream.to(MemorySink()).start() as running:
                await numbers.put(0, wait=True)
                with pytest.raises(Trouble, match="1"):
                    await numbers.put(1, wait=True)
                await numbers.put(0, wait=True)
                await running.drain()

    run(story())
    # The letter is accepted before the caller is notified.
    assert [letter.value for letter in letters.values] == [1]
    assert isinstance(letters.values[0], DeadLetter)


def test_when_the_pipeline_stops_the_failed_event_raises_its_error_and_the_others_return(
    run: Run,
) -> None:
    async def fails(number: int) -> int:
        await asyncio.sleep(1)
        if number == 1:
            raise Trouble
        return number

    async def story() -> None:
        numbers: Inbox[int] = inbox(2)
        stream = numbers.pipe(adaptive_flat_map(fails, limit=Fixed(1)))
        running = stream.to(MemorySink()).start()
        puts = [asyncio.create_task(outcome(numbers.put(n, wait=True))) for n in range(6)]
        with pytest.raises(Trouble):
            await running.wait()
        assert await asyncio.gather(*puts) == [
            *("fine", "Trouble"),
            *("Returned", "Returned"),
            *("InboxClosed", "InboxClosed"),
        ]

    run(story())


def test_what_is_dropped_on_purpose_is_done_with(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(10)
        async with numbers.pipe(ops.filter(lambda n: n > 5)).to(MemorySink()).start() as running:
            await numbers.put(1, wait=True)
            await running.drain()
        assert running.statistics()["dropped"] == {"filter": 1}

    run(story())


def test_a_duplicate_is_done_with_when_the_first_one_is(run: Run) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        numbers: Inbox[int] = inbox(10)
        stream = numbers.pipe(distinct_within(60, by=abs), adaptive_flat_map(a_second))
        async with stream.to(MemorySink()).start() as running:
            first = asyncio.create_task(numbers.put(1, wait=True))
            await asyncio.sleep(0.5)
            await numbers.put(1, wait=True)
            assert (loop.time(), first.done()) == (1, True)
            await numbers.put(1, wait=True)
            assert loop.time() == 1
            await running.drain()

    run(story())


@pytest.mark.parametrize("policy", ["skip", "stop", "revert", "route"])
def test_a_duplicate_raises_the_error_of_the_first_one_while_both_are_under_way(
    run: Run, policy: Any
) -> None:
    letters: list[DeadLetter] = []

    async def fails(value: int) -> int:
        await asyncio.sleep(1)
        raise Trouble

    async def story() -> None:
        numbers: Inbox[int] = inbox(10)
        on_error = route(collect(letters)) if policy == "route" else policy
        stream = numbers.pipe(
            distinct_within(60, by=abs), adaptive_flat_map(fails, Fixed(3), on_error=on_error)
        )
        running = stream.to(MemorySink()).start()
        puts = [outcome(numbers.put(number, wait=True)) for number in (1, -1, 1)]
        assert await asyncio.gather(*puts) == ["Trouble"] * 3
        if policy != "stop":
            await running.drain()
        with suppress(Trouble):
            await running.wait()
        statistics = running.statistics()
        assert (statistics["failed"], statistics["dropped"]) == (3, {})

    run(story())
    assert len(letters) == (policy == "route")


def test_a_duplicate_of_what_was_returned_is_returned_too(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(10)
        stream = numbers.pipe(distinct_within(60, by=abs), adaptive_flat_map(a_second, Fixed(2)))
        running = stream.to(MemorySink()).start()
        puts = [asyncio.create_task(outcome(numbers.put(1, wait=True))) for _ in range(2)]
        await asyncio.sleep(0.5)
        running.cancel()
        assert await asyncio.gather(*puts) == ["Returned"] * 2
        await running.wait()

    run(story())


def test_a_caller_that_is_cancelled_while_it_waits_for_room_has_put_nothing(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(1)
        seen: list[int] = []
        async with slowly(numbers, seen).start() as running:
            puts = [asyncio.create_task(numbers.put(number)) for number in range(5)]
            await asyncio.sleep(0.5)
            puts[3].cancel()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await numbers.put(99)
            await asyncio.gather(*puts, return_exceptions=True)
            await running.drain()
        assert seen == [0, 1, 2, 4]
        assert running.statistics()["in"] == 4

    run(story())


def test_the_event_of_a_caller_that_is_cancelled_later_goes_on(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(1)
        seen: list[int] = []
        async with slowly(numbers, seen).start() as running:
            put = asyncio.create_task(numbers.put(1, wait=True))
            await asyncio.sleep(0.5)
            put.cancel()
            await asyncio.sleep(0)
            await running.drain()
        assert (put.cancelled(), seen) == (True, [1])

    run(story())


def test_a_caller_that_is_cancelled_as_room_is_found_withdraws_its_event(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(1)
        probe = Probe[int]()
        numbers.connect(probe)
        puts = [asyncio.create_task(numbers.put(number, wait=True)) for number in range(3)]
        await asyncio.sleep(1)
        # 0 leaves and 1 is accepted; its caller is notified in the next loop iteration.
        probe.request(1)
        puts[1].cancel()
        await asyncio.sleep(1)
        assert (probe.values, puts[1].cancelled()) == ([0], True)
        probe.request(5)
        await asyncio.sleep(1)
        assert probe.values == [0, 2]
        probe.cancel()
        await asyncio.gather(*puts, return_exceptions=True)

    run(story())


def test_an_event_that_leaves_the_inbox_as_room_is_found_goes_on(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(1)
        probe = Probe[int]()
        numbers.connect(probe)
        puts = [asyncio.create_task(numbers.put(number)) for number in range(3)]
        await asyncio.sleep(1)
        # There is demand for 1 as well, which leaves at once; 2 is withdrawn.
        probe.request(2)
        puts[1].cancel()
        await asyncio.sleep(1)
        assert (probe.values, puts[1].cancelled()) == ([0, 1], True)
        probe.cancel()
        await asyncio.gather(*puts, return_exceptions=True)

    run(story())


def test_a_caller_that_is_cancelled_as_the_running_begins_withdraws_its_event(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(5)
        seen: list[int] = []
        puts = [asyncio.create_task(numbers.put(number)) for number in range(3)]
        await asyncio.sleep(1)
        async with numbers.to(collect(seen)).start() as running:
            # In the loop iteration in which all three are accepted, and there is demand for them.
            asyncio.get_running_loop().call_soon(puts[1].cancel)
            await asyncio.gather(*puts, return_exceptions=True)
            await running.drain()
        assert (puts[1].cancelled(), seen) == (True, [0, 2])

    run(story())


def test_a_drain_ends_when_the_last_event_of_the_inbox_is_withdrawn(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(1)
        probe = Probe[int]()
        running = StreamRun()
        numbers.attach(probe, running)
        puts = [asyncio.create_task(numbers.put(number)) for number in range(3)]
        await asyncio.sleep(1)
        probe.request(1)
        puts[1].cancel()
        running.nesting.sources[0].stop()
        assert not probe.completed
        await asyncio.sleep(1)
        assert (probe.values, probe.completed) == ([0], True)
        with pytest.raises(InboxClosed):
            await puts[2]

    run(story())


def test_a_caller_that_is_cancelled_before_the_event_has_left_the_inbox_has_put_nothing(
    run: Run,
) -> None:
    cancelled: dict[str, int] = {"nothing put": 0, "goes on": 0}

    async def story(dice: random.Random) -> None:
        numbers: Inbox[int] = inbox(dice.randint(1, 3))
        left: list[int] = []
        seen: list[int] = []
        fine: list[int] = []
        withdrawn: list[int] = []

        async def work(number: int) -> int:
            for _ in range(dice.randint(0, 3)):
                await asyncio.sleep(0)
            return number

        async def put(number: int) -> None:
            try:
                await numbers.put(number)
            except asyncio.CancelledError:
                if number not in left:
                    withdrawn.append(number)
                cancelled["goes on" if number in left else "nothing put"] += 1
            except InboxClosed:
                withdrawn.append(number)
            else:
                fine.append(number)

        stream = numbers.pipe(
            ops.do_action(left.append), adaptive_flat_map(work, Fixed(dice.randint(1, 4)))
        )
        async with stream.to(collect(seen)).start() as running:
            puts: list[asyncio.Task[None]] = []
            for number in range(60):
                puts.append(asyncio.create_task(put(number)))
                for _ in range(dice.choice((0, 0, 1, 2))):
                    await asyncio.sleep(0)
                # Not one that has not begun: nobody would be notified.
                begun = [task for task in puts[:-1] if not task.done()]
                if begun and dice.random() < 0.6:
                    asyncio.get_running_loop().call_soon(dice.choice(begun).cancel)
                    await asyncio.sleep(0)
            report = await running.drain()
        await asyncio.gather(*puts)
        assert not set(withdrawn) & set(left)
        assert set(fine) <= set(left)
        assert left == sorted(set(left))
        assert sorted(seen) == left
        numbers_of = report.statistics
        assert (numbers_of["in"], numbers_of["finished"]) == (len(left), len(left))
        assert numbers_of["unfinished"] == 0

    for seed in range(100):
        run(story(random.Random(seed)))
    # The walks come to both ends, and often.
    assert min(cancelled.values()) >= 20, cancelled


def test_a_drain_refuses_new_events_and_finishes_what_was_taken_in(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(3)
        seen: list[int] = []
        async with slowly(numbers, seen).start() as running:
            puts = [asyncio.create_task(outcome(numbers.put(n, wait=True))) for n in range(6)]
            await asyncio.sleep(0.5)
            draining = asyncio.create_task(running.drain(60))
            await asyncio.sleep(0)
            with pytest.raises(InboxClosed):
                numbers.put_nowait(98)
            with pytest.raises(InboxClosed):
                await numbers.put(99)
            report = await draining
        assert await asyncio.gather(*puts) == ["fine"] * 4 + ["InboxClosed"] * 2
        assert seen == [0, 1, 2, 3]
        assert (report.outcome, report.exit_status) == ("completed", 0)
        with pytest.raises(InboxClosed):
            await numbers.put(99)

    run(story())


def test_a_drain_of_a_paused_pipeline_finishes_what_was_taken_in(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(3)
        seen: list[int] = []
        async with numbers.to(collect(seen)).start() as running:
            await asyncio.sleep(0)
            running.pause()
            puts = [asyncio.create_task(outcome(numbers.put(n))) for n in range(5)]
            await asyncio.sleep(10)
            assert seen == []
            assert running.statistics()["waiting"] == 3
            await running.drain()
        assert seen == [0, 1, 2]
        assert await asyncio.gather(*puts) == ["fine"] * 3 + ["InboxClosed"] * 2

    run(story())


def test_a_cancel_returns_what_was_taken_in(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(2)
        seen: list[int] = []
        running = slowly(numbers, seen).start()
        puts = [asyncio.create_task(outcome(numbers.put(n, wait=True))) for n in range(6)]
        await asyncio.sleep(1.5)
        running.cancel()
        report = await running.wait()
        assert await asyncio.gather(*puts) == ["fine"] + ["Returned"] * 3 + ["InboxClosed"] * 2
        assert (report.statistics["in"], report.statistics["returned"]) == (4, 3)

    run(story())


def test_what_a_drain_returns_and_nobody_waits_for_is_counted_and_reported_as_lost(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(20)
        async with slowly(numbers, []).start() as running:
            for number in range(9):
                await numbers.put(number)
            waits = asyncio.create_task(outcome(numbers.put(99, wait=True)))
            gone = asyncio.create_task(numbers.put(100, wait=True))
            await asyncio.sleep(0.5)
            gone.cancel()
            with pytest.raises(DrainTimeout):
                await running.drain(0.6)
        assert await waits == "Returned"
        assert running.report().statistics["returned"] == 10
        assert running.report().statistics["stages"][0]["lost"] == 9
        (said,) = (record.getMessage() for record in caplog.records if "lost" in record.message)
        assert said.endswith(": 9 of the events in the inbox: 2, 3, 4, 5, 6 and 4 more")

    run(story())


def test_a_drain_past_its_deadline_returns_what_was_taken_in(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(5)
        seen: list[int] = []
        running = slowly(numbers, seen).start()
        puts = [asyncio.create_task(outcome(numbers.put(n, wait=True))) for n in range(5)]
        await asyncio.sleep(0)
        running.begin_drain(2.5)
        await outcome(running.wait())
        assert await asyncio.gather(*puts) == ["fine"] * 2 + ["Returned"] * 3

    run(story())


def test_an_inbox_belongs_to_one_running_at_a_time(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(5)
        seen: list[int] = []
        pipeline = numbers.to(collect(seen))
        async with pipeline.start() as first:
            await numbers.put(1)
            with pytest.raises(BuildError, match="one run at a time"):
                await pipeline.run()
            await numbers.put(2)
            await first.drain()
        async with pipeline.start() as second:
            await asyncio.sleep(0)
            await numbers.put(3)
            first.begin_drain()
            await numbers.put(4)
            await second.drain()
        assert seen == [1, 2, 3, 4]

    run(story())


def test_a_put_waits_for_a_further_running_from_its_start_on(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(5)
        seen: list[int] = []
        pipeline = numbers.to(collect(seen))
        for number in range(3):
            async with pipeline.start() as running:
                await numbers.put(number)
                await running.drain()
            with pytest.raises(InboxClosed):
                await numbers.put(99)
        assert seen == [0, 1, 2]

    run(story())


@pytest.mark.parametrize("end", [Running.cancel, Running.begin_drain])
def test_a_running_that_ends_before_it_has_begun_refuses_those_who_put(
    run: Run, end: Callable[[Running], object]
) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(5)
        pipeline = from_iterable([0]).pipe(ops.merge(numbers)).to(collect([]))
        before = asyncio.create_task(outcome(numbers.put(1)))
        await asyncio.sleep(0)
        running = pipeline.start()
        end(running)
        assert await outcome(numbers.put(2)) == "InboxClosed"
        assert await before == "InboxClosed"
        await running.wait()
        assert await outcome(numbers.put(3)) == "InboxClosed"
        with pytest.raises(InboxClosed):
            numbers.put_nowait(4)

    run(story())


def test_an_inbox_that_another_running_reads_stays_open_when_one_ends_before_it_has_begun(
    run: Run,
) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(5)
        seen: list[int] = []
        pipeline = numbers.to(collect(seen))
        async with pipeline.start():
            await numbers.put(1)
            second = pipeline.start()
            second.cancel()
            await second.wait()
            await numbers.put(2)
        assert seen == [1, 2]

    run(story())


def test_an_inbox_whose_turn_never_came_is_closed_with_its_running(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(5)
        seen: list[int] = []
        first = from_async_iterable(endless)
        async with first.pipe(ops.concat(numbers)).to(collect(seen)).start() as running:
            put = asyncio.create_task(outcome(numbers.put(1)))
            await asyncio.sleep(1)
            await running.drain()
            assert await put == "InboxClosed"
        assert seen == [0]

    run(story())


def test_a_caller_on_another_loop_is_refused_when_a_running_ends_before_it_has_begun() -> None:
    numbers: Inbox[int] = inbox(1)
    waits = threading.Event()
    heard: list[str] = []

    async def caller() -> None:
        put = asyncio.create_task(outcome(numbers.put(1)))
        await asyncio.sleep(0)
        waits.set()
        async with asyncio.timeout(30):
            heard.append(await put)

    async def story() -> None:
        running = numbers.to(collect([])).start()
        running.cancel()
        await running.wait()

    threads = in_threads(lambda: asyncio.run(caller()))
    waits.wait()
    asyncio.run(story())
    for thread in threads:
        thread.join()
    assert heard == ["InboxClosed"]


def test_in_the_turn_of_its_start_a_running_does_not_take_in_what_cannot_wait(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(5)
        seen: list[int] = []
        pipeline = numbers.to(collect(seen))
        for number, error in enumerate((BufferFull, InboxClosed, InboxClosed)):
            async with pipeline.start() as running:
                with pytest.raises(error):
                    numbers.put_nowait(99)
                await asyncio.sleep(0)
                numbers.put_nowait(number)
                await running.drain()
        assert seen == [0, 1, 2]

    run(story())


def test_leaving_a_loop_over_an_inbox_ends_its_running(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(5)
        puts = [asyncio.create_task(outcome(numbers.put(n, wait=True))) for n in range(3)]
        async for number in numbers:
            if number == 1:
                break
        assert await asyncio.gather(*puts) == ["fine", "Returned", "Returned"]

    run(story())


def test_what_is_put_by_the_pipelines_own_handler_is_an_event_like_others(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(5)
        seen: list[int] = []

        def count_down(number: int) -> int:
            if number:
                numbers.put_nowait(number - 1)
            return number

        stream = numbers.pipe(group_by(lambda n: n % 2), spread(), adaptive_flat_map(count_down))
        async with stream.to(collect(seen)).start() as running:
            await numbers.put(50)
            await asyncio.sleep(1)
            await running.drain()
        assert seen == list(range(50, -1, -1))

    run(story())


def test_a_handler_that_puts_does_not_overtake_a_caller_that_waits(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(1)
        seen: list[int] = []

        def handle(number: int) -> int:
            if number == 0:
                # It is the event that left the inbox just now which made room.
                with pytest.raises(BufferFull):
                    numbers.put_nowait(99)
            return number

        async with numbers.pipe(adaptive_flat_map(handle)).to(collect(seen)).start() as running:
            puts = [asyncio.create_task(numbers.put(n)) for n in range(2)]
            await asyncio.gather(*puts)
            await running.drain()
        assert seen == [0, 1]

    run(story())


def test_a_wrong_capacity_and_a_wrong_loop_are_refused() -> None:
    for capacity in (0, -1, True, 2.5, "many"):
        with pytest.raises(BadArgument, match="at least 1"):
            inbox(capacity)  # type: ignore[arg-type]

    async def story() -> None:
        numbers: Inbox[int] = inbox(5)
        async with numbers.to(MemorySink()).start() as running:
            await asyncio.sleep(0)
            with pytest.raises(NoLoop, match="put_threadsafe"):
                await asyncio.to_thread(numbers.put_nowait, 1)
            with pytest.raises(BuildError, match=r"await inbox\.put"):
                numbers.put_threadsafe(1)
            await running.drain()

    asyncio.run(story())


def test_a_caller_on_another_loop_that_came_before_the_running_is_refused_by_name() -> None:
    numbers: Inbox[int] = inbox(5)
    seen: list[int] = []
    heard: list[str] = []

    waits = threading.Event()

    async def caller() -> None:
        put = asyncio.create_task(numbers.put(1))
        await asyncio.sleep(0)
        waits.set()
        heard.append(await outcome(asyncio.wait_for(put, 5)))

    async def story() -> None:
        await asyncio.to_thread(waits.wait)
        async with numbers.to(collect(seen)).start() as running:
            await numbers.put(2)
            await joined(threads)
            await running.drain()

    threads = in_threads(lambda: asyncio.run(caller()))
    asyncio.run(story())
    assert (heard, seen) == (["NoLoop"], [2])


def test_a_caller_whose_loop_is_gone_has_put_nothing() -> None:
    numbers: Inbox[int] = inbox(5)
    seen: list[int] = []
    loop = asyncio.new_event_loop()
    put = loop.create_task(numbers.put(1))
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()

    async def story() -> None:
        async with numbers.to(collect(seen)).start() as running:
            await numbers.put(2)
            await running.drain()

    asyncio.run(story())
    assert seen == [2]
    put.get_coro().close()  # type: ignore[union-attr]


def test_the_picture_shows_the_capacity() -> None:
    numbers: Inbox[int] = inbox(7)
    (source, _) = numbers.to(MemorySink()).describe()
    assert (source.name, source.bound) == ("inbox", 7)


# Real threads, on a real loop.


def in_threads(*work: Callable[[], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=piece) for piece in work]
    for thread in threads:
        thread.start()
    return threads


async def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        await asyncio.to_thread(thread.join, 30)
        assert not thread.is_alive()


def test_threads_put_too_and_nothing_of_theirs_is_lost() -> None:
    numbers: Inbox[int] = inbox(3)
    seen: list[int] = []
    refused: list[int] = []
    done: list[int] = []

    def put(first: int) -> None:
        for number in range(first, first + 1000):
            try:
                numbers.put_threadsafe(number, wait=number % 2 == 0)
            except InboxClosed:
                refused.append(number)
            else:
                done.append(number)

    async def work(number: int) -> int:
        await asyncio.sleep(0)
        return number

    async def story() -> None:
        # Two begin before the running does.
        threads = in_threads(lambda: put(0), lambda: put(1000))
        pipeline = numbers.pipe(adaptive_flat_map(work, ordered=True)).to(collect(seen))
        async with pipeline.start() as running:
            threads += in_threads(lambda: put(2000))
            await until(lambda: len(seen) >= 700)
            await running.drain()
        await joined(threads)

    asyncio.run(story())
    assert sorted(done) == sorted(seen)
    assert sorted(done + refused) == list(range(3000))
    assert refused
    for first in (0, 1000, 2000):
        own = [number for number in seen if first <= number < first + 1000]
        assert own == sorted(own)


def test_a_thread_hears_what_became_of_its_event() -> None:
    numbers: Inbox[int] = inbox(3)
    heard: list[Any] = []

    def put(number: int) -> None:
        try:
            numbers.put_threadsafe(number, wait=True)
            heard.append(number)
        except Exception as error:
            heard.append(type(error))

    async def work(number: int) -> None:
        if number == 2:
            raise Trouble
        if number == 3:
            await asyncio.sleep(1000)

    async def story() -> None:
        pipeline = numbers.to(for_each(work, on_error="skip"))
        running: Running = pipeline.start()
        for number in (1, 2):
            await asyncio.to_thread(put, number)
        threads = in_threads(lambda: put(3))
        await until(lambda: running.statistics()["in"] == 3)
        running.cancel()
        await running.wait()
        await joined(threads)
        await asyncio.to_thread(put, 4)

    asyncio.run(story())
    assert heard == [1, Trouble, Returned, InboxClosed]


def test_threads_that_wait_are_refused_when_the_pipeline_ends() -> None:
    numbers: Inbox[int] = inbox(1)
    refused: list[int] = []

    def put(number: int) -> None:
        try:
            numbers.put_threadsafe(number)
        except InboxClosed:
            refused.append(number)

    async def story() -> None:
        running = numbers.to(MemorySink()).start()
        await asyncio.sleep(0)
        running.pause()
        await numbers.put(0)
        threads = in_threads(lambda: put(1), lambda: put(2))
        await until(lambda: running.statistics()["stages"][0]["callers"] == 2)
        running.cancel()
        await running.wait()
        await joined(threads)

    asyncio.run(story())
    assert sorted(refused) == [1, 2]


def test_a_probe_gets_no_more_than_it_asks_for(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(3)
        probe = Probe[int](request=1)
        numbers.connect(probe)
        puts = [asyncio.create_task(numbers.put(n)) for n in range(6)]
        await asyncio.sleep(1)
        assert (probe.values, [put.done() for put in puts].count(True)) == ([0], 4)
        probe.request(2)
        await asyncio.sleep(1)
        assert (probe.values, all(put.done() for put in puts)) == ([0, 1, 2], True)
        probe.cancel()
        with pytest.raises(InboxClosed):
            await numbers.put(9)
        await asyncio.sleep(1)

    run(story())


def test_a_put_refused_after_an_error_names_that_error(run: Run) -> None:
    def fails(value: int) -> None:
        raise Trouble(value)

    async def story() -> None:
        numbers: Inbox[int] = inbox(1)
        running = numbers.pipe(adaptive_flat_map(fails)).to(MemorySink()).start()
        waiting = [asyncio.create_task(numbers.put(n)) for n in range(3)]
        refusals = [
            error
            for error in await asyncio.gather(*waiting, return_exceptions=True)
            if error is not None
        ]
        for put in (numbers.put(7), numbers.put(8)):
            with pytest.raises(InboxClosed) as raised:
                await put
            refusals.append(raised.value)
        with pytest.raises(InboxClosed) as raised:
            numbers.put_nowait(9)
        refusals.append(raised.value)
        with pytest.raises(Trouble) as first:
            await running.wait()
        assert len(refusals) >= 4
        assert {type(refusal) for refusal in refusals} == {InboxClosed}
        assert {refusal.__cause__ for refusal in refusals} == {first.value}

    run(story())


def test_a_put_refused_by_a_drain_names_no_error(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(1)
        running = numbers.to(collect([])).start()
        await numbers.put(0)
        await running.drain()
        with pytest.raises(InboxClosed) as raised:
            await numbers.put(1)
        assert raised.value.__cause__ is None

    run(story())
