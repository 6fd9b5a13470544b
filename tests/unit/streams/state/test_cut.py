"""Commits of a limited number of keys: whole events, in the order of each key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.base.errors import PenstockError
from penstock.streams.protocol.event import Event
from penstock.streams.state.changes import Cell, Root, committable, committed
from penstock.streams.state.cut import cut

# In order: an event and the keys that it changes.
Story = list[tuple[int, int]]
stories = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6)), max_size=30)


NOWHERE: Any = None


def made(story: Story) -> dict[int, Root]:
    roots: dict[int, Root] = {}
    cells: dict[int, Cell] = {}
    for event, key in story:
        if event not in roots:
            root = roots[event] = Root()
            root.event = Event(event, 0.0, NOWHERE)
            root.missing = 0
        cell = cells.setdefault(key, Cell("room", key, b"", 0))
        roots[event].change(cell, event, {})
    return roots


def keys_of(story: Story, events: set[int]) -> set[int]:
    return {key for event, key in story if event in events}


@given(stories, st.integers(1, 7))
def test_each_part_has_few_keys_and_comes_after_what_changed_them_before(
    story: Story, most: int
) -> None:
    roots = made(story)
    numbers = {root: event for event, root in roots.items()}
    waiting, done = list(roots.values()), set[int]()
    while waiting:
        ready, left = committable(waiting)
        assert not left
        try:
            now, rest = cut(ready, most, "Store(x)")
        except PenstockError:
            # Some that must be together change more.
            assert len(keys_of(story, {numbers[root] for root in ready})) > most
            return
        events = {numbers[root] for root in now}
        assert events, "nothing would ever be committed"
        assert len(keys_of(story, events)) <= most
        assert {*map(id, now), *map(id, rest)} == set(map(id, ready))
        done |= events
        for at, (event, key) in enumerate(story):
            if event in events:
                assert all(other in done for other, same in story[:at] if same == key)
        committed(now)
        waiting = rest


@given(st.lists(st.integers(0, 40), min_size=1, max_size=200), st.integers(1, 9))
def test_events_of_one_key_each_are_cut_into_parts_that_are_as_large_as_may_be(
    keys: list[int], most: int
) -> None:
    roots = made(list(enumerate(keys)))
    now, rest = cut(list(roots.values()), most, "Store(x)")
    taken = {key for root in now for key in [root.cell.key]}
    assert len(taken) == min(most, len(set(keys)))
    assert all(root.is_left for root in rest)
    assert not any(root.is_left for root in now)


def test_a_chain_of_events_through_many_keys_is_cut_anywhere() -> None:
    # Each event changes a key that the event before it has changed, too.
    count = 5_000
    roots = made([pair for n in range(count) for pair in ((n, n), (n, n + 1))])
    now, _ = cut(list(roots.values())[::-1], 10, "Store(x)")
    assert {root.event.value for root in now} == set(range(9))


def test_an_event_that_changes_too_many_keys_is_named() -> None:
    roots = made([(77, key) for key in range(4)])
    with pytest.raises(PenstockError, match=r"3 keys as one fact.* 77 changed.* 4"):
        cut(list(roots.values()), 3, "Store(x)")


def test_events_that_have_changed_each_others_keys_in_turn_are_named_together() -> None:
    roots = made([(1, 1), (2, 1), (2, 2), (1, 2)])
    assert cut(list(roots.values()), 2, "Store(x)")[1] == []
    with pytest.raises(PenstockError, match="and 1 others changed those of 2"):
        cut(list(roots.values()), 1, "Store(x)")
