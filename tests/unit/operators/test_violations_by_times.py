"""Bounds between the events' own times, which the stage reads: any key's event moves the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import violations
from penstock.streams.base.errors import BuildError
from penstock.streams.protocol.event import Ending, Event
from penstock.streams.protocol.partitions import PartitionsWatcher
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.runtime.context import Run
from penstock.streams.temporal import Violation
from penstock.streams.temporal.formula.formula import Formula
from penstock.streams.testing import ManualPublisher, Probe
from penstock.streams.testing.publisher import ManualSubscription
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


def has(name: str) -> Any:
    return lambda event: name in event[1]


class Parts(ManualSubscription):
    """That of a source with two partitions, all of whose events are of the first."""

    def watch(self, watcher: PartitionsWatcher, /) -> None:
        for name in "ab":
            watcher.joined(name, name)

    def partition_of(self, token: Any, /) -> str:
        return "a"

    def sequence_of(self, token: Any, /) -> int:
        return 0

    def hold(self, partition: str, by: object, /) -> None: ...

    def let_go_of(self, partition: str, by: object, /) -> None: ...

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None: ...


class Parted(ManualPublisher[Any]):
    def _greet(self, subscriber: Subscriber[Any], run: Run) -> None:
        self._subscriber, self._run = subscriber, run
        self.subscriptions.append(Parts())
        subscriber.on_subscribe(self.subscription)


class Watched:
    """The operator, with events (key, letter, seconds) one after another."""

    def __init__(
        self,
        formula: str | Formula,
        publisher: ManualPublisher[Any] | None = None,
        **options: Any,
    ) -> None:
        self._publisher, self._probe = publisher or ManualPublisher(), Probe[Any](request=100_000)
        self._run = Run()
        tests: dict[str, Any] = {name: has(name) for name in NAMES}
        operator: Any = violations(formula, **{"by": 0, "time": 2, **options}, **tests)
        self._publisher.pipe(operator).attach(self._probe, self._run)

    def taken(self, events: list[Any]) -> list[Violation[Any]]:
        """The violations that these events lead to, in their order."""
        before = len(self._probe.values)
        for event in events:
            self._publisher.send(event)
        return self._probe.values[before:]

    def at_end(self) -> list[Violation[Any]]:
        """Those of the end."""
        before = len(self._probe.values)
        self._publisher.complete()
        assert self._probe.completed
        return self._probe.values[before:]

    def statistics(self) -> dict[str, Any]:
        (numbers,) = (
            numbers() for info, numbers in self._run.nesting.own_stages if info.name == "violations"
        )
        return numbers


def told(violations: list[Violation[Any]]) -> list[tuple[Any, int, float | None]]:
    return [(one.key, one.index, one.deadline) for one in violations]


def test_any_key_moves_the_clock_past_a_deadline_and_its_end_belongs_to_it() -> None:
    events = [("x", "a", 0), ("y", "", 10), ("y", "", 10.000001), ("x", "b", 11)]
    (one,) = Watched(SOON).taken(events)
    assert (one.key, one.index, one.deadline, one.opened) == ("x", 1, 10.0, 1)
    assert not one.at_end
    assert one.evidence == (("x", "a", 0),)
    assert str(one) == (
        f"{SOON} is violated because the deadline that event 1 of 'x' set is past: ('x', 'a', 0)"
    )


def test_a_partition_without_events_holds_no_deadline_back() -> None:
    events = [("x", "a", 0), ("y", "", 11)]
    assert told(Watched(SOON, Parted()).taken(events)) == [("x", 1, 10.0)]


def test_of_events_that_set_the_same_deadline_the_first_is_named() -> None:
    (one,) = Watched(SOON).taken([("x", "a", 0), ("x", "a", 0), ("x", "", 11)])
    assert (one.index, one.deadline, one.opened) == (2, 10.0, 1)


def test_the_event_that_moves_the_clock_comes_too_late_itself() -> None:
    assert told(Watched(SOON).taken([("x", "a", 0), ("x", "b", 10.5)])) == [("x", 1, 10.0)]
    assert told(Watched(SOON).taken([("x", "a", 0), ("x", "b", 10)])) == []


def test_alarms_come_in_the_order_of_their_deadlines_after_the_event_of_another_key() -> None:
    events = [("x", "a", 3), ("y", "a", 1), ("z", "c", 5), ("w", "a", 9), ("z", "", 20)]
    found = Watched(f"{SOON} & G(c -> X c)", lateness=5).taken([*events, ("z", "", 30)])
    assert told(found) == [("z", 2, None), ("y", 1, 11.0), ("x", 1, 13.0), ("w", 1, 19.0)]


def test_lateness_lets_an_answer_come_after_events_with_later_times() -> None:
    events = [("x", "a", 0), ("y", "", 12), ("x", "b", 9)]
    assert told(Watched(SOON).taken(events)) == [("x", 1, 10.0)]
    assert told(Watched(SOON, lateness=2).taken(events)) == []
    assert told(Watched(SOON, lateness=timedelta(seconds=2)).taken(events)) == []
    # Only what comes in time counts, however late.
    events[2] = ("x", "b", 11)
    assert told(Watched(SOON, lateness=2).taken([*events, ("y", "", 12.1)])) == [("x", 2, 10.0)]


def test_an_event_that_is_later_than_allowed_is_judged_and_counted() -> None:
    one = Watched(SOON)
    assert told(one.taken([("y", "", 100), ("x", "a", 0)])) == [("x", 1, 10.0)]
    assert one.statistics()["late"] == 1
    one = Watched(SOON)
    assert told(one.taken([("y", "", 100), ("x", "a", 95), ("x", "b", 100)])) == []
    assert one.statistics()["late"] == 1


def test_times_may_be_texts_and_datetimes() -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    events = [("x", "a", begin.isoformat()), ("y", "", begin + timedelta(seconds=10.1))]
    (one,) = Watched(SOON).taken(events)
    assert one.deadline == begin.timestamp() + 10


def test_a_time_that_cannot_be_read_changes_nothing() -> None:
    one = Watched(SOON, on_error="skip")
    found = one.taken([("x", "a", 0), ("x", "b", "soon"), ("y", "", 11)])
    assert told(found) == [("x", 1, 10.0)]


def test_after_an_alarm_a_key_is_silent_and_restart_begins_again() -> None:
    events = [("x", "a", 0), ("x", "a", 20), ("x", "", 40), ("x", "b", 41)]
    assert told(Watched(SOON).taken(events)) == [("x", 1, 10.0)]
    again = Watched(SOON, restart=True).taken(events)
    assert [(one.opened, one.deadline) for one in again] == [(1, 10.0), (1, 30.0)]


def test_rv_reports_what_is_owed_and_then_that_it_did_not_come() -> None:
    events = [("x", "a", 0), ("x", "b", 1), ("x", "a", 2), ("y", "", 13)]
    found = Watched(SOON, mode="rv").taken(events)
    assert [(one.index, one.verdict.value, one.deadline) for one in found] == [
        (1, "presumably false", None),
        (3, "presumably false", None),
        (3, "false", 12.0),
    ]


def test_what_is_open_at_the_end_still_had_so_many_seconds() -> None:
    one = Watched("G(a -> F[<=10s] b) & G(c -> F a)")
    one.taken([("x", "a", 0), ("y", "c", 4), ("z", "", 4), ("v", "ab", 4)])
    first, second = one.at_end()
    assert (first.key, first.at_end, first.deadline, first.left) == ("x", True, 10.0, 6.0)
    assert str(first).endswith(
        "is violated at the end of the stream, after 1 event of 'x', 6 s before the deadline that "
        "event 1 set: ('x', 'a', 0)"
    )
    assert (second.key, second.at_end, second.deadline, second.left) == ("y", True, None, None)


def test_an_evicted_key_with_an_open_deadline_is_counted_and_gives_no_verdict() -> None:
    one = Watched(SOON, max_keys=2)
    found = one.taken([("x", "a", 0), ("y", "", 1), ("z", "", 2), ("v", "", 3), ("w", "", 90)])
    assert found == []
    statistics = one.statistics()
    assert (statistics["evicted"], statistics["unjudged"]) == (3, 1)
    one = Watched("G(a -> G[<=10s] a)", max_keys=1)
    one.taken([("x", "a", 0), ("y", "", 10), ("x", "a", 20), ("y", "", 31)])
    assert one.statistics()["unjudged"] == 1


@pytest.mark.parametrize("lateness", [0, 3])
def test_idle_of_the_longest_bound_loses_no_deadline(lateness: float) -> None:
    one = Watched(SOON, idle=10, lateness=lateness)
    events = [("x", "a", 0.7), ("y", "", 10.7 + lateness), ("x", "b", 10.7), ("x", "a", 11)]
    assert one.taken(events) == []
    assert told(one.taken([("y", "", 21 + lateness), ("y", "", 22 + lateness)])) == [("x", 3, 21.0)]
    assert one.statistics()["unjudged"] == 0
    one.taken([("y", "", 99)])
    assert one.statistics()["expired"] >= 1


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
        Watched(formula, **options)


KEYED = st.lists(st.tuples(st.sampled_from("xy"), st.builds(Moment, st.sets(
    st.sampled_from(NAMES)).map(frozenset), st.integers(0, 12))), max_size=8)  # fmt: skip


@given(fulfillable, KEYED, st.integers(0, 4))
def test_violations_come_when_all_obligations_of_a_key_say_so(
    formula: Formula, events: list[tuple[str, Moment]], lateness: int
) -> None:
    one = Watched(formula, lateness=lateness / 1_000)
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
        found = one.taken([(key, moment.letter, moment.time / 1_000)])
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
    one = Watched(formula, lateness=1)
    found = one.taken([("x", moment.letter, moment.time / 1_000) for moment in trace])
    found += one.taken([("y", "", 9)])
    assert ("x" in {its.key for its in found}) == broken(formula, trace, 8_000)
