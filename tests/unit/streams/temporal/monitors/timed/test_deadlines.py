"""Bounds in time, where a monitor is stepped by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.temporal import Monitor, UnknownProposition, Verdict
from penstock.streams.temporal.formula.formula import Formula, Nary
from penstock.streams.temporal.monitors.monitor import State
from tests.helpers.brute_force import formulas
from tests.helpers.brute_force_time import (
    Moment,
    broken,
    broken_at_end,
    can_go_on,
    open_ones,
    rules,
    timed_traces,
)

SOON = "G(a -> F[<=10s] b)"


def stepped(monitor: Monitor, *events: tuple[set[str], float]) -> State:
    state: State = monitor.first
    for true, at in events:
        state = monitor.step(state, true, at=at)
    return state


def test_what_must_come_in_time_is_missed_when_its_deadline_is_past() -> None:
    monitor = Monitor(SOON)
    state = stepped(monitor, ({"a"}, 1.0))
    assert monitor.deadline(state) == 11.0
    assert monitor.verdict(state) is Verdict.INCONCLUSIVE
    # A bound includes its end.
    assert monitor.verdict(state, at=11.0) is Verdict.INCONCLUSIVE
    assert monitor.verdict(state, at=11.000001) is Verdict.FALSE
    assert monitor.verdict(monitor.step(state, {"b"}, at=11.0)) is Verdict.INCONCLUSIVE
    assert monitor.verdict(monitor.step(state, {"b"}, at=11.000001)) is Verdict.FALSE


@pytest.mark.parametrize(("begin", "bound", "end"), [(0.7, 100, 0.8), (1e9 + 0.1, 200, 1e9 + 0.3)])
def test_the_end_of_a_bound_is_exact_for_times_that_floats_cannot_hold(
    begin: float, bound: int, end: float
) -> None:
    monitor = Monitor(f"F[<={bound}ms] b")
    state = stepped(monitor, (set(), begin), ({"b"}, end))
    assert monitor.verdict(state) is Verdict.TRUE


def test_after_a_missed_deadline_nothing_repairs_it() -> None:
    monitor = Monitor(SOON)
    state = stepped(monitor, ({"a"}, 0), ({"b"}, 20), ({"b"}, 21))
    assert monitor.verdict(state) is Verdict.FALSE
    assert monitor.deadline(state) is None


def test_the_earliest_deadline_counts_while_several_are_open() -> None:
    monitor = Monitor(SOON)
    state = stepped(monitor, ({"a"}, 0), ({"a"}, 6))
    assert monitor.deadline(state) == 10
    assert monitor.deadline(stepped(monitor, ({"a"}, 0), ({"b"}, 5), ({"a"}, 6))) == 16


def test_what_must_last_lasts_to_the_latest_deadline() -> None:
    monitor = Monitor("G(a -> G[<=10s] b)")
    state = stepped(monitor, ({"a", "b"}, 0), ({"a", "b"}, 6))
    assert monitor.deadline(state) is None
    assert monitor.verdict(monitor.step(state, (), at=16)) is Verdict.FALSE
    assert monitor.verdict(monitor.step(state, (), at=16.1)) is Verdict.INCONCLUSIVE


def test_until_is_violated_at_once_by_an_event_without_both() -> None:
    monitor = Monitor("a U[<=5m] b")
    state = stepped(monitor, ({"a"}, 0), ({"a"}, 200))
    assert monitor.verdict(state) is Verdict.INCONCLUSIVE
    assert monitor.verdict(monitor.step(state, (), at=201)) is Verdict.FALSE
    assert monitor.verdict(monitor.step(state, {"b"}, at=300)) is Verdict.TRUE
    assert monitor.verdict(state, at=300.001) is Verdict.FALSE


def test_a_rule_alone_is_true_when_nothing_can_violate_it_any_more() -> None:
    monitor = Monitor("G[<=10s] a")
    state = stepped(monitor, ({"a"}, 0))
    assert monitor.verdict(state) is Verdict.INCONCLUSIVE
    assert monitor.verdict(state, at=10.5) is Verdict.TRUE
    soon = Monitor("F[<=1s] a")
    assert soon.verdict(stepped(soon, ({"a"}, 0))) is Verdict.TRUE
    once = Monitor("{a; b} |-> F[<=10s] c")
    assert once.verdict(stepped(once, ({"b"}, 0))) is Verdict.TRUE


def test_at_the_end_what_must_come_is_false_and_what_must_last_is_true() -> None:
    assert Monitor(SOON).at_end(stepped(Monitor(SOON), ({"a"}, 0))) is Verdict.FALSE
    assert Monitor(SOON).presumable(stepped(Monitor(SOON), ({"a"}, 0))) is (
        Verdict.PRESUMABLY_FALSE
    )
    assert Monitor(SOON).at_end(stepped(Monitor(SOON), ({"a"}, 0), ({"b"}, 1))) is Verdict.TRUE
    lasting = Monitor("G[<=10s] a")
    assert lasting.at_end(stepped(lasting, ({"a"}, 0))) is Verdict.TRUE


def test_conjunctions_are_false_with_the_first_part_that_is() -> None:
    monitor = Monitor("G(a -> F[<=10s] b) & G(c -> X d) & {c; d} |-> G[<=1m] !a")
    assert monitor.verdict(stepped(monitor, ({"c"}, 0), ({"a"}, 1))) is Verdict.FALSE
    assert monitor.verdict(stepped(monitor, ({"c"}, 0), ({"d"}, 1), ({"a"}, 2))) is Verdict.FALSE
    state = stepped(monitor, ({"c"}, 0), ({"d"}, 1), ({"a"}, 62))
    assert monitor.verdict(state) is Verdict.INCONCLUSIVE
    assert monitor.verdict(state, at=73) is Verdict.FALSE


def test_a_formula_of_many_propositions_has_no_table_and_the_same_verdicts() -> None:
    many = " & ".join(f"G !q{number}" for number in range(20))
    monitor = Monitor(f"{SOON} & {many}")
    assert monitor.table is None
    state = stepped(monitor, ({"a"}, 0))
    assert monitor.verdict(state, at=11) is Verdict.FALSE
    assert monitor.verdict(monitor.step(state, {"q7"}, at=1)) is Verdict.FALSE


def test_a_step_takes_names_or_a_letter_and_refuses_unknown_names() -> None:
    monitor = Monitor("!shipped W paid")
    assert monitor.verdict(monitor.step(monitor.first, {"shipped"})) is Verdict.FALSE
    letter = monitor.letter({"shipped"})
    assert monitor.step(monitor.first, letter) == monitor.step(monitor.first, ["shipped"])
    with pytest.raises(UnknownProposition, match=r"'shiped': .* Did you mean 'shipped'"):
        monitor.step(monitor.first, {"shiped"})


def test_time_is_asked_for_and_only_where_there_is_a_bound() -> None:
    untyped: Any = Monitor(SOON)
    with pytest.raises(TypeError, match=r"has a bound in time: give the time .* as at="):
        untyped.step(0, {"a"})
    with pytest.raises(TypeError, match="has no bound in time"):
        Monitor("F b").step(0, {"b"}, at=1.0)
    state = stepped(untyped, ({"a"}, 5))
    with pytest.raises(ValueError, match="is before the event before it"):
        untyped.step(state, {"b"}, at=4)


@pytest.mark.parametrize("at", [float("nan"), float("inf"), 1e305, "5"])
def test_a_time_that_is_no_finite_number_is_named(at: Any) -> None:
    monitor = Monitor(SOON)
    kind = TypeError if isinstance(at, str) else ValueError
    for read in (lambda: monitor.step(0, {"a"}, at=at), lambda: monitor.verdict(0, at=at)):
        with pytest.raises(kind, match="is not a time: a number of seconds up to"):
            read()


def test_a_monitor_says_whether_every_prefix_can_still_be_decided() -> None:
    assert Monitor(SOON).monitorable
    assert not Monitor("F[<=1s] a & G F b").monitorable
    assert Monitor("G(c -> F[<=1s] a) & G F b").monitorable


def test_a_conjunction_is_false_as_soon_as_nothing_can_fulfil_all_of_it() -> None:
    never = Monitor("G(a -> F[<=10s] b) & G !b")
    assert never.verdict(stepped(never, (set(), 0))) is Verdict.INCONCLUSIVE
    assert never.verdict(stepped(never, (set(), 0), ({"a"}, 1))) is Verdict.FALSE
    first = Monitor("G(a -> F[<=10s] b) & (!b W c) & G !c")
    assert first.verdict(stepped(first, ({"a"}, 0))) is Verdict.FALSE
    once = Monitor("G(a -> G[<=10s] b) & G !b")
    assert once.verdict(stepped(once, (set(), 0))) is Verdict.INCONCLUSIVE
    assert Monitor("F[<=1s] a & G !a").verdict(0) is Verdict.FALSE


def test_what_must_come_before_the_end_of_what_rules_it_out_is_false_at_once() -> None:
    monitor = Monitor("G(a -> F[<=5s] !p) & G(b -> G[<=10s] p)")
    late = stepped(monitor, ({"b", "p"}, 0), ({"a", "p"}, 6))
    assert monitor.verdict(late) is Verdict.INCONCLUSIVE
    assert monitor.verdict(stepped(monitor, ({"b", "p"}, 0), ({"a", "p"}, 5))) is Verdict.FALSE
    other = Monitor("G(a -> F[<=5s] q) & G(b -> G[<=10s] p)")
    assert other.verdict(stepped(other, ({"b", "p"}, 0), ({"a", "p"}, 5))) is (Verdict.INCONCLUSIVE)


@given(st.lists(rules, min_size=1, max_size=3), timed_traces, st.integers(0, 8))
def test_one_deadline_for_each_operator_decides_as_all_obligations_do(
    conjuncts: list[Formula], trace: list[Moment], later: int
) -> None:
    formula = conjuncts[0] if len(conjuncts) == 1 else Nary("&", tuple(conjuncts))
    monitor = Monitor(formula)
    names = set(monitor.propositions)
    state: State = monitor.first
    for number, (letter, time) in enumerate(trace, 1):
        state = monitor.step(state, letter & names, at=time / 1_000)
        seen = trace[:number]
        for now in (time, time + later):
            at = now / 1_000
            if monitor.verdict(state, at) is not Verdict.FALSE:
                assert not broken(formula, seen, now)
                assert (monitor.at_end(state, at) is Verdict.FALSE) == (
                    broken_at_end(formula, seen, now)
                )
            elif not broken(formula, seen, now):
                assert not can_go_on(formula, seen, now)
            if monitor.verdict(state, at) is Verdict.TRUE:
                assert open_ones(formula, seen, now) == 0


@given(rules, rules, formulas, timed_traces)
def test_a_conjunction_is_false_when_a_part_is_and_at_the_end_as_its_parts_are(
    one: Formula, other: Formula, untimed: Formula, trace: list[Moment]
) -> None:
    parts = [Monitor(part) for part in (one, other)]
    whole_formula = Nary("&", (one, untimed, other))
    rest, whole = Monitor(untimed), Monitor(whole_formula)
    states: list[State] = [0, 0]
    state: State = 0
    left = 0
    for number, (letter, time) in enumerate(trace, 1):
        at = time / 1_000
        states = [
            part.step(its, letter & set(part.propositions), at=at)
            for part, its in zip(parts, states, strict=True)
        ]
        left = rest.step(left, letter & set(rest.propositions))
        state = whole.step(state, letter & set(whole.propositions), at=at)
        verdicts = [part.verdict(its) for part, its in zip(parts, states, strict=True)]
        verdicts.append(rest.verdict(left))
        if whole.verdict(state) is Verdict.FALSE:
            if Verdict.FALSE not in verdicts:
                assert not can_go_on(whole_formula, trace[:number], time)
            return
        assert Verdict.FALSE not in verdicts
        if set(verdicts) == {Verdict.TRUE}:
            assert whole.verdict(state) is Verdict.TRUE
        ends = [part.at_end(its) for part, its in zip(parts, states, strict=True)]
        ends.append(rest.at_end(left))
        assert (whole.at_end(state) is Verdict.FALSE) == (Verdict.FALSE in ends)
