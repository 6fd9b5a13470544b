from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.protocol.acknowledgement import AckHook, Family, Joined
from penstock.streams.protocol.event import (
    Ending,
    Event,
    drop_all,
    end_all,
    finish_all,
    give_back_all,
)
from penstock.streams.testing import Ledger

ENDS: dict[Ending, Callable[[Event[Any]], None]] = {
    Ending.FINISHED: lambda event: event.finish(),
    Ending.DROPPED: lambda event: event.drop("test"),
    Ending.FORGIVEN: lambda event: event.fail(ValueError(), acknowledged=True),
    Ending.FAILED: lambda event: event.fail(ValueError()),
    Ending.RETURNED: lambda event: event.give_back(),
}
ENDS_OF_ALL: dict[Ending, Callable[[list[Event[Any]]], None]] = {
    Ending.FINISHED: finish_all,
    Ending.DROPPED: lambda events: drop_all(events, "test"),
    Ending.FORGIVEN: lambda events: end_all(events, Ending.FORGIVEN, ValueError()),
    Ending.FAILED: lambda events: end_all(events, Ending.FAILED, ValueError()),
    Ending.RETURNED: give_back_all,
}
# The outcome of a parent: the first of these that any of its children had.
WORST = [Ending.FAILED, Ending.RETURNED, Ending.FORGIVEN, Ending.FINISHED, Ending.DROPPED]


class Turn:
    """Counts how often it was given up."""

    def __init__(self) -> None:
        self.holders = 1
        self.ends = 0

    def end(self) -> None:
        self.holders -= 1
        self.ends += 1

    def end_together(self, turns: list[Any]) -> None:
        for turn in turns:
            turn.end()


def new_event(ledger: Ledger, value: Any = "value") -> Event[Any]:
    return ledger.enter(Event(value, 1.0, ledger, "line 7"))


@pytest.mark.parametrize("ending", ENDS)
def test_an_event_ends_once_in_the_first_way(ending: Ending) -> None:
    ledger = Ledger()
    event = new_event(ledger)
    ENDS[ending](event)
    for other in ENDS.values():
        other(event)
    assert ledger.endings == [("value", ending)]


@pytest.mark.parametrize("ending", ENDS)
def test_an_event_gives_up_its_turn_when_it_ends(ending: Ending) -> None:
    event, turn = new_event(Ledger()), Turn()
    event.turn = turn
    ENDS[ending](event)
    event.end_turn()
    assert turn.ends == 1


class Listener(AckHook):
    def __init__(self, name: str, heard: list[tuple[str, Ending]]) -> None:
        self.name, self.heard = name, heard

    def stand_before(self, event: Event[Any]) -> None:
        event.outer = (event.origin, event.outer, self.name)
        event.origin = self

    def ended(
        self, events: list[Event[Any]], ending: Ending, error: BaseException | None, /
    ) -> None:
        assert [event.outer[2] for event in events] == [self.name] * len(events)
        self.heard += [(self.name, ending)] * len(events)


@pytest.mark.parametrize("ending", ENDS)
def test_origins_in_front_of_another_hear_of_the_end_from_the_latest_to_the_first(
    ending: Ending,
) -> None:
    ledger, heard = Ledger(), list[tuple[str, Ending]]()
    event = new_event(ledger)
    for name in ("first", "second", "third"):
        Listener(name, heard).stand_before(event)
    ENDS[ending](event)
    assert heard == [("third", ending), ("second", ending), ("first", ending)]
    assert ledger.endings == [("value", ending)]
    assert event.origin is ledger
    assert event.outer is None


def test_an_event_with_several_sinks_finishes_with_the_last_of_them() -> None:
    ledger = Ledger()
    event = new_event(ledger)
    event.pending = 2
    event.finish()
    assert ledger.unsettled == ["value"]
    event.finish()
    assert ledger.endings == [("value", Ending.FINISHED)]


def test_an_event_fails_although_another_sink_accepted_it() -> None:
    ledger = Ledger()
    event = new_event(ledger)
    event.pending = 3
    event.finish()
    event.fail(ValueError())
    event.finish()
    assert ledger.endings == [("value", Ending.FAILED)]


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans())))
def test_finishing_many_at_once_is_finishing_each(kinds: list[tuple[int, bool]]) -> None:
    ledgers = [Ledger() for _ in range(3)]
    heard = list[tuple[str, Ending]]()
    turn = Turn()
    events = []
    for n, (i, has_all) in enumerate(kinds):
        event = new_event(ledgers[i], n)
        event.turn = turn
        Listener(str(n), heard).stand_before(event)
        if not has_all:
            event.pending = 2
        events.append(event)
    finish_all(events)
    whole = [n for n, (_, has_all) in enumerate(kinds) if has_all]
    assert sorted(heard) == sorted((str(n), Ending.FINISHED) for n in whole)
    assert turn.ends == len(whole)
    for i, ledger in enumerate(ledgers):
        assert ledger.ended(Ending.FINISHED) == [n for n in whole if kinds[n][0] == i]


class Notices(Ledger):
    """Counts the calls by which it is notified."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def end(self, events: list[Event[Any]], ending: Ending) -> list[Any]:
        self.calls += 1
        return super().end(events, ending)


@pytest.mark.parametrize("ending", ENDS_OF_ALL)
@pytest.mark.parametrize("hooks", [0, 2])
def test_an_origin_is_notified_once_of_a_list_of_its_events(ending: Ending, hooks: int) -> None:
    ledgers, heard = [Notices(), Notices()], list[tuple[str, Ending]]()
    events = [new_event(ledger, n) for ledger in ledgers for n in range(3)]
    for name in range(hooks):
        listener = Listener(str(name), heard)
        for event in events:
            listener.stand_before(event)
    ENDS_OF_ALL[ending](events)
    assert [ledger.calls for ledger in ledgers] == [1, 1]
    assert [ledger.ended(ending) for ledger in ledgers] == [[0, 1, 2]] * 2
    assert heard == [(str(name), ending) for name in reversed(range(hooks)) for _ in events]


@pytest.mark.parametrize("ending", ENDS_OF_ALL)
def test_events_of_a_list_that_have_ended_do_not_end_again(ending: Ending) -> None:
    ledger, turn = Ledger(), Turn()
    events = [new_event(ledger, n) for n in range(4)]
    for event, end in zip(events[::2], (Ending.DROPPED, Ending.RETURNED), strict=True):
        ENDS[end](event)
    for event in events:
        event.turn = turn
    ENDS_OF_ALL[ending](events)
    assert ledger.endings == [(0, Ending.DROPPED), (2, Ending.RETURNED), (1, ending), (3, ending)]
    assert turn.ends == 2


@pytest.mark.parametrize("ending", ENDS_OF_ALL)
def test_origins_are_notified_of_a_list_before_its_turns_end(ending: Ending) -> None:
    ledger, unsettled = Ledger(), list[int]()

    class Watching(Turn):
        def end(self) -> None:
            unsettled.append(len(ledger.unsettled))

    events = [new_event(ledger, n) for n in range(3)]
    for event in events:
        event.turn = Watching()
    ENDS_OF_ALL[ending](events)
    assert unsettled == [0, 0, 0]


# Fan-out.


@given(st.lists(st.sampled_from(list(Ending))), st.data())
def test_a_parent_ends_when_its_last_child_has_and_as_the_worst_of_them(
    endings: list[Ending], data: st.DataObject
) -> None:
    ledger = Ledger()
    parent, turn = new_event(ledger), Turn()
    parent.turn = turn
    family = Family(parent, "empty")
    children = [family.child(n) for n in range(len(endings))]
    steps = [lambda c=c, e=e: ENDS[e](c) for c, e in zip(children, endings, strict=True)]
    order = data.draw(st.permutations([*steps, family.close]))
    for step in order:
        assert ledger.unsettled == ["value"]
        step()
    worst = next((one for one in WORST if one in endings), Ending.DROPPED)
    assert ledger.endings == [("value", worst)]
    assert turn.holders == 0


@pytest.mark.parametrize("ending", ENDS_OF_ALL)
def test_children_that_end_in_one_list_end_their_parent(ending: Ending) -> None:
    ledger = Ledger()
    family = Family(new_event(ledger), "empty")
    children = [family.child(n) for n in range(3)]
    family.close()
    ENDS_OF_ALL[ending](children)
    assert ledger.endings == [("value", ending)]


def test_children_share_the_times_the_token_and_the_turn_of_their_parent() -> None:
    parent, turn = new_event(Ledger()), Turn()
    parent.started, parent.ended, parent.turn = 2.0, 3.0, turn
    child = Family(parent, "empty").child("part")
    assert (child.created, child.started, child.ended) == (1.0, 2.0, 3.0)
    assert (child.token, child.turn, turn.holders) == ("line 7", turn, 2)


def test_a_childs_error_is_its_parents() -> None:
    class Origin(Ledger):
        error: BaseException | None = None

        def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
            self.error = why
            super().settle(events, ending, why)

    origin, error = Origin(), ValueError("part")
    family = Family(new_event(origin), "empty")
    child = family.child("part")
    family.close()
    child.fail(error)
    assert origin.error is error


# Fan-in.


@pytest.mark.parametrize("ending", ENDS)
def test_all_that_went_into_an_event_share_its_outcome(ending: Ending) -> None:
    ledger = Ledger()
    parents = [new_event(ledger, n) for n in range(3)]
    ENDS[ending](Event(parents, 1.0, Joined(parents)))
    assert ledger.endings == [(n, ending) for n in range(3)]


def test_joining_children_of_one_parent_ends_it_once() -> None:
    ledger = Ledger()
    family = Family(new_event(ledger), "empty")
    joined = Event("both", 1.0, Joined([family.child(1), family.child(2)]))
    family.close()
    joined.finish()
    assert ledger.endings == [("value", Ending.FINISHED)]
