"""`penstock completion bash`: a script that completes the command's words in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from penstock.command.output import put
from penstock.streams.base.extras import missing_extra

__all__ = ["call"]

# How the names of arguments begin that are files.
_FILES = ("PATH", "FILE", "FOLDER", "GRAPH", "RULES", "GOOD", "BAD")


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Print the script; returns the exit status. Raises MissingExtra."""
    try:
        import shtab
    except ImportError as error:
        raise missing_extra("Completions are made by shtab", "completion") from error
    from penstock.command.dispatch import whole_parser

    parser = whole_parser()
    for action in _actions(parser):
        shown = action.metavar
        if isinstance(shown, str) and shown.startswith(_FILES):
            action.complete = shtab.FILE
    return put(shtab.complete(parser, options.shell))


# Any: argparse has no public names for the actions of a parser, and for the parsers of one.
def _actions(parser: Any) -> Iterator[Any]:
    for action in parser._actions:
        yield action
        # Of an option they are a list, of sub-commands a mapping to their parsers.
        choices: Any = action.choices
        parsers: list[Any] = list(choices.values()) if hasattr(choices, "values") else []
        for one in parsers:
            yield from _actions(one)
