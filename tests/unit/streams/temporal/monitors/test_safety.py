"""Büchi automata that were read or translated, as monitors and as rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import collect, from_iterable, monitor, run, violations
from penstock.streams.base.errors import BuildError
from penstock.streams.temporal import (
    Monitor,
    Node,
    Rule,
    Verdict,
    Workflow,
    WorkflowError,
    counter_example,
    from_hoa,
    from_lbtt,
    to_hoa,
    translate,
)
from penstock.streams.temporal.automata.automaton import Automaton
from penstock.streams.temporal.formula.formula import Formula
from penstock.streams.temporal.formula.parser import parse
from tests.helpers.brute_force import Word, formulas, words
from tests.helpers.published_automaton import SPOT
from tests.helpers.walks import examples

# `G a` with a state that is a dead end, so that it is complete, and `F a`.
ALWAYS_A = "2 1t\n0 1\n0 0 -1 a\n1 -1 ! a\n-1\n1 0\n1 -1 t\n-1\n"
ONCE_A = "2 1t\n0 1\n0 -1 ! a\n1 0 -1 a\n-1\n1 0\n1 0 -1 t\n-1\n"


def verdicts(monitor: Monitor, trace: Word) -> list[Verdict]:
    state, names = monitor.first, frozenset(monitor.propositions)
    found = [monitor.verdict(state)]
    for letter in trace:
        state = monitor.step(state, monitor.letter(letter & names))
        found.append(monitor.verdict(state))
    return found


@examples(300)
@given(formulas, st.lists(words, max_size=4))
def test_a_formula_and_its_automaton_are_false_at_the_same_event(
    formula: Formula, traces: list[Word]
) -> None:
    """And where the automaton is found to be true, so is the formula."""
    of_formula = Monitor(formula)
    of_automaton = Monitor(from_hoa(to_hoa(translate(formula))))
    for trace in traces:
        for wanted, found in zip(
            verdicts(of_formula, trace), verdicts(of_automaton, trace), strict=True
        ):
            assert (found is Verdict.FALSE) == (wanted is Verdict.FALSE)
            assert found is not Verdict.TRUE or wanted is Verdict.TRUE


def test_a_deterministic_and_complete_automaton_is_true_once_it_accepts_all_that_follows() -> None:
    without, with_it = frozenset[str](), frozenset({"a"})
    once = Monitor(from_lbtt(ONCE_A))
    assert verdicts(once, [without, with_it]) == [
        Verdict.INCONCLUSIVE,
        Verdict.INCONCLUSIVE,
        Verdict.TRUE,
    ]
    always = Monitor(from_lbtt(ALWAYS_A))
    assert verdicts(always, [with_it, without])[1:] == [Verdict.INCONCLUSIVE, Verdict.FALSE]


def test_an_automaton_that_is_not_deterministic_is_never_true() -> None:
    # Once `a` was there it accepts everything, in either of two states.
    twice = from_lbtt("2 1t\n0 1\n0 -1 t\n1 0 -1 a\n-1\n1 0\n1 0 -1 t\n-1\n")
    assert verdicts(Monitor(twice), [frozenset({"a"})])[-1] is Verdict.INCONCLUSIVE


def test_at_the_end_an_inconclusive_automaton_stays_inconclusive() -> None:
    always = Monitor(from_lbtt(ALWAYS_A))
    assert always.at_end(always.first) is Verdict.INCONCLUSIVE
    assert always.presumable(always.first) is Verdict.INCONCLUSIVE
    assert Monitor("G a").at_end(Monitor.first) is Verdict.TRUE


def test_the_published_automaton_has_no_bad_prefix_as_its_formula_has_none() -> None:
    monitor = Monitor(from_lbtt(SPOT))
    assert monitor.propositions == ("soi", "input", "coi")
    assert not monitor.monitorable
    assert monitor.deciding == frozenset()


def test_an_automaton_of_nothing_is_false_before_any_event() -> None:
    nothing = Automaton(("a",), ((),), (0,), 0)
    assert Monitor(nothing).verdict(Monitor.first) is Verdict.FALSE


A: dict[str, Any] = {"a": {"type": "a"}}


def test_a_stream_is_watched_by_an_automaton_and_undecided_keys_are_counted() -> None:
    events = [{"id": 1, "type": "a"}, {"id": 2, "type": "b"}, {"id": 1, "type": "a"}]
    told: list[Any] = []
    watch = monitor(from_lbtt(ALWAYS_A), by="id", on_violation=told.append, **A)
    report = run(from_iterable(events).pipe(watch).to(collect([])))
    (violation,) = told
    assert (violation.key, violation.index, violation.at_end) == (2, 1, False)
    assert violation.formula == "the automaton of 2 states about a"
    stage = report.statistics["stages"][1]
    assert (stage["violations"], stage["inconclusive"]) == (1, 1)


def test_violations_of_an_automaton_are_emitted() -> None:
    into: list[Any] = []
    watch = violations(from_lbtt(ALWAYS_A), **A)
    run(from_iterable([{"type": "a"}, {"type": "b"}]).pipe(watch).to(collect(into)))
    assert [violation.index for violation in into] == [2]


def test_what_is_presumed_of_an_automaton_is_refused() -> None:
    with pytest.raises(BuildError, match="finite traces"):
        monitor(from_lbtt(ALWAYS_A), mode="rv", **A)


def graph(*arcs: tuple[str, str]) -> Workflow:
    names = sorted({name for arc in arcs for name in arc})
    return Workflow([Node(name, goto=tuple(b for a, b in arcs if a == name)) for name in names])


def test_a_rule_takes_an_automaton_and_finds_bad_prefixes() -> None:
    paid_first = translate(parse("!shipped W paid"))
    flow = graph(("begin", "paid"), ("paid", "shipped"), ("begin", "shipped"), ("shipped", "end"))
    rule = Rule("paid first", initial="begin", final="end", formula=paid_first)
    found = counter_example(flow, rule)
    assert found is not None
    assert found.path == ("begin", "shipped", "end")


def test_without_final_nodes_a_lasso_that_begins_with_a_bad_prefix_is_found() -> None:
    paid_first = translate(parse("!shipped W paid"))
    flow = graph(("begin", "paid"), ("begin", "shipped"), ("paid", "begin"), ("shipped", "begin"))
    found = counter_example(flow, Rule("paid first", initial="begin", formula=paid_first))
    assert found is not None
    assert found.path[:2] == ("begin", "shipped")
    assert found.loop is not None
    kept = graph(("begin", "paid"), ("paid", "shipped"), ("shipped", "begin"))
    assert counter_example(kept, Rule("paid first", "begin", formula=paid_first)) is None


def test_a_rule_refuses_what_is_no_formula() -> None:
    with pytest.raises(WorkflowError, match="a formula, its text, or a Büchi automaton"):
        Rule("wrong", initial="begin", formula=3)  # type: ignore[arg-type]
