"""Functions from letters to anything, as decision diagrams that share equal parts.

Two functions are equal if and only if their numbers are.

Source: Bryant, "Graph-based algorithms for Boolean function manipulation" (1986), with more than
two kinds of leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import reduce
from typing import Generic, TypeVar

from streams.temporal.errors import FormulaTooLarge

__all__ = ["Decisions", "ones"]

T = TypeVar("T", bound=Hashable)
S = TypeVar("S", bound=Hashable)
U = TypeVar("U", bound=Hashable)

Guarded = tuple[int, int, T]
Join = Callable[[int, int], int]


# Comes after all propositions.
_LEAF = 1 << 30

# Twenty alternatives that each ask for a proposition of their own would make a million parts, which
# take minutes and gigabytes; formulas of a dozen operators make a fifth of this at most.
_MOST_PARTS = 500_000


class Decisions(Generic[T]):
    """A collection of diagrams. A letter is a number whose bits are the propositions.

    Everything that makes a new part raises FormulaTooLarge beyond half a million of them.
    """

    def __init__(self) -> None:
        self._leaves: dict[T, int] = {}
        self._forks: dict[tuple[int, int, int], int] = {}
        # Of each part: the bit that it asks for, and the parts for letters without and with it.
        self._bits: list[int] = []
        self._without: list[int] = []
        self._with: list[int] = []
        self._values: dict[int, T] = {}

    def leaf(self, value: T) -> int:
        """The function that is `value` everywhere."""
        number = self._leaves.get(value)
        if number is None:
            number = self._leaves[value] = self._new(_LEAF, -1, -1)
            self._values[number] = value
        return number

    def fork(self, bit: int, without: int, with_it: int) -> int:
        """`with_it` for letters with the proposition `bit`, else `without`."""
        if without == with_it:
            return without
        key = (bit, without, with_it)
        number = self._forks.get(key)
        if number is None:
            number = self._forks[key] = self._new(*key)
        return number

    def _new(self, bit: int, without: int, with_it: int) -> int:
        if len(self._bits) >= _MOST_PARTS:
            raise FormulaTooLarge(
                "the number of parts of its diagrams", len(self._bits) + 1, _MOST_PARTS
            )
        self._bits.append(bit)
        self._without.append(without)
        self._with.append(with_it)
        return len(self._bits) - 1

    def choose(self, cases: Iterable[Guarded[T]], otherwise: int, join: Join) -> int:
        """From a letter to the joined values of all cases `(care, value, leaf)` that allow it.

        `otherwise` is for letters that none allows. `join` gives the function that joins two.
        """
        found = [otherwise]
        for care, value, leaf in cases:
            case = self.leaf(leaf)
            for bit in range(care.bit_length() - 1, -1, -1):
                if care >> bit & 1:
                    holds = value >> bit & 1
                    case = self.fork(bit, *((otherwise, case) if holds else (case, otherwise)))
            found.append(case)
        # In pairs, for small ones are quicker to join than a small one and a large one.
        while len(found) > 1:
            found = [reduce(join, found[at : at + 2]) for at in range(0, len(found), 2)]
        return found[0]

    def joining(
        self, combine: Callable[[T, T], T], neutral: int, absorbing: int | None = None
    ) -> Join:
        """From two functions to the one whose values are combined of theirs; it remembers.

        `combine` gives the same whichever comes first, of two equal values that value, and of
        any with that of `neutral` the other one, and with that of `absorbing` that.
        """
        known: dict[tuple[int, int], int] = {}
        bits, without, with_it, values = self._bits, self._without, self._with, self._values

        def join(one: int, other: int) -> int:
            if one == other or other == neutral:
                return one
            if one == neutral or other == absorbing:
                return other
            if one == absorbing:
                return one
            key = (one, other) if one < other else (other, one)
            number = known.get(key)
            if number is not None:
                return number
            bit, its = bits[one], bits[other]
            if bit == its == _LEAF:
                number = self.leaf(combine(values[one], values[other]))
            elif bit < its:
                number = self.fork(bit, join(without[one], other), join(with_it[one], other))
            elif its < bit:
                number = self.fork(its, join(one, without[other]), join(one, with_it[other]))
            else:
                low = join(without[one], without[other])
                number = self.fork(bit, low, join(with_it[one], with_it[other]))
            known[key] = number
            return number

        return join

    def at(self, number: int, letter: int) -> T:
        """The value of a function; one step for each proposition that matters."""
        bits = self._bits
        while (bit := bits[number]) != _LEAF:
            number = (self._with if letter >> bit & 1 else self._without)[number]
        return self._values[number]

    def is_leaf(self, number: int) -> bool:
        """Whether a function is the same for all letters."""
        return self._bits[number] == _LEAF

    def first_bit(self, number: int) -> int:
        """The first bit that a function asks for; of a leaf it comes after all."""
        return self._bits[number]

    def halves(self, number: int, bit: int) -> tuple[int, int]:
        """A function for letters without `bit` and with it; it asks for none before."""
        if self._bits[number] != bit:
            return number, number
        return self._without[number], self._with[number]

    def pairing(
        self, other: Decisions[S], into: Decisions[U], join: Callable[[T, S], U]
    ) -> Callable[[int, int], int]:
        """From a function, and one of `other`, to the one, of `into`, whose values are joined of
        theirs; it remembers."""
        known: dict[tuple[int, int], int] = {}

        def build(one: int, its: int) -> int:
            key = (one, its)
            found = known.get(key)
            if found is None:
                bit = min(self._bits[one], other._bits[its])
                if bit == _LEAF:
                    found = into.leaf(join(self._values[one], other._values[its]))
                else:
                    without, with_it = self.halves(one, bit)
                    its_without, its_with = other.halves(its, bit)
                    low = build(without, its_without)
                    found = into.fork(bit, low, build(with_it, its_with))
                known[key] = found
            return found

        return build

    def mapping(self, into: Decisions[S], change: Callable[[T], S]) -> Callable[[int], int]:
        """From a function to the one, of `into`, whose values are `change` of its; it remembers."""
        known: dict[int, int] = {}
        bits, without, with_it, values = self._bits, self._without, self._with, self._values

        def build(number: int) -> int:
            found = known.get(number)
            if found is None:
                if bits[number] == _LEAF:
                    found = into.leaf(change(values[number]))
                else:
                    low = build(without[number])
                    found = into.fork(bits[number], low, build(with_it[number]))
                known[number] = found
            return found

        return build

    def everywhere(self, holds: Callable[[T, T], bool]) -> Callable[[int, int], bool]:
        """Whether a relation holds of the values of two functions for all letters; it remembers."""
        known: dict[tuple[int, int], bool] = {}
        bits, without, with_it, values = self._bits, self._without, self._with, self._values

        def check(one: int, other: int) -> bool:
            key = (one, other)
            found = known.get(key)
            if found is None:
                bit, its = bits[one], bits[other]
                if bit == its == _LEAF:
                    found = holds(values[one], values[other])
                elif bit < its:
                    found = check(without[one], other) and check(with_it[one], other)
                elif its < bit:
                    found = check(one, without[other]) and check(one, with_it[other])
                else:
                    low = check(without[one], without[other])
                    found = low and check(with_it[one], with_it[other])
                known[key] = found
            return found

        return check

    def cubes(self, number: int, care: int = 0, value: int = 0) -> Iterator[Guarded[T]]:
        """All `(care, value, leaf)`, of which exactly one allows any letter."""
        if self._bits[number] == _LEAF:
            yield care, value, self._values[number]
        else:
            bit = 1 << self._bits[number]
            yield from self.cubes(self._without[number], care | bit, value)
            yield from self.cubes(self._with[number], care | bit, value | bit)

    def leaves(self, number: int) -> set[T]:
        """All values of a function."""
        seen = {number}
        work = [number]
        for at in work:
            if self._bits[at] != _LEAF:
                new = {self._without[at], self._with[at]} - seen
                seen |= new
                work += new
        return {self._values[at] for at in work if self._bits[at] == _LEAF}


def ones(number: int) -> Iterator[int]:
    """The bits that are set, the lowest first."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
