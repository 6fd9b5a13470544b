from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.temporal.formula.formula import Formula
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.temporal.formula.printer import to_text
from penstock.streams.temporal.formula.simplify import simplify
from tests.helpers.brute_force import Word, formulas, holds, holds_finitely, letters, loops, words
from tests.helpers.walks import examples


@examples(1500)
@given(formulas, words, loops, st.lists(letters, min_size=1, max_size=5))
def test_a_simpler_formula_holds_of_the_same_words(
    formula: Formula, stem: Word, loop: Word, trace: Word
) -> None:
    simpler = simplify(formula)
    assert holds(simpler, stem, loop) == holds(formula, stem, loop)
    assert holds_finitely(simpler, trace) == holds_finitely(formula, trace)


@given(formulas)
def test_what_is_simple_stays_as_it_is(formula: Formula) -> None:
    simpler = simplify(formula)
    assert simplify(simpler) == simpler
    assert len(to_text(simpler)) <= len(to_text(formula))


@pytest.mark.parametrize(
    ("formula", "simpler"),
    [
        ("!!a & (b & true)", "a & b"),
        ("a & (a | b) | c & !c", "a"),
        ("G G F F a", "G F a"),
        ("F G F a", "G F a"),
        ("F(a U b)", "F b"),
        ("true U a", "F a"),
        ("a W false", "G a"),
        ("a M true", "F a"),
        ("a U a U b", "a U b"),
        ("false -> a", "true"),
        ("a <-> false", "!a"),
        ("{a} |-> b", "a -> b"),
        ("{a} <>-> b", "a & b"),
        ("!F !a", "G a"),
        ("!G !a", "F a"),
        ("F a | F b", "F(a | b)"),
        ("F a | c | F(b | a)", "F(a | b) | c"),
        ("G a & G b & G c", "G(a & b & c)"),
        ("X a & X !a", "false"),
        ("next a | next !a", "true"),
        ("F a & F b", "F a & F b"),
        ("F a | F b | !F a", "true"),
        ("(F a | F b) | !F a", "true"),
        ("F a & (F a | F b)", "F a"),
        ("G a & G b & (G(a & b) | c)", "G(a & b)"),
        ("F(a | X(b | c)) | F X c", "F(a | X(b | c))"),
        ("{a} & {a | b; c}", "a & ({a | b; c})"),
        ("!next a", "X !a"),
        ("!next !a", "X a"),
        ("!X !a", "next a"),
        ("next true & X false", "false"),
    ],
)
def test_needless_words_go(formula: str, simpler: str) -> None:
    assert to_text(simplify(parse(formula))) == simpler
