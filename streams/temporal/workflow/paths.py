"""Model checking of workflows: the counter-examples to a rule about paths, shortest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from penstock.streams.temporal.monitors.monitor import Monitor
from penstock.streams.temporal.monitors.verdict import Verdict
from penstock.streams.temporal.workflow.lasso import lassos, shortest_lasso
from penstock.streams.temporal.workflow.rule import (
    BrokenRule,
    CounterExample,
    Rule,
    selected,
)
from penstock.streams.temporal.workflow.space import SearchTooLarge, Space, made
from penstock.streams.temporal.workflow.workflow import Workflow

__all__ = [
    "MAX_STATES",
    "counter_example",
    "counter_examples",
]

MAX_STATES = 500_000


def counter_example(
    workflow: Workflow, rule: Rule, *, raise_on: bool = False, max_states: int = MAX_STATES
) -> CounterExample | None:
    """A shortest path that breaks the rule, None if there is none.

    With a formula and final nodes, the formula fails on the path as a monitor would report at the
    end of such events; with an automaton, the path begins with a bad prefix. Without final nodes it
    is a lasso, of a shortest stem and then a shortest loop in the product with the automaton of the
    formula's negation (of a given automaton's bad prefixes), returned without the nodes that only
    the automaton needed; a path that reaches a node without successors is not considered.

    Time and memory: nodes times monitor states times what the arcs can tell apart, which is 2 to
    the number of nodes in conditions at worst; raises raises SearchTooLarge beyond `max_states`,
    and beyond ten arcs for each of these. With `raise_on` it raises BrokenRule instead of
    returning. Also raises WorkflowError, UnknownProposition and FormulaTooLarge.
    """
    if rule.final is None:
        found = shortest_lasso(workflow, rule, max_states)
    else:
        found = None
        if rule.vacuous(workflow) is None:
            path = _Product(workflow, rule, rule.max_nodes, max_states).shortest()
            found = None if path is None else made(workflow, rule, path)
    if raise_on and found is not None:
        raise BrokenRule(found)
    return found


def counter_examples(
    workflow: Workflow, rule: Rule, *, max_nodes: int | None = None, max_states: int = MAX_STATES
) -> Iterator[CounterExample]:
    """All paths that break a rule, lazily, in order of length.

    If they can go in circles they are infinitely many, unless `max_nodes` bounds them. The next is
    found in time linear in its length and, each time the length grows by one, in the states.
    Without final nodes they are lassos whose stems visit no state twice, by length of stem and then
    of loop, both in the product; there may be exponentially many of one length. Otherwise as
    `counter_example`.
    """
    limits = [limit for limit in (max_nodes, rule.max_nodes) if limit is not None]
    longest = min(limits, default=None)
    if rule.final is None:
        yield from lassos(workflow, rule, longest, max_states)
        return
    if rule.vacuous(workflow) is not None:
        return
    for path in _Product(workflow, rule, longest, max_states).paths():
        yield made(workflow, rule, path)


# The node, the view of the path to it, the monitor's state after it, and the number of nodes of the
# path, up to the rule's minimum. A named tuple takes three times as long to make.
_State: TypeAlias = tuple[str, Any, int, int]


class _Product:
    """The product of the workflow's paths and the monitor of the rule's formula.

    Both are deterministic, so each path is one run.
    """

    def __init__(
        self, workflow: Workflow, rule: Rule, longest: int | None, max_states: int
    ) -> None:
        assert rule.final is not None
        self._rule = rule
        self._longest = longest
        self._max_states = max_states
        self._space = Space(workflow, rule, max_states)
        self._final = selected(workflow, rule.final)
        formula = rule.formula_for(workflow)
        self._monitor = None if formula is None else Monitor(formula)
        self._letters: dict[str, int] = {}
        if self._monitor is not None:
            asked = frozenset(self._monitor.propositions)
            self._letters = {
                name: self._monitor.letter(node.facts & asked)
                for name, node in workflow.nodes.items()
            }
        chosen = selected(workflow, rule.initial)
        first = [(name, self._space.first(name)) for name in workflow.nodes if name in chosen]
        self._initial = self._states(first, Monitor.first, 0)

    def _states(self, places: list[tuple[str, Any]], judged: int, nodes: int) -> list[_State]:
        """The states after a state, when its path continues to `places`."""
        nodes = min(nodes + 1, self._rule.min_nodes)
        if self._monitor is None:
            return [(name, seen, judged, nodes) for name, seen in places]
        step, letters = self._monitor.next, self._letters
        return [(name, seen, step(judged, letters[name]), nodes) for name, seen in places]

    def _breaks(self, state: _State) -> bool:
        name, _, judged, nodes = state
        return (
            name in self._final
            and nodes == self._rule.min_nodes
            and (self._monitor is None or self._monitor.at_end(judged) is Verdict.FALSE)
        )

    def _next(self, state: _State) -> list[_State]:
        name, seen, judged, nodes = state
        # A formula that holds for good cannot be broken any more.
        if self._monitor is not None and self._monitor.verdict(judged) is Verdict.TRUE:
            return []
        return self._states(self._space.next(name, seen), judged, nodes)

    def shortest(self) -> list[str] | None:
        """A shortest path that breaks the rule."""
        before: dict[_State, _State | None] = dict.fromkeys(self._initial)
        for state in self._reached(before):
            if self._breaks(state):
                path: list[str] = []
                last: _State | None = state
                while last is not None:
                    path.append(last[0])
                    last = before[last]
                return path[::-1]
        return None

    def _reached(
        self,
        before: dict[_State, _State | None],
        following: dict[_State, list[_State]] | None = None,
    ) -> Iterator[_State]:
        """All states in breadth-first order; fills the dicts."""
        layer, nodes = list(before), 1
        while layer:
            deeper: list[_State] = []
            for state in layer:
                yield state
                found = [] if nodes == self._longest else self._next(state)
                if following is not None:
                    following[state] = found
                for one in found:
                    if one not in before:
                        before[one] = state
                        deeper.append(one)
                        if len(before) > self._max_states:
                            raise SearchTooLarge(self._rule, len(before), self._max_states)
            layer, nodes = deeper, nodes + 1

    def paths(self) -> Iterator[list[str]]:
        """All that break the rule, in order of length."""
        following: dict[_State, list[_State]] = {}
        ends = {
            s for s in self._reached(dict.fromkeys(self._initial), following) if self._breaks(s)
        }
        before: dict[_State, list[_State]] = {}
        for state, found in following.items():
            for one in found:
                before.setdefault(one, []).append(state)
        # The states from which a path breaks the rule after so many arcs, so that no walk is in
        # vain.
        after = [ends]
        while after[-1] and (self._longest is None or len(after) <= self._longest):
            for state in self._initial:
                yield from _walks(state, following, after)
            after.append({one for state in after[-1] for one in before.get(state, ())})


def _walks(
    start: _State, following: dict[_State, list[_State]], after: list[set[_State]]
) -> Iterator[list[str]]:
    """The walks from `start` with one arc less than the length of `after`."""
    walk: list[_State] = []
    work = [iter([start])]
    while work:
        left = len(after) - 1 - len(walk)
        state = next((one for one in work[-1] if one in after[left]), None)
        if state is None:
            work.pop()
            del walk[-1:]
        elif left == 0:
            yield [*(name for name, *_ in walk), state[0]]
        else:
            walk.append(state)
            work.append(iter(following[state]))
