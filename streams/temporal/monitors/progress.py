"""Formula progression: a deterministic machine whose states are what remains of a formula.

After an event a formula is a Boolean function: of whether there is a next event, and of formulas
that hold there or do not. Equal functions are one state, and the next event replaces each formula
in a function by a function of others. So the machine is deterministic from the beginning, over
finite and over infinite traces, and no automaton is needed. Combinations of formulas that cannot
hold together are don't-cares, so the machine is nearly minimal.

Sources: De Giacomo and Vardi, "Linear temporal logic and linear dynamic logic on finite traces"
(IJCAI 2013) for the semantics; Bacchus and Kabanza, "Using temporal logics to express search
control knowledge for planning" (2000) for the progression; Duret-Lutz et al., "Engineering an LTLf
synthesis tool" (CIAA 2025) for doing it on decision diagrams whose leaves are formulas.
"""

from __future__ import annotations

from functools import reduce

from penstock.streams.temporal.formula.decisions import Decisions
from penstock.streams.temporal.formula.derivatives import Derivatives
from penstock.streams.temporal.formula.formula import (
    EMPTY,
    Constant,
    Formula,
    Match,
    Nary,
    Proposition,
    Sere,
    Timed,
    Unary,
    may_be_empty,
)
from penstock.streams.temporal.formula.normal import FALSE, TRUE, Normal
from penstock.streams.temporal.monitors.obligations import Obligations

__all__ = ["Progress"]


class Progress:
    """The machine of one formula. A state is a number; `first` is that before any event.

    `normal` holds the remaining formulas.
    """

    def __init__(self, formula: Formula, names: tuple[str, ...]) -> None:
        self.normal = Normal(True, names)
        self._derivatives = Derivatives(self.normal)
        number = self.normal.of(formula)
        self._left = left = Obligations(self.normal, self._derivatives, number)
        self.first = left.then(_holds_of_nothing(formula), number)
        # From letters to states.
        self.diagrams: Decisions[int] = Decisions()
        self._never, self._surely = map(self.diagrams.leaf, (left.false, left.true))
        self._and = self.diagrams.joining(left.both, self._surely, self._never)
        self._or = self.diagrams.joining(left.either, self._never, self._surely)
        self._not = self.diagrams.mapping(self.diagrams, left.negation)
        self._choice = self.diagrams.choosing(left.choice, self._surely, self._never)
        self._of: dict[int, int] = {FALSE: self._never, TRUE: self._surely}
        self._after: dict[int, int] = {left.false: self._never, left.true: self._surely}

    def may_end(self, state: int) -> bool:
        """Whether the formula holds if there are no more events."""
        return self._left.may_end(state)

    def formula(self, state: int) -> int:
        """The formula that must hold for the events after a state, if there are any."""
        return self._left.written(self._left.going_on(state))

    def after(self, state: int) -> int:
        """From the next letter to the next state, in `diagrams`."""
        return self._next(self._left.going_on(state))

    def _next(self, state: int) -> int:
        found = self._after.get(state)
        if found is None:
            number, without, with_it = self._left.first(state)
            choice = self._choice(self._expand(number), self._next(with_it), self._next(without))
            found = self._after[state] = choice
        return found

    def _expand(self, number: int) -> int:
        """From a letter to what a formula leaves to be fulfilled after it."""
        found = self._of.get(number)
        if found is None:
            contrary = self._of.get(self.normal.negation(number))
            found = self._expanded(number) if contrary is None else self._not(contrary)
            self._of[number] = found
        return found

    def _expanded(self, number: int) -> int:
        kind, parts, sere = self.normal.nodes[number]
        if kind == "+" or kind == "-":
            ends = (self._never, self._surely)
            return self.diagrams.fork(parts[0], *(ends if kind == "+" else ends[::-1]))
        if sere is not None:
            return self._match(kind, sere, parts[0])
        if kind == "&" or kind == "|":
            return reduce(self._and if kind == "&" else self._or, map(self._expand, parts))
        if kind == "X" or kind == "N":
            return self._later(kind == "N", parts[0])
        left, right = map(self._expand, parts)
        if kind == "U":
            return self._or(right, self._and(left, self._later(False, number)))
        return self._and(right, self._or(left, self._later(True, number)))

    def _later(self, at_end: bool, number: int) -> int:
        return self.diagrams.leaf(self._left.then(at_end, number))

    def _match(self, kind: str, sere: Sere, number: int) -> int:
        every = kind == "A"
        result = self._surely if every else self._never
        for guard, rest in self._derivatives.of(sere):
            asked = self._surely if every else self._never
            join, other = (self._and, self._or) if every else (self._or, self._and)
            if may_be_empty(rest):
                asked = join(asked, self._expand(number))
            if rest != EMPTY:
                again = self.normal.match(kind, rest, number)
                asked = join(asked, self._later(every, again))
            passed = self.normal.negation(guard) if every else guard
            result = join(result, other(self._expand(passed), asked))
        return result


def _holds_of_nothing(formula: Formula) -> bool:
    """Whether the formula, which has no bound in time, holds for the empty trace."""
    assert not isinstance(formula, Timed)
    if isinstance(formula, Constant):
        return formula.value
    if isinstance(formula, Proposition):
        return False
    if isinstance(formula, Match):
        return formula.operator == "|->"
    if isinstance(formula, Unary):
        if formula.operator == "!":
            return not _holds_of_nothing(formula.operand)
        return formula.operator in ("G", "next")
    if isinstance(formula, Nary):
        values = map(_holds_of_nothing, formula.operands)
        return all(values) if formula.operator == "&" else any(values)
    if formula.operator in ("->", "<->"):
        left, right = _holds_of_nothing(formula.left), _holds_of_nothing(formula.right)
        return right or not left if formula.operator == "->" else left == right
    return formula.operator in ("W", "R")
