"""LBTT, HOA and pictures."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.base.errors import BuildError
from penstock.streams.pictures.automaton import to_dot, to_svg
from penstock.streams.temporal.automata.automaton import Automaton, Edge
from penstock.streams.temporal.automata.degeneralise import degeneralised
from penstock.streams.temporal.automata.hoa import from_hoa, to_hoa
from penstock.streams.temporal.automata.lbtt import from_lbtt, to_lbtt
from penstock.streams.temporal.automata.translate import translate
from penstock.streams.temporal.automata.words import accepts
from penstock.streams.temporal.errors import AutomatonFormatError
from penstock.streams.temporal.formula.formula import Formula, Proposition, Unary
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.temporal.monitors.monitor import Monitor
from tests.helpers.brute_force import NAMES, Word, formulas, holds, loops, words
from tests.helpers.published_automaton import SPOT
from tests.helpers.walks import examples

SVG = "{http://www.w3.org/2000/svg}"

PUBLISHED = parse("G(soi -> X(!input U (input & Fcoi)))")

HOA = """\
HOA: v1
tool: "by hand" /* a comment
of two lines */
States: 2
Start: 0
AP: 2 "a" "Foo bar"
acc-name: Buchi
Acceptance: 1 Inf(0)
--BODY--
State: 0 "begin"
[!0 | (1&t)] 1 {0}
[0] 0
State: [0&!1] 1 {0}
1
--END--
"""

published_words = st.lists(st.sets(st.sampled_from(["soi", "input", "coi"])), max_size=4)
published_loops = st.lists(
    st.sets(st.sampled_from(["soi", "input", "coi"])), min_size=1, max_size=4
)


def complement(automaton: Automaton) -> Automaton:
    """The complement of a deterministic automaton with an edge for every letter."""
    states = len(automaton)
    edges: list[list[Edge]] = [[] for _ in range(states * (automaton.sets + 1))]
    for state, leaving in enumerate(automaton.edges):
        for edge in leaving:
            edges[state].append(edge._replace(marks=0))
            for one in range(automaton.sets):
                into = edge.target + states * (one + 1)
                edges[state].append(edge._replace(target=into, marks=0))
                if not edge.marks >> one & 1:
                    edges[state + states * (one + 1)].append(edge._replace(target=into, marks=1))
    return Automaton(automaton.propositions, tuple(map(tuple, edges)), automaton.initial, 1)


def both(one: Automaton, other: Automaton) -> Automaton:
    """The words that both accept; they have the same propositions."""
    edges = tuple(
        tuple(
            Edge(a.target * len(other) + b.target, a.care | b.care, a.value | b.value,
                 a.marks | b.marks << one.sets)
            for a in one.edges[state]
            for b in other.edges[beside]
            if not (a.value ^ b.value) & a.care & b.care
        )
        for state in range(len(one))
        for beside in range(len(other))
    )  # fmt: skip
    initial = tuple(a * len(other) + b for a in one.initial for b in other.initial)
    return Automaton(one.propositions, edges, initial, one.sets + other.sets)


def test_the_published_automaton_has_the_same_language_as_ours() -> None:
    theirs = from_lbtt(SPOT, ("soi", "input", "coi"))
    assert (len(theirs), theirs.sets) == (4, 2)
    ours = translate(PUBLISHED, theirs.propositions)
    assert both(ours, complement(theirs)).is_empty()
    assert both(theirs, translate(parse("!(" + "G(soi -> X(!input U (input & Fcoi)))" + ")"),
                                  theirs.propositions)).is_empty()  # fmt: skip


def test_ours_is_no_larger_than_the_published_one_with_one_acceptance_set_either() -> None:
    theirs = from_lbtt(SPOT, ("soi", "input", "coi"))
    ours = translate(PUBLISHED, ("soi", "input", "coi"))
    for one, other in ((ours, theirs), (degeneralised(ours), degeneralised(theirs))):
        assert len(one) == len(other) == 4
        assert sum(map(len, one.edges)) <= sum(map(len, other.edges))


@examples(200)
@given(published_words, published_loops)
def test_the_published_automaton_accepts_the_same_lassos(
    stem: list[set[str]], loop: list[set[str]]
) -> None:
    theirs = from_lbtt(SPOT)
    accepted = accepts(theirs, [*map(theirs.letter, stem)], [*map(theirs.letter, loop)])
    assert accepted == holds(PUBLISHED, [*map(frozenset, stem)], [*map(frozenset, loop)])


@examples(200)
@given(formulas)
def test_lbtt_and_hoa_are_read_back_as_they_were_written(formula: Formula) -> None:
    automaton = translate(formula, NAMES)
    assert from_lbtt(to_lbtt(automaton), NAMES) == automaton
    assert from_hoa(to_hoa(automaton)) == automaton


def test_lbtt_is_read_back_however_many_propositions_a_guard_asks_for() -> None:
    names = tuple(f"p{n}" for n in range(200))
    automaton = Automaton(names, ((Edge(0, (1 << 200) - 1, 5, 0),),), (0,), 0)
    assert from_lbtt(to_lbtt(automaton), names) == automaton


def test_names_that_are_not_words_are_quoted_in_both_formats() -> None:
    automaton = translate(parse('G("Foo bar" | t | "say \\"hi\\"")'))
    assert from_lbtt(to_lbtt(automaton)) == automaton
    assert from_hoa(to_hoa(automaton)) == automaton


@examples(300)
@given(formulas, st.lists(st.tuples(words, loops), min_size=1, max_size=3))
def test_a_buechi_automaton_has_one_set_and_the_same_words(
    formula: Formula, lassos: list[tuple[Word, Word]]
) -> None:
    automaton = degeneralised(translate(formula, NAMES))
    assert automaton.sets <= 1
    for stem, loop in lassos:
        letters = [*map(automaton.letter, stem)], [*map(automaton.letter, loop)]
        assert accepts(automaton, *letters) == holds(formula, stem, loop)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_n_things_that_come_again_and_again_need_n_states(n: int) -> None:
    formula = parse(" & ".join(f"G F p{at}" for at in range(n)))
    assert (len(translate(formula)), translate(formula).sets) == (1, n)
    assert len(degeneralised(translate(formula))) == n


def test_hoa_of_other_tools_is_read() -> None:
    automaton = from_hoa(HOA)
    assert automaton.propositions == ("a", "Foo bar")
    assert automaton.edges == (
        (Edge(0, 1, 1, 0), Edge(1, 1, 0, 1), Edge(1, 2, 2, 1)),
        (Edge(1, 3, 1, 1),),
    )


def test_lbtt_with_acceptance_on_states_is_read() -> None:
    automaton = from_lbtt("2 1s\n0 1 -1\n1 p\n-1\n1 0 0 -1\n1 t\n-1\n")
    assert automaton.edges == ((Edge(1, 1, 1, 0),), (Edge(1, 0, 0, 1),))


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("4 2t", "4 t", 1, "header"),
        ("1 0 1 -1 soi", "7 0 1 -1 soi", 4, "no state 7"),
        ("1 0 1 -1 soi", "1 0 2 -1 soi", 4, "acceptance set 2 of 2"),
        ("1 0 1 -1 soi", "1 0 1 soi", 4, "not an edge"),
        ("! soi\n", "! \n", 3, "ends too early"),
        ("! soi\n", "! soi soi\n", 3, "goes on"),
        ("1 0\n", "0 0\n", 6, "twice"),
        ("3 0\n", "3\n", 21, "not a state such as"),
        ("4 2t", "5 2t", 26, "the text ends"),
        ("4 2t", "3 2t", 21, "goes on"),
    ],
)
def test_a_malformed_lbtt_is_reported_with_its_line(
    old: str, new: str, line: int, problem: str
) -> None:
    with pytest.raises(AutomatonFormatError, match=problem) as raised:
        from_lbtt(SPOT.replace(old, new, 1))
    assert raised.value.line == line


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("v1", "v2", 1, "v1"),
        ("Acceptance: 1 Inf(0)", "Acceptance: 1 Fin(0)", 8, "Büchi"),
        ("Acceptance: 1 Inf(0)", "Acceptance: 2 Inf(0)|Inf(1)", 8, "Büchi"),
        ("Acceptance: 1 Inf(0)", "Acceptance: 2 (Inf(0)|Inf(1))", 8, "`\\)` should be"),
        ("Acceptance: 1 Inf(0)", "Acceptance: 1 (Inf(0)", 9, "`\\)` should be"),
        ("Start: 0", "Start: 0&1", 5, "alternation"),
        ("[0] 0", "[0] 0&1", 12, "alternation"),
        ("AP: 2", "Alias: x 0\nAP: 2", 6, "begins with @"),
        ("AP: 2", "Alias: @x 0\nAlias: @x 1\nAP: 2", 7, "new name"),
        ("AP: 2", "Alias: @x @y\nAP: 2", 6, "no alias @y before"),
        ("AP: 2", "Alias: @x 7\nAP: 2", 6, "no proposition 7"),
        ("AP: 2", "Alias: @x 0 1\nAP: 2", 6, "not expected"),
        ("[0] 0", "[@x] 0", 12, "no alias @x"),
        ("[0] 0", "0", 12, "either all have labels, or none"),
        ("Start: 0", "States: 2\nStart: 0", 5, "`States:` comes twice"),
        ("Start: 0", "Acceptance: 1 Inf(0)\nStart: 0", 9, "`Acceptance:` comes twice"),
        ("Start: 0", 'AP: 0\nStart: 0', 7, "`AP:` comes twice"),
        ("Start: 0", "Namé: 0\nStart: 0", 5, "not expected"),
        ("Start: 0", "/* a /* b */\nStart: 0", 5, "does not end"),
        ("States: 2", "States: 3", 16, "state 2 is announced, and not defined"),
        ("[0] 0", "[5] 0", 12, "no proposition 5"),
        ("[0] 0", "[0] 9", 12, "no state 9"),
        ("1 {0}\n[0]", "1 {3}\n[0]", 11, "acceptance set 3 of 1"),
        ("--END--", "", 16, "should be where"),
        ("Acceptance: 1 Inf(0)\n", "", 9, "Acceptance.* is missing"),
        ("acc-name: Buchi", "Players: 2", 7, "Players.* is not supported"),
        ("--END--", "--END--\nHOA: v1", 16, "only one automaton is read"),
    ],
)  # fmt: skip
def test_a_malformed_hoa_is_reported_with_its_line_and_the_feature(
    old: str, new: str, line: int, problem: str
) -> None:
    with pytest.raises(AutomatonFormatError, match=problem) as raised:
        from_hoa(HOA.replace(old, new, 1))
    assert raised.value.line == line


def hoa(body: str, *headers: str) -> Automaton:
    usual = ["HOA: v1", "Start: 0", 'AP: 2 "a" "b"', "Acceptance: 1 Inf(0)"]
    return from_hoa("\n".join([*usual, *headers, "--BODY--", body, "--END--"]))


def test_comments_nest() -> None:
    plain = hoa("State: 0\n[t] 0 {0}")
    assert hoa("State: 0 /* a /* b */ c /**/ */\n[t] 0 /*/**/\n*/ {0}") == plain


def test_an_alias_stands_for_its_label_wherever_the_propositions_are_named() -> None:
    plain = hoa("State: 0\n[!0 & 1 | 0 & 1] 0 {0}")
    assert hoa("State: 0\n[@either & @x-1] 0 {0}", "Alias: @x-1 1", "Alias: @either !0|0") == plain
    text = 'HOA: v1\nAlias: @b 1\nAlias: @c @b & (0 | !0)\nStart: 0\nAP: 2 "a" "b"\n'
    text += "Acceptance: 1 Inf(0)\n--BODY--\nState: 0\n[@c] 0 {0}\n--END--"
    assert from_hoa(text) == plain


def test_edges_without_labels_are_those_of_the_sets_of_propositions_in_order() -> None:
    labelled = "State: 0\n[!0&!1] 0\n[0&!1] 1\n[!0&1] 0 {0}\n[0&1] 1 {0}\nState: 1\n[t] 1"
    assert hoa("State: 0\n0 1 0 {0} 1 {0}\nState: 1\n[t] 1") == hoa(labelled)


@pytest.mark.parametrize("edges", ["0 0 0", "0 0 0 0 0", "0 [0] 0", "0 0 0 0 [t] 0"])
def test_edges_without_labels_are_as_many_as_there_are_sets_of_propositions(edges: str) -> None:
    with pytest.raises(AutomatonFormatError, match="one for each of the 4 sets of propositions"):
        hoa(f"State: 0 {edges}")


@pytest.mark.parametrize(
    ("body", "is_it"),
    [
        ("State: 0\n[0] 0\n[!0] 0 {0}", True),
        ("State: 0\n[0 | 1] 0", True),
        ("State: 0\n[0] 0\n[1] 0 {0}", False),
        ("State: 0\n[0] 0\n[1] 1\nState: 1\n[t] 1", False),
    ],
)
def test_an_automaton_that_is_called_deterministic_is_so(body: str, is_it: bool) -> None:
    if is_it:
        hoa(body, "properties: complete deterministic")
    else:
        with pytest.raises(AutomatonFormatError, match="called deterministic, and is not"):
            hoa(body, "properties: trans-acc", "properties: deterministic")
        hoa(body)


@pytest.mark.parametrize("what", [translate(PUBLISHED), Monitor("G(a -> X b)")], ids=["a", "m"])
def test_pictures_show_every_state_and_every_label(what: Automaton | Monitor) -> None:
    states = len(what) if isinstance(what, Automaton) else len(what.verdicts)
    dot = to_dot(what)
    assert dot.count("shape=point") == 1
    assert all(f"    {state} [label=" in dot for state in range(states))
    picture = ElementTree.fromstring(to_svg(what))
    text = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert len([element for element in picture.iter() if element.get("class") == "state"]) == states
    assert any("soi" in str(one) or "a" in str(one) for one in text)


@pytest.mark.parametrize(
    ("formula", "names", "bounds"),
    [
        ("G(a -> F[<=10s] b)", "??⊥", {(0, 2), (1, 2)}),
        ("F[<=10s] b", "???⊥", {(1, 3), (2, 3)}),
        ("{a; b} |-> G[<=5s] c", "???⊥?", {(1, 3), (4, 3)}),
        # Once a part is violated the whole is, so that no bound is violated once more.
        ("F[<=1s] a & G b", "?⊥??", {(2, 1), (3, 1)}),
        ("G(a -> F[<=1s] b) & G(c -> X d)", "????⊥", {(0, 4), (1, 4), (2, 4), (3, 4)}),
    ],
)
def test_a_picture_of_bounds_in_time_leads_from_where_one_is_open_to_its_violation(
    formula: str, names: str, bounds: set[tuple[int, int]]
) -> None:
    monitor = Monitor(formula)
    dot = to_dot(monitor)
    drawn = re.findall(r'^    (\d+) \[label="(.)"\]', dot, re.MULTILINE)
    bound = re.findall(r'(\d+) -> (\d+) \[label="([^"]*)bound in time"\]', dot)
    dashed = [(source, target) for source, target, guard in bound if not guard]
    assert "".join(name for _, name in drawn) == names
    # One arc at most between two states, so that none lies on another.
    arcs = re.findall(r"^    (\d+) -> (\d+)", dot, re.MULTILINE)
    assert len(arcs) == len(set(arcs))
    assert {(int(source), int(target)) for source, target, _ in bound} == bounds
    assert to_svg(monitor).count('class="edge dashed"') == len(dashed)


class Area(NamedTuple):
    """Of a text or a state in a picture, in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Area) -> bool:
        return (
            min(self.right, other.right) > max(self.left, other.left)
            and min(self.bottom, other.bottom) > max(self.top, other.top)
        )  # fmt: skip


def areas(picture: ElementTree.Element) -> tuple[list[Area], list[Area]]:
    """The labels of a picture, with letters of six pixels, and its states."""

    def numbers(element: ElementTree.Element, *names: str) -> list[float]:
        return [float(element.get(name, 0)) for name in names]

    labels: list[Area] = []
    for text in picture.iter(f"{SVG}text"):
        if text.get("class") == "label":
            (x, y), half = numbers(text, "x", "y"), 3 * len(text.text or "")
            labels.append(Area(x - half, y - 10, x + half, y + 2))
    states = [
        Area(x - r, y - r, x + r, y + r)
        for x, y, r in (numbers(one, "cx", "cy", "r") for one in picture.iter(f"{SVG}circle"))
        if r == 20
    ]
    return labels, states


@pytest.mark.parametrize(
    "what",
    [
        translate(PUBLISHED),
        from_lbtt(SPOT),
        translate(parse("G(request -> X(!cancelled U granted)) & G F idle")),
        translate(parse("(a U b) | G c")),
        Monitor('G("a very long name of an event" -> X "another long name")'),
        Monitor("always ({begin; work[*]; end} |=> next_e[1..2] cleaned)"),
        Monitor("G(a -> F[<=10s] b) & G(c -> X d)"),
    ],
)
def test_no_label_of_a_picture_covers_another_or_a_state_or_is_cut_off(
    what: Automaton | Monitor,
) -> None:
    picture = ElementTree.fromstring(to_svg(what, lines=isinstance(what, Automaton)))
    labels, states = areas(picture)
    assert len(labels) > 5
    covered = [
        (one, other)
        for at, one in enumerate(labels)
        for other in (*labels[:at], *states)
        if one.overlaps(other)
    ]
    assert covered == []
    width, height = float(picture.get("width", 0)), float(picture.get("height", 0))
    assert all(one.left > 0 and one.right < width for one in labels)
    assert all(one.top > 0 and one.bottom < height for one in (*labels, *states))


def test_too_many_states_are_not_drawn() -> None:
    with pytest.raises(BuildError, match="Graphviz"):
        to_svg(translate(parse("X[70] a")))


@pytest.mark.parametrize("name", ["a\nb", "a\u2028b", "a\x85b", 'a"\n\\b'])
def test_a_name_with_a_line_break_is_read_back(name: str) -> None:
    automaton = translate(Unary("G", Proposition(name)))
    assert from_lbtt(to_lbtt(automaton)) == automaton
    assert from_hoa(to_hoa(automaton)) == automaton


def test_a_name_over_several_lines_counts_as_several() -> None:
    in_two = '"a\nb"'
    automaton = from_lbtt(f"1 1s\n0 1 0 -1\n0 {in_two}\n-1\n")
    assert (automaton.propositions, automaton.edges) == (("a\nb",), ((Edge(0, 1, 1, 1),),))
    for rest, problem, line in [
        (f"0 {in_two}\n9 t\n-1\n", "no state 9", 5),
        (f'0 & {in_two} "a\n-1\n', "a name has no end", 4),
        ('0 "a\\\nb"\n-1\n', "a name has no end", 3),
    ]:
        with pytest.raises(AutomatonFormatError, match=problem) as raised:
            from_lbtt(f"1 0s\n0 1\n{rest}")
        assert raised.value.line == line


def test_a_condition_of_several_sets_may_be_in_parentheses() -> None:
    automaton = translate(parse("G F a & G F b & G F c"))
    text = to_hoa(automaton)
    assert "Inf(0)&Inf(1)&Inf(2)" in text
    for condition in ("(Inf(0)&Inf(1)&Inf(2))", "Inf(2) & (Inf(1) & (Inf(0)))"):
        assert from_hoa(text.replace("Inf(0)&Inf(1)&Inf(2)", condition)) == automaton


@pytest.mark.parametrize("read", [from_hoa, from_lbtt])
def test_only_text_can_be_an_automaton(read: Any) -> None:
    with pytest.raises(TypeError, match="an automaton is a text, not NoneType"):
        read(None)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("States: 2", "States: 100000000"),
        ("States: 2", "States: " + "9" * 5_000),
        ("1 Inf(0)", "100000000 Inf(0)"),
        ("1 Inf(0)", "1 " + "(" * 5_000 + "Inf(0)" + ")" * 5_000),
        ("[0] 0", "[" + "!" * 5_000 + "0] 0"),
        ("[0] 0", "[" + "(" * 5_000 + "0" + ")" * 5_000 + "] 0"),
        ('"Foo bar"', '"a"'),
    ],
)
def test_a_small_hoa_text_costs_little_and_is_refused_with_its_line(old: str, new: str) -> None:
    assert_refused_cheaply(from_hoa, HOA.replace(old, new))


@pytest.mark.parametrize(
    "text",
    [
        "100000000 0t\n0 1\n-1\n",
        "1 100000000t\n0 1\n0 99999999 -1 t\n-1\n",
        "1 1t\n0 1\n" + "9" * 5_000 + " -1 t\n-1\n",
        "1 1t\n0 1\n0 -1 " + "! " * 20_000 + "a\n-1\n",
        "1 1t\n0 1\n0 -1 " + "& " * 20_000 + "a\n-1\n",
        '1 1t\n0 1\n0 -1 "a\n-1\n',
    ],
)
def test_a_small_lbtt_text_costs_little_and_is_refused_with_its_line(text: str) -> None:
    assert_refused_cheaply(from_lbtt, text)


def assert_refused_cheaply(read: Any, text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(AutomatonFormatError, match=r"^line \d+: "):
            read(text)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
