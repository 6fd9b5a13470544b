"""Formulas and workflows that are too large or too deep for the commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Penstock = Callable[..., Any]

MANY = " | ".join(f"p{n}" for n in range(1_000))
RULE = "from penstock.streams.temporal import Rule\nrule = Rule('r', 'a', 'b'{})\n"


@pytest.mark.parametrize(
    "formula", [MANY, "(" * 500 + "a" + ")" * 500, "{{{a[*100]}[*100]}[*100]} |-> b"]
)
def test_a_formula_that_is_too_large_is_one_line_and_status_2(
    penstock: Penstock, tmp_path: Path, formula: str
) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text("{}\n")
    result = penstock("monitor", formula, "--fields", events)
    assert_refused(result)


@pytest.mark.parametrize("graph", ["[" * 100_000, '{"nodes":' * 100_000, "{", '{"nodes": []}'])
def test_a_workflow_that_cannot_be_read_is_one_line_and_status_2(
    penstock: Penstock, tmp_path: Path, graph: str
) -> None:
    assert_refused(checked(penstock, tmp_path, graph, ""))


def test_a_rule_whose_formula_is_too_large_is_one_line_and_status_2(
    penstock: Penstock, tmp_path: Path
) -> None:
    nodes: dict[str, Any] = {name: {} for name in ("a", "b", *MANY.split(" | "))}
    graph = json.dumps({"nodes": nodes})
    result = checked(penstock, tmp_path, graph, f", formula='{MANY}'")
    assert_refused(result)
    assert "the formula is too large" in result.err


def checked(penstock: Penstock, folder: Path, graph: str, options: str) -> Any:
    (folder / "graph.json").write_text(graph)
    (folder / "rules.py").write_text(RULE.format(options))
    return penstock("check-workflow", folder / "graph.json", folder / "rules.py")


def assert_refused(result: Any) -> None:
    assert result.status == 2
    assert "Traceback" not in result.err
    assert len(result.err.splitlines()) == 1
    assert len(result.err) < 1_000
