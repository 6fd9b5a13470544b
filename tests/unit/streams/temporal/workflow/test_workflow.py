from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import collect, from_iterable, run, violations
from penstock.streams.base.errors import CannotOpen
from penstock.streams.temporal.automata.automaton import Automaton
from penstock.streams.temporal.automata.translate import translate
from penstock.streams.temporal.errors import FormulaSyntaxError, UnknownProposition
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.temporal.monitors.monitor import Monitor
from penstock.streams.temporal.monitors.verdict import Verdict
from penstock.streams.temporal.workflow.paths import counter_example, counter_examples
from penstock.streams.temporal.workflow.rule import BrokenRule, Rule, conditions
from penstock.streams.temporal.workflow.space import SearchTooLarge
from penstock.streams.temporal.workflow.workflow import Node, Workflow, WorkflowError, read_workflow
from tests.helpers.brute_force import holds

SHOP = {
    "start": {"goto": ["cart"]},
    "cart": {"goto": ["pay", "cart", "ship"], "labels": ["open"]},
    "pay": {"goto": ["ship"], "input": "card", "labels": ["open"]},
    "ship": {"goto": "end"},
    "end": {},
}


def shop(**changes: dict[str, Any]) -> Workflow:
    return Workflow.of({**SHOP, **changes})


def paths(workflow: Workflow, rule: Rule, most: int = 20, **options: Any) -> list[str]:
    return [str(one) for one in islice(counter_examples(workflow, rule, **options), most)]


# The story.


def test_a_path_from_the_beginning_to_the_end_breaks_a_rule_that_forbids_it() -> None:
    rule = Rule("no way", initial="start", final="end")
    found = counter_example(shop(), rule)
    assert found is not None
    assert str(found) == "start -> cart -> ship -> end"
    assert found.arcs == ("goto", "goto", "goto")


def test_a_step_with_an_input_may_follow_any_other() -> None:
    found = counter_example(shop(), Rule("late payment", initial="end", final="ship"))
    assert found is not None
    assert (str(found), found.arcs) == ("end -> pay -> ship", ("input", "goto"))


def test_a_formula_is_broken_by_a_path_that_it_fails_on() -> None:
    rule = Rule("pay first", initial="start", final="end", formula="!ship W pay")
    found = counter_example(shop(), rule)
    assert found is not None
    assert str(found) == "start -> cart -> ship -> end"
    assert found.letters == (frozenset(), frozenset(), {"ship"}, frozenset())


def test_a_workflow_that_keeps_a_rule_has_no_counter_example() -> None:
    rule = Rule("pay first", initial="start", final="end", formula="!ship W pay")
    workflow = shop(cart={"goto": ["pay", "cart"]})
    assert counter_example(workflow, rule) is None
    assert paths(workflow, rule) == []


def test_all_paths_come_shortest_first_and_go_round_in_circles_only_as_far_as_asked() -> None:
    rule = Rule("pay first", initial="start", final="end", formula="!ship W pay")
    assert paths(shop(), rule, most=4) == [
        "start -> cart -> ship -> end",
        "start -> cart -> cart -> ship -> end",
        "start -> cart -> cart -> cart -> ship -> end",
        "start -> cart -> ship -> pay -> ship -> end",
    ]
    assert len(paths(shop(), rule, max_nodes=5)) == 2


def test_a_path_without_end_breaks_a_rule_by_a_stem_and_a_loop() -> None:
    found = counter_example(shop(), Rule("ends", initial="start", formula="F (ship | pay)"))
    assert found is not None
    assert (str(found), found.loop) == ("start -> (cart) again and again", 1)
    assert found.steps == [("start", "cart"), ("cart", "cart")]


def test_a_rule_can_be_an_exception() -> None:
    rule = Rule("no way", initial="start", final="end")
    with pytest.raises(BrokenRule, match="'no way' is broken by start -> cart -> ship -> end"):
        counter_example(shop(), rule, raise_on=True)


def test_a_counter_example_is_described_with_its_rule_and_a_line_for_each_step() -> None:
    finite = counter_example(shop(), Rule("pay first", "start", "end", "!ship W pay"))
    assert finite is not None
    assert finite.describe() == (
        "pay first: BROKEN, !ship W pay fails\n"
        "    begins     start\n"
        "    by goto    cart\n"
        "    by goto    ship   ship\n"
        "    by goto    end"
    )
    endless = counter_example(shop(), Rule("ends", "start", formula="F (ship | pay)"))
    assert endless is not None
    assert endless.describe() == (
        "ends: BROKEN, F(ship | pay) fails\n"
        "    begins     start\n"
        "    by goto    cart\n"
        "    by goto    cart  again, and so on for ever"
    )
    bare = counter_example(shop(), Rule("late payment", "end", "pay"))
    assert bare is not None
    assert bare.describe() == "late payment: BROKEN\n    begins     end\n    by input   pay"


def test_a_rule_lacks_the_steps_and_labels_that_it_names_and_a_workflow_does_not_have() -> None:
    rule = Rule("r", "start", "gone", "F open & G !(lost | start)")
    assert rule.lacking(shop()) == ["gone", "lost"]
    assert Rule("r", lambda node: False, "end", "F input").lacking(shop()) == []


def test_where_a_path_may_go_can_depend_on_where_it_has_been() -> None:
    rule = Rule("no way", initial="start", final="end")
    assert paths(shop(ship={"goto": "end", "through": "pay"}), rule, most=1) == [
        "start -> pay -> ship -> end"
    ]
    assert paths(shop(ship={"goto": "end", "not_through": "start"}), rule) == []
    both = shop(ship={"goto": "end", "not_through": "start", "through": "pay"})
    assert paths(both, rule, most=1) == ["start -> pay -> ship -> end"]


def test_arcs_of_ones_own_may_see_the_whole_path() -> None:
    def no_step_twice_in_a_row(node: Node, path: tuple[str, ...]) -> bool:
        return node.name != path[-1]

    rule = Rule(
        "no way", "start", "end", arcs=no_step_twice_in_a_row, sees="path", max_nodes=6
    )  # fmt: skip
    found = paths(shop(), rule)
    assert found[0] == "start -> cart -> ship -> end"
    assert not any("cart -> cart" in path for path in found)
    assert all(path.count("->") < 6 for path in found)


def test_the_published_formula_is_checked_on_a_graph() -> None:
    """After soi nothing is input until there is an input after which coi comes."""
    nodes = {
        "soi": {"goto": "ask"},
        "ask": {"goto": "form"},
        "form": {"input": "name", "goto": "coi"},
        "coi": {},
    }
    formula = "G(soi -> X(!input U (input & F coi)))"
    assert counter_example(Workflow.of(nodes), Rule("served", "soi", "coi", formula)) is None
    found = counter_example(Workflow.of(nodes), Rule("served", "soi", formula=formula))
    assert found is None  # no path goes on for ever without coi ...
    nodes["form"]["goto"] = "ask"
    found = counter_example(Workflow.of(nodes), Rule("served", "soi", formula=formula))
    assert str(found) == "soi -> (form -> ask) again and again"


# The law: small random graphs against brute force.

NAMES = "abcd"
subsets = st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple)


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    return Workflow(
        Node(
            name,
            goto=draw(subsets),
            input=draw(st.sampled_from([(), (), ("i",)])),
            through=draw(st.just(()) | subsets),
            not_through=draw(st.just(()) | subsets),
            labels=draw(st.lists(st.sampled_from("pq"), max_size=2, unique=True).map(tuple)),
        )
        for name in NAMES
    )


selectors = st.lists(st.sampled_from(NAMES), min_size=1, max_size=2).map(
    lambda names: lambda node: node.name in names
)
FORMULAS = [
    "G(p -> X q)", "!q W p", "F(p & X F q)", "G F p", "p U (q | a)", "X p | X !p",
    "G(a -> !F b)", "{p;q} |=> b", "F G !p",
]  # fmt: skip


def with_facts(workflow: Workflow) -> Workflow:
    """One more node, out of reach, so that every formula's names are facts of some node."""
    return Workflow([*workflow.nodes.values(), Node("z", labels=("p", "q"))])


def walks(workflow: Workflow, rule: Rule, longest: int) -> Iterator[tuple[str, ...]]:
    """All paths that the rule allows, by the definition, shortest first."""
    assert callable(rule.initial)
    nodes = workflow.nodes
    layer = [(name,) for name in nodes if rule.initial(nodes[name])]
    for _ in range(longest):
        yield from layer
        layer = [
            (*path, name)
            for path in layer
            for name in nodes
            if name in nodes[path[-1]].goto or (nodes[name].input and name != path[-1])
            if allowed(nodes[name], path)
        ]


def allowed(node: Node, path: tuple[str, ...]) -> bool:
    if any(name in path for name in node.through):
        return True
    if any(name in path for name in node.not_through):
        return False
    return not node.through


def fails_when_run(formula: str, workflow: Workflow, path: tuple[str, ...]) -> bool:
    """The verdict of the monitor on the path's nodes as events, one after another."""
    monitor = Monitor(formula)
    state = monitor.first
    for name in path:
        facts = workflow.nodes[name].facts
        state = monitor.step(state, monitor.letter(facts & set(monitor.propositions)))
    return monitor.at_end(state) is Verdict.FALSE


@given(workflows(), selectors, selectors, st.none() | st.sampled_from(FORMULAS), st.integers(1, 3))
def test_the_paths_found_are_those_that_exist_in_order_of_length(
    small: Workflow, initial: Any, final: Any, formula: str | None, least: int
) -> None:
    workflow = with_facts(small)
    rule = Rule("r", initial, final, formula, min_nodes=least)
    expected = [
        path
        for path in walks(workflow, rule, 5)
        if len(path) >= least
        and final(workflow.nodes[path[-1]])
        and (formula is None or fails_when_run(formula, workflow, path))
    ]
    found = [one.path for one in counter_examples(workflow, rule, max_nodes=5)]
    assert [len(path) for path in found] == [len(path) for path in expected]
    assert sorted(found) == sorted(expected)
    shortest = counter_example(workflow, rule)
    if expected:
        assert shortest is not None
        assert len(shortest.path) == len(expected[0])
        assert shortest.path in expected
    elif shortest is not None:
        assert len(shortest.path) > 5


@given(workflows(), selectors, selectors)
def test_arcs_that_see_the_path_or_the_visited_steps_agree(
    workflow: Workflow, initial: Any, final: Any
) -> None:
    told = [
        [one.path for one in counter_examples(workflow, rule, max_nodes=4)]
        for rule in (
            Rule("r", initial, final),
            Rule("r", initial, final, arcs=lambda node, seen: conditions(node, seen)),
            Rule("r", initial, final, arcs=allowed, sees="path", max_nodes=4),
        )
    ]
    assert told[0] == told[1] == told[2]


@settings(max_examples=40)
@given(workflows(), st.sampled_from(FORMULAS), st.randoms())
def test_the_check_of_a_path_and_the_watch_over_its_steps_as_events_give_one_answer(
    small: Workflow, formula: str, random: Any
) -> None:
    workflow = with_facts(small)
    path = ["a"]
    while workflow.following(path[-1]) and len(path) < 6:
        path.append(random.choice(list(workflow.following(path[-1]))))

    def only_this_way(node: Node, seen: tuple[str, ...]) -> bool:
        return [*seen, node.name] == path[: len(seen) + 1]

    rule = Rule(
        "r", "a", path[-1], formula,
        arcs=only_this_way, sees="path", min_nodes=len(path), max_nodes=len(path),
    )  # fmt: skip
    facts = {name: node.facts for name, node in workflow.nodes.items()}
    tests = {name: (lambda step, name=name: name in facts[step]) for name in workflow.facts}
    told: list[Any] = []
    run(from_iterable(path).pipe(violations(rule.formula, where=tests)).to(collect(told)))
    assert bool(told) == (counter_example(workflow, rule) is not None)


def lassos(workflow: Workflow, rule: Rule) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Lassos of up to five nodes whose loop returns to a state with all visited nodes."""
    for path in walks(workflow, rule, 6):
        for begin, place in enumerate(path[:-1]):
            if place == path[-1] and set(path[: begin + 1]) == set(path):
                yield path[:begin], path[begin:-1]


@given(workflows(), selectors, st.sampled_from(FORMULAS))
def test_a_lasso_is_found_where_there_is_one(small: Workflow, initial: Any, formula: str) -> None:
    workflow = with_facts(small)
    rule = Rule("r", initial, formula=formula)

    def broken_by(stem: tuple[str, ...], loop: tuple[str, ...]) -> bool:
        words = [[workflow.nodes[name].facts for name in part] for part in (stem, loop)]
        return not holds(parse(formula), words[0], words[1])

    found = counter_example(workflow, rule)
    if found is None:
        assert not any(broken_by(stem, loop) for stem, loop in lassos(workflow, rule))
        return
    assert found.loop is not None
    stem, loop = found.path[: found.loop], found.path[found.loop :]
    assert broken_by(stem, loop)
    whole = [*stem, *loop, *loop, loop[0]]
    for at, name in enumerate(whole[1:], 1):
        assert name in workflow.following(whole[at - 1])
        assert allowed(workflow.nodes[name], tuple(whole[:at]))
    # Nothing of the stem is repeated in the loop.
    assert not stem or stem[-1] != loop[-1]


def shortest_in_the_product(
    workflow: Workflow, rule: Rule, automaton: Automaton
) -> tuple[int, int] | None:
    """The lengths of the stem and the loop, by trying each length with all its runs."""
    assert callable(rule.initial)
    nodes, names = workflow.nodes, frozenset(automaton.propositions)
    every = (1 << automaton.sets) - 1
    # Two paths that differ in other nodes only may go on in the same ways.
    watched = {name for node in nodes.values() for name in (*node.through, *node.not_through)}

    def steps(state: tuple[str, frozenset[str], int]) -> Iterator[tuple[Any, int]]:
        name, seen, at = state
        for edge in automaton.edges[at]:
            if edge.allows(automaton.letter(nodes[name].facts & names)):
                for other in workflow.following(name):
                    if allowed(nodes[other], tuple(seen)):
                        yield (other, seen | {other} & watched, edge.target), edge.marks

    def length_of_loop(start: Any) -> int | None:
        layer, known, length = {(start, 0)}, set[Any](), 0
        while layer:
            known |= layer
            layer = {(to, had | its) for state, had in layer for to, its in steps(state)}
            length += 1
            if (start, every) in layer:
                return length
            layer -= known
        return None

    layer = {
        (name, frozenset({name} & watched), at)
        for name in nodes
        if rule.initial(nodes[name])
        for at in automaton.initial
    }
    known = set[Any]()
    for stem in count():
        if not layer:
            return None
        loops = [loop for state in layer if (loop := length_of_loop(state)) is not None]
        if loops:
            return stem, min(loops)
        known |= layer
        layer = {to for state in layer for to, _ in steps(state)} - known
    return None


@given(workflows(), selectors, st.sampled_from(FORMULAS))
def test_a_lasso_has_the_shortest_stem_and_then_loop_beside_the_automaton_or_shorter_ones(
    small: Workflow, initial: Any, formula: str
) -> None:
    workflow = with_facts(small)
    rule = Rule("r", initial, formula=formula)
    found = counter_example(workflow, rule)
    least = shortest_in_the_product(workflow, rule, translate(parse(f"!({formula})")))
    assert (found is None) == (least is None)
    if found is not None and least is not None:
        assert found.loop is not None
        loop = len(found.path) - found.loop
        # Without the steps that only the automaton needed.
        assert found.loop <= least[0]
        assert least[1] % loop == 0
    first = next(counter_examples(workflow, rule), None)
    assert (first is None) == (found is None)
    if first is not None and found is not None:
        assert (first.loop, len(first.path)) <= (found.loop, len(found.path))


@given(workflows(), selectors, st.sampled_from(FORMULAS))
def test_many_lassos_are_all_different_and_each_breaks_the_rule(
    small: Workflow, initial: Any, formula: str
) -> None:
    workflow = with_facts(small)
    rule = Rule("r", initial, formula=formula)
    found = list(islice(counter_examples(workflow, rule), 20))
    assert len(set(map(str, found))) == len(found)
    for one in found:
        assert one.loop is not None
        words = [
            [workflow.nodes[name].facts for name in part]
            for part in (one.path[: one.loop], one.path[one.loop :])
        ]
        assert not holds(parse(formula), words[0], words[1])
        for a, b in one.steps:
            assert b in workflow.following(a)
    shortest = counter_example(workflow, rule)
    assert (shortest is None) == (not found)
    if shortest is not None:
        assert found[0].loop is not None
        assert shortest.loop is not None
        assert (found[0].loop, len(found[0].path)) <= (shortest.loop, len(shortest.path))


def test_lassos_with_different_loops_are_all_found() -> None:
    nodes = {"a": {"goto": "b"}, "b": {"goto": ["b", "c", "d"]}, "c": {"goto": "b"}, "d": {}}
    workflow = Workflow([Node(name, **facts) for name, facts in nodes.items()])
    told = [str(one) for one in counter_examples(workflow, Rule("r", "a", formula="F d"))]
    assert told == ["a -> (b) again and again", "a -> (b -> c) again and again"]
    short = counter_examples(workflow, Rule("r", "a", formula="F d"), max_nodes=2)
    assert [str(one) for one in short] == told[:1]


# Bad workflows and rules.


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ({}, "the workflow has no nodes"),
        (
            {"start": {"goto": "strat"}},
            "'start' has goto 'strat', which is not a node. Did you mean",
        ),
        ({"a": {"through": ["b"]}}, "'a' has through 'b', which is not a node"),
        ({"a": {"not_through": "b"}}, "'a' has not_through 'b', which is not a node"),
        ({"a": {"gotto": "a"}}, "'gotto', which is not a fact: .* Did you mean 'goto'"),
        ({"a": {"goto": [1]}}, "a text or a list of texts is needed"),
        ({"a": {"input": True}}, "a text or a list of texts is needed"),
        ({"a": ["b"]}, "must be an object of its facts"),
        (["a"], "must be an object of nodes by name"),
    ],
)
def test_a_bad_workflow_is_explained(nodes: Any, said: str) -> None:
    with pytest.raises(WorkflowError, match=said):
        Workflow.of(nodes)


def test_two_nodes_of_one_name_are_refused() -> None:
    with pytest.raises(WorkflowError, match="two nodes named 'a'"):
        Workflow([Node("a"), Node("a")])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "neither final nodes nor a formula"),
        ({"final": "a", "sees": "path"}, "needs max_nodes"),
        ({"final": "a", "sees": "all"}, 'must be "visited" or "path"'),
        ({"final": "a", "min_nodes": 0}, "1 <= min_nodes <= max_nodes"),
        ({"final": "a", "min_nodes": 3, "max_nodes": 2}, "1 <= min_nodes <= max_nodes"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(options: Any, said: str) -> None:
    with pytest.raises(WorkflowError, match=said):
        Rule("r", "a", **options)


def test_a_bad_formula_is_explained_when_the_rule_is_made() -> None:
    with pytest.raises(FormulaSyntaxError):
        Rule("r", "a", formula="a U")


def test_a_formula_about_what_is_true_of_no_node_is_explained() -> None:
    rule = Rule("r", "start", "end", formula="G !shipp")
    with pytest.raises(UnknownProposition, match="Did you mean 'ship'"):
        counter_example(shop(), rule)


@pytest.mark.parametrize("options", [{"final": "nd"}, {"initial": "nd", "final": "end"}])
def test_initial_and_final_nodes_that_do_not_exist_are_errors(options: Any) -> None:
    with pytest.raises(WorkflowError, match="'nd' is neither a node nor a label of one: there are"):
        counter_example(shop(), Rule("r", **{"initial": "start", **options}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"initial": lambda node: False, "final": "end"}, "it selects no initial node"),
        ({"initial": "start", "final": lambda node: False}, "it selects no final node"),
        ({"initial": "start", "final": "end"}, None),
        ({"initial": "start", "formula": "F end"}, None),
    ],
)
def test_a_rule_that_selects_no_node_is_kept_but_says_nothing(
    options: Any, said: str | None
) -> None:
    rule = Rule("r", **options)
    assert rule.vacuous(shop()) == said
    if said:
        assert counter_example(shop(), rule) is None
        assert paths(shop(), rule) == []


def test_a_rule_about_paths_without_end_says_nothing_where_all_come_to_one() -> None:
    nodes = [Node("a", goto=("b",)), Node("b"), Node("c", goto=("c",))]
    workflow = Workflow(nodes)
    rule = Rule("r", "a", formula="F c")
    assert rule.vacuous(workflow) == "every path from its initial nodes comes to an end"
    assert counter_example(workflow, rule) is None
    assert paths(workflow, rule) == []
    assert Rule("r", "c", formula="F a").vacuous(workflow) is None
    # Where there is an input, whatever comes to an end can still go there, but not from itself.
    waiting = Workflow([*nodes, Node("d", input=("card",))])
    assert rule.vacuous(waiting) is not None
    assert rule.vacuous(Workflow([*nodes, Node("d", goto=("b",), input=("card",))])) is None


def test_a_search_that_grows_too_large_says_so() -> None:
    nodes = [Node(str(n), goto=tuple(map(str, range(12)))) for n in range(12)]
    nodes.append(Node("end"))
    rule = Rule("r", "0", "end", arcs=lambda node, seen: len(seen) < 11)
    with pytest.raises(SearchTooLarge, match=r"rule 'r': the search reached .* limit"):
        counter_example(Workflow(nodes), rule, max_states=500)


def test_stems_that_are_too_many_say_so() -> None:
    nodes = [Node(str(n), goto=tuple(map(str, range(8)))) for n in range(8)]
    rule = Rule("r", "0", formula='F "none"')
    workflow = Workflow([*nodes, Node("none")])
    with pytest.raises(SearchTooLarge, match=r"rule 'r': the search reached .* limit") as raised:
        list(counter_examples(workflow, rule, max_states=500))
    # No longer path is made to find out.
    assert raised.value.reached == 501


def test_a_workflow_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "shop.json"
    path.write_text(json.dumps({"nodes": SHOP}))
    assert list(read_workflow(path).nodes) == list(SHOP)
    path.write_text(json.dumps({"nodes": SHOP}), encoding="utf-8-sig")
    assert list(read_workflow(path).nodes) == list(SHOP)
    for text, said in [
        ("{", "cannot be read as JSON"),
        ('{"nodes": {"a": {}, "a": {}}}', "'a' is there twice"),
        ("[]", 'has no "nodes"'),
        ('{"nodes": []}', "object"),
    ]:
        path.write_text(text)
        with pytest.raises(WorkflowError, match=f"shop.json.*{said}"):
            read_workflow(path)
    with pytest.raises(CannotOpen, match="Cannot read"):
        read_workflow(tmp_path / "none.json")


def inputs(number: int) -> Workflow:
    """All of them may follow any other."""
    return Workflow.of({**{f"n{i}": {"input": "x"} for i in range(number)}, "z": {}})


@pytest.mark.parametrize("final", ["z", None])
def test_a_search_stops_at_the_first_state_too_many(final: str | None) -> None:
    rule = Rule("r", "n0", final, formula="G !z" if final is None else None, arcs=lambda *_: True)
    with pytest.raises(SearchTooLarge, match="1,001 states, and 1,000 is the limit") as raised:
        counter_example(inputs(300), rule, max_states=1_000)
    assert (raised.value.reached, raised.value.limit) == (1_001, 1_000)


def test_a_search_stops_when_it_has_looked_at_too_many_arcs() -> None:
    asked = 0

    def arcs(node: Node, visited: frozenset[str]) -> bool:
        nonlocal asked
        asked += 1
        return False

    rule = Rule("r", lambda node: True, "n1", min_nodes=2, arcs=arcs)
    with pytest.raises(SearchTooLarge, match="arcs, and 3,000 is the limit"):
        counter_example(inputs(200), rule, max_states=300)
    assert 2_500 < asked <= 3_000
    rule = Rule("r", "n0", "z", min_nodes=9, arcs=lambda *_: False)
    assert counter_example(inputs(11), rule, max_states=1) is None
    with pytest.raises(SearchTooLarge, match="11 arcs, and 10 is the limit"):
        counter_example(inputs(12), rule, max_states=1)


@pytest.mark.parametrize("final", ["z", None])
def test_the_arcs_of_a_workflow_are_not_written_out_all_at_once(final: str | None) -> None:
    workflow = inputs(2_000)
    rule = Rule("r", "n0", final, formula="G !z")
    tracemalloc.start()
    try:
        with pytest.raises(SearchTooLarge):
            counter_example(workflow, rule, max_states=1_000)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_nodes": "x"},
        {"min_nodes": True},
        {"max_nodes": 2.5},
        {"max_nodes": "3"},
        {"initial": None},
        {"initial": ["a"]},
        {"final": ["a"]},
    ],
    ids=repr,
)
def test_an_option_of_a_rule_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(WorkflowError, match=f"rule 'r': .*{next(iter(wrong))}="):
        Rule(**{"name": "r", "initial": "a", "final": "b", **wrong})


def test_a_file_that_is_nested_too_deep_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "deep.json"
    file.write_text("[" * 100_000)
    with pytest.raises(WorkflowError, match="nested too deeply"):
        read_workflow(file)
