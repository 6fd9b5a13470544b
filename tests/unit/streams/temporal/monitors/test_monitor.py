"""Verdicts against the definitions: on infinite words, on finite traces, and for ever."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.temporal.automata.automaton import Automaton
from penstock.streams.temporal.automata.translate import translate
from penstock.streams.temporal.automata.words import accepted_word
from penstock.streams.temporal.errors import FormulaSyntaxError, FormulaTooLarge, UnknownProposition
from penstock.streams.temporal.formula import decisions
from penstock.streams.temporal.formula.formula import Formula, Unary
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.temporal.monitors.machine import Machine
from penstock.streams.temporal.monitors.monitor import Monitor
from penstock.streams.temporal.monitors.verdict import Verdict
from tests.helpers.brute_force import Word, formulas, holds, holds_finitely, letters, loops, words
from tests.helpers.walks import examples

SIZES = {
    "G p": 2,
    "F p": 2,
    "p U q": 3,
    "X X p": 5,
    "G(a -> X b)": 3,
    "G(p0 -> X(!p2 W p1))": 3,
    "G p3 | (F p0 & F p1)": 4,
    "always ({a;b[*];c} |=> d)": 5,
    "never {a;b}": 3,
    "always (req -> next[3] ack)": 9,
    "G F p": 1,
    "G(a -> F b)": 1,
}

PUBLISHED = "G(soi -> X(!input U (input & Fcoi)))"


def run(monitor: Monitor, trace: Word) -> int:
    state, names = monitor.first, frozenset(monitor.propositions)
    for letter in trace:
        state = monitor.step(state, monitor.letter(letter & names))
    return state


def verdicts(formula: str, *trace: str) -> list[Verdict]:
    """The verdicts before and after each letter of the trace."""
    monitor = Monitor(formula)
    events = [frozenset(letter.split()) for letter in trace]
    return [monitor.verdict(run(monitor, events[:at])) for at in range(len(events) + 1)]


@examples(500)
@given(formulas, words, st.lists(st.tuples(words, loops), min_size=1, max_size=5))
def test_a_final_verdict_is_true_of_every_word_that_goes_on_from_there(
    formula: Formula, trace: Word, following: list[tuple[Word, Word]]
) -> None:
    monitor = Monitor(formula)
    verdict = monitor.verdict(run(monitor, trace))
    if verdict.is_final:
        for stem, loop in following:
            assert holds(formula, [*trace, *stem], loop) == (verdict is Verdict.TRUE)


@examples(300)
@given(formulas, words)
def test_an_inconclusive_verdict_can_still_go_either_way(formula: Formula, trace: Word) -> None:
    monitor = Monitor(formula)
    if monitor.verdict(run(monitor, trace)) is not Verdict.INCONCLUSIVE:
        return
    names = monitor.propositions
    visible = [letter & frozenset(names) for letter in trace]
    for sign, wanted in ((formula, True), (Unary("!", formula), False)):
        automaton = translate(sign, names)
        states = set(automaton.initial)
        for letter in visible:
            bits = automaton.letter(letter)
            states = {
                edge.target
                for state in states
                for edge in automaton.edges[state]
                if edge.allows(bits)
            }
        word = next(filter(None, (accepted_word(automaton, state) for state in states)))
        stem, loop = (
            [
                frozenset(name for bit, name in enumerate(names) if letter >> bit & 1)
                for letter in part
            ]
            for part in word
        )
        assert holds(formula, [*visible, *stem], loop) == wanted


@examples(1000)
@given(formulas, st.lists(letters, max_size=7))
def test_at_the_end_the_finite_trace_decides_unless_the_verdict_was_final(
    formula: Formula, trace: Word
) -> None:
    monitor = Monitor(formula)
    state = run(monitor, trace)
    verdict = monitor.verdict(state)
    holds_now = holds_finitely(formula, trace)
    if verdict.is_final:
        assert monitor.at_end(state) is monitor.presumable(state) is verdict
    else:
        assert monitor.at_end(state) is (Verdict.TRUE if holds_now else Verdict.FALSE)
        presumed = Verdict.PRESUMABLY_TRUE if holds_now else Verdict.PRESUMABLY_FALSE
        assert monitor.presumable(state) is presumed


@examples(300)
@given(formulas, st.lists(letters, max_size=8))
def test_a_final_verdict_never_changes(formula: Formula, trace: Word) -> None:
    monitor = Monitor(formula)
    seen = [monitor.verdict(run(monitor, trace[:at])) for at in range(len(trace) + 1)]
    final = [verdict for verdict in seen if verdict.is_final]
    assert seen[len(seen) - len(final) :] == final
    assert len(set(final)) <= 1


@pytest.mark.parametrize("formula", SIZES)
def test_a_monitor_has_the_published_number_of_states(formula: str) -> None:
    assert len(Monitor(formula).verdicts) == SIZES[formula]


@examples(200)
@given(formulas)
def test_no_two_states_of_a_monitor_say_the_same_for_ever(formula: Formula) -> None:
    machine: Machine[Verdict] = Monitor(formula).verdicts
    # By the definition: a word distinguishes two states if their verdicts on it differ.
    apart = {
        (one, other)
        for one in range(len(machine))
        for other in range(one)
        if machine.outputs[one] != machine.outputs[other]
    }
    while True:
        more = {
            (one, other)
            for one in range(len(machine))
            for other in range(one)
            if any(
                (machine.next(one, letter), machine.next(other, letter)) in apart
                or (machine.next(other, letter), machine.next(one, letter)) in apart
                for letter in range(1 << machine.bits)
            )
        }
        if more <= apart:
            break
        apart |= more
    assert len(apart) == len(machine) * (len(machine) - 1) // 2


def test_what_no_event_can_change_is_decided_before_the_first() -> None:
    assert verdicts("G p & F !p") == [Verdict.FALSE]
    assert verdicts("F p | G !p") == [Verdict.TRUE]
    assert verdicts("X p | X !p") == [Verdict.TRUE]


def test_a_property_that_any_prefix_can_still_meet_is_not_monitorable() -> None:
    assert not Monitor(PUBLISHED).monitorable
    assert not Monitor("G F p").monitorable
    assert Monitor("G(p0 -> X(!p2 W p1))").monitorable


def test_both_published_forms_of_a_property_have_the_same_monitor() -> None:
    one, other = Monitor(PUBLISHED), Monitor("□(○(¬input U (input∧◇coi))\N{LOGICAL OR}¬soi)")
    for trace in (["soi", "input", "coi"], ["soi", "input"], ["soi", "", "input coi"], []):
        events = [frozenset(letter.split()) for letter in trace]
        assert one.at_end(run(one, events)) is other.at_end(run(other, events))


def test_both_of_two_that_may_come_in_any_order_are_waited_for() -> None:
    formula = "G p3 | (F p0 & F p1)"
    assert verdicts(formula, "p3", "p0", "", "p1")[-1] is Verdict.TRUE
    assert Verdict.FALSE not in verdicts(formula, "", "p0", "", "")


def test_the_authors_first_guess_speaks_of_the_first_event_only_and_asks_again_and_again() -> None:
    guess = "p0 -> X G ((!p1 & !p2) U (p1 U p2))"
    assert verdicts(guess, "", "p0", "p2")[1] is Verdict.TRUE
    monitor = Monitor(guess)
    events = [frozenset(letter.split()) for letter in ("p0", "p1", "p2", "")]
    assert monitor.at_end(run(monitor, events)) is Verdict.FALSE


def test_what_was_wanted_is_that_p2_does_not_come_after_p0_without_p1_between() -> None:
    wanted = "G(p0 -> X(!p2 W p1))"
    assert verdicts(wanted, "p0", "p2")[-1] is Verdict.FALSE
    assert verdicts(wanted, "p0", "p1", "p2")[-1] is Verdict.INCONCLUSIVE
    monitor = Monitor(wanted)
    ended = [frozenset({"p0"}), frozenset({"p1"}), frozenset({"p2"})]
    assert monitor.at_end(run(monitor, ended)) is Verdict.TRUE
    # The strong X asks for one more event; its weak reading does not.
    assert monitor.at_end(run(monitor, ended[:1])) is Verdict.FALSE
    for text in ("G(p0 -> !X !(!p2 W p1))", "G(p0 -> next (!p2 W p1))"):
        weak = Monitor(text)
        assert weak.at_end(run(weak, ended[:1])) is Verdict.TRUE


def test_psl_s_next_holds_at_the_last_event_and_next_with_a_mark_does_not() -> None:
    for text, wanted in {
        "next a": Verdict.TRUE,
        "next[2] a": Verdict.TRUE,
        "next! a": Verdict.FALSE,
        "next![2] a": Verdict.FALSE,
        "X a": Verdict.FALSE,
        "X! a": Verdict.FALSE,
        "X[!] a": Verdict.FALSE,
        # On the empty trace, too.
        "!next a": Verdict.FALSE,
    }.items():
        monitor = Monitor(text)
        for trace in ([], [frozenset[str]()]):
            assert monitor.at_end(run(monitor, trace)) is wanted, (text, trace)


@pytest.mark.parametrize(
    ("formula", "is_logged"),
    [
        ("G(a -> next b)", True),
        ("next a", True),
        ("{a;b} |-> next c", True),
        ("X a", False),
        # True whatever happens, before the end.
        ("next a | next !a", False),
        ("a & next true", False),
    ],
)
def test_a_weak_next_that_matters_at_the_end_is_logged(
    caplog: pytest.LogCaptureFixture, formula: str, is_logged: bool
) -> None:
    with caplog.at_level("INFO", "penstock"):
        Monitor(formula)
    assert (["weak" in record.message for record in caplog.records] == [True]) is is_logged


@pytest.mark.parametrize(("formula", "words"), [("G Foo", 1), ('G "Foo"', 0), ("G F oo", 0)])
def test_a_name_that_is_read_as_an_operator_is_logged(
    caplog: pytest.LogCaptureFixture, formula: str, words: int
) -> None:
    Monitor(formula)
    assert ["read Foo as F oo" in record.message for record in caplog.records] == [True] * words


def test_a_monitor_that_would_be_too_large_for_a_table_walks_its_diagrams() -> None:
    names = [f"p{at}" for at in range(18)]
    monitor = Monitor("G(" + " | ".join(names) + ") & F p3")
    assert monitor.table is None
    state = monitor.step(monitor.first, monitor.letter({"p17"}))
    assert monitor.verdict(state) is Verdict.INCONCLUSIVE
    assert monitor.verdict(monitor.step(state, 0)) is Verdict.FALSE


def test_a_monitor_that_exceeds_its_bound_says_so() -> None:
    with pytest.raises(FormulaTooLarge, match="states") as raised:
        Monitor("G(a -> X[12] b)", max_states=500)
    assert raised.value.reached == 501


def test_diagrams_that_exceed_their_bound_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    alternatives = " | ".join(f"G p{at}" for at in range(10))
    monkeypatch.setattr(decisions, "_MOST_PARTS", 500)
    with pytest.raises(FormulaTooLarge, match="parts of its diagrams reached 501"):
        Monitor(alternatives)


# Twelve operators each, and most of the propositions only once.
INTRICATE = {
    "!(p1 W p2 <-> (((p7 R p4 <-> p5) -> G F p5) U p0) W p1 W p6) U p0": 8_000,
    "F(p5 | p7) M F(p1 R p4 W p5 <-> (F p3 <-> F(p2 M p8)) <-> p8)": 8_000,
    "G(((F p5 <-> p7 & p1) W (G(p8 <-> p12) <-> p6)) W p2 <-> p11 <-> p3 M p9)": 45_000,
    "p0 U p1 U p2 U p3 U p4 U p5 U p6 U p7 U p8 U p9 U p10 U p11 U p12": 500,
}


@pytest.mark.parametrize("formula", INTRICATE)
def test_a_dozen_operators_need_diagrams_of_few_parts(
    formula: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "_MOST_PARTS", INTRICATE[formula])
    assert len(Monitor(formula).machine) > 10


def test_a_monitor_of_a_wrong_text_says_where() -> None:
    with pytest.raises(FormulaSyntaxError) as raised:
        Monitor("G (a -> )")
    assert raised.value.position == 8


@contextmanager
def calls(most: int) -> Generator[None]:
    """Check that at most this many Python functions are called."""
    made = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal made
        made += event == "call"
        if made > most:
            sys.setprofile(None)
            raise AssertionError(f"more than {most:,} calls")

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)


def test_a_parity_of_many_propositions_is_found_in_few_calls() -> None:
    with calls(100_000):
        monitor = Monitor(" <-> ".join(f"a{n}" for n in range(30)))
    assert len(monitor.machine) == 3
    even = monitor.step(monitor.first, monitor.letter({"a3", "a4"}))
    odd = monitor.step(monitor.first, monitor.letter({"a3", "a4", "a7"}))
    assert (monitor.verdict(even), monitor.verdict(odd)) == (Verdict.TRUE, Verdict.FALSE)


def test_a_long_regular_expression_is_looked_at_once_for_each_of_its_letters() -> None:
    with calls(3_000_000), pytest.raises(FormulaTooLarge, match="states of the monitor"):
        Monitor("{" + "; ".join(["a"] * 10_000) + "} |-> b")


@pytest.mark.parametrize("inner", ["a[*100]", "a[*0..100]"])
def test_nested_repetitions_are_refused_after_as_many_steps_as_are_allowed(inner: str) -> None:
    with (
        calls(3_000_000),
        pytest.raises(FormulaTooLarge, match="steps of its regular expressions") as raised,
    ):
        Monitor(f"{{{{{{{inner}}}[*100]}}[*100]}} |-> b")
    assert raised.value.reached < 2 * raised.value.limit


def test_a_formula_with_a_regular_expression_is_the_same_in_another_process() -> None:
    formula = parse("{a; {b: c}[*2]; d} |-> e")
    code = (
        "import pickle, sys; from penstock.streams.temporal.formula.parser import parse; "
        "sys.stdout.buffer.write(pickle.dumps(parse('{a; {b: c}[*2]; d} |-> e')))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    read = pickle.loads(other.stdout)
    assert (read, hash(read)) == (formula, hash(formula))


def translated(formula: str) -> Automaton:
    return translate(parse(formula))


@pytest.mark.parametrize("operator", [" | ", " & "])
@pytest.mark.parametrize("make", [Monitor, translated])
def test_a_formula_of_too_many_propositions_is_refused(
    operator: str, make: Callable[[str], object]
) -> None:
    with pytest.raises(FormulaTooLarge):
        make(operator.join(f"p{n}" for n in range(3_000)))


@pytest.mark.parametrize(
    "what",
    [Monitor("G(paid -> X sent)"), translate(parse("G(paid -> X sent)"))],
    ids=["monitor", "automaton"],
)
def test_a_letter_with_an_unknown_proposition_is_refused(what: Monitor | Automaton) -> None:
    assert what.letter({"sent"}) == 2
    assert what.letter([]) == 0
    with pytest.raises(
        UnknownProposition, match=r"are: paid, sent\. Did you mean 'paid'"
    ) as raised:
        what.letter({"sent", "payd"})
    assert (raised.value.name, raised.value.known) == ("payd", ("paid", "sent"))
