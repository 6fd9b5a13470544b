"""What is left of a formula over finite traces (LTLf) after each event of one.

After an event a formula is a Boolean function of formulas that must hold at the next event, if
there must be or if there is one. Two that are equal as functions are one state, and the next
event takes each of its formulas to a function of others. So the machine is deterministic from
the beginning, and no automaton is needed.

Sources: De Giacomo and Vardi, "Linear temporal logic and linear dynamic logic on finite traces"
(IJCAI 2013) for the meaning; Bacchus and Kabanza, "Using temporal logics to express search control
knowledge for planning" (2000) for the progression; Duret-Lutz et al., "Engineering an LTLf
synthesis tool" (CIAA 2025) for doing it on decision diagrams whose leaves are formulas.
"""

from __future__ import annotations

from functools import reduce

from streams.temporal.decisions import Decisions
from streams.temporal.derivatives import Derivatives
from streams.temporal.formula import Constant, Formula, Match, Nary, Proposition, Unary
from streams.temporal.normal import FALSE, TRUE, Normal
from streams.temporal.sere import EMPTY, Sere, may_be_empty

__all__ = ["Progress"]


class Progress:
    """The machine of one formula. A state is a number; `first` is that before any event."""

    def __init__(self, formula: Formula, names: tuple[str, ...]) -> None:
        self._normal = normal = Normal(True, names)
        self._derivatives = Derivatives(normal)
        # States: functions of what is asked of the next event, which `_asked` has by bit: `X` if
        # there must be one, and `N` if not.
        self._states: Decisions[bool] = Decisions()
        self._asked: list[int] = []
        self._bits: dict[tuple[str, int], int] = {}
        self._false, self._true = self._states.leaf(False), self._states.leaf(True)
        self._both = self._states.joining(lambda a, b: a and b, self._true, self._false)
        self._either = self._states.joining(lambda a, b: a or b, self._false, self._true)
        # From letters to states.
        self.diagrams: Decisions[int] = Decisions()
        self._never, self._surely = map(self.diagrams.leaf, (self._false, self._true))
        self._and = self.diagrams.joining(self._both, self._surely, self._never)
        self._or = self.diagrams.joining(self._either, self._never, self._surely)
        self._of: dict[int, int] = {FALSE: self._never, TRUE: self._surely}
        self._after: dict[int, int] = {self._false: self._never, self._true: self._surely}
        self.first = self._then("N" if _holds_of_nothing(formula) else "X", normal.of(formula))

    def may_end(self, state: int) -> bool:
        """Whether the formula holds if there are no more events."""
        weak = sum(1 << bit for (kind, _), bit in self._bits.items() if kind == "N")
        return self._states.at(state, weak)

    def after(self, state: int) -> int:
        """From the next letter to the next state, in `diagrams`."""
        found = self._after.get(state)
        if found is None:
            bit = self._states.first_bit(state)
            without, with_it = self._states.halves(state, bit)
            # More being met never makes it false.
            met = self._and(self._expand(self._asked[bit]), self.after(with_it))
            found = self._after[state] = self._or(self.after(without), met)
        return found

    def _then(self, kind: str, number: int) -> int:
        """The state in which a formula must hold at the next event."""
        if number == (TRUE if kind == "N" else FALSE):
            return self._true if kind == "N" else self._false
        its, parts, _ = self._normal.nodes[number]
        if its in "&|":
            join = self._both if its == "&" else self._either
            return reduce(join, (self._then(kind, part) for part in parts))
        bit = self._bits.get((kind, number))
        if bit is None:
            bit = self._bits[kind, number] = len(self._asked)
            self._asked.append(number)
        return self._states.fork(bit, self._false, self._true)

    def _expand(self, number: int) -> int:
        """From a letter to what a formula leaves to be met after it."""
        found = self._of.get(number)
        if found is None:
            found = self._of[number] = self._expanded(number)
        return found

    def _expanded(self, number: int) -> int:
        kind, parts, sere = self._normal.nodes[number]
        if kind == "+" or kind == "-":
            ends = (self._never, self._surely)
            return self.diagrams.fork(parts[0], *(ends if kind == "+" else ends[::-1]))
        if sere is not None:
            return self._match(kind, sere, parts[0])
        if kind == "&" or kind == "|":
            return reduce(self._and if kind == "&" else self._or, map(self._expand, parts))
        if kind == "X" or kind == "N":
            return self._later(kind, parts[0])
        left, right = map(self._expand, parts)
        if kind == "U":
            return self._or(right, self._and(left, self._later("X", number)))
        return self._and(right, self._or(left, self._later("N", number)))

    def _later(self, kind: str, number: int) -> int:
        return self.diagrams.leaf(self._then(kind, number))

    def _match(self, kind: str, sere: Sere, number: int) -> int:
        every = kind == "A"
        result = self._surely if every else self._never
        for guard, rest in self._derivatives.of(sere):
            asked = self._surely if every else self._never
            join, other = (self._and, self._or) if every else (self._or, self._and)
            if may_be_empty(rest):
                asked = join(asked, self._expand(number))
            if rest != EMPTY:
                again = self._normal.match(kind, rest, number)
                asked = join(asked, self._later("N" if every else "X", again))
            passed = self._normal.negation(guard) if every else guard
            result = join(result, other(self._expand(passed), asked))
        return result


def _holds_of_nothing(formula: Formula) -> bool:
    """Whether the formula holds of the trace without any event."""
    if isinstance(formula, Constant):
        return formula.value
    if isinstance(formula, Proposition):
        return False
    if isinstance(formula, Match):
        return formula.operator == "|->"
    if isinstance(formula, Unary):
        if formula.operator == "!":
            return not _holds_of_nothing(formula.operand)
        return formula.operator == "G"
    if isinstance(formula, Nary):
        values = map(_holds_of_nothing, formula.operands)
        return all(values) if formula.operator == "&" else any(values)
    if formula.operator in ("->", "<->"):
        left, right = _holds_of_nothing(formula.left), _holds_of_nothing(formula.right)
        return right or not left if formula.operator == "->" else left == right
    return formula.operator in ("W", "R")
