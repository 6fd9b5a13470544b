"""The syntax tree of PSL's sequential extended regular expressions (SEREs).

Source: IEEE 1850 (PSL).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from penstock.streams.temporal.formula.formula import TRUE, Formula

__all__ = ["EMPTY", "Failure", "Joined", "Letter", "Repeat", "Sere", "may_be_empty"]

SereOperator = Literal[";", ":", "|", "&&"]


class _Hashed:
    """Computes its hash once, when it is made.

    The derivatives of a long expression are nested thousands deep, and are looked up often.
    """

    __slots__ = ("_hash",)
    __match_args__: tuple[str, ...]
    _hash: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self._parts()))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # Recomputed when unpickled: the hash of a string differs in each process.
        return type(self), self._parts()

    def _parts(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)


@dataclass(frozen=True, slots=True)
class Letter(_Hashed):
    """One event that satisfies a Boolean formula."""

    formula: Formula

    __hash__ = _Hashed.__hash__

    def letters(self) -> Iterator[Formula]:
        yield self.formula


@dataclass(frozen=True, slots=True)
class Joined(_Hashed):
    """`;` one after the other, `:` the last event of one is the first of the next, `|` one of
    them, `&&` all of them over the same events."""

    operator: SereOperator
    parts: tuple[Sere, ...]

    __hash__ = _Hashed.__hash__

    def letters(self) -> Iterator[Formula]:
        for part in self.parts:
            yield from part.letters()


@dataclass(frozen=True, slots=True)
class Repeat(_Hashed):
    """`r[*low..high]`; any number of times without `high`."""

    sere: Sere
    low: int
    high: int | None

    __hash__ = _Hashed.__hash__

    def letters(self) -> Iterator[Formula]:
        yield from self.sere.letters()


@dataclass(frozen=True, slots=True)
class Failure(_Hashed):
    """The events up to the first after which r has not matched and cannot match any more.

    `{r}` by itself, PSL's weak closure, says that this does not happen.
    """

    sere: Sere

    __hash__ = _Hashed.__hash__

    def letters(self) -> Iterator[Formula]:
        yield from self.sere.letters()


Sere: TypeAlias = Letter | Joined | Repeat | Failure

EMPTY = Repeat(Letter(TRUE), 0, 0)


def may_be_empty(sere: Sere) -> bool:
    """Whether it matches no events at all."""
    if isinstance(sere, Letter | Failure):
        return False
    if isinstance(sere, Repeat):
        return sere.low == 0 or may_be_empty(sere.sere)
    if sere.operator == ":":
        return False
    return (any if sere.operator == "|" else all)(map(may_be_empty, sere.parts))
