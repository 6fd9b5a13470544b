"""Evaluates formulas on many finite traces at once, by operations on large integers.

The events of all traces stand in one row. A set of them is an integer, whose bit i is event i: for
a proposition, the events at which it holds; for a formula, those from which on it holds of the rest
of the trace. `X` is then a shift by one, and `U` one shift for each power of two below the length
of the longest trace (the doubling of Kogge and Stone's carry, 1973).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from penstock.streams.temporal.errors import UnknownProposition
from penstock.streams.temporal.formula.formula import (
    Binary,
    Constant,
    Formula,
    Nary,
    Proposition,
    Unary,
)
from penstock.streams.temporal.formula.printer import to_text

__all__ = ["Traces"]

# Patterns have parts in common, most of them with those that follow soon.
_MOST_PARTS = 1_000


class Traces:
    """Traces of letters, whose bits are the propositions `names`; each has an event or more.

    Memory: a bit for each event and proposition, and as much for each of the last thousand parts of
    formulas, at most, that were evaluated.
    """

    def __init__(self, traces: Iterable[Sequence[int]], names: Sequence[str]) -> None:
        self._names = tuple(names)
        letters = array("I")
        self._starts: list[int] = []
        longest = 0
        for trace in traces:
            self._starts.append(len(letters))
            letters.extend(trace)
            longest = max(longest, len(trace))
        self._all = (1 << len(letters)) - 1
        self.first = _bits_at(self._starts, len(letters))
        # Those after which another event of the same trace comes.
        self._goes_on = self._all & ~(self.first >> 1 | 1 << max(len(letters) - 1, 0))
        self._levels: list[tuple[int, int]] = []
        shift, on = 1, self._goes_on
        while shift < longest:
            self._levels.append((shift, on))
            on &= on >> shift
            shift *= 2
        self._of: dict[Formula, int] = {}
        backwards = letters[::-1]
        self._given: dict[Formula, int] = {
            Proposition(name): int(
                "".join("1" if letter >> bit & 1 else "0" for letter in backwards) or "0", 2
            )
            for bit, name in enumerate(names)
        }

    def __len__(self) -> int:
        """The number of traces."""
        return len(self._starts)

    def holds(self, formula: Formula) -> int:
        """The traces on which the formula holds, as the bits of their first events.

        Time: linear in the events for each part of the formula, times the logarithm of the longest
        trace for those that look further than the next event. Raises UnknownProposition, and
        ValueError for regular expressions and bounds in time, which no pattern has.
        """
        return self._at(formula) & self.first

    def numbers(self, firsts: int) -> list[int]:
        """The numbers of traces, from 0, whose first events are given."""
        octets = firsts.to_bytes(self._all.bit_length() // 8 + 1, "little")
        return [
            number
            for number, start in enumerate(self._starts)
            if octets[start >> 3] >> (start & 7) & 1
        ]

    def _at(self, formula: Formula) -> int:
        found = self._given.get(formula)
        if found is None:
            found = self._of.get(formula)
        if found is None:
            found = self._evaluated(formula)
            if len(self._of) >= _MOST_PARTS:
                self._of.clear()
            self._of[formula] = found
        return found

    def _evaluated(self, formula: Formula) -> int:
        if isinstance(formula, Constant):
            return self._all if formula.value else 0
        if isinstance(formula, Unary):
            return self._unary(formula.operator, self._at(formula.operand))
        if isinstance(formula, Nary):
            parts = map(self._at, formula.operands)
            result = next(parts)
            for part in parts:
                result = result & part if formula.operator == "&" else result | part
            return result
        if isinstance(formula, Binary):
            return self._binary(formula.operator, self._at(formula.left), self._at(formula.right))
        if isinstance(formula, Proposition):
            raise UnknownProposition(formula.name, formula.position, self._names)
        raise ValueError(f"{to_text(formula)} has a regular expression, or a bound in time")

    def _unary(self, operator: str, one: int) -> int:
        if operator == "!":
            return self._all ^ one
        if operator == "X":
            return one >> 1 & self._goes_on
        if operator == "next":
            return self._all ^ ((self._all ^ one) >> 1 & self._goes_on)
        if operator == "F":
            return self._sometime(one)
        return self._all ^ self._sometime(self._all ^ one)

    def _binary(self, operator: str, left: int, right: int) -> int:
        every = self._all
        if operator == "->":
            return every ^ left | right
        if operator == "<->":
            return every ^ left ^ right
        if operator == "U":
            return self._until(left, right)
        if operator == "M":
            return self._until(right, left & right)
        if operator == "W":
            return every ^ self._until(every ^ right, every ^ (left | right))
        return every ^ self._until(every ^ left, every ^ right)

    def _sometime(self, one: int) -> int:
        for shift, on in self._levels:
            one |= one >> shift & on
        return one

    def _until(self, left: int, right: int) -> int:
        on = left & self._goes_on
        for shift, _ in self._levels:
            right |= right >> shift & on
            on &= on >> shift
        return right


def _bits_at(places: list[int], bits: int) -> int:
    octets = bytearray(bits // 8 + 1)
    for place in places:
        octets[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(octets, "little")
