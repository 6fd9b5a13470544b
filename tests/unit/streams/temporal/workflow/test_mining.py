from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.temporal.monitors.monitor import Monitor
from penstock.streams.temporal.monitors.verdict import Verdict
from penstock.streams.temporal.workflow.mining import Breach, Miner
from penstock.streams.temporal.workflow.paths import counter_examples
from penstock.streams.temporal.workflow.rule import Rule
from penstock.streams.temporal.workflow.workflow import Workflow, WorkflowError

SHOP = {
    "start": {"goto": "cart"},
    "cart": {"goto": ["cart", "pay", "ship"], "labels": "open"},
    "pay": {"goto": "ship", "input": "card"},
    "ship": {"goto": "end"},
    "end": {},
}


def mined(
    *cases: str,
    workflow: Workflow | None = None,
    rules: tuple[Rule, ...] = (),
    ended: bool = True,
    **options: Any,
) -> Miner:
    """Each case is its steps; they take turns, and the first is case 1."""
    miner = Miner(workflow, rules, **options)
    left = {number: case.split() for number, case in enumerate(cases, 1)}
    while any(left.values()):
        for number, steps in left.items():
            if steps:
                miner.add(number, steps.pop(0))
    if ended:
        miner.end()
    return miner


def shop(**changes: Any) -> Workflow:
    return Workflow.of({**SHOP, **changes})


def counts(miner: Miner) -> dict[str, int]:
    return {" ".join(arc): traffic.count for arc, traffic in miner.arcs.items()}


def forbidden(miner: Miner) -> dict[str, tuple[int, Any]]:
    return {
        " ".join(arc): (traffic.forbidden, traffic.first)
        for arc, traffic in miner.arcs.items()
        if traffic.forbidden
    }


def test_what_followed_what_is_counted_for_each_case_by_itself() -> None:
    miner = mined("a b b c", "b a", "a b")
    assert counts(miner) == {"a b": 2, "b b": 1, "b c": 1, "b a": 1}
    assert miner.steps == {"a": 3, "b": 4, "c": 1}
    assert (miner.first, miner.last) == ({"a": 2, "b": 1}, {"c": 1, "a": 1, "b": 1})
    assert (miner.events, miner.cases, miner.found) == (8, 3, False)


def test_an_arc_that_the_workflow_lacks_is_forbidden_and_its_first_case_is_kept() -> None:
    miner = mined("start cart pay", "start pay", "start ship end", "cart ship end", workflow=shop())
    # A step that waits for an input may come after any other.
    assert forbidden(miner) == {"start ship": (1, 3)}
    assert miner.found
    assert list(miner.never_taken()) == [("cart", "cart"), ("pay", "ship")]


def test_a_step_that_the_workflow_lacks_is_unknown_and_every_arc_at_it_forbidden() -> None:
    miner = mined("start refund cart", "start refund", workflow=shop())
    assert miner.unknown() == ["refund"]
    assert forbidden(miner) == {"start refund": (2, 1), "refund cart": (1, 1)}
    assert mined("start refund").unknown() == []


def test_an_arc_is_forbidden_only_when_the_conditions_of_its_step_do_not_hold() -> None:
    workflow = shop(ship={"goto": "end", "through": "pay"})
    miner = mined("start cart ship", "start cart pay cart ship", "cart ship", workflow=workflow)
    assert forbidden(miner)["cart ship"] == (2, 3)
    assert counts(miner)["cart ship"] == 3
    refused = shop(ship={"goto": "end", "not_through": "pay"})
    assert forbidden(mined("cart pay ship", "cart ship", workflow=refused)) == {"pay ship": (1, 1)}


def test_a_final_step_is_one_of_the_workflow_without_goto() -> None:
    miner = mined("start cart", workflow=shop())
    assert miner.is_final("end")
    assert not miner.is_final("cart")
    assert not miner.is_final("refund")


def test_a_case_that_breaks_a_rule_is_counted_once_and_the_first_is_kept() -> None:
    rule = Rule("pay first", "start", "end", "!ship W pay")
    miner = mined(
        "start cart pay ship end",
        "start cart cart ship end start ship end",
        "start ship",
        workflow=shop(),
        rules=(rule,),
    )
    assert miner.broken == [2]
    # The third case came to it before the second did.
    assert miner.breaches == [Breach(3, ("start", "ship"), 2, at_end=False)]


def test_a_breach_shows_the_last_sixteen_steps_of_its_case() -> None:
    miner = mined(f"start {'cart ' * 20} ship", rules=(Rule("r", "start", "x", "G !ship"),))
    assert miner.breaches == [Breach(1, (*["cart"] * 15, "ship"), 22, at_end=False)]


def test_what_is_still_owed_at_the_end_breaks_only_a_rule_without_final_steps() -> None:
    endless = Rule("ends", "start", formula="G(open -> F end)")
    finite = Rule("paid", "start", "end", "F pay")
    miner = mined(
        "start cart", "start end", "start cart end", workflow=shop(), rules=(endless, finite)
    )
    assert miner.broken == [1, 2]
    assert miner.breaches[0] == Breach(1, ("start", "cart"), 2, at_end=True)
    assert mined("start cart", workflow=shop(), rules=(endless,), ended=False).broken == [0]


def test_a_rule_without_a_formula_is_broken_by_coming_to_a_final_step() -> None:
    rule = Rule("no way back", "end", "start", min_nodes=3)
    assert mined("start end", "end start", "end x start", rules=(rule,)).breaches == [
        Breach(3, ("end", "x", "start"), 3, at_end=False)
    ]
    bounded = Rule("no way back", "end", "start", max_nodes=2)
    assert mined("end x start", rules=(bounded,)).broken == [0]
    assert mined("end x end start", rules=(bounded,)).broken == [1]


def test_the_case_used_longest_ago_is_forgotten_and_neither_ended_nor_judged() -> None:
    miner = Miner(rules=[Rule("r", "a", formula="F b")], max_keys=2)
    for key, step in ((1, "a"), (2, "a"), (1, "c"), (3, "a"), (2, "b")):
        miner.add(key, step)
    # Key 3 took the place of 2, which begins anew in place of 1.
    assert miner.forgotten == 2
    miner.end()
    assert (miner.cases, miner.broken) == (4, [1])
    assert (miner.first, miner.last) == ({"a": 3, "b": 1}, {"a": 1, "b": 1})
    with pytest.raises(WorkflowError, match="max_keys=0"):
        Miner(max_keys=0)


def test_beyond_the_limits_steps_and_arcs_are_counted_together() -> None:
    miner = Miner()
    for number in range(12_000):
        miner.add(None, str(number))
    assert (len(miner.steps), miner.other_steps) == (1_000, 11_000)
    assert (len(miner.arcs), miner.other_arcs) == (10_000, 1_999)


# The law: what is watched is what the search of the graph calls a counter-example.

NAMES = "abc"
FORMULAS = ["!b W a", "F b", "G(a -> X b)", "G F a", "X X c", "a U c", "F(a & X F b)"]
selectors = st.sampled_from(NAMES)
rules = st.builds(
    Rule,
    st.just("r"),
    selectors,
    selectors,
    st.none() | st.sampled_from(FORMULAS),
    min_nodes=st.integers(1, 3),
    max_nodes=st.none() | st.integers(3, 4),
)


def breaks(rule: Rule, path: str) -> bool:
    """By the definition: whether the path, all of it, is a counter-example."""
    if path[0] != rule.initial or path[-1] != rule.final or len(path) < rule.min_nodes:
        return False
    if rule.max_nodes is not None and len(path) > rule.max_nodes:
        return False
    return rule.formula is None or fails(rule, path) is not None


def fails(rule: Rule, path: str) -> bool | None:
    """Whether the formula fails on the path for good, None if it does not fail."""
    assert rule.formula is not None
    monitor = Monitor(rule.formula)
    state = monitor.first
    for name in path:
        state = monitor.step(state, monitor.letter({name} & set(monitor.propositions)))
    if monitor.at_end(state) is not Verdict.FALSE:
        return None
    return monitor.verdict(state) is Verdict.FALSE


def fails_for_good(rule: Rule, path: str) -> bool:
    if rule.formula is None or path[0] != rule.initial:
        return False
    return (rule.max_nodes is None or len(path) <= rule.max_nodes) and bool(fails(rule, path))


@given(rules, st.text(NAMES, min_size=1, max_size=7))
def test_a_case_breaks_a_rule_at_the_first_step_that_ends_a_counter_example_or_decides_one(
    rule: Rule, steps: str
) -> None:
    broken_at = next(
        (
            end
            for end in range(1, len(steps) + 1)
            if any(
                breaks(rule, steps[begin:end]) or fails_for_good(rule, steps[begin:end])
                for begin in range(end)
            )
        ),
        None,
    )
    (breach,) = mined(" ".join(steps), rules=(rule,)).breaches
    assert (None if breach is None else breach.index) == broken_at


@given(rules, st.sets(st.tuples(selectors, selectors)))
def test_each_counter_example_of_a_graph_breaks_the_rule_when_it_happens(
    rule: Rule, arcs: set[tuple[str, str]]
) -> None:
    workflow = Workflow.of({a: {"goto": [b for c, b in sorted(arcs) if c == a]} for a in NAMES})
    for one in counter_examples(workflow, rule, max_nodes=5):
        miner = mined(" ".join(one.path), workflow=workflow, rules=(rule,))
        assert miner.broken == [1]
        assert forbidden(miner) == {}
