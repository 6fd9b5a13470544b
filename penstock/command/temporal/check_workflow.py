"""`penstock check-workflow`: finds the paths of workflows that break the rules of a file."""

from __future__ import annotations

from argparse import Namespace
from itertools import islice
from typing import TYPE_CHECKING

from penstock.command.explain import explain, users_line
from penstock.command.output import counted, put, write
from penstock.command.temporal.rules import read_rules
from penstock.streams.base.errors import BuildError, PenstockError
from penstock.streams.temporal.automata.automaton import Automaton
from penstock.streams.temporal.workflow.paths import counter_example, counter_examples
from penstock.streams.temporal.workflow.rule import CounterExample, Rule
from penstock.streams.temporal.workflow.space import SearchTooLarge
from penstock.streams.temporal.workflow.workflow import Workflow, near, read_workflow

if TYPE_CHECKING:
    from penstock.streams.pictures.workflow import Picture

__all__ = ["broken_by", "call", "check_picture", "held", "nothing", "said_of"]

_BROKEN, _VACUOUS = 1, 3


def call(options: Namespace, words: list[str]) -> int:
    """Report on each rule, for one workflow after the other.

    Returns 0 if all hold where they apply, 1 if one is broken, else 3 if one is vacuous. Raises
    BuildError for a workflow, rules or a picture that cannot be read or written, and for a rule
    that applies to none of the workflows.
    """
    graphs, file = _sorted_out(options.files)
    workflows = {graph: read_workflow(graph) for graph in graphs}
    rules = read_rules(file, words, whole=options.traceback)
    for rule in rules:
        _check_applies(rule, workflows, file)
    check_picture(options.draw)
    status = 0
    drawn: tuple[Workflow, CounterExample | None] = (workflows[graphs[0]], None)
    for graph, workflow in workflows.items():
        nodes = counted(len(workflow.nodes), "node")
        put(f"{graph}: {nodes}, {counted(sum(1 for _ in workflow.arcs()), 'arc')}\n")
        for rule in rules:
            if lacks := rule.lacking(workflow):
                put(f"{rule.name}: not applicable, there is {nothing(lacks)}\n")
                continue
            found, vacuous = broken_by(
                rule, workflow, file, most=options.all, whole=options.traceback
            )
            put(said_of(rule, found, vacuous))
            if found:
                status = _BROKEN
                if drawn[1] is None:
                    drawn = workflow, found[0]
            elif vacuous and not status:
                status = _VACUOUS
    if options.draw:
        _draw(*drawn, options.draw)
    return status


def broken_by(
    rule: Rule, workflow: Workflow, file: str, *, most: int = 1, whole: bool = False
) -> tuple[list[CounterExample], str | None]:
    """The first counter-examples, and why the rule is vacuous if it is.

    Raises BuildError with the name of the rule for every error; `whole` keeps penstock's own frames
    in tracebacks.
    """
    try:
        return _found(workflow, rule, most), rule.vacuous(workflow)
    except SearchTooLarge as error:
        # It names its rule.
        raise BuildError(f"{file}: {error}") from error
    except PenstockError as error:
        raise BuildError(f"{file}: rule {rule.name!r}: {error}") from error
    except Exception as error:
        line = users_line(error) or file
        told = explain(error, whole=whole)
        raise BuildError(f"{line}: rule {rule.name!r} raised an error\n{told}") from error


def check_picture(path: str | None) -> None:
    """Raises BuildError for the name of a picture that would not be drawn."""
    if path is not None and not path.endswith((".svg", ".dot")):
        raise BuildError(f"--draw {path}: the name must end in .svg or .dot")


def _sorted_out(files: list[str]) -> tuple[list[str], str]:
    """The graphs and the file of rules."""
    rules = [name for name in files if name.endswith(".py")]
    graphs = list(dict.fromkeys(name for name in files if name not in rules))
    if len(rules) != 1 or not graphs:
        raise BuildError(
            "check-workflow needs graphs and one .py file with rules: "
            f"{counted(len(graphs), 'graph')} and {counted(len(rules), '.py file')} are given"
        )
    return graphs, rules[0]


def _check_applies(rule: Rule, workflows: dict[str, Workflow], file: str) -> None:
    reasons = {graph: rule.lacking(workflow) for graph, workflow in workflows.items()}
    if all(reasons.values()):
        graph, lacks = next(iter(reasons.items()))
        guess = near(lacks[0], workflows[graph].facts)
        raise BuildError(
            f"{file}: rule {rule.name!r} applies to no graph: {graph} has {nothing(lacks)}{guess}"
        )


def nothing(lacks: list[str]) -> str:
    """A message that there are no such steps."""
    return f"no step or label {', '.join(map(repr, lacks))}"


def _found(workflow: Workflow, rule: Rule, most: int) -> list[CounterExample]:
    if most > 1:
        return list(islice(counter_examples(workflow, rule), most))
    found = counter_example(workflow, rule)
    return [] if found is None else [found]


def said_of(rule: Rule, found: list[CounterExample], vacuous: str | None) -> str:
    """The lines about a rule and its counter-examples."""
    if vacuous:
        return f"{rule.name}: says nothing, {vacuous}\n"
    if not found:
        return f"{rule.name}: {held(rule)}\n"
    return "\n\n".join([found[0].describe(), *(one.trace() for one in found[1:])]) + "\n"


def held(rule: Rule) -> str:
    """The message about a rule that is not broken."""
    if isinstance(rule.formula, Automaton):
        return "holds for beginnings of paths; what else its automaton requires is not checked"
    return "holds"


def _draw(workflow: Workflow, example: CounterExample | None, path: str) -> None:
    from penstock.streams.pictures.workflow import picture_of

    save(picture_of(workflow, example), path)


def save(picture: Picture, path: str) -> None:
    """Write the picture to a file, as SVG or, for `.dot`, for Graphviz. Raises CannotOpen."""
    from penstock.streams.pictures.workflow import as_dot, as_svg

    write(as_svg(picture) if path.endswith(".svg") else as_dot(picture), path)
