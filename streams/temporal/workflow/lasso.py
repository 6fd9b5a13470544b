"""Finds infinite paths (lassos: a stem, then a loop taken for ever) on which a formula fails.

Searches the product of the workflow's paths with the Büchi automaton of the negated formula: a path
that the automaton accepts breaks the rule. Source: Vardi and Wolper, "An automata-theoretic
approach to automatic program verification" (LICS 1986).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from penstock.streams.temporal.automata.automaton import Automaton, components, leading_to
from penstock.streams.temporal.automata.translate import MAX_STATES, translate
from penstock.streams.temporal.formula.formula import Unary
from penstock.streams.temporal.monitors.safety import bad_words, safety
from penstock.streams.temporal.workflow.rule import CounterExample, Rule, selected
from penstock.streams.temporal.workflow.space import SearchTooLarge, Space, made
from penstock.streams.temporal.workflow.workflow import Workflow

__all__ = ["lassos", "shortest_lasso"]

_State = tuple[str, Any, int]
_Step = tuple[int, int]
_Lasso = tuple[list[int], list[int]]


def shortest_lasso(workflow: Workflow, rule: Rule, max_states: int) -> CounterExample | None:
    """The lasso of a shortest stem, and of a shortest loop among those, that breaks the rule.

    Shortest in the product, so until the automaton repeats its state as well; if a shorter stem and
    loop describe the same path, those are returned. Another path may have a still shorter stem
    although its run in the product is longer: finding the shortest of all takes more than linear
    time, see Kupferman and Sheinvald-Faragy, "Finding shortest witnesses to the nonemptiness of
    automata on infinite words" (CONCUR 2006).

    Linear time in the product; for the loop, linear in its component for each node at which the
    stem may end. SearchTooLarge beyond `max_states` states.
    """
    product = _product(workflow, rule, max_states)
    found = None if product is None else product.lasso()
    if product is None or found is None:
        return None
    stem, loop = product.names(*found)
    return made(workflow, rule, [*stem, *loop], len(stem))


def lassos(
    workflow: Workflow, rule: Rule, max_nodes: int | None, max_states: int
) -> Iterator[CounterExample]:
    """The lassos whose stem visits no state twice, by length of stem and then of loop, lazily.

    Lengths are those in the product, as for `shortest_lasso`. If a stem can be continued in several
    ways, its lasso has a shortest loop; the others come after longer stems. None is returned twice.
    Stems of `max_nodes` nodes or more are not searched, and none exceeds that together with its
    loop. Time and memory: the stems of one length, of which there may be exponentially many;
    SearchTooLarge beyond `max_states` of them.
    """
    product = _product(workflow, rule, max_states)
    if product is None:
        return
    told: set[tuple[int, tuple[str, ...]]] = set()
    for layer in product.lassos():
        if max_nodes is not None and len(layer[0][0]) >= max_nodes:
            return
        for stem, loop in sorted(
            (product.names(*lasso) for lasso in layer), key=lambda lasso: [*map(len, lasso)]
        ):
            path = (*stem, *loop)
            short = max_nodes is None or len(path) <= max_nodes
            if short and (len(stem), path) not in told:
                told.add((len(stem), path))
                yield made(workflow, rule, list(path), len(stem))


def _product(workflow: Workflow, rule: Rule, max_states: int) -> _Product | None:
    formula = rule.formula_for(workflow)
    assert formula is not None
    if rule.vacuous(workflow) is not None:
        return None
    if isinstance(formula, Automaton):
        # Nothing is complemented: a path breaks the rule if it begins with a bad prefix.
        broken = bad_words(safety(formula, MAX_STATES), formula.propositions)
    else:
        broken = translate(Unary("!", formula))
    return _Product(workflow, rule, broken, max_states)


def _folded(stem: list[str], loop: list[str]) -> tuple[list[str], list[str]]:
    """The same path, without the nodes that only the automaton needed to repeat its state."""
    length = next(
        n for n in range(1, len(loop) + 1)
        if len(loop) % n == 0 and loop == loop[:n] * (len(loop) // n)
    )  # fmt: skip
    loop = loop[:length]
    while stem and stem[-1] == loop[-1]:
        loop = [stem[-1], *loop[:-1]]
        stem = stem[:-1]
    return stem, loop


class _Product:
    """A state is a node, what is seen of the path to it, and the automaton's state before the node.

    States are numbered as they are reached, so that those nearer to the beginning have lower
    numbers. `steps` are (target, the acceptance sets of the step, as bits).
    """

    def __init__(
        self, workflow: Workflow, rule: Rule, automaton: Automaton, max_states: int
    ) -> None:
        space = Space(workflow, rule, max_states)
        asked = frozenset(automaton.propositions)
        letters = {
            name: automaton.letter(node.facts & asked) for name, node in workflow.nodes.items()
        }
        chosen = selected(workflow, rule.initial)
        self._rule = rule
        self._max_states = max_states
        self._all_marks = (1 << automaton.sets) - 1
        self.states: list[_State] = [
            (name, space.first(name), state)
            for name in workflow.nodes
            if name in chosen
            for state in automaton.initial
        ]
        self._depths = [0] * len(self.states)
        self._before: list[int | None] = [None] * len(self.states)
        self._steps: list[list[_Step]] = []
        numbers = {state: number for number, state in enumerate(self.states)}
        for name, seen, state in self.states:
            here = len(self._steps)
            steps: list[_Step] = []
            self._steps.append(steps)
            edges = [edge for edge in automaton.edges[state] if edge.allows(letters[name])]
            following = space.next(name, seen) if edges else []
            for edge in edges:
                for other, seen_then in following:
                    one = (other, seen_then, edge.target)
                    number = numbers.setdefault(one, len(self.states))
                    if number == len(self.states):
                        self.states.append(one)
                        self._depths.append(self._depths[here] + 1)
                        self._before.append(here)
                        if number >= max_states:
                            raise SearchTooLarge(rule, len(self.states), max_states)
                    steps.append((number, edge.marks))

    def lasso(self) -> _Lasso | None:
        """The states of the stem, and those of the loop."""
        accepting = self._accepting()
        if not accepting:
            return None
        nearest = min(self._depths[state] for component in accepting for state in component)
        loops = [
            loop
            for component in accepting
            for state in sorted(component)
            if self._depths[state] == nearest
            if (loop := self._loop(state, component)) is not None
        ]
        loop = min(loops, key=len)
        stem: list[int] = []
        before = self._before[loop[0]]
        while before is not None:
            stem.append(before)
            before = self._before[before]
        return stem[::-1], loop

    def lassos(self) -> Iterator[list[_Lasso]]:
        """The lassos whose stem visits no state twice, each with a shortest loop, by length of
        stem."""
        homes = {state: component for component in self._accepting() for state in component}
        useful = leading_to(homes, len(self.states), self._targets)
        loops: dict[int, list[int] | None] = {}
        layer: list[tuple[int, ...]] = [
            (state,) for state, depth in enumerate(self._depths) if not depth and state in useful
        ]
        while layer:
            found: list[_Lasso] = []
            for walk in layer:
                home = walk[-1]
                if home in homes:
                    if home not in loops:
                        loops[home] = self._loop(home, homes[home])
                    loop = loops[home]
                    assert loop is not None
                    found.append((list(walk[:-1]), loop))
            if found:
                yield found
            layer = [*islice(self._longer(layer, useful), self._max_states + 1)]
            if len(layer) > self._max_states:
                raise SearchTooLarge(self._rule, len(layer), self._max_states)

    def _longer(self, walks: list[tuple[int, ...]], useful: set[int]) -> Iterator[tuple[int, ...]]:
        """The walks extended by one state that they have not visited."""
        for walk in walks:
            for target in dict.fromkeys(self._targets(walk[-1])):
                if target in useful and target not in walk:
                    yield (*walk, target)

    def names(self, stem: list[int], loop: list[int]) -> tuple[list[str], list[str]]:
        """The nodes of a lasso."""
        return _folded(*([self.states[place][0] for place in part] for part in (stem, loop)))

    def _accepting(self) -> list[frozenset[int]]:
        return [
            frozenset(component)
            for component in components(range(len(self.states)), self._targets)
            if self._accepts(component)
        ]

    def _targets(self, state: int) -> list[int]:
        return [target for target, _ in self._steps[state]]

    def _accepts(self, component: Sequence[int]) -> bool:
        inside = frozenset(component)
        marks, cyclic = 0, False
        for state in component:
            for target, step_marks in self._steps[state]:
                if target in inside:
                    marks |= step_marks
                    cyclic = True
        return cyclic and marks == self._all_marks

    def _loop(self, start: int, component: frozenset[int]) -> list[int] | None:
        """A shortest path from `start` back to it that passes every acceptance set."""
        goal = (start, self._all_marks)
        before: dict[_Step, _Step | None] = {(start, 0): None}
        layer: list[_Step] = [(start, 0)]
        while layer:
            deeper: list[_Step] = []
            for here in layer:
                for target, marks in self._steps[here[0]]:
                    one = (target, here[1] | marks)
                    if one == goal:
                        return _back(here, before)
                    if target in component and one not in before:
                        before[one] = here
                        deeper.append(one)
            layer = deeper
        return None


def _back(last: _Step, before: dict[_Step, _Step | None]) -> list[int]:
    way: list[int] = []
    here: _Step | None = last
    while here is not None:
        way.append(here[0])
        here = before[here]
    return way[::-1]
