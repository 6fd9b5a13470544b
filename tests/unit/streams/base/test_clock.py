"""Time is read in one place only, so that virtual time reaches everything."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.streams.base.clock import queued

HOME = Path(__file__).parents[3]
CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}
PACKAGES = ("streams", "operators", "sources", "sinks")


def readings(tree: ast.AST) -> Iterator[int]:
    """The lines that read a clock of the module `time`, or import one from it."""
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
        if path != HOME / "streams/base/clock.py"
        for line in readings(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert read == []


@pytest.mark.parametrize("code", ["import time\ntime.monotonic()", "from time import time"])
def test_a_reading_is_found(code: str) -> None:
    assert list(readings(ast.parse(code))) != []


def test_how_long_a_thread_was_kept_from_running_is_the_second_number_in_nanoseconds(
    tmp_path: Path,
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/schedstat").write_text("9000000000 4500000000 12\n", encoding="ascii")
    assert queued(7, str(tmp_path)) == 4.5


@pytest.mark.parametrize("text", [None, "", "12\n", "a b c\n"])
def test_where_the_system_does_not_report_it_a_thread_was_never_kept_from_running(
    tmp_path: Path, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "7").mkdir()
        (tmp_path / "7/schedstat").write_text(text, encoding="ascii")
    assert queued(7, str(tmp_path)) == 0


def test_the_system_is_asked_about_a_thread_by_its_native_number() -> None:
    assert 0 <= queued(threading.get_native_id()) < float("inf")
