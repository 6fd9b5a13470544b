"""`penstock mine` in a shell."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

Penstock = Callable[..., Any]

SVG = "{http://www.w3.org/2000/svg}"
SHOP = {
    "start": {"goto": "cart"},
    "cart": {"goto": ["cart", "pay", "ship"]},
    "pay": {"goto": "ship", "input": "card"},
    "ship": {"goto": "end", "not_through": "end"},
    "end": {},
}
GOOD = {1: "start cart pay ship end"}
BAD = {**GOOD, "b": "start cart ship refund", "c": "start cart"}


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Write a graph, and the events of cases."""

    def write(cases: Any) -> tuple[Path, Path]:
        graph, events = tmp_path / "shop.json", tmp_path / "events.jsonl"
        graph.write_text(json.dumps({"nodes": SHOP}))
        lines = [{"k": key, "step": step} for key, case in cases.items() for step in case.split()]
        events.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return graph, events

    return write


@pytest.fixture
def rules(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "shop_rules.py"
        path.write_text("from penstock.streams.temporal import Rule\n" + text)
        return path

    return write


PAY = "pay = Rule('pay first', 'start', 'end', '!ship W pay')\n"
BACK = "back = Rule('no way back', 'end', 'start')\n"
ENDS = "ends = Rule('ends', 'start', formula='G(cart -> F end)')\n"


def test_the_report_compares_the_events_with_the_graph_and_the_rules(
    penstock: Penstock, files: Any, rules: Any
) -> None:
    graph, events = files(BAD)
    result = penstock(
        "mine", "--graph", graph, "--by", "k", "--rules", rules(PAY + BACK + ENDS), events
    )
    assert result.status == 1
    assert result.out == (
        "11 events of 3 cases\n"
        "steps:\n"
        "    start   3\n"
        "    cart    3\n"
        "    ship    2\n"
        "    pay     1\n"
        "    end     1\n"
        "    refund  1  NOT IN THE GRAPH\n"
        "arcs:\n"
        "    start -> cart   3\n"
        "    cart -> pay     1\n"
        "    pay -> ship     1\n"
        "    ship -> end     1\n"
        "    cart -> ship    1\n"
        "    ship -> refund  1  NOT IN THE GRAPH, first by case 'b'\n"
        "never taken:\n"
        "    cart -> cart  0\n"
        "first steps:\n"
        "    start  3\n"
        "last steps:\n"
        "    end     1\n"
        "    refund  1  not a final step\n"
        "    cart    1  not a final step\n"
        "paths:\n"
        "    1  start -> cart -> pay -> ship -> end\n"
        "    1  start -> cart -> ship -> refund  NOT ALLOWED\n"
        "    1  start -> cart\n"
        f"rules on {graph}:\n"
        "    pay first: BROKEN, !ship W pay fails\n"
        "        begins     start\n"
        "        by goto    cart\n"
        "        by goto    ship   ship\n"
        "        by goto    end\n"
        "    no way back: holds\n"
        "    ends: BROKEN, G(cart -> F end) fails\n"
        "        begins     start\n"
        "        by goto    cart   cart\n"
        "        by goto    cart  again, and so on for ever\n"
        "rules on the events:\n"
        "    pay first: BROKEN by 1 of 3 cases, first by case 'b' at step 3: "
        "start -> cart -> ship\n"
        "    no way back: holds\n"
        "    ends: BROKEN by 2 of 3 cases, first by case 'b' at the end, after 4 steps: "
        "start -> cart -> ship -> refund\n"
    )


def test_without_a_graph_the_steps_are_counted_and_nothing_is_wrong(
    penstock: Penstock, files: Any
) -> None:
    _, events = files(BAD)
    result = penstock("mine", "--by=k", events)
    assert result.status == 0
    assert "    ship -> refund  1\n" in result.out
    assert "NOT" not in result.out
    assert "final" not in result.out
    one = penstock("mine", events)
    assert one.out.startswith("11 events of 1 case\n")
    assert "    end -> start     1\n" in one.out


@pytest.mark.parametrize(
    ("cases", "text", "status"),
    [
        (GOOD, "", 0),
        # It may still come.
        ({"a": "start cart"}, "", 0),
        ({"a": "start ship"}, "", 1),
        ({"a": "gone"}, "", 1),
        ({"a": "start cart ship end ship"}, "", 1),
        (GOOD, BACK, 0),
        # Broken on the graph only, and on the events only.
        (GOOD, PAY, 1),
        ({"a": "end pay"}, "late = Rule('late', lambda n: n.name == 'end', formula='G !pay')\n", 1),
    ],
)
def test_the_exit_status_shows_whether_something_is_forbidden(
    penstock: Penstock, files: Any, rules: Any, cases: Any, text: str, status: int
) -> None:
    graph, events = files(cases)
    more = ("--rules", rules(text)) if text else ()
    assert penstock("mine", "--graph", graph, "--by", "k", events, *more).status == status


def test_a_step_against_its_conditions_is_told_with_how_often(
    penstock: Penstock, files: Any
) -> None:
    graph, events = files({"a": "start cart ship end cart ship", "b": "start cart ship"})
    out = penstock("mine", "--graph", graph, "--by", "k", events).out
    assert "    cart -> ship   3  1 AGAINST ITS CONDITIONS, first by case 'a'\n" in out


def test_with_a_time_the_order_of_the_lines_does_not_matter(
    penstock: Penstock, tmp_path: Path
) -> None:
    steps = [("start", 5.0), ("pay", "1970-01-01T00:00:06Z"), ("ship", 6), ("end", 7)]
    events = [
        {"k": key, "step": step, "at": at} for step, at in sorted(steps) for key in ("a", "b")
    ]
    path = tmp_path / "sorted.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    out = penstock("mine", "--by=k", "--time=at", path).out
    for arc in ("start -> pay", "pay -> ship", "ship -> end"):
        assert re.search(f"    {arc} +2\n", out)
    assert "end -> pay" in penstock("mine", "--by=k", path).out


def test_an_event_without_a_readable_time_is_left_out_and_reported(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"step": "a", "at": 1}\n{"step": "b"}\n{"step": "c", "at": "noon"}\n')
    result = penstock("mine", "--time=at", path)
    assert result.status == 3
    assert result.out.startswith("1 event of 1 case\n")
    assert "event 2 has no field 'at' (--time), left out" in result.err
    assert "line 3 has a bad 'at' (--time FIELD): 'noon' is not a time" in result.err


def test_bad_lines_are_named_and_give_status_3_where_nothing_is_forbidden(
    penstock: Penstock, tmp_path: Path, files: Any
) -> None:
    graph, events = files({"a": "start ship"})
    bad = tmp_path / "bad.jsonl"
    lines = ['{"k": 1, "step": "start"}', "broken", "[]", '{"k": 1}', '{"step": "cart"}']
    lines += ['{"k": 1, "step": ""}', '{"k": [1], "step": "cart"}', '{"k": 2, "step": 7}']
    bad.write_text("\n".join(lines) + "\n")
    result = penstock("mine", "--by", "k", bad)
    assert result.status == 3
    assert result.out.startswith("2 events of 2 cases\nsteps:\n    start  1\n    7      1\n")
    for said in (
        "line 2 is not valid JSON",
        "line 3 is JSON, but not an object",
        "event 2 has no field 'step' (--step), left out: {'k': 1}",
        "event 3 has no field 'k' (--by), left out: {'step': 'cart'}",
        "line 6 has '' as 'step': the name of a step is needed (--step FIELD)",
        "line 7 has [1] as 'k': a key is needed (--by FIELD)",
    ):
        assert said in result.err
    events.write_text(events.read_text() + "broken\n")
    assert penstock("mine", "--graph", graph, "--by", "k", events).status == 1


def test_other_fields_may_have_the_steps(penstock: Penstock, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"do": "a"}\n{"do": "b"}\n')
    assert "    a -> b  1\n" in penstock("mine", "--step", "do", events).out


def test_a_step_with_control_characters_stays_on_its_line(
    penstock: Penstock, tmp_path: Path, rules: Any
) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"step": "a\\nb\\u001b[31m"}\n')
    never = rules("rule = Rule('never', lambda node: True, formula='false')\n")
    result = penstock("mine", events, "--rules", never)
    found = [line.strip() for line in result.out.splitlines()]
    assert found.count(r"'a\nb\x1b[31m'  1") == 3
    assert found[-1].endswith(r": 'a\nb\x1b[31m'")


def test_cases_beyond_the_limit_are_forgotten_and_counted(penstock: Penstock, files: Any) -> None:
    graph, events = files(dict.fromkeys(range(5), "start cart"))
    out = penstock("mine", "--graph", graph, "--by=k", "--max-keys=2", events).out
    assert "3 cases forgotten before the end: more than --max-keys\n" in out
    assert "last steps:\n    cart  2  not a final step\n" in out


def test_of_many_arcs_fifty_are_listed_and_all_that_are_wrong(
    penstock: Penstock, files: Any
) -> None:
    steps = " ".join(f"s{n}" for n in range(100))
    graph, events = files({"a": f"{steps} {steps}"})
    free = penstock("mine", "--by", "k", events).out
    assert "    s49 -> s50  2\n    and 50 more (--all)\n" in free
    assert penstock("mine", "--graph", graph, "--by=k", events).out.count("s99 -> s0") == 1


def test_a_rule_that_no_case_touches_says_nothing(
    penstock: Penstock, files: Any, rules: Any
) -> None:
    _, events = files(GOOD)
    path = rules("rule = Rule('refunds', 'refund', formula='F end')\n")
    result = penstock("mine", "--by=k", "--rules", path, events)
    assert (
        "    refunds: says nothing, no case came to an initial step ('refund' never happened)\n"
        in result.out
    )
    assert result.status == 0


def test_a_name_that_is_known_neither_from_the_graph_nor_from_the_events_is_told(
    penstock: Penstock, files: Any, rules: Any
) -> None:
    graph, events = files({"a": "start cart"})
    path = rules(
        "one = Rule('one', 'start', formula='G !refund')\n"
        "two = Rule('two', 'start', formula='F payd')\n"
        "three = Rule('three', 'start', formula='G !ship')\n"
    )
    out = penstock("mine", "--by=k", "--rules", path, events).out
    assert "    one: holds ('refund' never happened)\n" in out
    assert "    two: BROKEN by 1 of 1 case ('payd' never happened), first by case 'a' at" in out
    assert "    three: holds ('ship' never happened)\n" in out
    of_graph = rules("three = Rule('three', 'start', formula='G !ship')\n")
    out = penstock("mine", "--graph", graph, "--by=k", "--rules", of_graph, events).out
    assert "    three: holds\n" in out


def test_a_rule_about_steps_of_the_events_only_is_not_applicable_to_the_graph(
    penstock: Penstock, files: Any, rules: Any
) -> None:
    graph, events = files(BAD)
    path = rules("rule = Rule('no refund', 'start', formula='G !refund')\n")
    out = penstock("mine", "--graph", graph, "--by=k", "--rules", path, events).out
    assert "    no refund: not applicable, there is no step or label 'refund'\n" in out
    assert "    no refund: BROKEN by 1 of 3 cases, first by case 'b' at step 4:" in out
    _, events = files(GOOD)
    result = penstock("mine", "--graph", graph, "--by=k", "--rules", path, events)
    assert result.status == 2
    assert "rule 'no refund' applies to nothing: neither" in result.err


def test_an_error_of_a_rule_is_explained_at_its_line_without_a_report(
    penstock: Penstock, files: Any, rules: Any
) -> None:
    _, events = files(GOOD)
    path = rules("rule = Rule('r', lambda node: node.nme, 'end')\n")
    result = penstock("mine", "--by=k", "--rules", path, events)
    assert (result.status, result.out) == (2, "")
    assert "shop_rules.py:2: a rule raised an error" in result.err
    assert "has no attribute 'nme'" in result.err
    assert "penstock/command" not in result.err


def test_an_input_that_breaks_off_gives_no_report(
    penstock: Penstock, files: Any, tmp_path: Path
) -> None:
    _, events = files(dict.fromkeys(range(1_000), "start cart pay ship end"))
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(events.read_bytes())[:-20])
    result = penstock("mine", "--by=k", cut)
    assert (result.status, result.out) == (1, "")


def test_the_report_can_be_written_to_a_file(
    penstock: Penstock, files: Any, tmp_path: Path
) -> None:
    _, events = files(GOOD)
    target = tmp_path / "report.txt"
    assert penstock("mine", "--by=k", events, "--output", target).out == ""
    assert target.read_text().startswith("5 events of 1 case\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--graph", "none.json"], "Cannot read none.json"),
        (["--draw", "a.png"], "must end in .svg or .dot"),
        (["--rules", "none.py"], "none.py does not exist"),
        (["--", "x"], "only for --rules: x"),
        (["none.jsonl"], "none.jsonl"),
    ],
)
def test_a_mistake_is_reported_without_a_traceback(
    penstock: Penstock, words: list[str], said: str
) -> None:
    result = penstock("mine", *words)
    assert (result.status, result.out) == (2, "")
    assert said in result.err
    assert "Traceback" not in result.err


def test_the_graph_is_drawn_with_counts_what_was_never_taken_dashed_and_the_rest_red(
    penstock: Penstock, files: Any, tmp_path: Path
) -> None:
    graph, events = files(BAD)
    target = tmp_path / "mined.dot"
    assert penstock("mine", "--graph", graph, "--by=k", events, "--draw", target).status == 1
    lines = [line.strip() for line in target.read_text(encoding="utf-8").splitlines()]
    assert '"start" -> "cart" [penwidth=4.5, label="3"]' in lines
    assert '"cart" -> "cart" [style=dashed]' in lines
    assert '"ship" -> "refund" [color=red, penwidth=2.3, label="1"]' in lines
    assert '"refund" [color=red, penwidth=2, label="refund (1)"]' in lines
    assert sum("->" in line for line in lines) == 7
    penstock("mine", "--graph", graph, "--by=k", events, "--draw", tmp_path / "mined.svg")
    root = ElementTree.fromstring((tmp_path / "mined.svg").read_text(encoding="utf-8"))
    looks = [path.get("class", "") for path in root.iter(f"{SVG}path")]
    assert (looks.count("arc dashed"), looks.count("arc on"), looks.count("arc")) == (1, 1, 5)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "11 events of 3 cases: 1 arc forbidden, 1 never taken" in texts


def test_without_a_graph_the_drawing_has_only_counts(
    penstock: Penstock, files: Any, tmp_path: Path
) -> None:
    _, events = files(BAD)
    target = tmp_path / "mined.svg"
    penstock("mine", "--by=k", events, "--draw", target)
    text = target.read_text(encoding="utf-8")
    assert 'class="arc"' in text
    assert "arc dashed" not in text.partition("</style>")[2]
    assert " on" not in text.partition("</style>")[2]


def test_a_field_that_no_event_has_is_told_once_with_a_count(
    penstock: Penstock, files: Any
) -> None:
    _, events = files({1: "start cart pay"})
    result = penstock("mine", "--by", "K", events)
    assert (result.status, result.out.splitlines()[0]) == (3, "0 events of 0 cases")
    first, rest = result.err.splitlines()
    assert first.startswith("penstock: event 1 has no field 'K' (--by), left out: {'k': 1, ")
    assert rest == "penstock: 2 more events have no field 'K' (--by), left out"


def test_an_input_without_events_is_told_in_one_line_and_gives_status_0(
    penstock: Penstock, files: Any
) -> None:
    _, events = files({})
    result = penstock("mine", events)
    assert (result.status, result.out) == (0, "0 events of 0 cases\n")
    assert result.err == f"penstock: {events} has no events\n"
