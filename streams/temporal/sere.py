"""PSL's sequential extended regular expressions (SEREs), whose letters are Boolean formulas.

Source: IEEE 1850 (PSL).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from streams.temporal.formula import TRUE, Formula

__all__ = ["EMPTY", "Joined", "Letter", "Repeat", "Sere", "may_be_empty"]

SereOperator = Literal[";", ":", "|", "&&"]


@dataclass(frozen=True, slots=True)
class Letter:
    """One event of which a Boolean formula holds."""

    formula: Formula

    def letters(self) -> Iterator[Formula]:
        yield self.formula


@dataclass(frozen=True, slots=True)
class Joined:
    """`;` one after the other, `:` the last event of one is the first of the next, `|` one of
    them, `&&` all of them over the same events."""

    operator: SereOperator
    parts: tuple[Sere, ...]

    def letters(self) -> Iterator[Formula]:
        for part in self.parts:
            yield from part.letters()


@dataclass(frozen=True, slots=True)
class Repeat:
    """`r[*low..high]`; without `high` as often as one likes."""

    sere: Sere
    low: int
    high: int | None

    def letters(self) -> Iterator[Formula]:
        yield from self.sere.letters()


Sere: TypeAlias = Letter | Joined | Repeat

EMPTY = Repeat(Letter(TRUE), 0, 0)


def may_be_empty(sere: Sere) -> bool:
    """Whether it matches no events at all."""
    if isinstance(sere, Letter):
        return False
    if isinstance(sere, Repeat):
        return sere.low == 0 or may_be_empty(sere.sere)
    if sere.operator == ":":
        return False
    return (any if sere.operator == "|" else all)(map(may_be_empty, sere.parts))
