"""Reads the rules of a Python file."""

from __future__ import annotations

from types import ModuleType

from penstock.command.pipelines.load import load_module
from penstock.streams.base.errors import BuildError
from penstock.streams.temporal.workflow.rule import Rule

__all__ = ["read_rules"]


def read_rules(file: str, words: list[str], *, whole: bool) -> list[Rule]:
    """The rules in public variables, by themselves or in lists, in order.

    `words` become the file's arguments; `whole` keeps penstock's own frames in tracebacks. Raises
    BuildError for a file that cannot be loaded or has no rules.
    """
    rules = _rules_of(load_module(file, words, "rule", whole=whole))
    if not rules:
        raise BuildError(
            f"{file} has no rules: it needs some in variables of the module, as in "
            "`rules = [Rule(...)]`"
        )
    return rules


def _rules_of(module: ModuleType) -> list[Rule]:
    found: dict[int, Rule] = {}
    for name, value in vars(module).items():
        if not name.startswith("_"):
            values = value if isinstance(value, list | tuple) else [value]  # pyright: ignore[reportUnknownVariableType]
            found.update((id(one), one) for one in values if isinstance(one, Rule))  # pyright: ignore[reportUnknownVariableType]
    return list(found.values())
