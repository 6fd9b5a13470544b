"""From a formula to an automaton over finite traces (LTLf).

A state is what the events so far have left to be met, and whether the trace may end there.

Source: De Giacomo and Vardi, "Linear temporal logic and linear dynamic logic on finite traces"
(IJCAI 2013).
"""

from __future__ import annotations

from dataclasses import dataclass

from streams.temporal.automaton import Edge
from streams.temporal.errors import FormulaTooLarge
from streams.temporal.expansion import MOST_TERMS, Expansion, Term
from streams.temporal.formula import Constant, Formula, Match, Nary, Proposition, Unary
from streams.temporal.normal import Normal

__all__ = ["FiniteAutomaton", "translate_finite"]


@dataclass(frozen=True, slots=True)
class FiniteAutomaton:
    """Nondeterministic; it accepts the traces that can end in a state of `final`."""

    edges: tuple[tuple[Edge, ...], ...]
    initial: int
    final: frozenset[int]


def translate_finite(formula: Formula, names: tuple[str, ...], max_states: int) -> FiniteAutomaton:
    """The automaton of the finite traces on which `formula` holds.

    Time and memory: exponential in the size of the formula at worst; FormulaTooLarge beyond
    `max_states` states.
    """
    normal = Normal(True, names)
    expansion = Expansion(normal, min(max_states, MOST_TERMS))
    numbers: dict[tuple[frozenset[Term], bool], int] = {}
    terms_of: dict[frozenset[int], frozenset[Term]] = {}
    order: list[frozenset[Term]] = []

    def state(formulas: frozenset[int], may_end: bool) -> int:
        terms = terms_of.get(formulas)
        if terms is None:
            terms = terms_of[formulas] = expansion.all_of(formulas)
        key = (terms, may_end)
        if key not in numbers:
            if len(order) >= max_states:
                raise FormulaTooLarge("the number of states", len(order) + 1, max_states)
            numbers[key] = len(order)
            order.append(key[0])
        return numbers[key]

    initial = state(frozenset((normal.of(formula),)), _holds_of_nothing(formula))
    found: list[tuple[Edge, ...]] = []
    while len(found) < len(order):
        found.append(
            tuple(
                Edge(state(term.after, not term.promises), term.care, term.value, 0)
                for term in order[len(found)]
            )
        )
    final = frozenset(number for (_, may_end), number in numbers.items() if may_end)
    return FiniteAutomaton(tuple(found), initial, final)


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
