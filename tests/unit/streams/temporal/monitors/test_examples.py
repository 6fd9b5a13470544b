"""Shortest traces and infinite words that satisfy a formula, and the comparison of two."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given

from penstock.streams.temporal import FormulaTooLarge, UnknownProposition, parse
from penstock.streams.temporal.automata.words import Lasso
from penstock.streams.temporal.formula.formula import Formula
from penstock.streams.temporal.monitors.examples import (
    Trace,
    compare,
    infinite_word,
    shortest_trace,
)
from tests.helpers.brute_force import (
    NAMES,
    Word,
    formulas,
    holds,
    holds_finitely,
    letters,
    loops,
    words,
)
from tests.helpers.walks import examples

# All traces of up to two events; longer ones of three propositions are too many.
SHORT = [list(trace) for n in (1, 2) for trace in product(range(1 << len(NAMES)), repeat=n)]


def _word(trace: Trace | list[int], names: tuple[str, ...] = NAMES) -> Word:
    return [
        frozenset(name for bit, name in enumerate(names) if letter >> bit & 1) for letter in trace
    ]


@examples(300)
@given(formulas)
def test_no_trace_that_satisfies_a_formula_is_shorter_than_the_example(formula: Formula) -> None:
    found = shortest_trace(formula, NAMES)
    assert found is None or (found and holds_finitely(formula, _word(found)))
    for trace in SHORT:
        if found is None or len(trace) < len(found):
            assert not holds_finitely(formula, _word(trace))


@examples(300)
@given(formulas, words, loops)
def test_an_infinite_word_is_found_where_there_is_one(
    formula: Formula, stem: Word, loop: Word
) -> None:
    found = infinite_word(formula, NAMES)
    if found is None:
        assert not holds(formula, stem, loop)
    else:
        assert holds(formula, _word(found.stem), _word(found.loop))


@examples(300)
@given(formulas, formulas, words, loops, letters)
def test_compared_formulas_differ_exactly_as_the_comparison_shows(
    one: Formula, other: Formula, stem: Word, loop: Word, last: frozenset[str]
) -> None:
    found = compare(one, other)
    trace = [*stem, last]
    for first, second, shown, word in (
        (one, other, found.only_first_trace, found.only_first_word),
        (other, one, found.only_second_trace, found.only_second_word),
    ):
        if shown is None:
            assert not holds_finitely(first, trace) or holds_finitely(second, trace)
        else:
            events = _word(shown, found.names)
            assert holds_finitely(first, events)
            assert not holds_finitely(second, events)
        if word is None:
            assert not holds(first, stem, loop) or holds(second, stem, loop)
        else:
            ends = _word(word.stem, found.names), _word(word.loop, found.names)
            assert holds(first, *ends)
            assert not holds(second, *ends)


def test_a_formula_that_no_finite_trace_satisfies_may_have_an_infinite_word() -> None:
    formula = parse("G X a")
    assert shortest_trace(formula, ("a",)) is None
    assert infinite_word(formula, ("a",)) == Lasso((0,), (1,))


def test_the_propositions_must_include_those_of_the_formula() -> None:
    with pytest.raises(UnknownProposition, match="'b' at position 4"):
        shortest_trace(parse("a & b"), ("a",))


def test_formulas_with_too_many_states_are_not_compared() -> None:
    with pytest.raises(FormulaTooLarge):
        compare(parse("F(a & X[4] b)"), parse("a"), max_states=4)
