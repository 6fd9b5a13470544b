from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Fixed, adaptive_flat_map, collect, from_iterable, group_by, spread
from penstock.streams.base.errors import BuildError
from penstock.streams.testing import ManualPublisher, Probe, run_virtual
from tests.helpers.published import GROUPS, PUBLISHED, read

# Over groups.


@pytest.mark.parametrize("feeders", PUBLISHED)
def test_groups_are_spread_in_the_published_orders(feeders: int) -> None:
    items = [item for group in GROUPS for item in group]

    async def story() -> list[str]:
        started: list[str] = []

        async def work(item: str) -> str:
            started.append(item)
            await asyncio.sleep(1)
            return item

        stream = from_iterable(items).pipe(
            group_by(0), spread(feeders), adaptive_flat_map(work, Fixed(1))
        )
        await stream.to(collect([])).run()
        return started

    assert run_virtual(story()) == PUBLISHED[feeders].split()


@given(st.lists(st.sampled_from("abc")), st.integers(1, 4))
def test_no_more_groups_than_feeders_take_turns(keys: list[str], feeders: int) -> None:
    source = from_iterable([(key, n) for n, key in enumerate(keys)])
    probe = Probe[Any]()
    source.pipe(group_by(0), spread(feeders)).connect(probe)
    # By now all events wait in their groups.
    probe.request(1000)
    left = {key: keys.count(key) for key in keys}
    open_groups: set[str] = set()
    for key, _ in probe.values:
        open_groups.add(key)
        assert len(open_groups) <= feeders
        left[key] -= 1
        if not left[key]:
            open_groups.discard(key)
    assert sorted(probe.values, key=lambda value: value[1]) == [
        (key, n) for n, key in enumerate(keys)
    ]


def test_a_group_whose_turn_is_held_keeps_its_feeder() -> None:
    source = ManualPublisher[str]()
    probe = read(source.pipe(group_by(0), spread(1)), hold=True)
    source.send("a1", "b1")
    assert probe.values == ["a1"]
    source.send("a2")
    probe.events[0].finish()
    assert probe.values == ["a1", "a2"]
    probe.events[1].finish()
    assert probe.values == ["a1", "a2", "b1"]
    probe.events[2].finish()


def test_an_event_of_a_group_that_arrives_as_it_runs_empty_is_not_lost() -> None:
    """The next group's event sends one more of the group that is just leaving its feeder."""
    source = ManualPublisher[str]()

    def feed(probe: Probe[str], event: Any) -> None:
        if event.value == "b1":
            source.send("a2", "a3")

    probe = read(source.pipe(group_by(0), spread(1)), hold=True, on_event=feed)
    source.send("a1", "b1")
    for n in range(4):
        probe.events[n].finish()
    source.complete()
    assert probe.values == ["a1", "b1", "a2", "a3"]
    assert probe.completed
    assert source.unsettled == []


# Refusals.


def test_spread_of_iterables_far_behind_a_group_by_is_allowed() -> None:
    async def story() -> list[str]:
        done: list[str] = []
        stream = from_iterable(["ab", "cd"]).pipe(
            group_by(0), spread(), adaptive_flat_map(list, Fixed(1)), spread(2)
        )
        await stream.to(collect(done)).run()
        return done

    assert sorted(run_virtual(story())) == ["a", "b", "c", "d"]


def test_spread_straight_after_spread_of_groups_is_refused() -> None:
    events = from_iterable("ab").pipe(group_by(0), spread())
    with pytest.raises(BuildError, match="leave one of the two out"):
        events.pipe(spread())


@pytest.mark.parametrize("feeders", [0, -1, True])
def test_less_than_one_feeder_is_refused(feeders: int) -> None:
    with pytest.raises(BuildError, match="feeders"):
        spread(feeders)
