"""Tableau expansion: what a formula requires of the next event, and what it leaves for the events
after it.

Every formula is a disjunction of terms: literals that must hold of the next event, formulas that
must hold after it, and promises, the parts that were postponed and must not be postponed for ever.
This is the tableau of Couvreur (FM 1999), a form of Gerth, Peled, Vardi and Wolper's (PSTV 1995).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import reduce

from penstock.streams.temporal.errors import FormulaTooLarge
from penstock.streams.temporal.formula.decisions import Decisions
from penstock.streams.temporal.formula.derivatives import Derivatives
from penstock.streams.temporal.formula.formula import EMPTY, Sere, may_be_empty
from penstock.streams.temporal.formula.normal import FALSE, TRUE, Normal

__all__ = ["MATCH", "Expansion"]


# In total for one formula. Of some thousands of random formulas of a dozen operators, the largest
# needed 600,000.
_MOST_CHOICES = 1_000_000

MATCH = -1

# The alternatives that a letter leaves. Each is a number whose bits are formulas for the following
# events, and promises; none has all bits of another.
_Choices = frozenset[int]

_NOTHING_LEFT: _Choices = frozenset((0,))
_NO_WAY: _Choices = frozenset()


class Expansion:
    """Expands the formulas of one `Normal`. Raises FormulaTooLarge if there are too many
    alternatives.

    The expansion of a formula is a diagram from letters to the alternatives they leave. Formulas
    with the same expansion share one diagram.
    """

    def __init__(self, normal: Normal) -> None:
        self._normal = normal
        self._derivatives = Derivatives(normal)
        self._made = 0
        # The bit of each formula for the following events and of each promise; and, by bit, which
        # it is.
        self._bits: dict[tuple[int, bool], int] = {}
        self._named: list[tuple[int, bool]] = []
        self._parted: dict[int, tuple[frozenset[int], frozenset[int]]] = {}
        self.diagrams: Decisions[_Choices] = Decisions()
        self._always = self.diagrams.leaf(_NOTHING_LEFT)
        self._never = self.diagrams.leaf(_NO_WAY)
        self._and = self.diagrams.joining(self._product, self._always, self._never)
        self._or = self.diagrams.joining(self._sum, self._never, self._always)
        self._known: dict[int, int] = {FALSE: self._never, TRUE: self._always}

    def all_of(self, numbers: Iterable[int]) -> int:
        """The diagram of the conjunction of several formulas."""
        return reduce(self._and, map(self.of, sorted(numbers)), self._always)

    def of(self, number: int) -> int:
        """The diagram of a formula."""
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = self._expand(number)
        return found

    def parted(self, choice: int) -> tuple[frozenset[int], frozenset[int]]:
        """The formulas for the following events, and the promises: the right sides of `U` that are
        postponed, and `MATCH` if a marked match is."""
        found = self._parted.get(choice)
        if found is None:
            found = self._parted[choice] = self._part(choice)
        return found

    def _part(self, choice: int) -> tuple[frozenset[int], frozenset[int]]:
        after: list[int] = []
        promises: list[int] = []
        # Only the bits that are set: there may be a thousand times as many bits.
        while choice:
            last = choice & -choice
            number, promised = self._named[last.bit_length() - 1]
            (promises if promised else after).append(number)
            choice ^= last
        return frozenset(after), frozenset(promises)

    def _expand(self, number: int) -> int:
        kind, parts, sere = self._normal.nodes[number]
        if kind == "+" or kind == "-":
            ends = (self._never, self._always)
            return self.diagrams.fork(parts[0], *(ends if kind == "+" else ends[::-1]))
        if kind == "&":
            return self.all_of(parts)
        if kind == "|":
            return reduce(self._or, map(self.of, parts))
        if kind == "X" or kind == "N":
            return self._later(parts[0])
        if kind == "U":
            left, right = parts
            return self._or(self.of(right), self._and(self.of(left), self._later(number, right)))
        if kind == "R":
            left, right = parts
            return self._and(self.of(right), self._or(self.of(left), self._later(number)))
        assert sere is not None
        return self._each(sere, parts[0]) if kind == "A" else self._some(kind, sere, parts[0])

    def _later(self, number: int, promise: int | None = None) -> int:
        if number == FALSE:
            return self._never
        kind, parts, _ = self._normal.nodes[number]
        choice = 0
        for part in parts if kind == "&" else (number,):
            choice |= 0 if part == TRUE else self._bit(part, False)
        if promise is not None:
            choice |= self._bit(promise, True)
        return self.diagrams.leaf(frozenset((choice,)))

    def _bit(self, number: int, promised: bool) -> int:
        key = (number, promised)
        bit = self._bits.get(key)
        if bit is None:
            bit = self._bits[key] = 1 << len(self._named)
            self._named.append(key)
        return bit

    def _product(self, left: _Choices, right: _Choices) -> _Choices:
        self._count(len(left) * len(right))
        return _least({one | other for one in left for other in right})

    def _sum(self, some: _Choices, more: _Choices) -> _Choices:
        self._count(len(some) + len(more))
        return _least(some | more)

    def _count(self, choices: int) -> None:
        self._made += choices
        if self._made > _MOST_CHOICES:
            raise FormulaTooLarge("the number of alternatives", self._made, _MOST_CHOICES)

    # Regular expressions.

    def _some(self, kind: str, sere: Sere, number: int) -> int:
        result = self._never
        for guard, rest in self._derivatives.of(sere):
            ends = self.of(number) if may_be_empty(rest) else self._never
            if rest != EMPTY:
                again = self._normal.match(kind, rest, number)
                ends = self._or(ends, self._later(again, MATCH if kind == "M" else None))
            result = self._or(result, self._and(self.of(guard), ends))
        return result

    def _each(self, sere: Sere, number: int) -> int:
        result = self._always
        for guard, rest in self._derivatives.of(sere):
            asked = self.of(number) if may_be_empty(rest) else self._always
            if rest != EMPTY:
                again = self._normal.match("A", rest, number)
                asked = self._and(asked, self._later(again))
            result = self._and(result, self._or(self.of(self._normal.negation(guard)), asked))
        return result


def _least(choices: Collection[int]) -> _Choices:
    """Without those that have all bits of another one."""
    kept: list[int] = []
    for choice in sorted(choices, key=int.bit_count):
        # any() over a generator would take twice as long.
        for less in kept:
            if less & choice == less:
                break
        else:
            kept.append(choice)
    return frozenset(kept)
