"""From a generalised Büchi automaton to a Büchi automaton with the same words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from streams.temporal.automaton import Automaton, Edge
from streams.temporal.reduction import reduced

__all__ = ["degeneralised"]

# Of more sets there are too many orders to try.
_MOST_TRIED = 3


def degeneralised(automaton: Automaton) -> Automaton:
    """One acceptance set: states are counted through the sets, in the order that needs the fewest.

    Time and states: those of `automaton`, once for each of its sets; time six times that for
    three sets, beyond which only one order is tried. Source: Gastin and Oddoux, "Fast LTL to Büchi
    automata translation" (CAV 2001).
    """
    if automaton.sets < 2:
        return automaton
    orders = permutations(range(automaton.sets))
    tried = orders if automaton.sets <= _MOST_TRIED else (range(automaton.sets),)
    return min((_counted(automaton, order) for order in tried), key=len)


def _counted(automaton: Automaton, order: Sequence[int]) -> Automaton:
    sets = len(order)
    numbers: dict[tuple[int, int], int] = {
        (state, 0): at for at, state in enumerate(automaton.initial)
    }
    found = list(numbers)
    edges: list[tuple[Edge, ...]] = []
    while len(edges) < len(found):
        state, level = found[len(edges)]
        row: list[Edge] = []
        for edge in automaton.edges[state]:
            passed = level
            while passed < sets and edge.marks >> order[passed] & 1:
                passed += 1
            key = (edge.target, passed % sets)
            if key not in numbers:
                numbers[key] = len(found)
                found.append(key)
            row.append(Edge(numbers[key], edge.care, edge.value, int(passed == sets)))
        edges.append(tuple(row))
    initial = tuple(range(len(automaton.initial)))
    return reduced(Automaton(automaton.propositions, tuple(edges), initial, 1))
