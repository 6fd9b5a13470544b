"""Random formulas with a number of operators."""

from __future__ import annotations

from random import Random

from penstock.streams.temporal import to_text
from penstock.streams.temporal.formula.formula import (
    Binary,
    BinaryOperator,
    Formula,
    Nary,
    NaryOperator,
    Proposition,
    Unary,
    UnaryOperator,
)

__all__ = ["random_formulas"]

UNARY: tuple[UnaryOperator, ...] = ("!", "X", "F", "G")
JOINED: tuple[NaryOperator, ...] = ("&", "|")
BINARY: tuple[BinaryOperator, ...] = ("->", "<->", "U", "W", "R", "M")
INTRICATE: tuple[BinaryOperator, ...] = (*BINARY, "<->", "<->", "<->")


def random_formulas(count: int, operators: int, *, intricate: bool = False) -> list[str]:
    """The same formulas each time, of 2 to 6 propositions.

    Intricate ones have 7 to 10, and often `<->`, which doubles what an automaton has to follow.
    """
    dice = Random(1)
    binary = INTRICATE if intricate else BINARY
    found: list[str] = []
    for _ in range(count):
        propositions = dice.randint(7, 10) if intricate else dice.randint(2, 6)
        names = [f"p{at}" for at in range(propositions)]
        found.append(to_text(_formula(dice, operators, names, binary)))
    return found


def _formula(
    dice: Random, operators: int, names: list[str], binary: tuple[BinaryOperator, ...]
) -> Formula:
    if not operators:
        return Proposition(dice.choice(names))
    if dice.random() < 0.35:
        return Unary(dice.choice(UNARY), _formula(dice, operators - 1, names, binary))
    before = dice.randrange(operators)
    left = _formula(dice, before, names, binary)
    right = _formula(dice, operators - 1 - before, names, binary)
    kind = dice.randrange(len(JOINED) + len(binary))
    if kind < len(JOINED):
        return Nary(JOINED[kind], (left, right))
    return Binary(binary[kind - len(JOINED)], left, right)
