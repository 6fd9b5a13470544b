"""The syntax tree of temporal-logic formulas, and of the regular expressions in them.

Linear temporal logic with `X F G U W R M` and PSL's weak `next`, `F G U` with a bound in time, and
the bindings of PSL's sequential extended regular expressions (SEREs). The parser reduces
everything else to these.
Formulas are values: they are equal when their trees are, however they were written.

Sources: Pnueli, "The temporal logic of programs" (1977); IEEE 1850 (PSL); Koymans, "Specifying
real-time properties with metric temporal logic" (1990), for the bounds in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = [
    "EMPTY",
    "FALSE",
    "TRUE",
    "Binary",
    "Constant",
    "Failure",
    "Formula",
    "Joined",
    "Letter",
    "Match",
    "Nary",
    "Proposition",
    "Repeat",
    "Sere",
    "Timed",
    "Unary",
    "children",
    "is_boolean",
    "may_be_empty",
    "propositions",
    "rebuilt",
    "timed_parts",
    "with_strong_next",
]

UnaryOperator = Literal["!", "X", "next", "F", "G"]
NaryOperator = Literal["&", "|"]
BinaryOperator = Literal["->", "<->", "U", "W", "R", "M"]
MatchOperator = Literal["|->", "<>->"]
TimedOperator = Literal["F", "G", "U"]
SereOperator = Literal[";", ":", "|", "&&"]


@dataclass(frozen=True, slots=True)
class Constant:
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class Proposition:
    """A proposition, true or false of one event; `position` is the place of its name in the
    text."""

    name: str
    position: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """`!f`, `X f` (at the next event, which comes), `next f` (at the next event, if one comes),
    `F f` (now or later), `G f` (now and always later)."""

    operator: UnaryOperator
    operand: Formula


@dataclass(frozen=True, slots=True)
class Nary:
    """Two or more formulas joined by `&` or `|`."""

    operator: NaryOperator
    operands: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Binary:
    """`->`, `<->`, `a U b` (a until b, which comes), `a W b` (or a for ever), and their duals
    `a M b` (b up to and with a, which comes) and `a R b` (or b for ever)."""

    operator: BinaryOperator
    left: Formula
    right: Formula


@dataclass(frozen=True, slots=True)
class Match:
    """`{r} |-> f`: f at the last event of every match of r that begins now; `<>->`: of some."""

    operator: MatchOperator
    sere: Sere
    formula: Formula


@dataclass(frozen=True, slots=True)
class Timed:
    """`F[<=t] p`, `G[<=t] p` and `q U[<=t] p`: within so many milliseconds, the last one included.

    `right` is p; `left` is q, and for `F` and `G` true.
    """

    operator: TimedOperator
    left: Formula
    right: Formula
    milliseconds: int


Formula: TypeAlias = Constant | Proposition | Unary | Nary | Binary | Match | Timed

TRUE = Constant(True)
FALSE = Constant(False)


def children(formula: Formula) -> tuple[Formula, ...]:
    """The formulas that a formula is made of, from the left; of a match, what is true after it."""
    if isinstance(formula, Unary):
        return (formula.operand,)
    if isinstance(formula, Nary):
        return formula.operands
    if isinstance(formula, Binary | Timed):
        return formula.left, formula.right
    if isinstance(formula, Match):
        return (formula.formula,)
    return ()


def rebuilt(formula: Formula, change: Callable[[Formula], Formula]) -> Formula:
    """The same formula with each of its children changed."""
    if isinstance(formula, Unary):
        return Unary(formula.operator, change(formula.operand))
    if isinstance(formula, Nary):
        return Nary(formula.operator, tuple(map(change, formula.operands)))
    if isinstance(formula, Binary):
        return Binary(formula.operator, change(formula.left), change(formula.right))
    if isinstance(formula, Timed):
        left, right = change(formula.left), change(formula.right)
        return Timed(formula.operator, left, right, formula.milliseconds)
    if isinstance(formula, Match):
        return Match(formula.operator, formula.sere, change(formula.formula))
    return formula


def is_boolean(formula: Formula) -> bool:
    """Whether it is about one event only."""
    if isinstance(formula, Constant | Proposition):
        return True
    if isinstance(formula, Unary):
        return formula.operator == "!" and is_boolean(formula.operand)
    if isinstance(formula, Nary):
        return all(map(is_boolean, formula.operands))
    if isinstance(formula, Binary):
        boolean = formula.operator in ("->", "<->")
        return boolean and is_boolean(formula.left) and is_boolean(formula.right)
    return False


def propositions(formula: Formula) -> dict[str, int | None]:
    """The names in a formula, in order of appearance, with the position of the first of each."""
    found: dict[str, int | None] = {}
    for proposition in _walk(formula):
        found.setdefault(proposition.name, proposition.position)
    return found


def _walk(formula: Formula) -> Iterator[Proposition]:
    if isinstance(formula, Proposition):
        yield formula
    if isinstance(formula, Match):
        for letter in formula.sere.letters():
            yield from _walk(letter)
    for part in children(formula):
        yield from _walk(part)


def timed_parts(formula: Formula) -> Iterator[Timed]:
    """The operators with a bound in time; of nested ones the outermost."""
    if isinstance(formula, Timed):
        yield formula
    else:
        for part in children(formula):
            yield from timed_parts(part)


def with_strong_next(formula: Formula) -> Formula:
    """The formula with `X` in place of each weak `next`."""
    if isinstance(formula, Unary) and formula.operator == "next":
        return Unary("X", with_strong_next(formula.operand))
    return rebuilt(formula, with_strong_next)


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
