"""Reads and writes the guards of edges: conjunctions of literals."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.streams.temporal.automata.automaton import Automaton, Edge
from penstock.streams.temporal.errors import bounded_recursion
from penstock.streams.temporal.formula.cubes import Guards
from penstock.streams.temporal.formula.expansion import Expansion
from penstock.streams.temporal.formula.formula import Formula
from penstock.streams.temporal.formula.normal import Normal

__all__ = ["Covers", "cubes", "literals", "marks", "sets_of"]


class Covers:
    """The conjunctions `(care, value)` that together allow the letters of a Boolean formula.

    Raises FormulaTooLarge for more than 10,000 of them.
    """

    def __init__(self, normal: Normal) -> None:
        self._expansion = Expansion(normal)
        self._guards = Guards(self._expansion.diagrams)

    def of(self, number: int) -> list[tuple[int, int]]:
        found = self._guards.of(self._expansion.of(number)).values()
        return sorted(cube for one in found for cube in self._guards.cubes.of(one, one))


@bounded_recursion()
def cubes(guard: Formula, names: Iterable[str]) -> list[tuple[int, int]]:
    """Conjunctions `(care, value)` that together allow the letters that `guard` allows.

    Raises FormulaTooLarge for more than 10,000 of them.
    """
    normal = Normal(False, names)
    return Covers(normal).of(normal.of(guard))


def literals(automaton: Automaton, edge: Edge) -> list[tuple[int, bool]]:
    """The literals of the guard of `edge`, by the numbers of the propositions."""
    bits = range(len(automaton.propositions))
    return [(bit, bool(edge.value >> bit & 1)) for bit in bits if edge.care >> bit & 1]


def marks(sets: Iterable[int]) -> int:
    """Acceptance sets as bits."""
    return sum(1 << one for one in set(sets))


def sets_of(edge: Edge) -> list[int]:
    """The acceptance sets of an edge."""
    return [one for one in range(edge.marks.bit_length()) if edge.marks >> one & 1]
