"""A regular expression by itself: PSL's weak closure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.temporal import FormulaTooLarge, Monitor, parse, simplify, to_text, translate
from penstock.streams.temporal.automata.words import accepts
from penstock.streams.temporal.formula.formula import Formula
from penstock.streams.temporal.monitors.examples import compare
from tests.helpers.brute_force import (
    NAMES,
    Word,
    closures,
    formulas_with_closures,
    holds,
    holds_finitely,
    letters,
    loops,
    words,
)
from tests.helpers.walks import examples


@examples(300)
@given(closures | formulas_with_closures, words, loops)
def test_its_automaton_accepts_the_words_of_the_definition(
    formula: Formula, stem: Word, loop: Word
) -> None:
    automaton = translate(formula, NAMES)
    numbers = [[automaton.letter(letter) for letter in part] for part in (stem, loop)]
    assert accepts(automaton, *numbers) == holds(formula, stem, loop)


@examples(300)
@given(closures | formulas_with_closures, st.lists(letters, min_size=1, max_size=4))
def test_its_monitor_ends_as_the_definition_does(formula: Formula, trace: Word) -> None:
    monitor = Monitor(formula)
    state = monitor.first
    for letter in trace:
        state = monitor.step(state, monitor.letter(letter & set(monitor.propositions)))
    if not monitor.verdict(state).is_final:
        assert (monitor.at_end(state).value == "true") == holds_finitely(formula, trace)


@given(formulas_with_closures)
def test_it_is_printed_as_it_is_read(formula: Formula) -> None:
    assert parse(to_text(formula)) == formula


@pytest.mark.parametrize(
    ("closure", "same"),
    [
        ("{a}", "a"),
        ("{a; b}", "a & next b"),
        ("{a; b[*]; c}", "a & next(b W c)"),
        ("{a[*]; b}", "a W b"),
        ("{a[*2..3]}", "a & next a"),
        ("{a[*]; false}", "false"),
        ("{{a; b} | {a; c}}", "a & next(b | c)"),
        ("{{(a | b) & !a & !b; c} | a}", "a"),
        ("{[*]; a}", "true"),
    ],
)
def test_it_says_that_a_match_has_ended_or_can_still_end(closure: str, same: str) -> None:
    found = compare(parse(closure), parse(same))
    assert found[1:] == (None, None, None, None)


def test_it_may_stand_wherever_a_formula_may() -> None:
    assert to_text(parse("always {a;b} -> !{c}")) == "G(({a; b}) -> !({c}))"
    assert to_text(simplify(parse("G {a & b}"))) == "G(a & b)"


def test_a_violation_is_found_at_the_event_that_decides_it() -> None:
    monitor = Monitor("{paid; packed; sent}")
    state = monitor.step(monitor.first, monitor.letter({"paid"}))
    assert monitor.at_end(state).value == "true"
    assert monitor.verdict(monitor.step(state, monitor.letter({"sent"}))).value == "false"


def test_one_with_too_many_sets_of_remainders_is_too_large() -> None:
    with pytest.raises(FormulaTooLarge):
        Monitor("{[*]; a; [*20]; b; false | {!a[*]; a}[*2..]; [*16]; !b[*3]; c}")
