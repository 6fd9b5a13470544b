"""The examples in docstrings print what they show."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

PACKAGES = ("penstock",)


def module_names() -> list[str]:
    found: list[str] = []
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        found += [package, *(m.name for m in pkgutil.walk_packages(path, f"{package}."))]
    return [name for name in found if not name.endswith("__main__")]


def examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [
        test
        for name in module_names()
        for test in finder.find(importlib.import_module(name))
        if test.examples
    ]


EXAMPLES = examples()


@pytest.mark.parametrize("example", EXAMPLES, ids=[test.name for test in EXAMPLES])
def test_an_example_in_a_docstring_prints_what_it_shows(example: doctest.DocTest) -> None:
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(example, out=told.append)
    assert not told, "".join(told)


def test_there_are_examples_to_run() -> None:
    assert "penstock.streams.testing.player.play" in {test.name for test in EXAMPLES}
