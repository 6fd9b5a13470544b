"""Functions from letters to anything, as decision diagrams that share equal parts.

Two functions are equal if and only if their numbers are.

Source: Bryant, "Graph-based algorithms for Boolean function manipulation" (1986), with more than
two kinds of leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

__all__ = ["Decisions"]

T = TypeVar("T", bound=Hashable)
S = TypeVar("S", bound=Hashable)

Guarded = tuple[int, int, T]
Join = Callable[[int, int], int]


class Decisions(Generic[T]):
    """A collection of diagrams. A letter is a number whose bits are the propositions."""

    def __init__(self) -> None:
        self._leaves: dict[T, int] = {}
        self._forks: dict[tuple[int, int, int], int] = {}
        self._parts: list[tuple[int, int, int] | tuple[T]] = []

    def leaf(self, value: T) -> int:
        """The function that is `value` everywhere."""
        number = self._leaves.get(value)
        if number is None:
            number = self._leaves[value] = len(self._parts)
            self._parts.append((value,))
        return number

    def fork(self, bit: int, without: int, with_it: int) -> int:
        """`with_it` for letters with the proposition `bit`, else `without`."""
        if without == with_it:
            return without
        key = (bit, without, with_it)
        number = self._forks.get(key)
        if number is None:
            number = self._forks[key] = len(self._parts)
            self._parts.append(key)
        return number

    def choose(self, cases: Iterable[Guarded[T]], otherwise: int, join: Join) -> int:
        """From a letter to the joined values of all cases `(care, value, leaf)` that allow it.

        `otherwise` is for letters that none allows. `join` gives the function that joins two.
        """
        number = otherwise
        for care, value, leaf in cases:
            case = self.leaf(leaf)
            for bit in range(care.bit_length() - 1, -1, -1):
                if care >> bit & 1:
                    holds = value >> bit & 1
                    case = self.fork(bit, *((otherwise, case) if holds else (case, otherwise)))
            number = join(number, case)
        return number

    def joining(self, combine: Callable[[T, T], T]) -> Join:
        """From two functions to the one whose values are combined of theirs; it remembers.

        `combine` gives the same whichever comes first, and of two equal values that value.
        """
        known: dict[tuple[int, int], int] = {}
        parts = self._parts

        def join(one: int, other: int) -> int:
            if one == other:
                return one
            key = (one, other) if one < other else (other, one)
            number = known.get(key)
            if number is not None:
                return number
            a, b = parts[one], parts[other]
            if len(a) == 1 and len(b) == 1:
                number = self.leaf(combine(a[0], b[0]))
            else:
                bit = min(part[0] for part in (a, b) if len(part) == 3)
                a0, a1 = (a[1], a[2]) if len(a) == 3 and a[0] == bit else (one, one)
                b0, b1 = (b[1], b[2]) if len(b) == 3 and b[0] == bit else (other, other)
                number = self.fork(bit, join(a0, b0), join(a1, b1))
            known[key] = number
            return number

        return join

    def at(self, number: int, letter: int) -> T:
        """The value of a function; one step for each proposition that matters."""
        part = self._parts[number]
        while len(part) == 3:
            part = self._parts[part[2] if letter >> part[0] & 1 else part[1]]
        return part[0]

    def mapped(self, number: int, into: Decisions[S], change: Callable[[T], S]) -> int:
        """The function whose values are `change` of this one's, in the collection `into`."""
        known: dict[int, int] = {}

        def build(number: int) -> int:
            if number not in known:
                part = self._parts[number]
                if len(part) == 3:
                    known[number] = into.fork(part[0], build(part[1]), build(part[2]))
                else:
                    known[number] = into.leaf(change(part[0]))
            return known[number]

        return build(number)

    def cubes(self, number: int, care: int = 0, value: int = 0) -> Iterator[Guarded[T]]:
        """All `(care, value, leaf)`, of which exactly one allows any letter."""
        part = self._parts[number]
        if len(part) == 3:
            bit = 1 << part[0]
            yield from self.cubes(part[1], care | bit, value)
            yield from self.cubes(part[2], care | bit, value | bit)
        else:
            yield care, value, part[0]

    def leaves(self, number: int) -> set[T]:
        """All values of a function."""
        found: set[T] = set()
        seen: set[int] = set()
        work = [number]
        while work:
            at = work.pop()
            if at not in seen:
                seen.add(at)
                part = self._parts[at]
                if len(part) == 3:
                    work += part[1:]
                else:
                    found.add(part[0])
        return found
