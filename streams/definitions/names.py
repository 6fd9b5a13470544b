"""The names of functions and other objects, as files of definitions write them."""

from __future__ import annotations

import importlib
import os
import re
import sys
from enum import Enum
from types import ModuleType
from typing import Any

__all__ = [
    "REFERENCE",
    "imported",
    "is_a",
    "is_reference",
    "public",
    "public_name",
    "reference",
    "shown",
]

REFERENCE = r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"
"""A name that is imported: a module, a colon, and what is in it."""

_WHOLE = re.compile(REFERENCE)
_MISSING = object()

# The one of a file that `penstock run` loads, where its own name is taken (see
# `penstock.command.pipelines.load`), and the one of a script.
_UNNAMED_MODULES = ("__main__", "penstock_pipeline_file")


def is_a(value: object, kind: Any) -> bool:
    """`isinstance`, after which the type of what it holds is still Any to a type checker."""
    return isinstance(value, kind)


def is_reference(text: str) -> bool:
    """Whether the text has the form `module:name`."""
    return _WHOLE.fullmatch(text) is not None


def public(name: str) -> Any:
    """What `penstock` has under this public name, such as `chunk`, `ops.map` or `Store.memory`.

    Raises AttributeError if there is none.
    """
    # The package of the module that this is; it need not be imported.
    package = sys.modules["penstock"]
    first, *others = name.split(".")
    if first not in package.__all__:
        raise AttributeError(name)
    found = getattr(package, first)
    for part in others:
        if part.startswith("_"):
            raise AttributeError(name)
        found = getattr(found, part)
    return found


def public_name(function: Any) -> str | None:
    """The public name of a function or a class of this library, or of a stock operator."""
    path = getattr(function, "__qualname__", "")
    for name in (path, f"ops.{path}", f"agg.{path}"):
        try:
            if public(name) == function:
                return name
        except AttributeError:
            pass
    return None


def reference(thing: Any) -> str | None:
    """The `module:name` by which it is imported; None if it has no such name."""
    module: Any
    path: Any
    if isinstance(thing, Enum):
        module, path = type(thing).__module__, f"{type(thing).__qualname__}.{thing.name}"
    else:
        # A method of a built-in type has no module.
        home = getattr(thing, "__objclass__", getattr(thing, "__self__", thing))
        module = getattr(thing, "__module__", None) or getattr(home, "__module__", None)
        path = getattr(thing, "__qualname__", getattr(thing, "__name__", None))
    if not isinstance(module, str) or not isinstance(path, str) or "<" in path:
        return None
    found = _attribute(sys.modules.get(module), path)
    # A method of a class is made anew each time; a method of an object has no name.
    if found is not thing and found != thing:
        return None
    name = f"{_own_name(module)}:{path}"
    return name if is_reference(name) else None


def _own_name(module: str) -> str:
    """The name by which others import the module of a script."""
    if module not in _UNNAMED_MODULES:
        return module
    path = getattr(sys.modules[module], "__file__", None) or module
    return os.path.splitext(os.path.basename(path))[0]


def _attribute(home: Any, path: str) -> Any:
    for part in path.split("."):
        home = getattr(home, part, _MISSING)
    return home


def imported(name: str) -> Any:
    """What is imported by `module:name`. Raises ImportError, and what the module raises."""
    module, _, path = name.partition(":")
    for known in _UNNAMED_MODULES:
        # What the script has must not be made twice.
        if known in sys.modules and _own_name(known) == module:
            return _found(sys.modules[known], module, path)
    return _found(importlib.import_module(module), module, path)


def _found(home: ModuleType, module: str, path: str) -> Any:
    found = _attribute(home, path)
    if found is _MISSING:
        from difflib import get_close_matches

        near = get_close_matches(path, [one for one in dir(home) if not one.startswith("_")], 1)
        hint = f". Did you mean '{module}:{near[0]}'?" if near else ""
        raise ImportError(f"the module '{module}' has no '{path}'{hint}")
    return found


def shown(thing: Any) -> str:
    """How something without a name is shown: a function by its file and line, else by its type."""
    code = getattr(thing, "__code__", None)
    if code is None:
        kind = type(thing).__name__
        return f"{'an' if kind[0] in 'aeiouAEIO' else 'a'} {kind}"
    kind = "lambda" if code.co_name == "<lambda>" else f"function {code.co_name}"
    return f"{kind} at {_seen_from_here(code.co_filename)}:{code.co_firstlineno}"


def _seen_from_here(path: str) -> str:
    """The path of a file in this folder or below, and otherwise the name of the file."""
    here = os.getcwd() + os.sep
    absolute = os.path.abspath(path)
    return absolute.removeprefix(here) if absolute.startswith(here) else os.path.basename(path)
