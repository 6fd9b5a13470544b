"""The examples in docstrings print what they show."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

PACKAGES = ("penstock",)


def module_names() -> list[str]:
    found: list[str] = []
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        found += [package, *(m.name for m in pkgutil.walk_packages(path, f"{package}."))]
    return [name for name in found if not name.endswith("__main__")]


def test_the_examples_in_docstrings_print_what_they_show() -> None:
    told: list[str] = []
    shown: set[str] = set()
    finder = doctest.DocTestFinder(exclude_empty=True)
    for module in module_names():
        for example in finder.find(importlib.import_module(module)):
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            runner.run(example, out=told.append)
            if example.examples:
                shown.add(example.name)
    assert not told, "".join(told)
    assert "penstock.streams.testing.player.play" in shown
