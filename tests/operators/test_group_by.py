from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops

from operators import adaptive_flat_map, group_by, spread
from sinks import collect
from streams import Fixed, Flowable, Group, from_iterable
from streams.errors import BuildError, PenstockError
from streams.testing import (
    CountedSource,
    ManualPublisher,
    MemorySource,
    Probe,
    no_leaks,
    run_virtual,
)


def nothing_to_do(value: Any) -> Any:
    return value


async def trickle(items: list[Any]) -> AsyncIterator[Any]:
    for item in items:
        await asyncio.sleep(1)
        yield item


# Groups as streams.


def test_a_group_is_a_stream_with_a_key() -> None:
    async def story() -> list[tuple[str, list[str]]]:
        source = MemorySource(["a1", "b1", "a2", "a3"])
        seen: list[tuple[str, list[str]]] = []
        async for group in source.pipe(group_by(0)):
            assert isinstance(group, Group)
            assert isinstance(group, Flowable)
            seen.append((group.key, [value async for value in group]))
        assert source.unsettled == []
        assert len(source.acked) == 4
        return seen

    assert run_virtual(story()) == [("a", ["a1", "a2", "a3"]), ("b", ["b1"])]


def test_an_error_of_the_last_event_of_a_group_reaches_its_reader() -> None:
    async def story() -> None:
        async for group in from_iterable(["a1", "b1"]).pipe(group_by(0)):
            async for _ in group.pipe(ops.map(lambda text: int(text))):
                pass

    with pytest.raises(ValueError, match="a1") as raised:
        run_virtual(story())
    assert raised.value.__notes__ == ["in 'map' in stage 2 'group_by', on the event 'a1'"]


def test_a_group_ends_when_it_is_empty_and_a_later_event_opens_a_new_one() -> None:
    async def story() -> list[tuple[str, list[str]]]:
        seen: list[tuple[str, list[str]]] = []
        source = Flowable.from_async_iterable(lambda: trickle(["a1", "b1", "a2"]))
        async for group in source.pipe(group_by(0)):
            seen.append((group.key, [value async for value in group]))
        return seen

    assert run_virtual(story()) == [("a", ["a1"]), ("b", ["b1"]), ("a", ["a2"])]


@given(st.lists(st.sampled_from("abc")), st.integers(1, 50))
def test_reading_group_by_group_loses_nothing_and_keeps_order(keys: list[str], buffer: int) -> None:
    events = [(key, n) for n, key in enumerate(keys)]
    source = MemorySource(events)

    async def story() -> list[tuple[str, int]]:
        return [value async for group in source.pipe(group_by(0, buffer)) async for value in group]

    seen = run_virtual(story())
    for key in "abc":
        assert [e for e in seen if e[0] == key] == [e for e in events if e[0] == key]
    assert source.unsettled == []


def test_groups_may_be_read_side_by_side_each_by_its_own_task() -> None:
    async def story() -> dict[str, list[str]]:
        seen: dict[str, list[str]] = {"a": [], "b": []}
        opened = asyncio.Event()

        async def read(group: Group[str, str]) -> None:
            async for value in group:
                seen[group.key].append(value)
                await opened.wait()

        async with no_leaks(), asyncio.TaskGroup() as tasks:
            source = from_iterable(["a1", "b1", "a2", "b2"])
            async for group in source.pipe(group_by(0)):
                tasks.create_task(read(group))
                await asyncio.sleep(1)
                if len(seen["b"]) == 1:
                    assert seen == {"a": ["a1"], "b": ["b1"]}
                    opened.set()
        return seen

    assert run_virtual(story()) == {"a": ["a1", "a2"], "b": ["b1", "b2"]}


def test_groups_may_be_handled_whole_when_something_stands_between() -> None:
    async def story() -> list[tuple[str, int]]:
        done: list[tuple[str, int]] = []

        async def count(group: Group[str, str]) -> tuple[str, int]:
            return group.key, len([value async for value in group])

        stream = from_iterable("abacab").pipe(
            group_by(nothing_to_do), ops.map(nothing_to_do), adaptive_flat_map(count, Fixed(2))
        )
        await stream.to(collect(done)).run()
        return done

    assert run_virtual(story()) == [("a", 3), ("b", 2), ("c", 1)]


def test_events_of_a_group_that_nobody_reads_are_dropped_as_unread() -> None:
    source = MemorySource(["a1", "b1", "a2"])
    probe = Probe[Any](request=9)
    source.pipe(group_by(0)).connect(probe)
    assert [group.key for group in probe.values] == ["a", "b", "a"]
    assert source.acked == ["a1", "b1", "a2"]
    assert probe.completed


def test_a_group_given_back_unread_gives_its_events_back() -> None:
    source, probe = MemorySource(["a1", "a2"]), Probe[Any](hold=True)
    source.pipe(group_by(0)).connect(probe)
    probe.request(9)
    probe.events[0].give_back()
    assert source.returned == ["a1", "a2"]


def test_leaving_a_group_gives_back_its_current_event_and_the_rest() -> None:
    async def story() -> tuple[list[str], list[str]]:
        source = MemorySource(["a1", "a2", "a3", "b1"])
        async for group in source.pipe(group_by(0)):
            async for _ in group:
                break
            await asyncio.sleep(1)
        return source.acked, source.returned

    assert run_virtual(story()) == ([], ["a1", "a2", "a3", "b1"])


def test_a_group_can_be_read_once() -> None:
    async def story() -> None:
        async for group in from_iterable(["a1", "a2"]).pipe(group_by(0)):
            assert [value async for value in group] == ["a1", "a2"]
            with pytest.raises(PenstockError, match="'a' has ended or is being read"):
                _ = [value async for value in group]

    run_virtual(story())


def test_a_group_kept_after_its_end_does_not_read_another_one() -> None:
    source, probe = ManualPublisher[str](), Probe[Any](request=9)
    source.pipe(group_by(0)).connect(probe)
    source.send("a1")
    old = probe.values[0]
    source.send("b1")
    late = Probe[str](request=9)
    old.connect(late)
    assert late.values == []
    assert isinstance(late.error, PenstockError)


def test_leaving_the_stream_of_groups_fails_a_group_that_is_still_being_read() -> None:
    async def story() -> None:
        source = ManualPublisher[str]()
        probe, reader = Probe[Any](hold=True), Probe[str](request=1, hold=True)
        source.pipe(group_by(0)).connect(probe)
        probe.request(1)
        source.send("a1", "a2")
        probe.values[0].connect(reader)
        probe.cancel()
        await asyncio.sleep(0)
        assert "left before its groups ended" in str(reader.error)
        reader.events[0].finish()
        probe.events[0].finish()
        assert source.returned == ["a2"]
        assert source.unsettled == []

    run_virtual(story())


@pytest.mark.parametrize("how", ["left", "unread", "read at once"])
def test_a_group_without_an_end_gives_the_loop_its_turn(how: str) -> None:
    """One key, and a source that gives at once whatever is asked of it."""

    async def story() -> list[int]:
        source, probe = CountedSource(range(100_000)), Probe[Any](hold=True)
        source.pipe(group_by(lambda _: "all", buffer=16)).connect(probe)
        probe.request(1)
        reader = Probe[int]()
        if how != "unread":
            probe.values[0].connect(reader)
        if how == "left":
            reader.cancel()
        elif how == "unread":
            probe.events[0].finish()
        else:
            reader.request(100_000)
        emitted = [source.emitted]
        for _ in range(3):
            await asyncio.sleep(0)
            emitted.append(source.emitted)
        probe.cancel()
        return emitted

    emitted = run_virtual(story())
    assert emitted == sorted(set(emitted))
    assert emitted[-1] < 100_000


def test_an_error_of_the_source_reaches_the_groups_that_are_being_read() -> None:
    source, probe, reader = ManualPublisher[str](), Probe[Any](hold=True), Probe[str](request=1)
    source.pipe(group_by(0)).connect(probe)
    probe.request(1)
    source.send("a1")
    probe.values[0].connect(reader)
    assert reader.completed
    source.send("b1", "b2")
    probe.request(1)
    second = Probe[str](request=1, hold=True)
    probe.values[1].connect(second)
    source.fail(ValueError("from above"))
    assert str(second.error) == str(probe.error) == "from above"
    second.events[0].finish()


def test_group_emission_reads_ahead_no_more_than_the_buffer() -> None:
    source, probe = ManualPublisher[str](), Probe[Any](hold=True)
    source.pipe(group_by(0, buffer=4)).connect(probe)
    assert source.demand == 4
    source.send("a1", "a2", "b1", "c1")
    assert (source.demand, probe.values) == (0, [])
    probe.request(1)
    assert [group.key for group in probe.values] == ["a"]
    reader = Probe[str](request=2)
    probe.values[0].connect(reader)
    assert (reader.values, source.demand) == (["a1", "a2"], 2)


# Refusals.


def test_group_by_directly_after_group_by_is_refused() -> None:
    with pytest.raises(BuildError, match=r"put spread\(\) between"):
        from_iterable("ab").pipe(group_by(0), group_by(0))


def test_work_straight_after_group_by_is_refused_and_spread_is_named() -> None:
    with pytest.raises(BuildError, match=r"insert spread\(\)"):
        from_iterable("ab").pipe(group_by(0), adaptive_flat_map(nothing_to_do))


def test_a_sink_straight_after_group_by_is_refused() -> None:
    with pytest.raises(BuildError, match=r"insert spread\(\)"):
        from_iterable("ab").pipe(group_by(0)).to(collect([]))


@pytest.mark.parametrize(
    "operator", [ops.buffer_with_count(2), ops.delay(1), ops.reduce(max), ops.debounce(1)]
)
def test_an_operator_that_holds_between_spread_and_the_work_is_refused(operator: Any) -> None:
    with pytest.raises(BuildError, match="each=lambda group"):
        from_iterable("ab").pipe(group_by(0), spread(), operator)


def test_an_operator_that_holds_is_allowed_after_the_work() -> None:
    from_iterable("ab").pipe(
        group_by(0), spread(), adaptive_flat_map(nothing_to_do), ops.buffer_with_count(2)
    )


@pytest.mark.parametrize(
    "options",
    [
        {"buffer": 0},
        {"idle": 5},
        {"max_groups": 5},
        {"each": nothing_to_do},
        {"each": nothing_to_do, "idle": 0},
        {"each": nothing_to_do, "idle": 1, "max_groups": 0},
        {"on_error": "retry"},
    ],
    ids=", ".join,
)
def test_nonsense_is_refused_when_the_operator_is_built(options: dict[str, Any]) -> None:
    with pytest.raises(BuildError, match="group_by"):
        group_by(0, **options)


@pytest.mark.parametrize("by", [True, None, 1.5])
def test_a_key_is_a_name_an_index_or_a_function(by: Any) -> None:
    with pytest.raises(TypeError, match="is no key"):
        group_by(by)
