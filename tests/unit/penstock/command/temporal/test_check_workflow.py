from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from penstock.streams.pictures.workflow import as_dot, as_svg, picture_of
from penstock.streams.temporal.workflow.paths import counter_example
from penstock.streams.temporal.workflow.rule import Rule
from penstock.streams.temporal.workflow.workflow import Node, Workflow

Penstock = Callable[..., Any]

SVG = "{http://www.w3.org/2000/svg}"
SHOP = {
    "start": {"goto": "cart"},
    "cart": {"goto": ["cart", "pay", "ship"]},
    "pay": {"goto": "ship", "input": "card"},
    "ship": {"goto": "end"},
    "end": {},
}
IMPORT = "from penstock.streams.temporal import Rule\n"
PAY = "rule = Rule('pay first', initial='start', final='end', formula='!ship W pay')\n"
HOLDS = "good = Rule('no way back', initial='end', final='start')\n"
ENDS = "ends = Rule('ends', initial='start', formula='G(cart -> F end)')\n"
NOBODY = "nobody = Rule('nobody', initial=lambda node: False, final='end')\n"


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Write a graph and rules."""

    def write(rules: str, nodes: Any = SHOP) -> tuple[Path, Path]:
        graph, file = tmp_path / "shop.json", tmp_path / "shop_rules.py"
        graph.write_text(json.dumps({"nodes": nodes}))
        file.write_text(IMPORT + rules)
        return graph, file

    return write


def test_each_rule_is_answered_and_a_broken_one_with_its_path(
    penstock: Penstock, files: Any
) -> None:
    graph, rules = files(PAY + HOLDS + ENDS + NOBODY)
    result = penstock("check-workflow", graph, rules)
    assert result.status == 1
    assert result.out == (
        f"{graph}: 5 nodes, 9 arcs\n"
        "pay first: BROKEN, !ship W pay fails\n"
        "    begins     start\n"
        "    by goto    cart\n"
        "    by goto    ship   ship\n"
        "    by goto    end\n"
        "no way back: holds\n"
        "ends: BROKEN, G(cart -> F end) fails\n"
        "    begins     start\n"
        "    by goto    cart   cart\n"
        "    by goto    cart  again, and so on for ever\n"
        "nobody: says nothing, it selects no initial node\n"
    )


@pytest.mark.parametrize(
    ("rules", "status"), [(HOLDS, 0), (HOLDS + NOBODY, 3), (NOBODY + PAY, 1), (PAY, 1)]
)
def test_the_exit_status_shows_whether_all_rules_hold(
    penstock: Penstock, files: Any, rules: str, status: int
) -> None:
    assert penstock("check-workflow", *files(rules)).status == status


def test_several_paths_are_shown_shortest_first(penstock: Penstock, files: Any) -> None:
    out = penstock("check-workflow", *files(PAY), "--all", 3).out
    paths = out.partition("fails\n")[2].split("\n\n")
    assert [path.count("\n") + 1 for path in map(str.strip, paths)] == [4, 5, 6]


def test_several_paths_without_end_are_shown(penstock: Penstock, files: Any) -> None:
    graph = {**SHOP, "cart": {"goto": ["cart", "pay"]}, "pay": {"goto": ["cart", "end"]}}
    out = penstock("check-workflow", *files(ENDS, graph), "--all", 3).out
    assert out.count("again, and so on for ever") == 3
    assert "    by goto    pay\n    by goto    cart  again, and so on for ever\n" in out


def test_rules_may_be_in_lists_and_are_checked_once(penstock: Penstock, files: Any) -> None:
    out = penstock("check-workflow", *files(HOLDS + PAY + "rules = [rule, good]\n")).out
    assert out.count("BROKEN") == out.count("holds") == 1


def test_of_an_automaton_only_what_is_checked_is_said_to_hold(
    penstock: Penstock, files: Any, tmp_path: Path
) -> None:
    # No beginning of a path is bad, but the carts of one path come to no end.
    rule = "from penstock.streams.temporal import parse, translate\n"
    rule += "rule = Rule('carts', 'start', formula=translate(parse('G(cart -> F end)')))\n"
    graph, rules = files(rule)
    said = "carts: holds for beginnings of paths; what else its automaton requires is not checked\n"
    assert said in penstock("check-workflow", graph, rules).out
    events = tmp_path / "events.jsonl"
    events.write_text('{"step": "start"}\n{"step": "cart"}\n')
    assert penstock("mine", "--graph", graph, "--rules", rules, events).out.count(said) == 2


@pytest.mark.parametrize(
    ("rules", "nodes", "said"),
    [
        (PAY, {"a": {"goto": "b"}}, "shop.json: node 'a' has goto 'b', which is not a node"),
        (PAY, {}, "shop.json: the workflow has no nodes"),
        (
            PAY,
            {"a": {}},
            "shop_rules.py: rule 'pay first' applies to no graph: {graph} has no step or label "
            "'start', 'end', 'ship', 'pay'",
        ),
        ("", SHOP, "has no rules"),
        ("rule = Rule('r', 'start')\n", SHOP, "shop_rules.py:2: this rule cannot be built: rule"),
        ("rule = Rule('r', 'start', formula='a U')\n", SHOP, "not a valid formula"),
        ("rule = Rule('r', 'start', formula='F shp')\n", SHOP, "Did you mean 'ship'?"),
        (
            "rule = Rule('r', lambda node: node.nme, 'end')\n",
            SHOP,
            "shop_rules.py:2: rule 'r' raised an error",
        ),
        ("1 / 0\n", SHOP, "raised an error while it was loaded"),
    ],
)
def test_what_cannot_be_checked_is_explained_without_a_traceback(
    penstock: Penstock, files: Any, rules: str, nodes: Any, said: str
) -> None:
    graph, file = files(rules, nodes)
    result = penstock("check-workflow", graph, file)
    assert result.status == 2
    assert said.format(graph=graph) in result.err
    assert "penstock/command/temporal/check_workflow.py" not in result.err


def test_one_node_and_one_arc_are_not_several(penstock: Penstock, files: Any) -> None:
    graph, rules = files("rule = Rule('r', 'a', 'a', min_nodes=2)\n", {"a": {"goto": "a"}})
    assert penstock("check-workflow", graph, rules).out.startswith(f"{graph}: 1 node, 1 arc\n")


def test_a_search_that_is_too_large_names_its_rule_once(penstock: Penstock, files: Any) -> None:
    # It takes a second: half a million states are allowed, and the command has no other bound.
    nodes = {str(n): {"goto": [str(m) for m in range(20)]} for n in range(20)}
    rule = "rule = Rule('r', '0', '1', min_nodes=9, max_nodes=9, sees='path', arcs=lambda *_: True)"
    result = penstock("check-workflow", *files(rule + "\n", {**nodes, "1": {}}))
    assert result.status == 2
    assert "shop_rules.py: rule 'r': the search reached" in result.err
    assert result.err.count("rule 'r'") == 1


def test_a_file_that_is_missing_is_named(penstock: Penstock, files: Any, tmp_path: Path) -> None:
    graph, rules = files(PAY)
    assert "none.json" in penstock("check-workflow", tmp_path / "none.json", rules).err
    assert "none.py does not exist" in penstock("check-workflow", graph, tmp_path / "none.py").err


# Several graphs.

OTHER = {"start": {"goto": ["cart", "end"]}, "cart": {"goto": "end"}, "end": {}}
BACK = "back = Rule('no way back', initial='end', final='start')\n"


def other_graph(graph: Path, nodes: Any = OTHER) -> Path:
    path = graph.with_name("other.json")
    path.write_text(json.dumps({"nodes": nodes}))
    return path


def test_a_rule_that_names_a_step_which_a_graph_lacks_is_listed_there_and_checked_elsewhere(
    penstock: Penstock, files: Any
) -> None:
    graph, rules = files(PAY + BACK)
    other = other_graph(graph)
    result = penstock("check-workflow", other, graph, rules)
    assert result.out == (
        f"{other}: 3 nodes, 3 arcs\n"
        "pay first: not applicable, there is no step or label 'ship', 'pay'\n"
        "no way back: holds\n"
        f"{graph}: 5 nodes, 9 arcs\n"
        "pay first: BROKEN, !ship W pay fails\n"
        "    begins     start\n"
        "    by goto    cart\n"
        "    by goto    ship   ship\n"
        "    by goto    end\n"
        "no way back: holds\n"
    )
    assert result.status == 1


def test_a_rule_that_is_not_applicable_everywhere_does_not_change_the_status(
    penstock: Penstock, files: Any
) -> None:
    kept = {**SHOP, "cart": {"goto": "pay"}, "pay": {"goto": "ship"}}
    graph, rules = files(PAY, kept)
    assert penstock("check-workflow", graph, other_graph(graph), rules).status == 0


def test_a_rule_that_applies_to_no_graph_is_an_error(penstock: Penstock, files: Any) -> None:
    graph, rules = files(BACK + "gone = Rule('gone', 'carts', 'end')\n")
    other = other_graph(graph)
    result = penstock("check-workflow", graph, other, rules)
    assert (result.status, result.out) == (2, "")
    assert result.err == (
        f"penstock: {rules}: rule 'gone' applies to no graph: {graph} has no step or label "
        "'carts'. Did you mean 'cart'?\n"
    )


def test_the_rules_may_stand_anywhere_among_the_files(penstock: Penstock, files: Any) -> None:
    graph, rules = files(BACK)
    other = other_graph(graph)
    outs = [
        penstock("check-workflow", *order).out
        for order in ((rules, graph, other), (graph, rules, other), (graph, other, rules))
    ]
    assert outs[0] == outs[1] == outs[2]
    assert outs[0].count("no way back: holds") == 2


@pytest.mark.parametrize(
    ("names", "there"),
    [
        (["a.json"], "1 graph and 0 .py files are given"),
        (["a.py"], "0 graphs and 1 .py file are given"),
        (["a.py", "b.py"], "0 graphs and 2 .py files are given"),
        (["a.json", "b.json"], "2 graphs and 0 .py files are given"),
    ],
)
def test_one_file_of_rules_and_a_graph_are_needed(
    penstock: Penstock, names: list[str], there: str
) -> None:
    result = penstock("check-workflow", *names)
    assert result.status == 2
    assert (
        result.err
        == f"penstock: check-workflow needs graphs and one .py file with rules: {there}\n"
    )


def test_the_first_broken_rule_is_drawn_in_its_own_graph(
    penstock: Penstock, files: Any, tmp_path: Path
) -> None:
    graph, rules = files(PAY)
    target = tmp_path / "shop.dot"
    penstock("check-workflow", other_graph(graph), graph, rules, "--draw", target)
    assert '"cart" -> "ship" [color=red' in target.read_text(encoding="utf-8")


# The drawing.


def test_the_path_is_marked_in_the_drawing_and_its_steps_are_numbered(
    penstock: Penstock, files: Any, tmp_path: Path
) -> None:
    target = tmp_path / "shop.svg"
    assert penstock("check-workflow", *files(PAY), "--draw", target).status == 1
    root = ElementTree.fromstring(target.read_text(encoding="utf-8"))
    names = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "name"]
    assert sorted(names) == sorted(SHOP)
    marked = [box for box in root.iter(f"{SVG}rect") if box.get("class") == "node on"]
    assert len(marked) == 4
    steps = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "label on"]
    assert sorted(steps) == ["1", "2", "3"]
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    boxes = [box for box in root.iter(f"{SVG}rect") if "node" in box.get("class", "")]
    for box in boxes:
        assert 0 <= float(box.get("x", -1)) <= width - float(box.get("width", 0))
        assert 0 <= float(box.get("y", -1)) <= height - float(box.get("height", 0))
    places = [(float(box.get("x", 0)), float(box.get("y", 0))) for box in boxes]
    assert len(set(places)) == len(boxes)


def test_graphviz_gets_every_arc_with_the_path_in_red(
    penstock: Penstock, files: Any, tmp_path: Path
) -> None:
    target = tmp_path / "shop.dot"
    penstock("check-workflow", *files(PAY), "--draw", target)
    lines = [line.strip() for line in target.read_text(encoding="utf-8").splitlines()]
    assert '"cart" -> "ship" [color=red, penwidth=2, label="2"]' in lines
    assert '"end" -> "pay" [style=dashed]' in lines
    assert sum("->" in line and "label=" not in line for line in lines) == 6


def test_a_drawing_of_what_holds_marks_nothing(
    penstock: Penstock, files: Any, tmp_path: Path
) -> None:
    target = tmp_path / "shop.svg"
    assert penstock("check-workflow", *files(HOLDS), "--draw", target).status == 0
    assert 'class="node on"' not in target.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["shop.png", "no/such/folder.svg"])
def test_a_drawing_that_cannot_be_made_is_explained(
    penstock: Penstock, files: Any, tmp_path: Path, name: str
) -> None:
    result = penstock("check-workflow", *files(PAY), "--draw", tmp_path / name)
    assert result.status == 2
    assert "must end in .svg or .dot" in result.err or "Cannot write" in result.err


def test_of_a_large_workflow_the_path_and_what_is_next_to_it_is_drawn() -> None:
    nodes = [
        Node(f"s{n}", goto=tuple(f"s{m}" for m in (n + 1, n + 2) if m < 500)) for n in range(500)
    ]
    workflow = Workflow(nodes)
    example = counter_example(workflow, Rule("r", "s100", "s120"))
    assert example is not None
    drawn = picture_of(workflow, example)
    for picture in (as_svg(drawn), as_dot(drawn)):
        assert all(name in picture for name in example.path)
        assert "s121" in picture
        assert "s300" not in picture
    ElementTree.fromstring(as_svg(drawn))


def test_names_are_escaped_in_drawings() -> None:
    workflow = Workflow([Node('<a & "b">', goto=('<a & "b">',))])
    example = counter_example(workflow, Rule("r", lambda node: True, lambda node: True))
    drawn = picture_of(workflow, example)
    root = ElementTree.fromstring(as_svg(drawn))
    assert '<a & "b">' in [text.text for text in root.iter(f"{SVG}text")]
    assert r'"<a & \"b\">" -> "<a & \"b\">"' in as_dot(drawn)
