"""Rules about the paths of a workflow: initial nodes, allowed arcs, final nodes, and a formula.

A rule looks for a counter-example: a path from an initial to a final node that should not be there,
or, with a formula, one on which the formula fails. Without final nodes the paths are infinite, and
a counter-example is a stem and a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from penstock.streams.base.errors import PenstockError
from penstock.streams.base.validation import is_count
from penstock.streams.temporal.automata.automaton import (
    Automaton,
    components,
    names_in,
    text_of,
)
from penstock.streams.temporal.errors import UnknownProposition
from penstock.streams.temporal.formula.formula import Formula, timed_parts
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.temporal.formula.timed_rules import without_time
from penstock.streams.temporal.workflow.workflow import Node, Workflow, WorkflowError

__all__ = ["BrokenRule", "CounterExample", "Rule", "Selector", "conditions", "selected"]

Selector = str | Callable[[Node], bool]
"""The nodes with a fact (a name, a label, `input`), or those that a function picks."""


def conditions(node: Node, visited: frozenset[str]) -> bool:
    """The default arcs of a rule: whether a path that has visited these nodes may continue to
    `node`.

    Yes after one of its `through`; else not after one of its `not_through`; else only if it has no
    `through`.
    """
    if not visited.isdisjoint(node.through):
        return True
    return visited.isdisjoint(node.not_through) and not node.through


@dataclass(frozen=True, slots=True)
class Rule:
    """A property that no path of a workflow may violate.

    `arcs(node, seen)` says whether a path may go on to `node`: it sees the set of the nodes
    `visited` so far, or with `sees="path"` the whole path, the current node last; then `max_nodes`
    is needed, for the search might not end. Paths have `min_nodes` or more. Raises WorkflowError
    for a rule without final nodes and formula and for invalid bounds, FormulaSyntaxError, and
    TimedFormula.
    """

    name: str
    initial: Selector
    final: Selector | None = None
    formula: Formula | Automaton | str | None = None
    arcs: Callable[[Node, Any], bool] = conditions
    sees: Literal["visited", "path"] = "visited"
    min_nodes: int = 1
    max_nodes: int | None = None

    def __post_init__(self) -> None:
        if self.final is None and self.formula is None:
            raise WorkflowError(
                f"rule {self.name!r} has neither final nodes nor a formula: nothing is forbidden"
            )
        if self.sees not in ("visited", "path"):
            raise WorkflowError(
                f'rule {self.name!r}: sees={self.sees!r} must be "visited" or "path"'
            )
        if self.sees == "path" and (self.max_nodes is None or self.final is None):
            raise WorkflowError(
                f'rule {self.name!r}: sees="path" needs max_nodes and final nodes, for each path '
                "is different and the search would not end"
            )
        for which, selector in (("initial", self.initial), ("final", self.final)):
            unset: object = selector
            if not (
                isinstance(unset, str) or callable(unset) or (unset is None and which == "final")
            ):
                raise WorkflowError(
                    f"rule {self.name!r}: {which}={unset!r} must be a fact of nodes, or a function "
                    "that picks them"
                )
        least, most = self.min_nodes, self.max_nodes
        if not is_count(least) or (most is not None and not (is_count(most) and most >= least)):
            raise WorkflowError(
                f"rule {self.name!r}: min_nodes={self.min_nodes}, max_nodes={self.max_nodes}: "
                "1 <= min_nodes <= max_nodes is needed"
            )
        given: Any = self.formula
        if not (given is None or isinstance(given, str | Formula | Automaton)):
            raise WorkflowError(
                f"rule {self.name!r}: formula={given!r} must be a formula, its text, or a Büchi "
                "automaton"
            )
        if isinstance(self.formula, str):
            object.__setattr__(self, "formula", parse(self.formula))
        if isinstance(self.formula, Formula):
            for timed in timed_parts(self.formula):
                raise without_time(timed, "the paths of a workflow have no time")

    def formula_for(self, workflow: Workflow) -> Formula | Automaton | None:
        """The formula, or the automaton. Raises UnknownProposition if it names something that is
        not a fact of any node."""
        formula = self.formula
        assert not isinstance(formula, str)
        if formula is not None:
            known = workflow.facts
            for name, position in names_in(formula).items():
                if name not in known:
                    raise UnknownProposition(name, position, known)
        return formula

    def names(self) -> list[str]:
        """The steps and labels that the rule names."""
        formula = self.formula
        assert not isinstance(formula, str)
        selectors = (one for one in (self.initial, self.final) if isinstance(one, str))
        return list(dict.fromkeys([*selectors, *(() if formula is None else names_in(formula))]))

    def lacking(self, workflow: Workflow) -> list[str]:
        """The steps and labels that the rule names and this workflow lacks: it applies to a
        workflow that lacks none."""
        known = workflow.facts
        return [name for name in self.names() if name not in known]

    def vacuous(self, workflow: Workflow) -> str | None:
        """Why the rule is vacuous for this workflow, if it is.

        Raises WorkflowError if it selects nodes by something that is not a fact of any.
        """
        for which, selector in (("initial", self.initial), ("final", self.final)):
            if selector is not None and not selected(workflow, selector):
                return f"it selects no {which} node"
        if self.final is None and not _goes_round(workflow, selected(workflow, self.initial)):
            return "every path from its initial nodes comes to an end"
        return None


def selected(workflow: Workflow, selector: Selector) -> frozenset[str]:
    """The names of the nodes. Raises WorkflowError for a fact that no node has."""
    if isinstance(selector, str):
        found = frozenset(name for name, node in workflow.nodes.items() if selector in node.facts)
        if not found:
            raise WorkflowError(
                f"{selector!r} is neither a node nor a label of one: "
                f"there are {', '.join(sorted(workflow.facts)[:20])}"
            )
        return found
    return frozenset(name for name, node in workflow.nodes.items() if selector(node))


def _goes_round(workflow: Workflow, names: Iterable[str]) -> bool:
    """Whether a path from one of the nodes can come back to where it was."""
    if len(workflow.inputs) > 1:
        # Each may follow any other node, and so may the next one of them.
        return bool(tuple(names))
    return any(
        len(component) > 1 or component[0] in workflow.following(component[0])
        for component in components(names, workflow.following)
    )


@dataclass(frozen=True, slots=True)
class CounterExample:
    """A path that breaks a rule.

    `arcs[i]` is how it came from `path[i]` to the next, by "goto" or "input"; `letters` is what
    of the formula is true at each node. A path without end goes back from its last node to
    `path[loop]`, by the last of `arcs`.
    """

    rule: Rule
    path: tuple[str, ...]
    arcs: tuple[str, ...]
    letters: tuple[frozenset[str], ...]
    loop: int | None = None

    @property
    def steps(self) -> list[tuple[str, str]]:
        """The arcs that it takes, as (from, to)."""
        whole = self.path if self.loop is None else (*self.path, self.path[self.loop])
        return list(pairwise(whole))

    def describe(self) -> str:
        """The rule with its formula, and the path as `trace` shows it."""
        assert not isinstance(self.rule.formula, str)
        formula = "" if self.rule.formula is None else f", {text_of(self.rule.formula)} fails"
        return f"{self.rule.name}: BROKEN{formula}\n{self.trace()}"

    def trace(self) -> str:
        """A line for each node: how the path reaches it, and which propositions of the formula
        hold there."""
        ways = ["begins", *(f"by {arc}" for arc in self.arcs)]
        width = max(map(len, self.path))
        lines = [
            f"    {way:<9}  {name:<{width}}  {' '.join(sorted(letter))}".rstrip()
            for name, way, letter in zip(self.path, ways, self.letters, strict=False)
        ]
        if self.loop is not None:
            lines.append(f"    {ways[-1]:<9}  {self.path[self.loop]}  again, and so on for ever")
        return "\n".join(lines)

    def __str__(self) -> str:
        if self.loop is None:
            return " -> ".join(self.path)
        stem = "".join(f"{name} -> " for name in self.path[: self.loop])
        return f"{stem}({' -> '.join(self.path[self.loop :])}) again and again"


class BrokenRule(PenstockError):
    """A workflow has a path that breaks a rule; it is in `counter_example`."""

    def __init__(self, counter_example: CounterExample) -> None:
        self.counter_example = counter_example
        super().__init__(f"rule {counter_example.rule.name!r} is broken by {counter_example}")
