"""Formulas as text: parsing, the place of errors, and printing the same text again."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.temporal.errors import FormulaSyntaxError, FormulaTooLarge, UnknownProposition
from penstock.streams.temporal.formula.formula import (
    TRUE,
    Formula,
    Match,
    Proposition,
    Sere,
    propositions,
)
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.temporal.formula.printer import to_text
from tests.helpers.brute_force import (
    LETTERS,
    booleans,
    formulas,
    holds_finitely,
    matches,
    seres,
    words,
)
from tests.helpers.walks import examples


@examples(1000)
@given(formulas)
def test_a_formula_is_printed_as_it_is_read(formula: Formula) -> None:
    assert parse(to_text(formula)) == formula


def _as_spot(text: str) -> str:
    """The text with parentheses for the braces inside of braces, and `:` in ranges."""
    depth = 0
    written: list[str] = []
    for letter in text:
        depth -= letter == "}"
        written.append({"{": "(", "}": ")"}.get(letter, letter) if depth else letter)
        depth += letter == "{"
    return "".join(written).replace("..", ":")


@examples(300)
@given(st.builds(Match, st.sampled_from(["|->", "<>->"]), seres, booleans), words)
def test_expressions_in_parentheses_hold_where_those_in_braces_do(
    formula: Formula, trace: list[frozenset[str]]
) -> None:
    written = parse(_as_spot(to_text(formula)))
    assert holds_finitely(written, trace) == holds_finitely(formula, trace)


def _braced(sere: Sere) -> str:
    text = to_text(Match("<>->", sere, TRUE))
    return text[: text.rindex("}") + 1]


def _sere_of(text: str) -> Sere:
    formula = parse(text + "!")
    assert isinstance(formula, Match)
    return formula.sere


@examples(200)
@given(st.lists(seres, min_size=2, max_size=3), words)
def test_expressions_joined_by_one_sign_begin_together_and_end_with_the_last(
    parts: list[Sere], trace: list[frozenset[str]]
) -> None:
    written = _sere_of("{" + " & ".join(map(_braced, parts)) + "}")
    ends = (matches(part, trace, 0) for part in parts)
    assert matches(written, trace, 0) == {max(one) for one in product(*ends)}


def _value(words: list[str], letter: frozenset[str]) -> bool:
    """The value of names with operators between them, by Spot's order of these."""
    for operators in (("->", "<->"), ("|",), ("xor",), ("&",)):
        if at := next((at for at, word in enumerate(words) if word in operators), 0):
            left, right = _value(words[:at], letter), _value(words[at + 1 :], letter)
            return {
                "->": not left or right,
                "<->": left == right,
                "|": left or right,
                "xor": left != right,
                "&": left and right,
            }[words[at]]
    (name,) = words
    return name in letter


_OPERATORS = st.sampled_from(["->", "<->", "|", "xor", "&"])


@given(st.lists(st.tuples(_OPERATORS, st.sampled_from("abc")), max_size=6), st.sampled_from("abc"))
def test_operators_bind_as_in_spot_in_expressions_and_outside(
    more: list[tuple[str, str]], first: str
) -> None:
    words = [first, *(word for pair in more for word in pair)]
    text = " ".join(words)
    formula, sere = parse(text), _sere_of("{" + text + "}")
    for letter in LETTERS:
        value = _value(words, letter)
        assert holds_finitely(formula, [letter]) == value
        assert matches(sere, [letter, letter], 0) == ({1} if value else set())


@pytest.mark.parametrize("written", ["[2:]", "[2..]", "[2:$]", "[2..inf]", "[2 to $]", "[2,]"])
@given(trace=words)
def test_a_range_without_an_end_is_the_rest_of_the_events(
    written: str, trace: list[frozenset[str]]
) -> None:
    rest = ["a" in letter for letter in trace[2:]]
    assert holds_finitely(parse(f"F{written} a"), trace) == any(rest)
    assert holds_finitely(parse(f"G{written} a"), trace) == all(rest)


def test_a_repetition_by_fusion_is_refused_by_its_name() -> None:
    with pytest.raises(FormulaSyntaxError, match="a repetition by fusion that is not known here"):
        parse("{{a;b}[:*2..3]}!")


@given(st.text(min_size=1))
def test_any_name_can_be_quoted(name: str) -> None:
    assert parse(to_text(Proposition(name))) == Proposition(name)


@examples(500)
@given(st.text(alphabet='abFGXUW!&|->(){};:,$[*].0123 "', max_size=20))
def test_any_text_is_a_formula_or_wrong_at_a_place_in_it(text: str) -> None:
    place = 0
    try:
        assert parse(to_text(parse(text))) == parse(text)
    except FormulaSyntaxError as error:
        place = error.position
    except FormulaTooLarge:
        pass
    assert 0 <= place <= len(text)


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("Fcoi", "F coi"),
        ("GFp", "G F p"),
        ("XXa", "X X a"),
        ("a -> b -> c", "a -> (b -> c)"),
        ("a <-> b -> c", "a <-> (b -> c)"),
        ("a U b U c", "a U (b U c)"),
        ("a | b & c U d", "a | (b & (c U d))"),
        ("a || b && !c U d", "a | (b & ((!c) U d))"),
        ("a until b -> c", "(a W b) -> c"),
        ("always a -> b", "G(a -> b)"),
        ("a & always b | c", "a & G(b | c)"),
        ("eventually! a & b", "F(a & b)"),
        ("never a | b", "G !(a | b)"),
        ("next a & b", "(next a) & b"),
        ("next! a & b", "(X a) & b"),
        ("next!a", "X a"),
        ("next !a", "next(!a)"),
        ("next![2] a", "X X a"),
        ("X! a", "X a"),
        ("X!a", "X(!a)"),
        ("X[!] a", "X a"),
        ("next[3] a", "next next next a"),
        ("X[2]a", "X X a"),
        ("next[0] a", "a"),
        ("a until! b", "a U b"),
        ("a until_ b", "a W (a & b)"),
        ("a until!_ b", "a U (a & b)"),
        ("a before b", "!b W (a & !b)"),
        ("a before! b", "!b U (a & !b)"),
        ("a before_ b", "!b W a"),
        ("a before!_ b", "!b U a"),
        ("{a;b} |=> c", "{{a;b};true} |-> c"),
        ("{a;b} <>=> c -> d", "{{a;b};true} <>-> (c -> d)"),
        ("{a[+];[*2]}!", "{a[+];true[*2]} <>-> true"),
        ("never {a;b}", "G({a;b} |-> false)"),
        ("{a:b|c&&d;e}!", "{{a:{b|{c&&d}}};e}!"),
        ("{a & !b[*1..2]}!", "{{a & !b}[*1..2]}!"),
        ("1 U 0", "true U false"),
        ("□(○(¬input U (input∧◇coi))\N{LOGICAL OR}¬soi)", "G(X(!input U (input & F coi)) | !soi)"),
        ("a → b ↔ c", "a -> (b <-> c)"),
        ("F[1..2] a", "X(a | X a)"),
        ("G[0..1] a & b", "(a & next a) & b"),
        ("next_a[2..2] a", "next next a"),
        ("next_e![0..2] Fa", "F a | X(F a | X F a)"),
        ("next_event(b)(f)", "!b W (b & f)"),
        ("next_event!(b|c)[2](f)", "!(b | c) U ((b | c) & X(!(b | c) U ((b | c) & f)))"),
        ("next_event(b)[2](f) U a", "(!b W (b & next(!b W (b & f)))) U a"),
        ("next_a & next_e | next_event", '"next_a" & "next_e" | "next_event"'),
        ("{next_a[*2]; next_e[=1]}!", '{"next_a"[*2]; "next_e"[=1]}!'),
        ("a ^ b", "!(a <-> b)"),
        ("a ^ b | c ^ d -> e", "(!(a <-> b)) | (!(c <-> d)) -> e"),
        ("{(a ^ b)}!", "{(!(a <-> b))}!"),
        ("{a[->]}!", "{!a[*]; a}!"),
        ("{a & b[->2]; c}!", "{{!(a & b)[*]; {a & b}}[*2]; c}!"),
        ("{a[->1..]}!", "{{!a[*]; a}[+]}!"),
        ("{a[=2]}!", "{{!a[*]; a}[*2]; !a[*]}!"),
        ("{a[=0]}!", "{[*0]; !a[*]}!"),
        ("{a} []-> b", "{a} |-> b"),
        ("{(a;b)[*];c}", "{{a;b}[*];c}"),
        ("{(a;b)|(c:d)}!", "{{a;b}|{c:d}}!"),
        ("{((a;b)[+] && (c[*]))}!", "{{a;b}[+] && c[*]}!"),
        ("{(a|b[*2]);c} |-> d", "{{a|b[*2]};c} |-> d"),
        ("{({a;b})[*2]}!", "{{a;b}[*2]}!"),
        ("{(a|b)[->2];(c)}!", "{(a|b)[->2];c}!"),
        ("never {(a;b)}", "never {a;b}"),
        ("{(a;b)} -> c", "{a;b} -> c"),
        ("{a[*2:4]}!", "{a[*2..4]}!"),
        ("{a[*2,4]; b[*2 to 4]}!", "{a[*2..4]; b[*2..4]}!"),
        ("{a[*2:]; b[*2:$]; c[*2..inf]}!", "{a[*2..]; b[*2..]; c[*2..]}!"),
        ("{a[*:3]; b[*..3]; c[*:]}!", "{a[*0..3]; b[*0..3]; c[*]}!"),
        ("{a[=2:4]; b[=:2]}!", "{a[=2..4]; b[=0..2]}!"),
        ("{a[->2:4]; b[->:2]; c[->:]}!", "{a[->2..4]; b[->1..2]; c[->1..]}!"),
        ("F[1:2] a & G[0 to 1] b", "F[1..2] a & G[0..1] b"),
        ("{inf[*2]; to}!", '{"inf"[*2]; "to"}!'),
        ("a xor b", "a ^ b"),
        ("{(a xor b)}!", "{(a ^ b)}!"),
        ("a ⊕ b", "a ^ b"),
        ("a => b <=> c", "a -> (b <-> c)"),
        ("a --> b <--> ~c", "a -> (b <-> !c)"),
        ("a /\\ b \\/ c", "a & b | c"),
        ("{a} => b", "{a} -> b"),
        ("{a}[]=>b", "{a} |=> b"),
        ('"Foo bar" U x.y_1', '("Foo bar") U (x.y_1)'),
    ],
)  # fmt: skip
def test_what_is_written_means(written: str, means: str) -> None:
    assert parse(written) == parse(means)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("G", 1),
        ("a U", 3),
        ("a & & b", 4),
        ("(a", 2),
        ("a)", 1),
        ("a b", 2),
        ("{a;b} c", 6),
        ("{a;b", 4),
        ("a # b", 2),
        ("next[x] a", 5),
        ("{a|->b", 2),
        ("{a[*3..2]} |-> b", 7),
        ("next[-1] a", 5),
        ("{a U b}!", 3),
        ("{(F a)}!", 2),
        ("U a", 0),
        ("F[2] a", 3),
        ("next_e[2] a", 8),
        ("F[2..1] a", 5),
        ("next_a[1..] a", 10),
        ("next_event(a U b)(c)", 13),
        ("next_event(a) b", 14),
        ("next_event(a)[0](b)", 14),
        ("a ^", 3),
        ("{{a;b}[->1]}!", 6),
        ("{a[->x]}!", 5),
        ("a & eventually b", 4),
        ("2", 0),
        ("{(a;b}!", 5),
        ("{(a;b", 5),
        ("{(a;b)[->2]}!", 6),
        ("{(a;F b)}!", 4),
        ("(a;b)", 2),
        ("{a xor (b;c)}!", 3),
        ("{a[*2] -> b}!", 7),
        ("{a[:*2]}!", 2),
        ("{(a;b)[:+]}!", 6),
        ("X[2:] a", 3),
        ("{a[*4:2]}!", 6),
        ("{a[*2;4]}!", 5),
        ("{a[*:x]}!", 5),
        ("{a[*2:$}!", 7),
        ("F[1;2] a", 3),
        ("a xor", 5),
        ("xor a", 0),
    ],
)
def test_an_error_points_at_the_first_token_that_cannot_go_on(text: str, position: int) -> None:
    with pytest.raises(FormulaSyntaxError) as raised:
        parse(text)
    assert raised.value.position == position
    assert raised.value.expected
    *_, line, caret = str(raised.value).split("\n")
    assert (line, caret.index("^")) == ("    " + text, position + 4)


@pytest.mark.parametrize("text", ['a & "b c', 'a & "', r'a & "b\"'])
def test_a_name_whose_quotes_do_not_end_is_reported_as_that(text: str) -> None:
    with pytest.raises(FormulaSyntaxError, match='`"` stands, without another one, at position 4'):
        parse(text)


def test_an_error_in_a_text_of_several_lines_shows_the_line() -> None:
    with pytest.raises(FormulaSyntaxError, match=r"\n    \) & b\n    \^") as raised:
        parse("a &\n) & b")
    assert raised.value.position == 4


@pytest.mark.parametrize("wrong", [None, 7, b"a", ["a"]], ids=str)
def test_anything_but_a_string_is_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="a formula is a text"):
        parse(wrong)


@pytest.mark.parametrize(
    "text", ["(" * 400 + "a", "!" * 400 + "a", "X[400] a", "{" * 400 + "a", "a -> " * 400 + "a",
             "a ^ " * 100 + "a", "F[0..100] a", "next_event(a)[60](b)"],
    ids=["parentheses", "prefixes", "next", "braces", "arrows", "exclusive", "range", "events"],
)  # fmt: skip
def test_a_nesting_that_is_too_deep_is_named(text: str) -> None:
    with pytest.raises(FormulaTooLarge, match="nesting"):
        parse(text)


def test_nested_ranges_may_not_multiply_without_bound() -> None:
    with pytest.raises(FormulaTooLarge, match="copies in its ranges reached 1,331"):
        parse("F[0..10] G[0..10] F[0..10] a")
    assert parse("F[0..9] G[0..9] F[0..9] a & " * 3 + "a")


def test_long_formulas_of_one_level_are_read() -> None:
    text = " & ".join(f"a{at}" for at in range(2_000))
    assert len(propositions(parse(text))) == 2_000


def test_propositions_are_listed_with_the_place_of_the_first() -> None:
    assert propositions(parse("G(b -> {a; b}!) & c")) == {"b": 2, "a": 8, "c": 18}


@pytest.mark.parametrize(
    ("text", "position"),
    [("X[{}] a", 2), ("{{a[*{}]}} |-> b", 4), ("{{a[*1..{}]}} |-> b", 7)],
)
def test_a_number_of_thousands_of_digits_is_wrong_at_its_place(text: str, position: int) -> None:
    with pytest.raises(FormulaSyntaxError, match="at most 9 digits") as raised:
        parse(text.format("9" * 5_000))
    assert raised.value.position == position


def test_a_letter_that_no_plain_name_has_is_answered_with_quotes() -> None:
    with pytest.raises(FormulaSyntaxError, match="or a name in quotes was expected") as raised:
        parse("G é")
    assert raised.value.position == 2
    assert propositions(parse('G "é"')) == {"é": 2}


def test_a_near_name_that_needs_quotes_is_proposed_with_them() -> None:
    (name, position), *_ = propositions(parse("G Foo")).items()
    advice = str(UnknownProposition(name, position, ["Foo"]))
    assert advice.endswith("Did you mean 'Foo'? In a formula write it in quotes, as \"Foo\"")
    assert str(UnknownProposition("pai", 2, ["paid"])).endswith("Did you mean 'paid'?")


@given(formulas)
def test_a_formula_in_symbols_is_the_same_formula(formula: Formula) -> None:
    assert parse(to_text(formula, unicode=True)) == parse(to_text(formula))


def test_the_mark_after_an_expression_is_no_negation_in_symbols() -> None:
    text = to_text(parse('{a; !b & "F or G"}! & GX!a'), unicode=True)
    assert text == '({a; ¬b ∧ "F or G"}!) ∧ □○¬a'


def test_the_documented_depths_are_the_deepest() -> None:
    parse("X[147] a")
    parse("(" * 74 + "a" + ")" * 74)
    for text in ("X[148] a", "(" * 75 + "a" + ")" * 75):
        with pytest.raises(FormulaTooLarge, match="nesting"):
            parse(text)
