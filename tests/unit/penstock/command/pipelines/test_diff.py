from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Penstock = Callable[..., Any]

PIPELINE = """
from penstock import ops, read_jsonl, write_jsonl
from steps import first

pipeline = read_jsonl().pipe(*first).to(write_jsonl())
print("loaded")
"""
STEPS = "from penstock import ops\nfirst = [ops.take({})]\n"


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    """Two versions of a file, with a module of one name beside each."""
    for version, number in (("old", 3), ("new", 4)):
        (tmp_path / version).mkdir()
        (tmp_path / version / "orders.py").write_text(PIPELINE)
        (tmp_path / version / "steps.py").write_text(STEPS.format(number))
    return tmp_path / "old" / "orders.py", tmp_path / "new" / "orders.py"


def test_the_differences_are_printed_and_the_status_says_that_there_are_some(
    penstock: Penstock, both: tuple[Path, Path]
) -> None:
    result = penstock("diff", *both)
    assert (result.status, result.out) == (1, "operator 1 take, count: 4, was 3\n")


def test_two_that_are_the_same_have_status_0(penstock: Penstock, both: tuple[Path, Path]) -> None:
    result = penstock("diff", both[0], both[0])
    assert (result.status, result.out) == (0, "")


def test_a_definition_that_was_printed_is_compared(
    penstock: Penstock, both: tuple[Path, Path]
) -> None:
    before = both[0].parent / "before.json"
    penstock("draw", both[0], "--format", "json", "--output", str(before))
    assert penstock("diff", before, both[1]).out == "operator 1 take, count: 4, was 3\n"


@pytest.mark.parametrize("text", ["{}", '{"source": {"use": "read_jsonl"}}', "[]"])
def test_json_that_is_no_definition_is_refused(
    penstock: Penstock, both: tuple[Path, Path], tmp_path: Path, text: str
) -> None:
    (tmp_path / "other.json").write_text(text)
    result = penstock("diff", both[0], tmp_path / "other.json")
    assert result.status == 2
    assert "other.json: " in result.err
    assert "definition" in result.err


def test_a_file_without_a_pipeline_is_named(penstock: Penstock, both: tuple[Path, Path]) -> None:
    result = penstock("diff", both[0].parent / "steps.py", both[1])
    assert result.status == 2
    assert "steps.py has no pipeline" in result.err
    assert result.err.count("penstock: ") == 1
