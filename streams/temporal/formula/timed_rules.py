"""Takes a formula with bounds in time apart: into rules that a few deadlines decide, and the rest.

One deadline is enough for an operator that stands alone, or is required at each end of a match (see
`penstock.streams.temporal.monitors.timed.deadlines`). Anywhere else, such as under `X` or a
negation, a monitor would have to remember any number of them, or clocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.streams.temporal.errors import TimedFormula
from penstock.streams.temporal.formula.formula import (
    TRUE,
    Binary,
    Constant,
    Formula,
    Joined,
    Letter,
    Match,
    Nary,
    Proposition,
    Repeat,
    Sere,
    Timed,
    Unary,
    is_boolean,
    may_be_empty,
    timed_parts,
)
from penstock.streams.temporal.formula.printer import to_text

__all__ = ["TimedRule", "in_any_time", "split", "without_time"]


_ANYTHING = Repeat(Letter(TRUE), 0, None)


@dataclass(frozen=True, slots=True)
class TimedRule:
    """`then` is required at the last event of every match of `sere` that begins with the first
    event."""

    sere: Sere
    then: Timed


def split(formula: Formula) -> tuple[Formula, tuple[TimedRule, ...]]:
    """The conjunction of all that has no bound in time, and the rules that have one.

    Raises TimedFormula, with the reason, for an operator with a bound that is neither alone nor
    behind `G(b ->` or `{r} |->`, or has operands that are not Boolean.
    """
    untimed: list[Formula] = []
    rules: list[TimedRule] = []
    for part in _conjuncts(formula):
        timed = next(timed_parts(part), None)
        if timed is None:
            untimed.append(part)
            continue
        rule = _rule(part)
        if rule is None:
            raise TimedFormula(_misplaced(timed, part))
        _check_operands(rule.then)
        rules.append(rule)
    if not rules:
        return formula, ()
    if len(untimed) < 2:
        return untimed[0] if untimed else TRUE, tuple(rules)
    return Nary("&", tuple(untimed)), tuple(rules)


def in_any_time(untimed: Formula, rules: tuple[TimedRule, ...]) -> Formula:
    """What the whole formula requires of events whose times may be chosen.

    They may follow one another so quickly that everything comes in time, or so slowly that nothing
    is required for longer than one event. Where no deadline has passed, and all bounds are those of
    `F` and `U` or all are those of `G`, the formula can be fulfilled exactly if this one can.
    """
    relaxed = [Match("|->", rule.sere, _in_any_time(rule.then)) for rule in rules]
    return Nary("&", (untimed, *relaxed))


def _in_any_time(timed: Timed) -> Formula:
    if timed.operator == "G":
        return timed.right
    return Binary("U", timed.left, timed.right)


def without_time(timed: Timed, why: str) -> TimedFormula:
    """The error of a function that cannot handle bounds in time."""
    return TimedFormula(f"{to_text(timed)} is bounded in time: {why}")


def _conjuncts(formula: Formula) -> list[Formula]:
    if isinstance(formula, Nary) and formula.operator == "&":
        return [part for operand in formula.operands for part in _conjuncts(operand)]
    return [formula]


def _rule(part: Formula) -> TimedRule | None:
    if isinstance(part, Timed):
        return TimedRule(Letter(TRUE), part)
    if isinstance(part, Match) and part.operator == "|->" and isinstance(part.formula, Timed):
        return TimedRule(part.sere, part.formula)
    if isinstance(part, Unary) and part.operator == "G" and isinstance(part.operand, Binary):
        inner = part.operand
        if inner.operator == "->" and is_boolean(inner.left) and isinstance(inner.right, Timed):
            return TimedRule(Joined(";", (_ANYTHING, Letter(inner.left))), inner.right)
    return None


def _check_operands(timed: Timed) -> None:
    for operand in (timed.left, timed.right):
        if not is_boolean(operand):
            raise without_time(
                timed,
                f"what it is about, {to_text(operand)}, must be Boolean, which can be decided at "
                "one event",
            )


def _misplaced(timed: Timed, part: Formula) -> str:
    return (
        f"{to_text(timed)} is bounded in time and stands {_place(timed, part)}: it can be watched "
        "only alone, behind `G(b ->` with a Boolean b, or behind `{r} |->`, and in conjunctions of "
        f"such rules with formulas without a bound{_instead(part)}"
    )


def _instead(part: Formula) -> str:
    """How to write a rule that only needs another form."""
    other: Formula | None = None
    inner = part.operand if isinstance(part, Unary) and part.operator == "G" else None
    if isinstance(inner, Timed):
        other = Unary("G", Binary("->", TRUE, inner))
    elif isinstance(inner, Match) and _rule(inner) is not None and not may_be_empty(inner.sere):
        other = Match("|->", Joined(";", (_ANYTHING, inner.sere)), inner.formula)
    elif isinstance(part, Binary) and part.operator == "->" and is_boolean(part.left):
        other = Match("|->", Letter(part.left), part.right)
    return "" if other is None or _rule(other) is None else f". Write {to_text(other)}"


def _place(timed: Timed, part: Formula) -> str:
    """The place of a part in the formula, in words: what stands directly around it."""
    around = part
    while (inner := _around(timed, around)) is not None:
        around = inner
    if isinstance(around, Match):
        return f"behind `{around.operator}` that is not a rule by itself, in {to_text(part)}"
    assert not isinstance(around, Constant | Proposition)
    return f"under `{around.operator}`, in {to_text(part)}"


def _around(timed: Timed, formula: Formula) -> Formula | None:
    """The operand of a formula that holds a part, unless it is that part."""
    operands: tuple[Formula, ...] = ()
    if isinstance(formula, Unary):
        operands = (formula.operand,)
    elif isinstance(formula, Nary):
        operands = formula.operands
    elif isinstance(formula, Binary):
        operands = (formula.left, formula.right)
    elif isinstance(formula, Match):
        operands = (formula.formula,)
    for operand in operands:
        if operand is not timed and any(found is timed for found in timed_parts(operand)):
            return operand
    return None
