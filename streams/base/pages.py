"""Adds the page at the top of a module to the docstring of its operator, source or sink."""

from __future__ import annotations

import sys
from inspect import cleandoc
from typing import Any

__all__ = ["show_page"]


def show_page(thing: Any) -> None:
    """Put the page of its module into the docstring of this operator, source or sink.

    The diagram comes after the first sentence, unless the docstring has one of its own; the lines
    Items, Time, Memory, Demand, Ends and Errors come after the description of the arguments.
    """
    page = sys.modules[thing.__module__].__doc__
    # Without docstrings (python -OO) there is nothing to show.
    if page is None or thing.__doc__ is None:
        return
    _, *paragraphs = cleandoc(page).split("\n\n")
    sentence, *arguments = cleandoc(thing.__doc__).split("\n\n")
    has_own = bool(arguments) and _is_indented(arguments[0])
    diagrams = [part for part in paragraphs if _is_indented(part) and not has_own]
    lines = [part for part in paragraphs if not _is_indented(part)]
    thing.__doc__ = "\n\n".join([sentence, *diagrams, *arguments, *lines])


def _is_indented(part: str) -> bool:
    return all(line.startswith("    ") for line in part.splitlines())
