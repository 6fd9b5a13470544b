"""Automata accept the words on which their formulas hold."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.temporal.automaton import Automaton
from streams.temporal.formula import Formula
from streams.temporal.translate import translate
from streams.temporal.words import accepts
from tests.streams.temporal.brute_force import NAMES, Word, formulas, holds, loops, words


def accepts_word(automaton: Automaton, stem: Word, loop: Word) -> bool:
    return accepts(automaton, [*map(automaton.letter, stem)], [*map(automaton.letter, loop)])


@settings(max_examples=1000)
@given(formulas, st.lists(st.tuples(words, loops), min_size=1, max_size=5))
def test_an_automaton_accepts_the_words_on_which_its_formula_holds(
    formula: Formula, lassos: list[tuple[Word, Word]]
) -> None:
    automaton = translate(formula, NAMES)
    for stem, loop in lassos:
        assert accepts_word(automaton, stem, loop) == holds(formula, stem, loop)
