"""Bounds in time as they are written, and where they may stand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.temporal import (
    FormulaSyntaxError,
    Monitor,
    Rule,
    TimedFormula,
    Workflow,
    counter_example,
    parse,
    simplify,
    to_text,
    translate,
)
from penstock.streams.temporal.formula.formula import Formula, Nary, Timed
from penstock.streams.temporal.formula.linear import to_ltl
from penstock.streams.temporal.monitors.examples import shortest_trace
from tests.helpers.brute_force_time import rules


@pytest.mark.parametrize(
    ("text", "printed", "symbols"),
    [
        ("F[<=10s] p", "F[<=10s] p", "◇[≤10s] p"),
        ("F [ <= 10 s ] p", "F[<=10s] p", "◇[≤10s] p"),
        ("◇[≤500ms](p|q)", "F[<=500ms](p | q)", "◇[≤500ms](p \N{LOGICAL OR} q)"),
        ("G(b -> G[<=0s] !p)", "G(b -> G[<=0s] !p)", "□(b → □[≤0s] ¬p)"),
        ("always b -> F[<=120m] p", "G(b -> F[<=2h] p)", "□(b → ◇[≤2h] p)"),
        ("{a;b} |-> p U[<=5m] q & r", "{a; b} |-> p U[<=5m] q & r", None),
        ("a & p U[<=24h] q", "a & p U[<=1d] q", "a ∧ p U[≤1d] q"),
        ("Fp U[<=90s] q", "F p U[<=90s] q", "◇p U[≤90s] q"),
    ],
)
def test_a_bound_is_written_after_its_operator_and_printed_back(
    text: str, printed: str, symbols: str | None
) -> None:
    formula = parse(text)
    assert to_text(formula) == printed
    assert symbols is None or to_text(formula, unicode=True) == symbols
    assert parse(printed) == formula


@pytest.mark.parametrize(("unit", "milliseconds"), [
    ("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000),
])  # fmt: skip
def test_there_are_five_units(unit: str, milliseconds: int) -> None:
    formula = parse(f"F[<=7{unit}] p")
    assert isinstance(formula, Timed)
    assert formula.milliseconds == 7 * milliseconds


@given(st.lists(rules, min_size=1, max_size=3))
def test_what_is_printed_is_read_back(conjuncts: list[Formula]) -> None:
    formula = conjuncts[0] if len(conjuncts) == 1 else Nary("&", tuple(conjuncts))
    assert parse(to_text(formula)) == formula
    assert parse(to_text(formula, unicode=True)) == formula


def test_a_range_of_events_is_still_one() -> None:
    assert parse("F[1..2] p") == parse("X(p | X p)")


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("F[<=10] p", 6, "`ms` or `s` or `m` or `h` or `d`"),
        ("F[<=10w] p", 6, "`ms` or `s` or `m` or `h` or `d`"),
        ("F[<=s] p", 4, "a number"),
        ("F[<10s] p", 2, "a number or `<=`"),
        ("p U[<=10s q", 10, "`]`"),
        ("p W[<=10s] q", 3, "a formula"),
        ("X[<=10s] p", 2, "a number"),
        ("{F[<=1s] a} |-> b", 1, "a Boolean formula"),
    ],
)
def test_a_bound_that_is_written_wrong_is_shown_with_its_place(
    text: str, position: int, expected: str
) -> None:
    with pytest.raises(FormulaSyntaxError) as raised:
        parse(text)
    assert raised.value.position == position
    assert f"where {expected} was expected" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("!F[<=3s] p", "stands under `!`"),
        ("X F[<=3s] p", "stands under `X`"),
        ("F F[<=3s] p", "stands under `F`"),
        ("a U F[<=3s] p", "stands under `U`"),
        ("a | F[<=3s] p", "stands under `|`"),
        ("G(a & F[<=3s] p)", "stands under `&`"),
        ("G(F[<=3s] p -> a)", "stands under `->`"),
        ("G(X a -> F[<=3s] p)", "stands under `->`"),
        ("{a} <>-> F[<=3s] p", "stands behind `<>->`"),
        ("{a} |-> (F[<=3s] p & b)", "stands under `&`"),
        ("{a} |-> {b} |-> F[<=3s] p", "stands behind `|->` that is not a rule"),
        ("F[<=3s] F[<=4s] p", "F[<=4s] p, must be Boolean"),
        ("F[<=3s] X p", "X p, must be Boolean"),
        ("F p U[<=3s] q", "F p, must be Boolean"),
        ("G F[<=3s] p", r"Write G(true -> F[<=3s] p)"),
        ("a -> F[<=3s] p", r"Write {a} |-> F[<=3s] p"),
        ("always {a; b} |=> F[<=3s] p", r"Write {true[*]; {{a; b}; true}} |-> F[<=3s] p"),
    ],
)
def test_a_bound_that_one_deadline_cannot_decide_is_refused_with_the_reason(
    text: str, reason: str
) -> None:
    with pytest.raises(TimedFormula) as raised:
        Monitor(text)
    assert reason in str(raised.value)
    with pytest.raises(TimedFormula):
        Monitor(f"G b & {text}")


def test_a_form_that_is_proposed_is_accepted() -> None:
    for text in ("G F[<=3s] p", "a -> F[<=3s] p", "always {a; b} |=> F[<=3s] p"):
        with pytest.raises(TimedFormula) as raised:
            Monitor(text)
        Monitor(str(raised.value).partition("Write ")[2])
    # An empty match counts nowhere, but behind `true[*]` it is not empty.
    with pytest.raises(TimedFormula) as raised:
        Monitor("G({a[*]} |-> F[<=3s] p)")
    assert "Write" not in str(raised.value)


def search(formula: Formula) -> Any:
    workflow = Workflow.of({"a": {"goto": "b"}, "b": {}})
    return counter_example(workflow, Rule("r", "a", "b", formula=formula))


@pytest.mark.parametrize(
    "function",
    [translate, simplify, to_ltl, search, lambda formula: shortest_trace(formula, ("a",))],
)
def test_what_knows_no_time_refuses_a_bound(function: Any) -> None:
    with pytest.raises(TimedFormula, match=r"F\[<=1s\] a is bounded in time"):
        function(parse("G(a -> F[<=1s] a)"))
