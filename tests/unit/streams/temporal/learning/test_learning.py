"""Formulas that tell good traces from bad ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.temporal.errors import UnknownProposition
from penstock.streams.temporal.formula.formula import (
    Binary,
    Formula,
    Match,
    Nary,
    Unary,
    propositions,
)
from penstock.streams.temporal.formula.lexer import tokens
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.temporal.learning.evaluation import Traces
from penstock.streams.temporal.learning.patterns import patterns
from penstock.streams.temporal.learning.search import Finding, learn
from penstock.streams.temporal.monitors.examples import compare
from penstock.streams.temporal.monitors.monitor import Monitor
from tests.helpers.brute_force import NAMES, Word, formulas, holds_finitely, letters

Letters = list[int]


def word(trace: Letters, names: str = "abcd") -> Word:
    return [
        frozenset(name for bit, name in enumerate(names) if letter >> bit & 1) for letter in trace
    ]


def holds(text: str, trace: Letters) -> bool:
    return holds_finitely(parse(text), word(trace))


def size(text: str) -> int:
    return len(list(tokens(text)))


# Many traces at once.


def has_match(formula: Formula) -> bool:
    if isinstance(formula, Unary):
        return has_match(formula.operand)
    if isinstance(formula, Nary):
        return any(map(has_match, formula.operands))
    if isinstance(formula, Binary):
        return has_match(formula.left) or has_match(formula.right)
    return isinstance(formula, Match)


@given(
    st.lists(formulas.filter(lambda one: not has_match(one)), min_size=1, max_size=3),
    st.lists(st.lists(letters, min_size=1, max_size=9), min_size=1, max_size=5),
)
def test_all_traces_together_are_judged_as_each_is_by_itself(
    several: list[Formula], words: list[Word]
) -> None:
    rows = [[sum(1 << NAMES.index(name) for name in letter) for letter in one] for one in words]
    traces = Traces(rows, NAMES)
    assert len(traces) == len(words)
    for formula in several:
        expected = [n for n, one in enumerate(words) if holds_finitely(formula, one)]
        assert traces.numbers(traces.holds(formula)) == expected


@pytest.mark.parametrize("text", ["X b", "F b", "a U b", "b M a", "X X b", "F[1..3] b", "a U X b"])
def test_no_trace_is_fulfilled_by_the_next_one(text: str) -> None:
    traces = Traces([[1], [1, 1], [2, 2], [1, 1, 1], [2]], "ab")
    fulfilled = traces.numbers(traces.holds(parse(text)))
    assert set(fulfilled) <= {2, 4}


def test_every_trace_keeps_what_the_next_one_breaks() -> None:
    traces = Traces([[1], [1, 1], [0], [1], [0, 1]], "a")
    for text in ("G a", "next a", "a W false", "false R a", "G[0..3] a"):
        assert set(traces.numbers(traces.holds(parse(text)))) >= {0, 1, 3}


def test_what_no_pattern_has_is_refused() -> None:
    traces = Traces([[1]], "a")
    with pytest.raises(ValueError, match="has a regular expression, or a bound in time"):
        traces.holds(parse("{a; a}!"))
    with pytest.raises(ValueError, match="has a regular expression, or a bound in time"):
        traces.holds(parse("F[<=1s] a"))
    with pytest.raises(UnknownProposition, match="'b'"):
        traces.holds(parse("F b"))


# What is tried.

Meaning = Callable[[Word], bool]


def within(k: int) -> dict[str, Meaning]:
    """The bounded patterns, by their definitions."""
    window = f"F[1..{k}]" if k > 1 else "X"
    found: dict[str, Meaning] = {
        f"!b W a & G !(G[0..{k}] !a & X[{k}] b)": lambda w: all(
            any("a" in w[j] for j in range(max(0, i - k), i + 1))
            for i in range(len(w))
            if "b" in w[i]
        ),
        f"G(a -> {window} b)": lambda w: all(
            any("b" in e for e in w[i + 1 : i + 1 + k]) for i in range(len(w)) if "a" in w[i]
        ),
    }
    if k > 1:
        found[f"F[0..{k - 1}] a"] = lambda w: any("a" in e for e in w[:k])
        found[f"G[0..{k - 1}] !a"] = lambda w: not any("a" in e for e in w[:k])
        found[f"G[0..{k - 1}] a"] = lambda w: all("a" in e for e in w[:k])
    if k < 10:
        found[f"G(a -> {window}(b & {window} c))"] = lambda w: all(
            any(
                "b" in w[j] and any("c" in e for e in w[j + 1 : j + 1 + k])
                for j in range(i + 1, min(len(w), i + 1 + k))
            )
            for i in range(len(w))
            if "a" in w[i]
        )
    return found


MEANINGS: dict[str, Meaning] = {
    "!b W (a | c)": lambda w: next((bool(e & {"a", "c"}) for e in w if e), True),
    "F(a & X F(b & X F c))": lambda w: any(
        "a" in w[i] and "b" in w[j] and "c" in w[k]
        for i in range(len(w))
        for j in range(i + 1, len(w))
        for k in range(j + 1, len(w))
    ),
    "!c W (a & !c & X(!c W b))": lambda w: all(
        any("a" in w[i] and any("b" in e for e in w[i + 1 : k + 1]) for i in range(k))
        for k in range(len(w))
        if "c" in w[k]
    ),
} | {text: meaning for k in (1, 2, 3, 5, 10) for text, meaning in within(k).items()}


@pytest.mark.parametrize("text", MEANINGS)
def test_a_pattern_means_what_its_name_says(text: str) -> None:
    assert text in patterns("abc")
    rng = random.Random(text)
    for _ in range(300):
        density = rng.random()
        trace = [
            rng.choice((1, 2, 4)) if rng.random() < density else 0
            for _ in range(rng.randint(1, 16))
        ]
        assert holds(text, trace) == MEANINGS[text](word(trace)), word(trace)


def test_no_pattern_is_tried_twice_and_each_can_be_watched_and_refuted() -> None:
    tried = list(patterns("abc"))
    assert len({parse(text) for text in tried}) == len(tried)
    for text in tried:
        # The others are the same, of other propositions.
        if sorted(propositions(parse(text))) == list(propositions(parse(text))):
            assert len(Monitor(text).machine) < 200
            refutation = Finding((text,), (), ()).refutation()
            assert refutation
            assert not holds_finitely(parse(text), list(refutation))


def test_names_that_are_not_plain_words_are_quoted() -> None:
    texts = list(patterns(["to do", "F"]))
    assert 'G("to do" -> F "F")' in texts
    for text in texts:
        assert set(propositions(parse(text))) <= {"to do", "F"}


# Learning.

HIDDEN = [
    # Absence, existence, universality, and in the first events.
    "G !a", "G !(a & b)", "F b", "F(a & c)", "F(b | c)", "G a", "G(a | b | c)",
    "!a", "b", "G[0..1] !c", "F[0..2] a", "F[0..4] (a & b)", "G[0..2] (a | d)", "F[0..9] d",
    # Precedence and response.
    "!b W a", "!b W (a | c)", "G(a -> F b)", "G(a & b -> F c)", "G(a -> F(b | d))",
    "!d W c & G !(G[0..2] !c & X[2] d)", "!a W b & G !(G[0..1] !b & X[1] a)",
    "G(c -> X d)", "G(a -> F[1..3] c)", "G(b -> F[1..5] a)",
    # Chains of three.
    "F(a & X F(b & X F c))", "G(b -> F(a & X F c))", "!c W (a & !c & X(!c W b))",
    "F(a & F[1..2](b & F[1..2] c))", "G(a -> X(b & X c))", "G(a -> F[1..2](b & F[1..2] d))",
    # Two together.
    "G !a & F b", "!b W a & F c", "G(a -> F b) & G(c -> F d)", "!b W a & G(b -> F c)",
]  # fmt: skip


def examples(text: str, count: int) -> tuple[list[Letters], list[Letters]]:
    """Traces of which a formula holds, and others, made at random."""
    formula, rng = parse(text), random.Random(text)
    good: list[Letters] = []
    bad: list[Letters] = []
    while len(good) < count or len(bad) < count:
        kinds = rng.choice(((1, 2, 4, 8), tuple(range(16)), (0, 1, 2, 4, 8, 0)))
        length = rng.randint(1, 14)
        trace = [rng.choice(kinds) for _ in range(length)]
        side = good if holds_finitely(formula, word(trace)) else bad
        if len(side) < count:
            side.append(trace)
    return good, bad


@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_hidden_rule_is_found_again_or_a_smaller_one_that_separates(hidden: str) -> None:
    good, bad = examples(hidden, 60)
    learned = learn(good, bad, "abcd")
    assert learned.separates
    assert 1 <= len(learned.findings) <= 5
    for finding in learned.findings:
        assert all(holds(finding.formula, trace) for trace in good)
        assert not any(holds(finding.formula, trace) for trace in bad)
    first = learned.findings[0].formula
    assert size(first) <= size(hidden)
    sizes = [sum(map(size, finding.parts)) for finding in learned.findings]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("hidden", ["G(a -> F b)", "!b W a", "F(a & X F(b & X F c))", "G !a & F b"])
def test_of_enough_examples_the_first_formula_is_equivalent(hidden: str) -> None:
    good, bad = examples(hidden, 300)
    found = compare(parse(learn(good, bad, "abcd").findings[0].formula), parse(hidden))
    assert (found.only_first_trace, found.only_second_trace) == (None, None)


def test_a_conjunction_that_is_no_better_than_one_of_its_parts_is_left_out() -> None:
    # Of paid (a), packed (b) and sent (c): the same trace is good and bad, so nothing is perfect.
    good, bad = [[1, 4], [1, 2, 4], [2, 1, 4]], [[4, 1], [1, 4], [2, 4]]
    learned = learn(good, bad, "abc")
    assert learned.findings[0].formula == "!c W a"
    for finding in learned.findings:
        assert finding.parts[0] != "!c W a" or len(finding.parts) == 1
        assert "!c W a" not in finding.parts[1:]


@given(
    st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_a_conjunction_is_better_than_each_of_its_parts(
    good: list[Letters], bad: list[Letters]
) -> None:
    for finding in learn(good, bad, "abc").findings:
        for part in finding.parts if len(finding.parts) > 1 else ():
            assert all(holds(part, trace) for trace in good)
            assert sum(holds(part, trace) for trace in bad) > len(finding.holds_on_bad)


def test_where_nothing_separates_the_best_come_with_the_traces_that_they_get_wrong() -> None:
    # The first trace is good and bad.
    good = [[1, 2], [1, 1, 2], [4, 4], [1, 2, 1, 2]]
    bad = [[1, 2], [1], [2, 1], [4, 1]]
    learned = learn(good, bad, "abc")
    assert not learned.separates
    assert len(learned.findings) == 3
    for finding in learned.findings:
        assert [n for n, one in enumerate(good) if not holds(finding.formula, one)] == list(
            finding.fails_on_good
        )
        assert [n for n, one in enumerate(bad) if holds(finding.formula, one)] == list(
            finding.holds_on_bad
        )
    least = min(
        sum(not holds(text, one) for one in good) + sum(holds(text, one) for one in bad)
        for text in patterns("abc")
    )
    first = learned.findings[0]
    assert (learned.findings[0].formula, least) == ("G(a -> F b)", 1)
    assert (first.fails_on_good, first.holds_on_bad) == ((), (0,))


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_no_pattern_and_no_conjunction_of_two_gets_fewer_traces_wrong_than_the_first(
    good: list[Letters], bad: list[Letters]
) -> None:
    table = {
        text: ([holds(text, one) for one in good], [holds(text, one) for one in bad])
        for text in SHORT_LIST
    }
    alone = min(on_good.count(False) + on_bad.count(True) for on_good, on_bad in table.values())
    hold = [on_bad for on_good, on_bad in table.values() if all(on_good)]
    both = min((sum(map(min, one, other)) for one, other in product(hold, hold)), default=len(bad))
    (first, *_) = learn(good, bad, "ab").findings
    wrong = len(first.fails_on_good) + len(first.holds_on_bad)
    assert wrong <= min(alone, both)
    assert (first.fails_on_good == ()) or len(first.parts) == 1


# Some of the patterns of two propositions: all of them, in pairs, would take a minute.
SHORT_LIST = [text for text in patterns("ab") if size(text) < 9]


def test_a_refutation_of_a_conjunction_is_the_shortest_of_its_parts() -> None:
    late, early = "next next !a", "a | b"
    assert Finding((late,), (), ()).refutation() == (frozenset(), frozenset(), frozenset("a"))
    both = Finding((late, early), (), ())
    assert both.refutation() == (frozenset(),)
    assert both.formula == "next next !a & (a | b)"


@pytest.mark.parametrize(
    ("good", "bad", "names", "said"),
    [
        ([], [[1]], "a", "good and bad traces are needed"),
        ([[1]], [], "a", "good and bad traces are needed"),
        ([[1]], [[]], "a", "of one event or more"),
        ([[1]], [[0]], [f"p{n}" for n in range(21)], "at most 20"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(
    good: list[Letters], bad: list[Letters], names: list[str], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        learn(good, bad, names)
