"""What searches for paths of a workflow share: its nodes as a rule sees them, and their limit."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from penstock.streams.base.errors import BuildError
from penstock.streams.temporal.automata.automaton import names_in
from penstock.streams.temporal.workflow.rule import CounterExample, Rule, conditions
from penstock.streams.temporal.workflow.workflow import Workflow

__all__ = ["SearchTooLarge", "Space", "made"]

# Per allowed state.
_ARCS = 10


class SearchTooLarge(BuildError):
    """A search reached more states than allowed."""

    def __init__(self, rule: Rule, reached: int, limit: int, what: str = "states") -> None:
        self.reached = reached
        self.limit = limit
        super().__init__(
            f"rule {rule.name!r}: the search reached {reached:,} {what}, and {limit:,} is the "
            "limit: let its arcs look at fewer nodes, give max_nodes, or raise max_states"
        )


def made(
    workflow: Workflow, rule: Rule, path: list[str], loop: int | None = None
) -> CounterExample:
    """The counter-example of a path."""
    ends = path if loop is None else [*path, path[loop]]
    arcs = tuple(workflow.following(a)[b] for a, b in pairwise(ends))
    formula = rule.formula_for(workflow)
    names = frozenset(() if formula is None else names_in(formula))
    letters = tuple(workflow.nodes[name].facts & names for name in path)
    return CounterExample(rule, tuple(path), arcs, letters, loop)


class Space:
    """The nodes of a workflow, with what a rule's arcs can see of the path to them.

    Of the visited nodes only those that the conditions name count; they are bits of a number.
    Raises SearchTooLarge when asked for more than ten arcs for each of `max_states`.
    """

    def __init__(self, workflow: Workflow, rule: Rule, max_states: int) -> None:
        self._workflow = workflow
        self._rule = rule
        self._arcs = 0
        self._most_arcs = _ARCS * max_states
        self._allows: Callable[[Any, Any], bool] = rule.arcs
        self._sees_path = rule.sees == "path"
        nodes = workflow.nodes
        watched: list[str] = list(nodes)
        self._free: frozenset[str] = frozenset()
        if rule.arcs is conditions:
            named = {name for n in nodes.values() for name in (*n.through, *n.not_through)}
            watched = [name for name in nodes if name in named]
            self._free = frozenset(
                name for name, n in nodes.items() if not n.through and not n.not_through
            )
        self._bits = {name: 1 << at for at, name in enumerate(watched)}
        self._visited: dict[int, frozenset[str]] = {}

    def first(self, name: str) -> Any:
        """The view of a path that begins at a node."""
        return (name,) if self._sees_path else self._bits.get(name, 0)

    def next(self, name: str, seen: Any) -> list[tuple[str, Any]]:
        """The nodes to which a path may continue, and the view of the path then."""
        following = self._workflow.following(name)
        self._arcs += len(following)
        if self._arcs > self._most_arcs:
            raise SearchTooLarge(self._rule, self._arcs, self._most_arcs, "arcs")
        nodes, allows, free = self._workflow.nodes, self._allows, self._free
        if self._sees_path:
            return [(one, (*seen, one)) for one in following if allows(nodes[one], seen)]
        visited = self._visited.get(seen)
        if visited is None:
            visited = frozenset(one for one, bit in self._bits.items() if seen & bit)
            self._visited[seen] = visited
        return [
            (one, seen | self._bits.get(one, 0))
            for one in following
            if one in free or allows(nodes[one], visited)
        ]
