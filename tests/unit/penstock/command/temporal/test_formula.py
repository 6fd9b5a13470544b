"""`penstock formula` in a shell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.streams.temporal import degeneralised, from_hoa, from_lbtt, parse, translate

Penstock = Callable[..., Any]

PUBLISHED = "G(soi -> X(!input U (input & Fcoi)))"


def test_a_formula_is_printed_as_it_was_read(penstock: Penstock) -> None:
    result = penstock("formula", "always (req -> next ack)")
    assert (result.status, result.out) == (0, "G(req -> next ack)\n")


def test_a_word_that_is_read_as_operators_is_mentioned(penstock: Penstock) -> None:
    result = penstock("formula", 'Foo & "Gap" & GFp & F q', "--compare", "GXa")
    assert result.err == (
        "penstock: read Foo as F oo, GFp as G F p, GXa as G X a; "
        "write a name that begins with F, G or X in quotes\n"
    )
    assert penstock("formula", 'F oo & "Foo" & GF a & X(b)').err == ""


def test_a_formula_is_simplified_and_printed_in_symbols(penstock: Penstock) -> None:
    assert penstock("formula", "F F a & true", "--simplify").out == "F a\n"
    result = penstock("formula", "GF!a -> X(b | c)", "--unicode")
    assert result.out == "□◇¬a → ○(b \N{LOGICAL OR} c)\n"


def test_regular_expressions_become_ltl_and_what_stays_is_named(penstock: Penstock) -> None:
    text = "{a; b}! & ({c && d[*]} |-> e)"
    result = penstock("formula", text, "--ltl", "--simplify")
    assert (result.status, result.out) == (0, "a & X b & ({c && d[*]} |-> e)\n")
    assert result.err == (
        "penstock: {c && d[*]} |-> e is left as it is: it has no simple form in LTL\n"
    )


def test_its_automaton_can_be_read_back(penstock: Penstock) -> None:
    automaton = translate(parse(PUBLISHED))
    assert from_lbtt(penstock("formula", PUBLISHED, "--lbtt").out) == automaton
    assert from_hoa(penstock("formula", PUBLISHED, "--hoa").out) == automaton
    one_set = degeneralised(automaton)
    assert from_hoa(penstock("formula", PUBLISHED, "--ba").out) == one_set
    assert penstock("formula", PUBLISHED, "--ba", "--lbtt").out.startswith(f"{len(one_set)} 1t\n")


def test_the_picture_has_the_number_of_each_line_of_the_lbtt_text(penstock: Penstock) -> None:
    lines = penstock("formula", PUBLISHED, "--lbtt").out.splitlines()
    picture = penstock("formula", PUBLISHED, "--svg").out
    assert picture.startswith("<svg")
    edges = [at for at, line in enumerate(lines, 1) if " -1 " in line]
    assert len(edges) > 8
    for at, _ in enumerate(lines, 1):
        assert (f">{at}: " in picture) == (at in edges)


def test_equivalent_formulas_give_status_0(penstock: Penstock) -> None:
    result = penstock("formula", "!F !a", "--compare", "G a")
    assert (result.status, result.out) == (
        0,
        "finite traces: equivalent\ninfinite words: equivalent\n",
    )


def test_a_shortest_finite_trace_shows_the_difference(penstock: Penstock) -> None:
    result = penstock("formula", "X a", "--compare", "next a")
    assert (result.status, result.out) == (
        1,
        "finite traces: the first is stronger\n"
        "    only the second holds on: {}\n"
        "infinite words: equivalent\n",
    )


def test_a_lasso_shows_a_difference_of_infinite_words(penstock: Penstock) -> None:
    result = penstock("formula", "F G a", "--compare", "G F a")
    assert (result.status, result.out) == (
        1,
        "finite traces: equivalent\n"
        "infinite words: the first is stronger\n"
        "    only the second holds on: · ({a} {}) for ever\n",
    )


def test_formulas_of_which_neither_implies_the_other_have_two_examples(penstock: Penstock) -> None:
    out = penstock("formula", "a", "--compare", '"two words"').out
    assert out == (
        "finite traces: neither implies the other\n"
        "    only the first holds on: {a}\n"
        '    only the second holds on: {"two words"}\n'
        "infinite words: neither implies the other\n"
        "    only the first holds on: {a} · ({}) for ever\n"
        '    only the second holds on: {"two words"} · ({}) for ever\n'
    )


def test_the_shortest_traces_that_satisfy_and_violate_are_shown(penstock: Penstock) -> None:
    assert penstock("formula", "a & X X b", "--examples").out == (
        "satisfied by: {a} {} {b}\nviolated by: {}\n"
    )
    assert penstock("formula", "G X a", "--examples").out == (
        "satisfied by no finite trace, only by words such as: {} · ({a}) for ever\n"
        "violated by: {}\n"
    )
    assert penstock("formula", "a | !a", "--examples").out == (
        "satisfied by: {}\nviolated by no finite trace, nor infinite word\n"
    )


def test_the_result_may_go_into_a_file(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    assert penstock("formula", "F a", "--svg", "--output", str(path)).status == 0
    assert path.read_text().startswith("<svg")
    result = penstock("formula", "F a", "--output", str(tmp_path / "missing" / "a"))
    assert result.status == 2
    assert "Cannot write" in result.err


@pytest.mark.parametrize("words", [[], ["--simplify"], ["--lbtt"], ["--examples"]], ids=str)
def test_a_result_that_is_nested_too_deeply_gives_status_2(
    penstock: Penstock, words: list[str]
) -> None:
    result = penstock("formula", "{a[*180]}!", "--ltl", *words)
    assert result.status == 2
    assert "too large" in result.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["G"], "position 1"),
        (["a", "--compare", "b c"], "position 2"),
        (["a", "--compare", "b", "--examples"], "not allowed with"),
        (["a", "--compare", "b", "--ba"], "--ba is about an automaton"),
        (["a", "--lbtt", "--unicode"], "--unicode is for the formula"),
        (["a", "--", "b"], "takes nothing after"),
    ],
)
def test_wrong_usage_gives_status_2(penstock: Penstock, words: list[str], problem: str) -> None:
    result = penstock("formula", *words)
    assert result.status == 2
    assert problem in result.err
    assert result.out == ""


def test_a_bound_in_time_is_printed_and_nothing_else_can_be_done_with_it(
    penstock: Penstock,
) -> None:
    text = "always (a -> F[<=120s] b)"
    assert penstock("formula", text).out == "G(a -> F[<=2m] b)\n"
    assert penstock("formula", text, "--unicode").out == "□(a → ◇[≤2m] b)\n"
    for options in (
        ["--ltl"],
        ["--simplify"],
        ["--lbtt"],
        ["--hoa"],
        ["--svg"],
        ["--ba"],
        ["--examples"],
        ["--compare", "G a"],
    ):
        result = penstock("formula", text, *options)
        assert (result.status, result.out) == (2, "")
        assert "F[<=2m] b is bounded in time: " in result.err
        assert "Traceback" not in result.err


def test_a_bound_in_time_that_no_monitor_accepts_is_told(penstock: Penstock) -> None:
    result = penstock("formula", "G(a -> F[<=3s](b & F[<=2s] c))")
    assert (result.status, result.out) == (0, "G(a -> F[<=3s](b & F[<=2s] c))\n")
    assert result.err.startswith("penstock: no monitor accepts it: F[<=3s](b & F[<=2s] c) is ")
    assert penstock("formula", "G(a -> F[<=3s] b)").err == ""
