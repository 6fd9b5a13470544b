"""Time is read in one place, so that virtual time is all the time there is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}
PACKAGES = ("streams", "operators", "sources", "sinks")


def readings(tree: ast.AST) -> Iterator[int]:
    """The lines that read a clock of the module `time`, or take one from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            if CLOCKS & {alias.name for alias in node.names}:
                yield node.lineno
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "time"
            and node.attr in CLOCKS
        ):
            yield node.lineno


def test_only_the_clock_reads_the_time() -> None:
    read = [
        f"{path.relative_to(HOME)}:{line}"
        for package in PACKAGES
        for path in sorted((HOME / package).glob("**/*.py"))
        if path != HOME / "streams/clock.py"
        for line in readings(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert read == []


@pytest.mark.parametrize("code", ["import time\ntime.monotonic()", "from time import time"])
def test_a_reading_is_found(code: str) -> None:
    assert list(readings(ast.parse(code))) != []
