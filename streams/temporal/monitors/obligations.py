"""The obligations that a formula may leave after an event, as Boolean functions.

They are functions of whether there is a next event, and of formulas that hold there or do not.
Which formulas there are, and which of them can hold together, is known from the beginning. For
combinations that cannot occur the function may have any value, and gets the one that makes it
smallest.
"""

from __future__ import annotations

from functools import reduce

from penstock.streams.temporal.formula.decisions import Decisions
from penstock.streams.temporal.formula.derivatives import Derivatives
from penstock.streams.temporal.formula.formula import EMPTY, may_be_empty
from penstock.streams.temporal.formula.normal import FALSE, TRUE, Normal

__all__ = ["Obligations"]

# The bit that is set if there is no next event. The other bits are those of formulas.
_END = 0


class Obligations:
    """The obligations of the formula `number` and of its parts. A function is a number.

    Two that agree on everything that can follow are the same number, as far as that can be seen
    from the form of the formulas.
    """

    def __init__(self, normal: Normal, derivatives: Derivatives, number: int) -> None:
        self._normal = normal
        self._derivatives = derivatives
        self._functions: Decisions[bool] = Decisions()
        # By bit. A formula and its negation share one.
        self._formulas = [TRUE]
        self._bits: dict[int, int] = {}
        functions = self._functions
        self.false, self.true = functions.leaf(False), functions.leaf(True)
        self._both = functions.joining(lambda a, b: a and b, self.true, self.false)
        self._either = functions.joining(lambda a, b: a or b, self.false, self.true)
        self._not = functions.mapping(functions, lambda a: not a)
        self._choice = functions.choosing(lambda a, b, c: b if a else c, self.true, self.false)
        self._known: dict[int, int] = {FALSE: self.false, TRUE: self.true}
        self._written: dict[int, int] = {self.false: FALSE, self.true: TRUE}
        self._find(number)
        self._possible = functions.constraining(self._together())

    def then(self, at_end: bool, number: int) -> int:
        """The obligation that a formula holds at the next event; its value is `at_end` if there is
        none."""
        end = self.true if at_end else self.false
        return self._short(self._functions.fork(_END, self._there(number), end))

    def both(self, one: int, other: int) -> int:
        return self._short(self._both(one, other))

    def either(self, one: int, other: int) -> int:
        return self._short(self._either(one, other))

    def negation(self, one: int) -> int:
        return self._short(self._not(one))

    def choice(self, where: int, one: int, other: int) -> int:
        """If-then-else: If-then-else: `one` where the first holds, else `other`."""
        return self._short(self._choice(where, one, other))

    def going_on(self, one: int) -> int:
        """The function for the case that there is a next event."""
        return self._functions.halves(one, _END)[0]

    def may_end(self, one: int) -> bool:
        """Whether it holds if there is no next event."""
        return self._functions.at(one, 1 << _END)

    def first(self, one: int) -> tuple[int, int, int]:
        """For one with a next event: a formula it depends on, and its cofactors without and with
        it."""
        bit = self._functions.first_bit(one)
        return self._formulas[bit], *self._functions.halves(one, bit)

    def written(self, one: int) -> int:
        """One with a next event, as a formula about that event."""
        found = self._written.get(one)
        if found is None:
            found = self._written[one] = self._write(one)
        return found

    def _write(self, one: int) -> int:
        normal = self._normal
        number, without, with_it = self.first(one)
        no, yes = self.written(without), self.written(with_it)
        # If it holds without the formula anyway, the negation need not be stated, and conversely.
        joined = self._either(without, with_it)
        if joined != with_it:
            no = normal.both(no, normal.negation(number))
        if joined != without:
            yes = normal.both(yes, number)
        return normal.either(no, yes)

    def _short(self, one: int) -> int:
        going_on, at_end = self._functions.halves(one, _END)
        return self._functions.fork(_END, self._possible(going_on), at_end)

    def _there(self, number: int) -> int:
        """The function of whether a formula holds at the next event."""
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = self._found_there(number)
        return found

    def _found_there(self, number: int) -> int:
        kind, parts, _ = self._normal.nodes[number]
        if kind in "&|":
            return reduce(self._both if kind == "&" else self._either, map(self._there, parts))
        negation = self._normal.negation(number)
        if negation < number:
            return self._not(self._there(negation))
        bit = self._bits.get(number)
        if bit is None:
            bit = self._bits[number] = len(self._formulas)
            self._formulas.append(number)
        return self._functions.fork(bit, self.false, self.true)

    def _find(self, number: int) -> None:
        """Give bits to all that a formula may leave."""
        seen: set[int] = set()
        self._there(number)
        for formula in self._formulas:
            self._look(formula, seen)

    def _look(self, number: int, seen: set[int]) -> None:
        if number in seen:
            return
        seen.add(number)
        kind, parts, sere = self._normal.nodes[number]
        if kind in "XN":
            self._there(parts[0])
        elif sere is not None:
            for _, rest in self._derivatives.of(sere):
                if may_be_empty(rest):
                    self._look(parts[0], seen)
                if rest != EMPTY:
                    self._there(self._normal.match(kind, rest, parts[0]))
        elif kind in "&|UR":
            for part in parts:
                self._look(part, seen)
            if kind in "UR":
                self._there(number)

    def _together(self) -> int:
        """Which of the formulas may hold together, as far as can be seen from their form."""
        together = self.true
        for number, bit in self._bits.items():
            kind, parts, _ = self._normal.nodes[number]
            if kind in "UR":
                holds = self._functions.fork(bit, self.false, self.true)
                (left, left_most), (right, right_most) = map(self._bounds, parts)
                if kind == "U":
                    least, most = right, self._either(left_most, right_most)
                else:
                    least, most = self._both(left, right), right_most
                for one, other in ((least, holds), (holds, most)):
                    together = self._both(together, self._either(self._not(one), other))
        return together

    def _bounds(self, number: int) -> tuple[int, int]:
        """Two functions: the first implies a formula, the second is implied by it."""
        kind, parts, _ = self._normal.nodes[number]
        if kind in "&|":
            join = self._both if kind == "&" else self._either
            low, high = zip(*map(self._bounds, parts), strict=True)
            return reduce(join, low), reduce(join, high)
        either = {number, self._normal.negation(number)}
        if number in (FALSE, TRUE) or not either.isdisjoint(self._bits):
            return self._there(number), self._there(number)
        return self.false, self.true
