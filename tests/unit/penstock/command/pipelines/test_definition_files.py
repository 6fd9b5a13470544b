from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Penstock = Callable[..., Any]

DOUBLED = """
[source]
use = "read_jsonl"

[[operators]]
use = "map"
mapper = "doubling:doubled"

[[sinks]]
use = "write_jsonl"
"""


@pytest.fixture
def doubled(tmp_path: Path) -> Path:
    (tmp_path / "doubling.py").write_text("def doubled(event):\n    return {'n': 2 * event['n']}\n")
    path = tmp_path / "doubled.toml"
    path.write_text(DOUBLED)
    return path


def test_a_file_of_a_definition_is_run(penstock: Penstock, doubled: Path) -> None:
    events = doubled.parent / "events.jsonl"
    events.write_text('{"n": 1}\n{"n": 2}\n')
    output = doubled.parent / "out.jsonl"
    result = penstock("run", doubled, "--input", str(events), "--output", str(output))
    assert result.status == 0
    assert output.read_text() == '{"n":2}\n{"n":4}\n'


def test_a_file_of_a_definition_is_checked_and_drawn(penstock: Penstock, doubled: Path) -> None:
    assert penstock("check", doubled).out.endswith(
        ": OK, 3 stages: read_jsonl > map > write_jsonl\n"
    )
    assert "2  map" in penstock("draw", doubled).out
    assert '"mapper": "doubling:doubled"' in penstock("draw", doubled, "--format", "json").out


@pytest.mark.parametrize("command", ["run", "check", "draw"])
def test_a_mistake_in_the_file_is_said_with_its_line_and_without_a_traceback(
    penstock: Penstock, doubled: Path, command: str
) -> None:
    doubled.write_text(DOUBLED.replace("mapper =", "maper ="))
    result = penstock(command, doubled)
    assert result.status == 2
    assert result.err == (
        f"penstock: {doubled}:7: operator 1, maper: map has no option 'maper' (did you mean "
        "'mapper'?). It takes mapper\n"
    )


def test_a_file_of_a_definition_has_one_pipeline_and_takes_no_arguments(
    penstock: Penstock, doubled: Path
) -> None:
    assert "has one pipeline, without a name" in penstock("check", f"{doubled}:other").err
    assert "takes no arguments" in penstock("check", doubled, "--", "a").err


def test_a_file_that_is_not_there_is_named(penstock: Penstock, tmp_path: Path) -> None:
    assert "none.toml: No such file" in penstock("check", tmp_path / "none.toml").err
