"""Prints a formula as text that parses back to the same formula."""

from __future__ import annotations

import re
from itertools import pairwise

from penstock.streams.temporal.formula.formula import (
    EMPTY,
    TRUE,
    Constant,
    Failure,
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
)
from penstock.streams.temporal.formula.lexer import SYMBOLS, is_plain_name, tokens
from penstock.streams.temporal.formula.parser import UNITS

__all__ = ["in_quotes", "quoted", "to_text"]

_LEVELS = {"->": 0, "<->": 0, "|": 1, "&": 2, "U": 3, "W": 3, "R": 3, "M": 3}
_JOINTS = {";": 0, ":": 1, "|": 2, "&&": 3}
_PREFIX = 4


def to_text(formula: Formula, *, unicode: bool = False) -> str:
    """The formula with no more parentheses than it needs.

    With `unicode`, in symbols such as `□` and `¬` where an operator has one.
    """
    text = _alone(formula)
    return _in_symbols(text) if unicode else text


def _in_symbols(text: str) -> str:
    parts: list[str] = []
    before = ""
    for token, following in pairwise(tokens(text)):
        end = following.position
        # The mark after a SERE is not a negation.
        if token.kind in SYMBOLS and (before, token.kind) != ("}", "!"):
            parts.append(SYMBOLS[token.kind])
            begin = end if token.kind in "GFX" else token.position + len(token.text)
            parts.append(text[begin:end])
        else:
            parts.append(text[token.position : end])
        before = token.kind
    return "".join(parts)


def _alone(formula: Formula) -> str:
    # An arrow extends as far right as possible, so only a formula by itself needs no parentheses.
    return _match(formula) if isinstance(formula, Match) else _formula(formula, 0)


def quoted(name: str) -> str:
    """A proposition's name as it is written in a formula."""
    return name if is_plain_name(name) else in_quotes(name)


def in_quotes(text: str) -> str:
    """The text in quotation marks, with quotation marks and backslashes inside it escaped."""
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _formula(formula: Formula, loosest: int) -> str:
    if isinstance(formula, Constant):
        return "true" if formula.value else "false"
    if isinstance(formula, Proposition):
        return quoted(formula.name)
    if isinstance(formula, Match):
        return f"({_match(formula)})"
    if isinstance(formula, Unary):
        return _prefix(formula.operator, formula.operand)
    if isinstance(formula, Timed):
        return _timed(formula, loosest)
    level = _LEVELS[formula.operator]
    if isinstance(formula, Nary):
        text = f" {formula.operator} ".join(_formula(each, level + 1) for each in formula.operands)
    else:
        left, right = _formula(formula.left, level + 1), _formula(formula.right, level)
        text = f"{left} {formula.operator} {right}"
    return f"({text})" if level < loosest else text


def _prefix(operator: str, formula: Formula) -> str:
    operand = _formula(formula, _PREFIX)
    # A letter and a name would be one word; `!a` and `G(a)` need no space.
    space = "" if operator == "!" or operand.startswith("(") else " "
    return f"{operator}{space}{operand}"


def _timed(formula: Timed, loosest: int) -> str:
    operator = f"{formula.operator}[<={_duration(formula.milliseconds)}]"
    if formula.operator != "U":
        return _prefix(operator, formula.right)
    level = _LEVELS["U"]
    text = f"{_formula(formula.left, level + 1)} {operator} {_formula(formula.right, level)}"
    return f"({text})" if level < loosest else text


def _duration(milliseconds: int) -> str:
    """In the largest unit of which it is a whole number, but 0 in seconds."""
    if not milliseconds:
        return "0s"
    whole = (unit for unit in UNITS if milliseconds % UNITS[unit] == 0)
    *_, largest = whole
    return f"{milliseconds // UNITS[largest]}{largest}"


def _match(formula: Match) -> str:
    if isinstance(formula.sere, Failure):
        return f"{{{_sere(formula.sere.sere, 0)}}}"
    if formula.operator == "<>->" and formula.formula == TRUE:
        return f"{{{_sere(formula.sere, 0)}}}!"
    return f"{{{_sere(formula.sere, 0)}}} {formula.operator} {_alone(formula.formula)}"


def _sere(sere: Sere, loosest: int) -> str:
    if sere == EMPTY:
        return "[*0]"
    if isinstance(sere, Letter):
        return _formula(sere.formula, _LEVELS["&"] if _is_conjunction(sere.formula) else _PREFIX)
    if isinstance(sere, Joined):
        level = _JOINTS[sere.operator]
        joint = "; " if sere.operator == ";" else f" {sere.operator} "
        text = joint.join(_sere(part, level + 1) for part in sere.parts)
        return f"{{{text}}}" if level < loosest else text
    # A failure stands by itself, never inside an expression.
    assert isinstance(sere, Repeat)
    return _repeated(sere.sere) + _times(sere)


def _is_conjunction(formula: Formula) -> bool:
    return isinstance(formula, Nary) and formula.operator == "&"


def _repeated(sere: Sere) -> str:
    if isinstance(sere, Letter) and not _is_conjunction(sere.formula):
        return _formula(sere.formula, _PREFIX)
    if isinstance(sere, Repeat) and sere != EMPTY:
        return _sere(sere, 0)
    return f"{{{_sere(sere, 0)}}}"


def _times(sere: Repeat) -> str:
    low, high = sere.low, sere.high
    if high is None:
        return {0: "[*]", 1: "[+]"}.get(low, f"[*{low}..]")
    return f"[*{low}]" if low == high else f"[*{low}..{high}]"
