"""Automata accept the words on which their formulas hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.temporal.automata.automaton import Automaton
from penstock.streams.temporal.automata.translate import translate
from penstock.streams.temporal.automata.words import accepts
from penstock.streams.temporal.errors import FormulaTooLarge
from penstock.streams.temporal.formula.formula import Formula, Unary
from penstock.streams.temporal.formula.normal import Normal
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.temporal.monitors.continuations import Continuations
from tests.helpers.brute_force import NAMES, Word, formulas, holds, loops, words
from tests.helpers.walks import examples


def accepts_word(automaton: Automaton, stem: Word, loop: Word) -> bool:
    return accepts(automaton, [*map(automaton.letter, stem)], [*map(automaton.letter, loop)])


@examples(1000)
@given(formulas, st.lists(st.tuples(words, loops), min_size=1, max_size=5))
def test_an_automaton_accepts_the_words_on_which_its_formula_holds(
    formula: Formula, lassos: list[tuple[Word, Word]]
) -> None:
    automaton = translate(formula, NAMES)
    for stem, loop in lassos:
        assert accepts_word(automaton, stem, loop) == holds(formula, stem, loop)


@examples(500)
@given(formulas)
def test_a_formula_can_come_to_hold_if_its_automaton_accepts_a_word(formula: Formula) -> None:
    negation = Unary("!", formula)
    accepts_some = [not translate(one, NAMES).is_empty() for one in (formula, negation)]
    # Simplifications over finite words hold on infinite ones as well.
    for finite in (False, True):
        normal = Normal(finite, NAMES)
        continuations = Continuations(normal, 10_000)
        # Knowledge of the states by then changes nothing.
        for _ in range(2):
            found = [continuations.exist(normal.of(one)) for one in (formula, negation)]
            assert found == accepts_some


def test_a_formula_of_too_many_alternatives_says_so() -> None:
    with pytest.raises(FormulaTooLarge, match="number of alternatives reached 1,000,"):
        translate(parse(" & ".join(f"(F p{at} | G q{at})" for at in range(14))))


def test_edges_that_ask_for_all_of_a_dozen_operators_are_as_few_as_can_be() -> None:
    automaton = translate(parse(" <-> ".join(f"p{at}" for at in range(13))))
    # One for each letter that it allows, for any two of them differ in two propositions.
    assert [len(leaving) for leaving in automaton.edges] == [1 << 12, 1]


def test_a_guard_of_too_many_conjunctions_says_so() -> None:
    with pytest.raises(FormulaTooLarge, match="number of edges of a state reached 16,384"):
        translate(parse(" <-> ".join(f"p{at}" for at in range(15))))
