"""Regular expressions as formulas of LTL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.temporal import FormulaTooLarge, parse, simplify, to_text
from penstock.streams.temporal.formula.formula import Formula
from penstock.streams.temporal.formula.linear import left_matches, to_ltl
from tests.helpers.brute_force import Word, formulas, holds, holds_finitely, letters, loops, words
from tests.helpers.walks import examples


@examples(1000)
@given(formulas, words, loops, st.lists(letters, min_size=1, max_size=5))
def test_the_formula_holds_of_the_same_words(
    formula: Formula, stem: Word, loop: Word, trace: Word
) -> None:
    linear = to_ltl(formula)
    assert holds(linear, stem, loop) == holds(formula, stem, loop)
    assert holds_finitely(linear, trace) == holds_finitely(formula, trace)


@pytest.mark.parametrize(
    ("formula", "linear"),
    [
        ("{a; b}!", "a & X b"),
        ("{a : b} |-> c", "a -> b -> c"),
        ("{a; b[*]; c} |=> d", "a -> next(!b R (c -> next d))"),
        ("{a[*2]; b | c}!", "a & X(a & X(b | c))"),
        ("{a[+]}!", "a"),
        ("{a[->2]}!", "!a U (a & X(!a U a))"),
        ("never {a; b}", "G(a -> next !b)"),
        ("{[*0]} |-> a", "true"),
    ],
)
def test_a_simple_expression_becomes_ltl(formula: str, linear: str) -> None:
    found = simplify(to_ltl(parse(formula)))
    assert to_text(found) == linear
    assert left_matches(found) == []


@pytest.mark.parametrize(
    ("formula", "linear"),
    [("{a[->2]} |-> b", "a R (a -> next(a R (a -> b)))"), ("{a[*2]; !b}!", "a & X(a & X !b)")],
)
def test_what_is_made_has_no_double_negation_and_no_idle_true(formula: str, linear: str) -> None:
    assert to_text(to_ltl(parse(formula))) == linear


@pytest.mark.parametrize("text", ["{a && b[*]}!", "{{a; b}[*]; c} |-> d", "{a; b}"])
def test_any_other_expression_stays(text: str) -> None:
    formula = parse(text)
    assert to_ltl(formula) == formula
    assert left_matches(parse(f"a & X ({text})")) == [formula]


@pytest.mark.parametrize("text", ["{a[*2000]}!", "{{{a[*2] | b}[*2] | a}[*9]}!"])
def test_one_that_would_be_too_large_says_so(text: str) -> None:
    with pytest.raises(FormulaTooLarge):
        to_ltl(parse(text))
