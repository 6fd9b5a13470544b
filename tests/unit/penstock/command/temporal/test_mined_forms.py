"""What `penstock mine` prints of paths, and its output as JSON and as a graph."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.command.temporal.mined_json import as_graph
from penstock.streams.temporal import Miner, Rule, Workflow, counter_example
from penstock.streams.temporal.workflow import mining

Penstock = Callable[..., Any]

STEPS = st.sampled_from(["a", "b", "c", "first", "last"]) | st.text(min_size=1, max_size=3)
CASES = st.lists(st.lists(STEPS, min_size=1, max_size=6), min_size=1, max_size=6)

FORMULAS = ["!b W a", "G(a -> F b)", "F c", "G(b -> X(!b W a))", "G !c", "F a & F b"]


def mined(cases: list[list[str]], workflow: Workflow | None = None, *rules: Rule) -> Miner:
    miner = Miner(workflow, rules, paths=True)
    for number, case in enumerate(cases):
        for step in case:
            miner.add(number, step)
    miner.end()
    return miner


def workflow_of(cases: list[list[str]]) -> Workflow:
    return Workflow.of(json.loads(as_graph(mined(cases), "the test"))["nodes"])


@given(CASES)
def test_every_case_passes_the_check_of_the_graph_that_was_mined_of_it(
    cases: list[list[str]],
) -> None:
    workflow = workflow_of(cases)
    again = mined(cases, workflow)
    assert not again.found
    assert not list(again.never_taken())
    assert all(again.allows(case) for case in cases)


@given(CASES, st.sampled_from(FORMULAS))
def test_a_rule_that_holds_on_the_mined_graph_is_broken_by_none_of_its_cases(
    cases: list[list[str]], formula: str
) -> None:
    # A graph in which all names are known.
    cases = [["a", "b", "c"], *cases]
    workflow = workflow_of(cases)
    rule = Rule("rule", "first", "last", formula)
    if counter_example(workflow, rule) is None:
        assert mined(cases, workflow, rule).broken == [0]


@given(CASES)
def test_each_path_is_counted_with_its_cases(cases: list[list[str]]) -> None:
    miner = mined(cases)
    counts = dict(miner.path_counts())
    assert counts == Counter(map(tuple, cases))
    assert list(counts.values()) == sorted(counts.values(), reverse=True)


NAMES = st.lists(st.sampled_from("abc"), max_size=2, unique=True)
NODE = st.fixed_dictionaries({"goto": NAMES, "through": NAMES, "not_through": NAMES})


@example({"a": {"goto": "b"}, "b": {"goto": "c", "not_through": "c"}, "c": {}}, ["a", "b", "c"])
@given(st.fixed_dictionaries(dict.fromkeys("abc", NODE)), st.lists(st.sampled_from("abcd")))
def test_a_path_is_allowed_if_nothing_of_it_is_forbidden(
    nodes: dict[str, Any], path: list[str]
) -> None:
    workflow = Workflow.of(nodes)
    assert mined([path], workflow).allows(path) is not mined([path], workflow).found


def test_paths_beyond_the_bound_are_counted_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mining, "_MOST_BEGINNINGS", 3)
    miner = mined([["a", "b"], ["a", "b", "c"], ["a", "b", "d"], ["x"], ["a"]])
    assert dict(miner.path_counts()) == {("a", "b"): 1, ("a", "b", "c"): 1, ("a",): 1}
    assert miner.other_paths == 2


@pytest.fixture
def events(tmp_path: Path) -> Callable[..., Path]:
    def write(*cases: str) -> Path:
        path = tmp_path / "events.jsonl"
        lines = [{"k": n, "step": step} for n, case in enumerate(cases) for step in case.split()]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return write


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.py"
    path.write_text(
        "from penstock.streams.temporal import Rule\n"
        "rules = [Rule('pay first', 'first', 'last', '!ship W pay')]\n"
    )
    return path


def test_check_workflow_reads_the_graph_and_finds_the_case_that_breaks_a_rule(
    penstock: Penstock, events: Callable[..., Path], rules: Path, tmp_path: Path
) -> None:
    flow = tmp_path / "flow"
    words = ("mine", "--by=k", "--format=graph")
    made = penstock(*words, events("cart pay ship", "cart pay"))
    assert (made.status, made.err) == (0, "")
    flow.write_text(made.out)
    checked = penstock("check-workflow", flow, rules)
    assert checked.out == f"{flow}: 3 nodes, 2 arcs\npay first: holds\n"
    path = events("cart pay ship", "cart ship")
    flow.write_text(penstock(*words, path).out)
    checked = penstock("check-workflow", flow, rules)
    assert checked.status == 1
    assert "pay first: BROKEN" in checked.out
    assert penstock("mine", "--by=k", "--graph", flow, path).status == 0


def test_a_graph_that_would_lack_something_is_refused_or_told(
    penstock: Penstock, events: Callable[..., Path]
) -> None:
    words = ("mine", "--by=k", "--format=graph")
    path = events()
    none = penstock(*words, path)
    assert (none.status, none.out) == (2, "")
    assert f"{path} has no events, and a graph needs a step" in none.err
    many = penstock(*words, events(*(f"s{n}" for n in range(1001))))
    assert (many.status, many.out) == (2, "")
    assert "there are more than 1,000 different steps" in many.err
    forgotten = penstock(*words, events("a b", "a c"), "--max-keys=1")
    assert (forgotten.status, "1 case forgotten before the end" in forgotten.err) == (0, True)


def test_the_most_frequent_paths_are_shown_and_with_all_every_one(
    penstock: Penstock, events: Callable[..., Path]
) -> None:
    cases = ["a b", "a b", *(f"a x{n}" for n in range(60)), " ".join(["long"] * 30)]
    path = events(*cases)
    few = penstock("mine", "--by=k", path).out
    shown = few.partition("paths:\n")[2].splitlines()
    assert shown[:2] == ["    2  a -> b", "    1  a -> x0"]
    assert shown[10:] == ["    and 52 more, of 52 cases (--all)"]
    assert "    and 13 more (--all)\n" in few
    every = penstock("mine", "--by=k", "--all", path).out
    assert "(--all)" not in every
    assert "    1  " + " -> ".join(["long"] * 30) in every
    assert every.count("\n    1  a -> x") == 60
    longer = penstock("mine", "--by=k", events(" ".join(["long"] * 30))).out
    assert longer.endswith("long -> ... (30 steps)\n")
    assert "paths:" not in penstock("mine", path).out


def test_a_path_that_the_graph_does_not_allow_is_marked(
    penstock: Penstock, events: Callable[..., Path], tmp_path: Path
) -> None:
    graph = tmp_path / "graph.json"
    nodes = {"a": {"goto": ["b", "c"]}, "b": {"goto": "c"}, "c": {"not_through": "b"}}
    graph.write_text(json.dumps({"nodes": nodes}))
    out = penstock("mine", "--by=k", "--graph", graph, events("a c", "a b c", "b a", "z")).out
    assert out.partition("paths:\n")[2].splitlines() == [
        "    1  a -> c",
        "    1  a -> b -> c  NOT ALLOWED",
        "    1  b -> a  NOT ALLOWED",
        "    1  z  NOT ALLOWED",
    ]


def test_json_has_all_that_the_report_has(
    penstock: Penstock, events: Callable[..., Path], rules: Path, tmp_path: Path
) -> None:
    graph = tmp_path / "graph.json"
    nodes = {
        "cart": {"goto": ["pay", "ship"], "labels": "first"},
        "pay": {"goto": "ship"},
        "ship": {"labels": "last"},
    }
    graph.write_text(json.dumps({"nodes": nodes}))
    result = penstock(
        *("mine", "--by=k", "--format=json", "--graph", graph, "--rules", rules),
        events("cart ship", "cart pay ship", "cart x"),
    )
    assert (result.status, result.out.count("\n")) == (1, 1)
    assert json.loads(result.out) == {
        "events": 7,
        "cases": 3,
        "forgotten": 0,
        "steps": [
            {"step": "cart", "count": 3, "in_graph": True},
            {"step": "ship", "count": 2, "in_graph": True},
            {"step": "pay", "count": 1, "in_graph": True},
            {"step": "x", "count": 1, "in_graph": False},
        ],
        "arcs": [
            {"from": "cart", "to": "ship", "count": 1, "in_graph": True, "forbidden": 0},
            {"from": "cart", "to": "pay", "count": 1, "in_graph": True, "forbidden": 0},
            {"from": "pay", "to": "ship", "count": 1, "in_graph": True, "forbidden": 0},
            {"from": "cart", "to": "x", "count": 1, "in_graph": False, "forbidden": 1, "first": 2},
        ],
        "never_taken": [],
        "first_steps": [{"step": "cart", "count": 3}],
        "last_steps": [
            {"step": "ship", "count": 2, "final": True},
            {"step": "x", "count": 1, "final": False},
        ],
        "paths": [
            {"steps": ["cart", "ship"], "count": 1, "allowed": True},
            {"steps": ["cart", "pay", "ship"], "count": 1, "allowed": True},
            {"steps": ["cart", "x"], "count": 1, "allowed": False},
        ],
        "other_steps": 0,
        "other_arcs": 0,
        "other_paths": 0,
        "rules": [
            {
                **{"rule": "pay first", "on": "graph", "result": "broken"},
                **{"path": ["cart", "ship"], "loop": None},
            },
            {
                **{"rule": "pay first", "on": "events", "result": "broken", "cases": 1},
                "first": {"case": 0, "index": 2, "at_end": False, "steps": ["cart", "ship"]},
            },
        ],
    }


def test_json_without_a_graph_says_nothing_of_what_is_allowed(
    penstock: Penstock, events: Callable[..., Path]
) -> None:
    found = json.loads(penstock("mine", "--by=k", "--format=json", events("a b")).out)
    assert found["steps"] == [{"step": "a", "count": 1}, {"step": "b", "count": 1}]
    assert found["arcs"] == [{"from": "a", "to": "b", "count": 1}]
    assert found["paths"] == [{"steps": ["a", "b"], "count": 1}]
    assert found["last_steps"] == [{"step": "b", "count": 1}]
