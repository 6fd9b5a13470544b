"""Multi-terminal binary decision diagrams: functions from letters to any value, with equal parts
shared.

Two functions are equal if and only if their numbers are.

Source: Bryant, "Graph-based algorithms for Boolean function manipulation" (1986), with more than
two kinds of leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import reduce
from typing import Generic, TypeVar

from penstock.streams.temporal.errors import FormulaTooLarge

__all__ = ["Decisions"]

T = TypeVar("T", bound=Hashable)
S = TypeVar("S", bound=Hashable)

Guarded = tuple[int, int, T]
Join = Callable[[int, int], int]


# Ordered after all propositions.
_LEAF = 1 << 30

# Twenty alternatives that each test a proposition of their own would make a million nodes, which
# take minutes and gigabytes; formulas of a dozen operators need at most half of this limit.
_MOST_PARTS = 500_000


class Decisions(Generic[T]):
    """A collection of diagrams. A letter is a number whose bits are the propositions.

    Every method that creates nodes raises FormulaTooLarge beyond half a million of them.
    """

    def __init__(self) -> None:
        self._leaves: dict[T, int] = {}
        self._forks: dict[tuple[int, int, int], int] = {}
        # For each node: the bit it tests, and the nodes for letters without and with it.
        self._bits: list[int] = []
        self._without: list[int] = []
        self._with: list[int] = []
        self._values: dict[int, T] = {}

    def leaf(self, value: T) -> int:
        """The constant function `value`."""
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
        """The function from a letter to the joined values of all cases `(care, value, leaf)` that
        allow it.

        `otherwise` is for letters that no case allows. `join` joins two functions.
        """
        found = [otherwise]
        for care, value, leaf in cases:
            case = self.leaf(leaf)
            for bit in range(care.bit_length() - 1, -1, -1):
                if care >> bit & 1:
                    holds = value >> bit & 1
                    case = self.fork(bit, *((otherwise, case) if holds else (case, otherwise)))
            found.append(case)
        # In pairs: two small ones are quicker to join than a small one and a large one.
        while len(found) > 1:
            found = [reduce(join, found[at : at + 2]) for at in range(0, len(found), 2)]
        return found[0]

    def joining(
        self, combine: Callable[[T, T], T], neutral: int, absorbing: int | None = None
    ) -> Join:
        """A memoised operation that combines two functions value by value.

        `combine` must be commutative and idempotent, with `neutral` as its neutral and `absorbing`
        as its absorbing element.
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
        """The value of a function for a letter; one step for each proposition that matters."""
        bits = self._bits
        while (bit := bits[number]) != _LEAF:
            number = (self._with if letter >> bit & 1 else self._without)[number]
        return self._values[number]

    def is_leaf(self, number: int) -> bool:
        """Whether a function is the same for all letters."""
        return self._bits[number] == _LEAF

    def first_bit(self, number: int) -> int:
        """The first bit that a function tests; for a leaf, one after all propositions."""
        return self._bits[number]

    def halves(self, number: int, bit: int) -> tuple[int, int]:
        """The two cofactors of a function, for letters without `bit` and with it; it tests no bit
        before."""
        if self._bits[number] != bit:
            return number, number
        return self._without[number], self._with[number]

    def mapping(self, into: Decisions[S], change: Callable[[T], S]) -> Callable[[int], int]:
        """A memoised operation that maps each value of a function by `change`, into a function of
        `into`."""
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

    def choosing(
        self, choose: Callable[[T, T, T], T], always: int, never: int
    ) -> Callable[[int, int, int], int]:
        """A memoised if-then-else of three functions.

        Where the first is `always` the value is that of the second, where it is `never` that of the
        third.
        """
        known: dict[tuple[int, int, int], int] = {}
        bits, without, with_it, values = self._bits, self._without, self._with, self._values

        def build(where: int, one: int, other: int) -> int:
            if one == other or where == always:
                return one
            if where == never:
                return other
            key = (where, one, other)
            found = known.get(key)
            if found is not None:
                return found
            bit, its, others = bits[where], bits[one], bits[other]
            first = min(bit, its, others)
            if first == _LEAF:
                found = self.leaf(choose(values[where], values[one], values[other]))
            else:
                no, yes = (without[where], with_it[where]) if bit == first else (where, where)
                one_no, one_yes = (without[one], with_it[one]) if its == first else (one, one)
                if others == first:
                    low = build(no, one_no, without[other])
                    found = self.fork(first, low, build(yes, one_yes, with_it[other]))
                else:
                    low = build(no, one_no, other)
                    found = self.fork(first, low, build(yes, one_yes, other))
            known[key] = found
            return found

        return build

    def constraining(self, care: int) -> Callable[[int], int]:
        """A memoised restriction: a function that is equal where `care` is true and unspecified
        elsewhere. Two functions that are equal there have the same restriction.

        Source: Coudert, Berthet and Madre, "Verification of synchronous sequential machines based
        on symbolic execution" (1989).
        """
        known: dict[tuple[int, int], int] = {}
        bits = self._bits

        def build(one: int, where: int) -> int:
            if bits[one] == _LEAF or bits[where] == _LEAF:
                return one
            key = (one, where)
            found = known.get(key)
            if found is None:
                bit = min(bits[one], bits[where])
                without, with_it = self.halves(one, bit)
                no, yes = self.halves(where, bit)
                if self._is_nowhere(no):
                    found = build(with_it, yes)
                elif self._is_nowhere(yes):
                    found = build(without, no)
                else:
                    found = self.fork(bit, build(without, no), build(with_it, yes))
                known[key] = found
            return found

        return lambda one: build(one, care)

    def _is_nowhere(self, number: int) -> bool:
        return self._bits[number] == _LEAF and not self._values[number]

    def cubes(self, number: int, care: int = 0, value: int = 0) -> Iterator[Guarded[T]]:
        """All `(care, value, leaf)`; exactly one of them allows any given letter."""
        if self._bits[number] == _LEAF:
            yield care, value, self._values[number]
        else:
            bit = 1 << self._bits[number]
            yield from self.cubes(self._without[number], care | bit, value)
            yield from self.cubes(self._with[number], care | bit, value | bit)

    def row(self, bits: int) -> Callable[[int], list[T]]:
        """A memoised operation from a function to its values for all letters of so many bits."""
        known: dict[int, list[T]] = {}

        def build(number: int, begin: int) -> list[T]:
            """The values for letters without the first bits."""
            bit = self._bits[number]
            if bit == _LEAF:
                return [self._values[number]] * (1 << bits - begin)
            row = known.get(number)
            if row is None:
                without, with_it = self._without[number], self._with[number]
                row = known[number] = _mixed(build(without, bit + 1), build(with_it, bit + 1))
            for _ in range(begin, bit):
                row = _mixed(row, row)
            return row

        return lambda number: build(number, 0)

    def leaves(self, number: int) -> set[T]:
        """All values of a function."""
        bits, without, with_it = self._bits, self._without, self._with
        seen: set[int] = set()
        found: set[T] = set()
        work = [number]
        while work:
            at = work.pop()
            if at not in seen:
                seen.add(at)
                if bits[at] == _LEAF:
                    found.add(self._values[at])
                else:
                    work.append(with_it[at])
                    work.append(without[at])
        return found


def _mixed(even: list[T], odd: list[T]) -> list[T]:
    row = even + odd
    row[::2], row[1::2] = even, odd
    return row
