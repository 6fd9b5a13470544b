"""Deadlines of many keys, by the stamps of the events."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.base.errors import BuildError
from penstock.streams.monitoring.timed_watching import TimedWatch
from penstock.streams.monitoring.watching import Rule
from penstock.streams.protocol.acknowledgement import NOBODY
from penstock.streams.protocol.event import Event
from penstock.streams.temporal import Violation
from penstock.streams.temporal.formula.formula import Formula
from tests.helpers.brute_force import NAMES
from tests.helpers.brute_force_time import (
    Moment,
    broken,
    broken_at_end,
    fulfillable,
)

SOON = "G(a -> F[<=10s] b)"


def rule(formula: str | Formula, **options: Any) -> Rule:
    """A rule over events (key, letter, seconds)."""
    usual: dict[str, Any] = {"by": 0, "mode": "ltl3", "evidence": 16, "idle": None}
    usual |= {"max_keys": None, "restart": False, "strict": True, **options}
    tests: dict[str, Any] = {name: has(name) for name in NAMES}
    return Rule(stage="violations", formula=formula, tests=tests, **usual)


def has(name: str) -> Any:
    return lambda event: name in event[1]


def watch(formula: str | Formula, **options: Any) -> TimedWatch:
    return TimedWatch(rule(formula, **options), lambda: 0.0)


def stamped(events: list[Any]) -> list[Event[Any]]:
    """The events, each with its seconds as its stamp."""
    return [Event(event, float(event[2]), NOBODY) for event in events]


def taken(watch: TimedWatch, events: list[Any]) -> list[Violation[Any]]:
    """The violations in their order."""
    coming = stamped(events)
    found: list[Violation[Any]] = []
    begin = 0
    while begin < len(coming):
        place, violation = watch.look(coming, begin)
        found += watch.alarms
        if violation is not None:
            found.append(violation)
        begin = place + 1
    return found


def told(violations: list[Violation[Any]]) -> list[tuple[Any, int, float | None]]:
    return [(one.key, one.index, one.deadline) for one in violations]


def test_any_key_moves_the_clock_past_a_deadline_and_its_end_belongs_to_it() -> None:
    events = [("x", "a", 0), ("y", "", 10), ("y", "", 10.000001), ("x", "b", 11)]
    (one,) = taken(watch(SOON), events)
    assert (one.key, one.index, one.deadline, one.opened) == ("x", 1, 10.0, 1)
    assert not one.at_end
    assert one.evidence == (("x", "a", 0),)
    assert str(one) == (
        f"{SOON} is violated because the deadline that event 1 of 'x' set is past: ('x', 'a', 0)"
    )


def test_the_event_that_moves_the_clock_comes_too_late_itself() -> None:
    assert told(taken(watch(SOON), [("x", "a", 0), ("x", "b", 10.5)])) == [("x", 1, 10.0)]
    assert told(taken(watch(SOON), [("x", "a", 0), ("x", "b", 10)])) == []


def test_alarms_come_in_the_order_of_their_deadlines_before_the_violation_of_the_event() -> None:
    events = [("x", "a", 3), ("y", "a", 1), ("z", "c", 5), ("w", "a", 9)]
    found = taken(watch(f"{SOON} & G(c -> X c)"), [*events, ("z", "", 30)])
    assert told(found) == [("y", 1, 11.0), ("x", 1, 13.0), ("w", 1, 19.0), ("z", 2, None)]


def test_an_event_whose_key_cannot_be_hashed_changes_nothing() -> None:
    one = watch(SOON)
    assert taken(one, [("x", "a", 0)]) == []
    with pytest.raises(TypeError, match="unhashable"):
        one.look(stamped([(["x"], "b", 50)]), 0)
    assert one.place == 0
    assert told(taken(one, [("y", "", 10), ("y", "", 11)])) == [("x", 1, 10.0)]


def test_an_evicted_key_with_an_open_deadline_is_counted_and_gives_no_verdict() -> None:
    one = watch(SOON, max_keys=2)
    found = taken(one, [("x", "a", 0), ("y", "", 1), ("z", "", 2), ("v", "", 3), ("w", "", 90)])
    assert found == []
    statistics = one.statistics()
    assert (statistics["evicted"], statistics["unjudged"]) == (3, 1)
    one = watch("G(a -> G[<=10s] a)", max_keys=1)
    taken(one, [("x", "a", 0), ("y", "", 10), ("x", "a", 20), ("y", "", 31)])
    assert one.statistics()["unjudged"] == 1


def test_idle_of_the_longest_bound_loses_no_deadline() -> None:
    one = watch(SOON, idle=10)
    assert taken(one, [("x", "a", 0.7), ("y", "", 10.7), ("x", "b", 10.7), ("x", "a", 11)]) == []
    assert told(taken(one, [("y", "", 21), ("y", "", 22)])) == [("x", 3, 21.0)]
    assert one.statistics()["unjudged"] == 0
    taken(one, [("y", "", 99)])
    assert one.statistics()["expired"] >= 1


def test_idle_below_the_longest_bound_is_refused() -> None:
    with pytest.raises(BuildError, match=r"idle=9: give at least 10 seconds|idle=9\): give at"):
        rule(f"{SOON} & G[<=1s] c", idle=9)
    rule(SOON, idle=10)


def test_the_alarms_that_are_set_are_never_many_more_than_the_keys() -> None:
    def cost(events: list[Any], **options: Any) -> float:
        one = watch("G(a -> F[<=1d] b)", evidence=0, **options)
        tracemalloc.start()
        try:
            taken(one, events)
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    count = 10_000
    few = cost([(0, "ab"[at % 2], at) for at in range(500)])
    # Answered at once, again and again, and all for one key.
    assert cost([(0, "ab"[at % 2], at) for at in range(count)]) < few + 40_000
    # Each earlier than the one before it.
    back = [(0, "ab"[at % 2], count - at) for at in range(count)]
    assert cost(back) < few + 40_000
    # Forgotten at once.
    assert cost([(at, "a", at) for at in range(count)], max_keys=10) < few + 40_000


def test_a_key_costs_at_most_400_bytes_without_evidence() -> None:
    one = watch("G(a -> F[<=10s] b)", evidence=0)
    coming = stamped([(at, "a", 0) for at in range(20_000)])
    tracemalloc.start()
    try:
        one.look(coming, 0)
        cost, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cost / len(coming) < 400


KEYED = st.lists(st.tuples(st.sampled_from("xy"), st.builds(Moment, st.sets(
    st.sampled_from(NAMES)).map(frozenset), st.integers(0, 12))), max_size=8)  # fmt: skip


@given(fulfillable, KEYED)
def test_violations_come_when_all_obligations_of_a_key_say_so(
    formula: Formula, events: list[tuple[str, Moment]]
) -> None:
    clock = 0
    one = TimedWatch(rule(formula), lambda: clock / 1_000)
    traces: dict[str, list[Moment]] = {"x": [], "y": []}
    decided: set[str] = set()
    for key, came in events:
        clock = max(came.time, clock)
        moment = came._replace(time=clock)
        alarms = {its for its, trace in traces.items() if broken(formula, trace, clock)} - decided
        traces[key].append(moment)
        broke = {its for its, trace in traces.items() if broken(formula, trace, clock)} - decided
        decided |= broke
        found = taken(one, [(key, moment.letter, clock / 1_000)])
        assert {its.key for its in found} == broke
        for its in found:
            assert its.index == len(traces[its.key]) - (its.key in alarms and its.key == key)
    assert {its.key for its in one.at_end()} == {
        key for key, trace in traces.items()
        if trace and broken_at_end(formula, trace, clock) and not broken(formula, trace, clock)
    }  # fmt: skip
