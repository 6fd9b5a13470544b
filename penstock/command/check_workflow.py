"""`penstock check-workflow`: finds the paths of a workflow that break the rules of a file."""

from __future__ import annotations

from argparse import Namespace
from itertools import islice
from types import ModuleType

from penstock.command.explain import explain, users_line
from penstock.command.load import load_module
from penstock.command.output import put, write
from penstock.streams.errors import BuildError, PenstockError
from penstock.streams.temporal.automata.automaton import text_of
from penstock.streams.temporal.workflow.paths import (
    SearchTooLarge,
    counter_example,
    counter_examples,
)
from penstock.streams.temporal.workflow.rule import CounterExample, Rule
from penstock.streams.temporal.workflow.workflow import Workflow, read_workflow

__all__ = ["call"]

_BROKEN, _SAYS_NOTHING = 1, 3


def call(options: Namespace, words: list[str]) -> int:
    """Report on each rule.

    Returns 0 if all hold, 1 if one is broken, else 3 if one does not apply to this workflow. Raises
    BuildError for a workflow, rules or a picture that cannot be read or written.
    """
    workflow = read_workflow(options.graph)
    rules = _rules_of(load_module(options.rules, words, "rule", whole=options.traceback))
    if not rules:
        raise BuildError(
            f"{options.rules} has no rules: it needs some in variables of the module, as in "
            "`rules = [Rule(...)]`"
        )
    if options.draw and not options.draw.endswith((".svg", ".dot")):
        raise BuildError(f"--draw {options.draw}: the name must end in .svg or .dot")
    arcs = sum(1 for _ in workflow.arcs())
    put(f"{options.graph}: {len(workflow.nodes):,} nodes, {arcs:,} arcs\n")
    status, first = 0, None
    for rule in rules:
        try:
            nothing = rule.vacuous(workflow)
            found = _found(workflow, rule, options.all)
        except SearchTooLarge as error:
            # It names its rule.
            raise BuildError(f"{options.rules}: {error}") from error
        except PenstockError as error:
            raise BuildError(f"{options.rules}: rule {rule.name!r}: {error}") from error
        except Exception as error:
            line = users_line(error) or options.rules
            told = explain(error, whole=options.traceback)
            raise BuildError(f"{line}: rule {rule.name!r} raised an error\n{told}") from error
        put(_told(rule, found, nothing))
        if found:
            status = _BROKEN
            first = first or found[0]
        elif nothing and not status:
            status = _SAYS_NOTHING
    if options.draw:
        _draw(workflow, first, options.draw)
    return status


def _rules_of(module: ModuleType) -> list[Rule]:
    """Those in public variables, by themselves or in lists, in order."""
    found: dict[int, Rule] = {}
    for name, value in vars(module).items():
        if not name.startswith("_"):
            values = value if isinstance(value, list | tuple) else [value]  # pyright: ignore[reportUnknownVariableType]
            found.update((id(one), one) for one in values if isinstance(one, Rule))  # pyright: ignore[reportUnknownVariableType]
    return list(found.values())


def _found(workflow: Workflow, rule: Rule, most: int) -> list[CounterExample]:
    if most > 1:
        return list(islice(counter_examples(workflow, rule), most))
    found = counter_example(workflow, rule)
    return [] if found is None else [found]


def _told(rule: Rule, found: list[CounterExample], nothing: str | None) -> str:
    if nothing:
        return f"{rule.name}: says nothing, {nothing}\n"
    if not found:
        return f"{rule.name}: holds\n"
    assert not isinstance(rule.formula, str)
    formula = "" if rule.formula is None else f", {text_of(rule.formula)} fails"
    return f"{rule.name}: BROKEN{formula}\n" + "\n".join(map(_path, found))


def _path(example: CounterExample) -> str:
    """A line for each node: how the path reaches it, and which propositions of the formula hold
    there."""
    ways = ["begins", *(f"by {arc}" for arc in example.arcs)]
    width = max(map(len, example.path))
    lines = [
        f"    {way:<9}  {name:<{width}}  {' '.join(sorted(letter))}".rstrip()
        for name, way, letter in zip(example.path, ways, example.letters, strict=False)
    ]
    if example.loop is not None:
        lines.append(f"    {ways[-1]:<9}  {example.path[example.loop]}  again, and so on for ever")
    return "\n".join([*lines, ""])


def _draw(workflow: Workflow, example: CounterExample | None, path: str) -> None:
    from penstock.command.workflow_picture import as_dot, as_svg

    picture = (as_svg if path.endswith(".svg") else as_dot)(workflow, example)
    write(picture, path)
