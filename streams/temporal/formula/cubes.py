"""Covers of Boolean functions: disjunctions of a few conjunctions of literals (cubes).

Source: Minato, "Fast generation of prime-irredundant covers from binary decision diagrams" (1993).
"""

from __future__ import annotations

from typing import Generic, TypeVar

from penstock.streams.temporal.errors import FormulaTooLarge
from penstock.streams.temporal.formula.decisions import Decisions

__all__ = ["Cubes", "Guards"]

T = TypeVar("T")

# For one guard. "An odd number of thirteen propositions hold" takes 4,096.
_MOST_CUBES = 10_000

_Cover = tuple[tuple[tuple[int, int], ...], int]


class Cubes:
    """Covers of the functions of `diagrams`; results for shared parts are remembered.

    Raises FormulaTooLarge for a cover of more than 10,000 conjunctions.
    """

    def __init__(self, diagrams: Decisions[bool]) -> None:
        self._diagrams = diagrams
        self._false, self._true = diagrams.leaf(False), diagrams.leaf(True)
        self._both = diagrams.joining(lambda a, b: a and b, self._true, self._false)
        self.either = diagrams.joining(lambda a, b: a or b, self._false, self._true)
        self._not = diagrams.mapping(diagrams, lambda a: not a)
        self._known: dict[tuple[int, int], _Cover] = {}

    def of(self, least: int, most: int) -> tuple[tuple[int, int], ...]:
        """Conjunctions `(care, value)` that together allow every letter of `least` and none outside
        `most`. None of them could be left out or made wider."""
        return self._cover(least, most)[0]

    def _cover(self, least: int, most: int) -> _Cover:
        """The same, with the function that they form."""
        if least == self._false:
            return (), self._false
        if most == self._true:
            return ((0, 0),), self._true
        key = (least, most)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._split(least, most)
        return found

    def _split(self, least: int, most: int) -> _Cover:
        diagrams = self._diagrams
        bit = min(diagrams.first_bit(least), diagrams.first_bit(most))
        no_least, yes_least = diagrams.halves(least, bit)
        no_most, yes_most = diagrams.halves(most, bit)
        # The part only for letters without it, the part only for letters with it, and the rest.
        no, no_made = self._cover(self._both(no_least, self._not(yes_most)), no_most)
        yes, yes_made = self._cover(self._both(yes_least, self._not(no_most)), yes_most)
        left = self.either(
            self._both(no_least, self._not(no_made)), self._both(yes_least, self._not(yes_made))
        )
        free, free_made = self._cover(left, self._both(no_most, yes_most))
        literal = 1 << bit
        cubes = (
            *((care | literal, value) for care, value in no),
            *((care | literal, value | literal) for care, value in yes),
            *free,
        )
        if len(cubes) > _MOST_CUBES:
            raise FormulaTooLarge("the number of edges of a state", len(cubes), _MOST_CUBES)
        made = diagrams.fork(bit, self.either(no_made, free_made), self.either(yes_made, free_made))
        return cubes, made


class Guards(Generic[T]):
    """For each member, the letters for which it is in the set that a function of `sets` gives."""

    def __init__(self, sets: Decisions[frozenset[T]]) -> None:
        self._sets = sets
        self._guards: Decisions[bool] = Decisions()
        self._never, self._always = self._guards.leaf(False), self._guards.leaf(True)
        self._known: dict[int, dict[T, int]] = {}
        self.cubes = Cubes(self._guards)

    def of(self, number: int) -> dict[T, int]:
        """The guard of each member of any of the sets, for `cubes`."""
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = self._find(number)
        return found

    def _find(self, number: int) -> dict[T, int]:
        sets = self._sets
        if sets.is_leaf(number):
            return dict.fromkeys(sets.at(number, 0), self._always)
        bit = sets.first_bit(number)
        no, yes = map(self.of, sets.halves(number, bit))
        return {
            one: self._guards.fork(bit, no.get(one, self._never), yes.get(one, self._never))
            for one in (*no, *(one for one in yes if one not in no))
        }
