"""Which events may be committed together, against a search of all sets."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.state.changes import Cell, Root, committable, committed, depending

# In order: an event and the keys that it changes.
Story = list[tuple[int, int]]
stories = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=14)


def made(story: Story) -> dict[int, Root]:
    roots: dict[int, Root] = {}
    cells: dict[int, Cell] = {}
    for event, key in story:
        if event not in roots:
            roots[event] = Root()
        cell = cells.setdefault(key, Cell(None, key, b"", 0))
        roots[event].change(cell, event, {})
    return roots


def ended(roots: dict[int, Root], which: set[int]) -> list[Root]:
    chosen = [roots[event] for event in sorted(which) if event in roots]
    for root in chosen:
        root.missing = 0
    return chosen


def is_closed(story: Story, events: frozenset[int]) -> bool:
    """Whether each change before one of these events, of the same key, is of one of them too."""
    for at, (event, key) in enumerate(story):
        if event in events and any(
            other not in events for other, same in story[:at] if same == key
        ):
            return False
    return True


def best(story: Story, which: set[int]) -> set[int]:
    """The largest closed set of events that have ended: the union of all."""
    of_story = sorted({event for event, _ in story} & which)
    sets = (
        frozenset(some)
        for count in range(len(of_story) + 1)
        for some in combinations(of_story, count)
    )
    return set().union(*(some for some in sets if is_closed(story, some)))


def numbers(roots: dict[int, Root], which: list[Root]) -> set[int]:
    return {event for event, root in roots.items() if root in which}


@given(stories, st.sets(st.integers(0, 6)))
def test_as_many_as_may_be_are_committed_and_no_others(story: Story, which: set[int]) -> None:
    roots = made(story)
    chosen = ended(roots, which)
    ready, left = committable(chosen)
    assert numbers(roots, ready) == best(story, which)
    assert numbers(roots, ready + left) == numbers(roots, chosen)
    assert len(ready) + len(left) == len(chosen)


@given(stories, st.lists(st.sets(st.integers(0, 6)), max_size=4))
def test_what_was_left_is_committed_once_what_it_waits_for_has_ended(
    story: Story, steps: list[set[int]]
) -> None:
    roots = made(story)
    waiting: list[Root] = []
    done: set[int] = set()
    seen: set[int] = set()
    for step in steps:
        waiting += ended(roots, step - seen)
        seen |= step
        ready, waiting = committable(waiting)
        for root in ready:
            assert root.missing == 0
        committed(ready)
        done |= numbers(roots, ready)
        assert done == best(story, seen)


@given(stories, st.integers(0, 6))
def test_all_that_is_lost_with_an_event_came_after_it(story: Story, lost: int) -> None:
    roots = made(story)
    if lost not in roots:
        return
    everything = {event for event, _ in story}
    assert numbers(roots, depending(roots[lost])) == everything - best(story, everything - {lost})


@given(stories, st.integers(0, 6), st.integers(0, 6))
def test_events_of_which_a_list_was_made_are_committed_together(
    story: Story, one: int, other: int
) -> None:
    roots = made(story)
    if one not in roots or other not in roots or one == other:
        return
    roots[one].join(roots[other])
    together: list[Any] = [(one if event == other else event, key) for event, key in story]
    which = {event for event, _ in together}
    chosen = ended({event: roots[event] for event in which}, which)
    assert numbers(roots, committable(chosen)[0]) == which
