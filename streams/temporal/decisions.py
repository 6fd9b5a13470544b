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

    def choose(self, guarded: Iterable[Guarded[S]], leaf: Callable[[frozenset[S]], T]) -> int:
        """From a letter to `leaf` of the set of all items whose guard `(care, value)` allows it."""
        known: dict[frozenset[Guarded[S]], int] = {}

        def build(items: frozenset[Guarded[S]]) -> int:
            number = known.get(items)
            if number is not None:
                return number
            care = 0
            for item in items:
                care |= item[0]
            if not care:
                number = self.leaf(leaf(frozenset(item[2] for item in items)))
            else:
                bit = care & -care
                without = build(_restricted(items, bit, 0))
                number = self.fork(
                    bit.bit_length() - 1, without, build(_restricted(items, bit, bit))
                )
            known[items] = number
            return number

        return build(frozenset(guarded))

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


def _restricted(items: frozenset[Guarded[S]], bit: int, holds: int) -> frozenset[Guarded[S]]:
    return frozenset(
        (care & ~bit, value & ~bit, item)
        for care, value, item in items
        if not care & bit or value & bit == holds
    )
