"""Rewrites formulas into shorter equivalent ones."""

from __future__ import annotations

from penstock.streams.temporal.formula.formula import (
    FALSE,
    TRUE,
    Binary,
    Constant,
    Failure,
    Formula,
    Letter,
    Match,
    Nary,
    NaryOperator,
    Proposition,
    Timed,
    Unary,
    UnaryOperator,
)
from penstock.streams.temporal.formula.timed_rules import without_time

__all__ = ["simplify"]

_DUAL: dict[NaryOperator, NaryOperator] = {"&": "|", "|": "&"}

_TEMPORAL_DUAL: dict[UnaryOperator, UnaryOperator] = {"X": "next", "F": "G", "G": "F"}

# F a | F b = F(a | b), and so on.
_DISTRIBUTED: dict[NaryOperator, tuple[UnaryOperator, ...]] = {
    "|": ("F", "X", "next"),
    "&": ("G", "X", "next"),
}


def simplify(formula: Formula) -> Formula:
    """An equivalent formula, over infinite words and over finite words other than the empty one,
    that is not larger. Time: at worst the size of the formula times its depth, except for comparing
    equal parts. Raises TimedFormula for one with a bound in time."""
    if isinstance(formula, Timed):
        raise without_time(formula, "its rule could lose the form in which it can be watched")
    if isinstance(formula, Constant | Proposition):
        return formula
    if isinstance(formula, Unary):
        return _unary(formula.operator, simplify(formula.operand))
    if isinstance(formula, Nary):
        return _joined(formula.operator, tuple(map(simplify, formula.operands)))
    if isinstance(formula, Match):
        return _match(formula, simplify(formula.formula))
    left, right = simplify(formula.left), simplify(formula.right)
    if formula.operator == "->":
        return _implication(left, right)
    if formula.operator == "<->":
        return _equivalence(left, right)
    return _binding(Binary(formula.operator, left, right))


def _unary(operator: UnaryOperator, operand: Formula) -> Formula:
    if operator == "!":
        return _negation(operand)
    # At the last event `X true` is false, and `next false` is true.
    if (operand == FALSE and operator != "next") or (operand == TRUE and operator != "X"):
        return operand
    if operator in "FG" and isinstance(operand, Unary):
        inner = operand.operand
        repeated = operand.operator == operator
        # G F G a = F G a, and F G F a = G F a: whatever is so from some time on, or again and again
        eternal = (
            operand.operator in "FG" and isinstance(inner, Unary) and inner.operator == operator
        )
        if repeated or eternal:
            return operand
    if isinstance(operand, Binary):
        if operator == "F" and operand.operator == "U":
            return _unary("F", operand.right)
        if operator == "G" and operand.operator == "R":
            return _unary("G", operand.right)
    return Unary(operator, operand)


def _negation(operand: Formula) -> Formula:
    if isinstance(operand, Constant):
        return Constant(not operand.value)
    if isinstance(operand, Unary):
        inner = operand.operand
        if operand.operator == "!":
            return inner
        # The weak next and the strong one are duals.
        if operand.operator == "next":
            return _unary("X", _negation(inner))
        dual = _TEMPORAL_DUAL[operand.operator]
        if isinstance(inner, Unary) and inner.operator == "!":
            return _unary(dual, inner.operand)
    return Unary("!", operand)


def _joined(operator: NaryOperator, operands: tuple[Formula, ...]) -> Formula:
    neutral, absorbing = (TRUE, FALSE) if operator == "&" else (FALSE, TRUE)
    parts = {part: None for operand in operands for part in _parts(operator, operand)}
    if any(_negation(part) in parts for part in parts):
        return absorbing
    for unary in _DISTRIBUTED[operator]:
        parts = _merged(operator, unary, parts)
    parts.pop(neutral, None)
    if absorbing in parts or any(_negation(part) in parts for part in parts):
        return absorbing
    # a & (a | b) = a
    kept = [
        part
        for part in parts
        if (inner := _parts(_DUAL[operator], part)) == (part,) or parts.keys().isdisjoint(inner)
    ]
    if len(kept) < 2:
        return kept[0] if kept else neutral
    return Nary(operator, tuple(kept))


def _parts(operator: NaryOperator, formula: Formula) -> tuple[Formula, ...]:
    """What `operator` joins to this formula: itself, or more, as F a and F b to F(a | b)."""
    if isinstance(formula, Nary) and formula.operator == operator:
        return formula.operands
    if isinstance(formula, Unary) and formula.operator in _DISTRIBUTED[operator]:
        inner = formula.operand
        if isinstance(inner, Nary) and inner.operator == operator:
            return tuple(Unary(formula.operator, operand) for operand in inner.operands)
    return (formula,)


def _merged(
    operator: NaryOperator, unary: UnaryOperator, parts: dict[Formula, None]
) -> dict[Formula, None]:
    """The parts, with one in place of all those that begin with the operator `unary`."""
    alike = {
        part: part.operand for part in parts if isinstance(part, Unary) and part.operator == unary
    }
    if len(alike) < 2:
        return parts
    whole = _unary(unary, _joined(operator, tuple(alike.values())))
    return dict.fromkeys(whole if part in alike else part for part in parts)


def _implication(left: Formula, right: Formula) -> Formula:
    if left in (FALSE, right) or right == TRUE:
        return TRUE
    if left == TRUE:
        return right
    return _negation(left) if right == FALSE else Binary("->", left, right)


def _equivalence(left: Formula, right: Formula) -> Formula:
    if left == right:
        return TRUE
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Constant):
            return other if one.value else _negation(other)
    return Binary("<->", left, right)


def _binding(formula: Binary) -> Formula:
    operator, left, right = formula.operator, formula.left, formula.right
    # W is to R as U is to M, with the deciding side exchanged.
    decides, lasts = (right, left) if operator in "UW" else (left, right)
    if left == right or decides == TRUE:
        return lasts if operator in "RM" or left == right else TRUE
    if lasts == FALSE:
        return right if operator in "UW" else FALSE
    if lasts == TRUE:
        return _unary("F", decides) if operator in "UM" else TRUE
    if decides == FALSE:
        return FALSE if operator in "UM" else _unary("G", lasts)
    # a U (a U b) = a U b
    if isinstance(right, Binary) and right.operator == operator and operator in "UW":
        return right if right.left == left else formula
    return formula


def _match(formula: Match, inner: Formula) -> Formula:
    weak = formula.operator == "|->"
    if inner == (TRUE if weak else FALSE):
        return inner
    if isinstance(formula.sere, Failure) and isinstance(formula.sere.sere, Letter):
        return simplify(formula.sere.sere.formula)
    if isinstance(formula.sere, Letter):
        letter = simplify(formula.sere.formula)
        return _implication(letter, inner) if weak else _joined("&", (letter, inner))
    return Match(formula.operator, formula.sere, inner)
