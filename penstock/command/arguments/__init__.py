"""The command-line arguments, one function per sub-command.

Nothing of the library is imported here, so that `--help` comes at once, and the functions of other
sub-commands are not imported for one.
"""

from __future__ import annotations

from importlib import import_module

from penstock.command.arguments.parsers import AddParser

__all__ = ["COMMANDS", "add_arguments"]

COMMANDS = {
    "run": "pipelines",
    "distinct": "shell",
    "map": "shell",
    "draw": "pipelines",
    "check": "pipelines",
    "diff": "pipelines",
    "schema": "pipelines",
    "check-workflow": "temporal",
    "mine": "temporal",
    "learn": "temporal",
    "monitor": "temporal",
    "counts": "temporal",
    "formula": "temporal",
    "publish": "pipelines",
    "status": "pipelines",
    "dead-letters": "pipelines",
    "queue": "queue",
    "state": "state",
    "turning-point": "pipelines",
    "kata": "stories",
    "santa": "stories",
    "completion": "pipelines",
}
"""The sub-commands in the order of the help, each with the module of its arguments."""


def add_arguments(command: str, add_parser: AddParser) -> None:
    """Add the parser of a sub-command by `add_parser`."""
    module = import_module(f"penstock.command.arguments.{COMMANDS[command]}")
    getattr(module, f"add_{command.replace('-', '_')}")(add_parser)
