"""Deadlines of many keys, by the times of the events."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.base.errors import BuildError
from penstock.streams.monitoring.timed_watching import TimedWatch
from penstock.streams.monitoring.watching import Rule
from penstock.streams.protocol.acknowledgement import Nobody
from penstock.streams.protocol.event import Event, new_events
from penstock.streams.temporal import Violation
from penstock.streams.temporal.formula.formula import Formula
from tests.helpers.brute_force import NAMES
from tests.helpers.brute_force_time import (
    Moment,
    broken,
    broken_at_end,
    fulfillable,
    jumbled_traces,
    rules,
)

SOON = "G(a -> F[<=10s] b)"


def rule(formula: str | Formula, **options: Any) -> Rule:
    """A rule over events (key, letter, seconds)."""
    usual: dict[str, Any] = {"by": 0, "time": 2, "mode": "ltl3", "evidence": 16, "idle": None}
    usual |= {"max_keys": None, "restart": False, "strict": True, "lateness": 0.0, **options}
    tests: dict[str, Any] = {name: has(name) for name in NAMES}
    return Rule(stage="violations", formula=formula, tests=tests, **usual)


def has(name: str) -> Any:
    return lambda event: name in event[1]


def watch(formula: str | Formula, **options: Any) -> TimedWatch:
    return TimedWatch(rule(formula, **options), lambda: 0.0)


def taken(watch: TimedWatch, events: list[Any]) -> list[Violation[Any]]:
    """The violations in their order."""
    coming: list[Event[Any]] = new_events(events, 0.0, Nobody())
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


def test_of_events_that_set_the_same_deadline_the_first_is_named() -> None:
    (one,) = taken(watch(SOON), [("x", "a", 0), ("x", "a", 0), ("x", "", 11)])
    assert (one.index, one.deadline, one.opened) == (2, 10.0, 1)


def test_the_event_that_moves_the_clock_comes_too_late_itself() -> None:
    assert told(taken(watch(SOON), [("x", "a", 0), ("x", "b", 10.5)])) == [("x", 1, 10.0)]
    assert told(taken(watch(SOON), [("x", "a", 0), ("x", "b", 10)])) == []


def test_alarms_come_in_the_order_of_their_deadlines_before_the_violation_of_the_event() -> None:
    events = [("x", "a", 3), ("y", "a", 1), ("z", "c", 5), ("w", "a", 9), ("z", "", 20)]
    found = taken(watch(f"{SOON} & G(c -> X c)", lateness=5), [*events, ("z", "", 30)])
    assert told(found) == [("y", 1, 11.0), ("x", 1, 13.0), ("z", 2, None), ("w", 1, 19.0)]


def test_lateness_lets_an_answer_come_after_events_with_later_times() -> None:
    events = [("x", "a", 0), ("y", "", 12), ("x", "b", 9)]
    assert told(taken(watch(SOON), events)) == [("x", 1, 10.0)]
    assert told(taken(watch(SOON, lateness=2), events)) == []
    assert told(taken(watch(SOON, lateness=timedelta(seconds=2)), events)) == []
    # Only what comes in time counts, however late.
    events[2] = ("x", "b", 11)
    assert told(taken(watch(SOON, lateness=2), [*events, ("y", "", 12.1)])) == [("x", 2, 10.0)]


def test_an_event_that_is_later_than_allowed_is_judged_and_counted() -> None:
    one = watch(SOON)
    assert told(taken(one, [("y", "", 100), ("x", "a", 0)])) == [("x", 1, 10.0)]
    assert one.statistics()["late"] == 1
    one = watch(SOON)
    assert told(taken(one, [("y", "", 100), ("x", "a", 95), ("x", "b", 100)])) == []
    assert one.statistics()["late"] == 1


def test_times_may_be_texts_and_datetimes() -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    events = [("x", "a", begin.isoformat()), ("y", "", begin + timedelta(seconds=10.1))]
    (one,) = taken(watch(SOON), events)
    assert one.deadline == begin.timestamp() + 10


def test_a_time_that_cannot_be_read_changes_nothing() -> None:
    one = watch(SOON)
    coming: list[Event[Any]] = new_events([("x", "a", 0), ("x", "b", "soon")], 0.0, Nobody())
    with pytest.raises(ValueError, match="'soon' is not a time"):
        one.look(coming, 0)
    assert one.place == 1
    assert told(taken(one, [("y", "", 11)])) == [("x", 1, 10.0)]


def test_after_an_alarm_a_key_is_silent_and_restart_begins_again() -> None:
    events = [("x", "a", 0), ("x", "a", 20), ("x", "", 40), ("x", "b", 41)]
    assert told(taken(watch(SOON), events)) == [("x", 1, 10.0)]
    again = taken(watch(SOON, restart=True), events)
    assert [(one.opened, one.deadline) for one in again] == [(1, 10.0), (1, 30.0)]


def test_rv_reports_what_is_owed_and_then_that_it_did_not_come() -> None:
    events = [("x", "a", 0), ("x", "b", 1), ("x", "a", 2), ("y", "", 13)]
    found = taken(watch(SOON, mode="rv"), events)
    assert [(one.index, one.verdict.value, one.deadline) for one in found] == [
        (1, "presumably false", None),
        (3, "presumably false", None),
        (3, "false", 12.0),
    ]


def test_what_is_open_at_the_end_still_had_so_many_seconds() -> None:
    one = watch("G(a -> F[<=10s] b) & G(c -> F a)")
    taken(one, [("x", "a", 0), ("y", "c", 4), ("z", "", 4), ("v", "ab", 4)])
    first, second = one.at_end()
    assert (first.key, first.at_end, first.deadline, first.left) == ("x", True, 10.0, 6.0)
    assert str(first).endswith(
        "is violated at the end of the stream, after 1 event of 'x', 6 s before the deadline that "
        "event 1 set: ('x', 'a', 0)"
    )
    assert (second.key, second.at_end, second.deadline, second.left) == ("y", True, None, None)


def test_an_evicted_key_with_an_open_deadline_is_counted_and_gives_no_verdict() -> None:
    one = watch(SOON, max_keys=2)
    found = taken(one, [("x", "a", 0), ("y", "", 1), ("z", "", 2), ("v", "", 3), ("w", "", 90)])
    assert found == []
    statistics = one.statistics()
    assert (statistics["evicted"], statistics["unjudged"]) == (3, 1)
    one = watch("G(a -> G[<=10s] a)", max_keys=1)
    taken(one, [("x", "a", 0), ("y", "", 10), ("x", "a", 20), ("y", "", 31)])
    assert one.statistics()["unjudged"] == 1


@pytest.mark.parametrize("lateness", [0, 3])
def test_idle_of_the_longest_bound_loses_no_deadline(lateness: float) -> None:
    one = watch(SOON, idle=10, lateness=lateness)
    events = [("x", "a", 0.7), ("y", "", 10.7 + lateness), ("x", "b", 10.7), ("x", "a", 11)]
    assert taken(one, events) == []
    assert told(taken(one, [("y", "", 21 + lateness), ("y", "", 22 + lateness)])) == [
        ("x", 3, 21.0)
    ]
    assert one.statistics()["unjudged"] == 0
    taken(one, [("y", "", 99)])
    assert one.statistics()["expired"] >= 1


def test_idle_below_the_longest_bound_is_refused() -> None:
    with pytest.raises(BuildError, match=r"idle=9: give at least 10 seconds|idle=9\): give at"):
        rule(f"{SOON} & G[<=1s] c", idle=9)
    rule(SOON, idle=10)


@pytest.mark.parametrize(
    ("formula", "options", "said"),
    [
        ("F a", {}, "give it for a formula with a bound in time"),
        ("F[<=1s] a", {"time": None, "lateness": 1}, "give it together with time"),
        ("F[<=1s] a", {"lateness": -1}, "a number of seconds that is not negative"),
        ("F[<=1s] a", {"lateness": "x"}, "a number of seconds that is not negative"),
    ],
)
def test_times_without_use_are_refused(formula: str, options: Any, said: str) -> None:
    with pytest.raises(BuildError, match=said):
        rule(formula, **options)


def test_the_alarms_that_are_set_are_never_many_more_than_the_keys() -> None:
    def cost(events: list[Any], **options: Any) -> float:
        one = watch("G(a -> F[<=1d] b)", evidence=0, **options)
        tracemalloc.start()
        try:
            taken(one, events)
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    count = 20_000
    few = cost([(0, "ab"[at % 2], at) for at in range(500)])
    # Answered at once, again and again, and all for one key.
    assert cost([(0, "ab"[at % 2], at) for at in range(count)]) < few + 40_000
    # Each earlier than the one before it.
    back = [(0, "ab"[at % 2], count - at) for at in range(count)]
    assert cost(back, lateness=count) < few + 40_000
    # Forgotten at once.
    assert cost([(at, "a", at) for at in range(count)], max_keys=10) < few + 40_000


def test_a_key_costs_at_most_400_bytes_without_evidence() -> None:
    one = watch("G(a -> F[<=10s] b)", evidence=0)
    coming: list[Event[Any]] = new_events([(at, "a", 0) for at in range(20_000)], 0.0, Nobody())
    tracemalloc.start()
    try:
        one.look(coming, 0)
        cost, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cost / len(coming) < 400


KEYED = st.lists(st.tuples(st.sampled_from("xy"), st.builds(Moment, st.sets(
    st.sampled_from(NAMES)).map(frozenset), st.integers(0, 12))), max_size=8)  # fmt: skip


@given(fulfillable, KEYED, st.integers(0, 4))
def test_violations_come_when_all_obligations_of_a_key_say_so(
    formula: Formula, events: list[tuple[str, Moment]], lateness: int
) -> None:
    one = watch(formula, lateness=lateness / 1_000)
    clock = None
    traces: dict[str, list[Moment]] = {"x": [], "y": []}
    decided: set[str] = set()
    for key, came in events:
        # Nothing is later than allowed: what is past is settled.
        moment = came._replace(time=max(came.time, came.time if clock is None else clock))
        clock = max(moment.time - lateness, moment.time - lateness if clock is None else clock)
        alarms = {its for its, trace in traces.items() if broken(formula, trace, clock)} - decided
        traces[key].append(moment)
        broke = {its for its, trace in traces.items() if broken(formula, trace, clock)} - decided
        decided |= broke
        found = taken(one, [(key, moment.letter, moment.time / 1_000)])
        assert {its.key for its in found} == broke
        for its in found:
            assert its.index == len(traces[its.key]) - (its.key in alarms and its.key == key)
    for key, trace in traces.items():
        if trace and key not in decided and broken_at_end(formula, trace, clock or 0):
            decided.add(key)
    ended = {its.key for its in one.at_end()}
    assert ended <= decided
    assert ended == {
        key for key, trace in traces.items()
        if trace and broken_at_end(formula, trace, clock or 0)
        and not broken(formula, trace, clock or 0)
    }  # fmt: skip


@given(rules, jumbled_traces)
def test_with_lateness_enough_times_in_any_order_are_judged_rightly(
    formula: Formula, trace: list[Moment]
) -> None:
    one = watch(formula, lateness=1)
    found = taken(one, [("x", moment.letter, moment.time / 1_000) for moment in trace])
    found += taken(one, [("y", "", 9)])
    assert ("x" in {its.key for its in found}) == broken(formula, trace, 8_000)
