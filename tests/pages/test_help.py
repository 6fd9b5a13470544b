"""`help` of a public name shows a diagram, and all that its page says."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from penstock import from_async_iterable, from_iterable, operators, sinks, sources
from penstock.operators import rx

LABELS = ["Items", "Time", "Memory", "Demand", "Ends", "Errors"]


def public(*packages: ModuleType) -> dict[str, Any]:
    return {
        f"{package.__name__}.{name}": getattr(package, name)
        for package in packages
        for name in package.__all__
        if name != "Inbox"  # what inbox makes
    }


SHOWN = {
    **public(operators, sources, sinks),
    "penstock.streams.from_iterable": from_iterable,
    "penstock.streams.from_async_iterable": from_async_iterable,
}

WITH_RX = {**SHOWN, **public(rx)}


def parts_of(thing: Any) -> list[str]:
    return (inspect.getdoc(thing) or "").split("\n\n")


@pytest.mark.parametrize("name", SHOWN)
def test_a_diagram_follows_the_first_sentence(name: str) -> None:
    sentence, diagram, *_ = parts_of(SHOWN[name])
    assert re.match(r"[A-Z`].*[.:]", sentence, re.DOTALL)
    rows = diagram.splitlines()
    assert len(rows) >= 2
    assert all(re.match(r"    \S.*?  +\S", row) for row in rows)
    # A wrapper of a handler is shown within the operator that it is given to.
    last = name.rpartition(".")[2]
    assert last in rows[-1] or last in ("spread", "WorkPool")


@pytest.mark.parametrize("name", WITH_RX)
def test_each_of_the_six_lines_is_there_once(name: str) -> None:
    labels = re.findall(r"^([A-Z]\w+):  +\S", "\n\n".join(parts_of(WITH_RX[name])), re.MULTILINE)
    assert [label for label in labels if label in LABELS] == LABELS


@pytest.mark.parametrize("name", WITH_RX)
def test_the_line_about_demand_and_the_one_about_the_end_say_something(name: str) -> None:
    text = "\n\n".join(parts_of(WITH_RX[name]))
    for label in ("Demand", "Ends"):
        (line,) = re.findall(rf"^{label}:(.*(?:\n .*)*)", text, re.MULTILINE)
        assert len(line.split()) >= 1
        assert line.rstrip().endswith(".")


@pytest.mark.parametrize("name", WITH_RX)
def test_no_line_only_refers_to_another_page(name: str) -> None:
    text = "\n\n".join(parts_of(WITH_RX[name]))
    lines = re.findall(r"^(?:Items|Time|Memory|Demand|Ends|Errors):  +(.*)", text, re.MULTILINE)
    assert [line for line in lines if re.match(r"(as|see|that of) `", line)] == []


@pytest.mark.parametrize("name", public(operators, sources, sinks))
def test_what_is_said_of_the_arguments_stays(name: str) -> None:
    thing = SHOWN[name]
    code = inspect.getsource(thing)
    own = inspect.cleandoc(code.split('"""')[1])
    for part in own.split("\n\n"):
        assert part in parts_of(thing)


def test_without_docstrings_the_packages_can_be_imported() -> None:
    code = "from penstock import operators, sources, sinks; assert operators.chunk.__doc__ is None"
    subprocess.run([sys.executable, "-OO", "-c", code], check=True, timeout=60)
