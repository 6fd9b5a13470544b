"""`help` of a public name shows a diagram, and all that its page says."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from typing import Any

import pytest

from penstock import from_async_iterable, from_iterable
from penstock.operators import rx
from tests.helpers.public_names import with_pages

LABELS = ["Items", "Time", "Memory", "Demand", "Ends", "Errors"]


PAGES = with_pages("operators", "sources", "sinks")
SHOWN = {
    **PAGES,
    "from_iterable": from_iterable,
    "from_async_iterable": from_async_iterable,
}

WITH_RX = {**SHOWN, **{f"ops.{name}": getattr(rx, name) for name in rx.__all__}}


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
    assert name in rows[-1] or name in ("spread", "WorkPool")


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


@pytest.mark.parametrize("name", PAGES)
def test_what_is_said_of_the_arguments_stays(name: str) -> None:
    thing = SHOWN[name]
    code = inspect.getsource(thing)
    own = inspect.cleandoc(code.split('"""')[1])
    for part in own.split("\n\n"):
        assert part in parts_of(thing)


def test_without_docstrings_all_can_be_imported() -> None:
    code = "from penstock import *; assert chunk.__doc__ is None"
    subprocess.run([sys.executable, "-OO", "-c", code], check=True, timeout=60)
