"""The examples in docstrings print what they show."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import penstock
from tests.helpers.public_names import with_pages

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
        # A function of an example is its user's, and not the library's.
        for example in finder.find(
            importlib.import_module(module), extraglobs={"__name__": "examples"}
        ):
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            runner.run(example, out=told.append)
            if example.examples:
                shown.add(example.name)
    assert not told, "".join(told)
    assert "penstock.streams.testing.player.play" in shown
    each = [getattr(penstock, name) for name in with_pages("operators", "sources", "sinks")]
    named = {f"{one.__module__}.{one.__name__}" for one in each}
    assert sorted(named - shown) == []
