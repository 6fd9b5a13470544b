"""Derivatives of the failure of a SERE: what makes it impossible to match, event by event.

The remainders of a SERE after an event form a set. It has failed when none of them can be matched
any more, unless a match has ended before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce

from penstock.streams.temporal.formula.decisions import Decisions
from penstock.streams.temporal.formula.formula import EMPTY, Failure, Joined, Sere, may_be_empty
from penstock.streams.temporal.formula.normal import Normal

__all__ = ["Failures"]

_Steps = Iterable[tuple[int, Sere]]


class Failures:
    """Derives failures from the partial derivatives of SEREs, which `derivatives` gives."""

    def __init__(self, normal: Normal, derivatives: Callable[[Sere], _Steps]) -> None:
        self._normal = normal
        self._derivatives = derivatives
        self._guards: Decisions[bool] = Decisions()
        self._never, self._always = self._guards.leaf(False), self._guards.leaf(True)
        self._both = self._guards.joining(lambda a, b: a and b, self._always, self._never)
        self._either = self._guards.joining(lambda a, b: a or b, self._never, self._always)
        # From letters to the remainders of a match, by number: equal sets are equal expressions.
        self._sets: Decisions[frozenset[int]] = Decisions()
        self._nothing = self._sets.leaf(frozenset())
        self._union = self._sets.joining(lambda a, b: a | b, self._nothing)
        self._numbers: dict[Sere, int] = {}
        self._rests: list[Sere] = []
        self._matchable: dict[Sere, bool] = {}

    def of(self, failure: Failure) -> _Steps:
        """What may remain after an event until `failure` is certain, with the formula that the
        event must satisfy. No event satisfies two of the formulas."""
        function = self._nothing
        for guard, rest in self._derivatives(failure.sere):
            if self._can_match(rest):
                after = self._after(self._function(guard), self._number(rest))
                function = self._union(function, after)
        for care, value, numbers in self._sets.cubes(function):
            rests = [self._rests[number] for number in sorted(numbers)]
            if not any(map(may_be_empty, rests)):
                yield self._normal.cube(care, value), _failure(rests)

    def _after(self, guard: int, number: int) -> int:
        """From a letter to the remainder, for the letters that the guard allows."""
        alone, none = frozenset((number,)), frozenset[int]()
        choose = self._guards.mapping(self._sets, lambda holds: alone if holds else none)
        return choose(guard)

    def _number(self, rest: Sere) -> int:
        number = self._numbers.get(rest)
        if number is None:
            number = self._numbers[rest] = len(self._rests)
            self._rests.append(rest)
        return number

    def _can_match(self, sere: Sere) -> bool:
        """Whether any events match it."""
        reached = {sere: None}
        queue = [sere]
        for one in queue:
            if self._matchable.get(one, may_be_empty(one)):
                self._matchable[sere] = True
                return True
            for guard, rest in self._derivatives(one):
                if rest not in reached and self._function(guard) != self._never:
                    reached[rest] = None
                    queue.append(rest)
        self._matchable.update(dict.fromkeys(reached, False))
        return False

    def _function(self, number: int) -> int:
        """A Boolean formula as a diagram."""
        kind, parts, _ = self._normal.nodes[number]
        if kind in "01":
            return self._always if kind == "1" else self._never
        if kind in "+-":
            ends = (self._never, self._always)
            return self._guards.fork(parts[0], *(ends if kind == "+" else ends[::-1]))
        return reduce(self._both if kind == "&" else self._either, map(self._function, parts))


def _failure(rests: list[Sere]) -> Sere:
    if not rests:
        return EMPTY
    return Failure(rests[0] if len(rests) == 1 else Joined("|", tuple(rests)))
