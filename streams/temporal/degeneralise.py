"""From a generalised Büchi automaton to a Büchi automaton with the same words."""

from __future__ import annotations

from streams.temporal.automaton import Automaton, Edge
from streams.temporal.reduction import reduced

__all__ = ["degeneralised"]


def degeneralised(automaton: Automaton) -> Automaton:
    """One acceptance set: states are counted through the sets, in order.

    Time and states: those of `automaton`, once for each of its sets. Source: Gastin and Oddoux,
    "Fast LTL to Büchi automata translation" (CAV 2001).
    """
    sets = automaton.sets
    if sets < 2:
        return automaton
    numbers: dict[tuple[int, int], int] = {
        (state, 0): at for at, state in enumerate(automaton.initial)
    }
    order = list(numbers)
    edges: list[tuple[Edge, ...]] = []
    while len(edges) < len(order):
        state, level = order[len(edges)]
        row: list[Edge] = []
        for edge in automaton.edges[state]:
            passed = level
            while passed < sets and edge.marks >> passed & 1:
                passed += 1
            key = (edge.target, passed % sets)
            if key not in numbers:
                numbers[key] = len(order)
                order.append(key)
            row.append(Edge(numbers[key], edge.care, edge.value, int(passed == sets)))
        edges.append(tuple(row))
    initial = tuple(range(len(automaton.initial)))
    return reduced(Automaton(automaton.propositions, tuple(edges), initial, 1))
