"""What a formula asks of the next event, and what it leaves for those after it.

Every formula is a disjunction of terms: literals that must hold of the next event, formulas that
must hold after it, and promises, the parts that were put off and may not be for ever. This is the
tableau of Couvreur (FM 1999), a form of Gerth, Peled, Vardi and Wolper's (PSTV 1995).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

from streams.temporal.derivatives import Derivatives
from streams.temporal.errors import FormulaTooLarge
from streams.temporal.normal import FALSE, TRUE, Normal
from streams.temporal.sere import EMPTY, Sere, may_be_empty

__all__ = ["MATCH", "MOST_TERMS", "Expansion", "Term"]

Terms = frozenset["Term"]


class Term(NamedTuple):
    """Of the propositions in `care` those in `value` must hold, and the others not.

    `after` are formulas for the following events; `promises` are the right sides of `U` that are
    put off, and `MATCH` if a marked match is.
    """

    care: int
    value: int
    after: frozenset[int]
    promises: frozenset[int]


_NONE: frozenset[int] = frozenset()
_NO_TERMS: Terms = frozenset()
_ANYTHING = Term(0, 0, _NONE, _NONE)

# Every two are compared. A formula with so many has far more states than anybody wants.
MOST_TERMS = 2_000

MATCH = -1
_MATCH = frozenset((MATCH,))


class Expansion:
    """Expands the formulas of one `Normal`; at most `limit` terms each, else FormulaTooLarge."""

    def __init__(self, normal: Normal, limit: int) -> None:
        self._normal = normal
        self._limit = limit
        self._known: dict[int, Terms] = {FALSE: _NO_TERMS, TRUE: frozenset((_ANYTHING,))}
        self._derivatives = Derivatives(normal)

    def all_of(self, numbers: Iterable[int]) -> Terms:
        """The terms of the conjunction of several formulas."""
        return reduce(self._product, map(self.of, sorted(numbers)), self._known[TRUE])

    def of(self, number: int) -> Terms:
        """The terms of a formula."""
        terms = self._known.get(number)
        if terms is None:
            terms = self._known[number] = self._expand(number)
        return terms

    def _expand(self, number: int) -> Terms:
        kind, parts, sere = self._normal.nodes[number]
        if kind == "+" or kind == "-":
            bit = 1 << parts[0]
            return frozenset((Term(bit, bit if kind == "+" else 0, _NONE, _NONE),))
        if kind == "&":
            return self.all_of(parts)
        if kind == "|":
            return self._disjunction(parts)
        if kind == "X":
            return self._later(parts[0], _NONE)
        if kind == "U":
            left, right = parts
            wait = self._product(self.of(left), self._later(number, frozenset((right,))))
            return self._or_else(right, wait)
        if kind == "R":
            left, right = parts
            going_on = self._or_else(left, self._later(number, _NONE))
            return self._product(self.of(right), going_on)
        assert sere is not None
        return self._each(sere, parts[0]) if kind == "A" else self._some(kind, sere, parts[0])

    def _later(self, number: int, promises: frozenset[int]) -> Terms:
        nodes = self._normal.nodes
        after = nodes[number].parts if nodes[number].kind == "&" else (number,)
        if number == FALSE:
            return _NO_TERMS
        return frozenset((Term(0, 0, frozenset(after) - {TRUE}, promises),))

    def _or_else(self, number: int, otherwise: Terms) -> Terms:
        """`number`, or `otherwise`; where it can be told from one event, only if not `number`."""
        if otherwise and self._normal.is_boolean(number):
            otherwise = self._product(self.of(self._normal.negation(number)), otherwise)
        return self._least(self.of(number) | otherwise)

    def _disjunction(self, parts: tuple[int, ...]) -> Terms:
        boolean = [part for part in parts if self._normal.is_boolean(part)]
        others = [part for part in parts if not self._normal.is_boolean(part)]
        if not boolean or not others:
            return self._least(_NO_TERMS.union(*map(self.of, parts)))
        rest = _NO_TERMS.union(*map(self.of, others))
        return self._or_else(self._normal.either(*boolean), rest)

    def _product(self, left: Terms, right: Terms) -> Terms:
        terms: set[Term] = set()
        for a in left:
            for b in right:
                if (a.value ^ b.value) & a.care & b.care:
                    continue
                term = Term(
                    a.care | b.care, a.value | b.value, a.after | b.after, a.promises | b.promises
                )
                terms.add(term)
            if len(terms) > self._limit:
                raise FormulaTooLarge("the number of edges of a state", len(terms), self._limit)
        return self._least(terms)

    def _least(self, terms: Iterable[Term]) -> Terms:
        """Without the terms that ask for all that another one does, and for more."""
        kept: dict[_Rest, list[tuple[int, int]]] = {}
        for rest, guards in sorted(_by_rest(terms).items(), key=_size):
            lesser = [
                known
                for other, known in kept.items()
                if other[0] <= rest[0] and other[1] <= rest[1]
            ]
            mine: list[tuple[int, int]] = []
            lesser.append(mine)
            for care, value in sorted(_joined_pairs(guards), key=_literals):
                if not any(_allows_more(known, care, value) for known in lesser):
                    mine.append((care, value))
            if mine:
                kept[rest] = mine
        return frozenset(
            Term(care, value, *rest) for rest, guards in kept.items() for care, value in guards
        )

    # Regular expressions.

    def _some(self, kind: str, sere: Sere, number: int) -> Terms:
        promises = _MATCH if kind == "M" else _NONE
        terms: set[Term] = set()
        for guard, rest in self._derivatives.of(sere):
            ends = self.of(number) if may_be_empty(rest) else _NO_TERMS
            if rest != EMPTY:
                again = self._normal.match(kind, rest, number)
                ends |= self._later(again, promises)
            terms |= self._product(self.of(guard), ends)
        return self._least(terms)

    def _each(self, sere: Sere, number: int) -> Terms:
        terms = self._known[TRUE]
        for guard, rest in self._derivatives.of(sere):
            asked = self.of(number) if may_be_empty(rest) else self._known[TRUE]
            if rest != EMPTY:
                again = self._normal.match("A", rest, number)
                asked = self._product(asked, self._later(again, _NONE))
            passed = self._product(self.of(guard), asked)
            terms = self._product(terms, self.of(self._normal.negation(guard)) | passed)
        return terms


_Rest = tuple[frozenset[int], frozenset[int]]


def _by_rest(terms: Iterable[Term]) -> dict[_Rest, set[tuple[int, int]]]:
    """The guards of the terms that leave and promise the same."""
    found: dict[_Rest, set[tuple[int, int]]] = {}
    for care, value, after, promises in terms:
        found.setdefault((after, promises), set()).add((care, value))
    return found


def _joined_pairs(guards: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """All of them, and for every two that differ in one literal the one without it."""
    work = list(guards)
    while work:
        care, value = work.pop()
        rest = care
        while rest:
            bit = rest & -rest
            rest ^= bit
            wider = (care ^ bit, value & ~bit)
            if (care, value ^ bit) in guards and wider not in guards:
                guards.add(wider)
                work.append(wider)
    return guards


def _allows_more(known: list[tuple[int, int]], care: int, value: int) -> bool:
    # any() of a generator would take twice as long.
    for less, its_value in known:  # noqa: SIM110
        if less & care == less and value & less == its_value:
            return True
    return False


def _size(item: tuple[_Rest, object]) -> tuple[int, int]:
    (after, promises), _ = item
    return (len(after), len(promises))


def _literals(guard: tuple[int, int]) -> tuple[int, int, int]:
    return (guard[0].bit_count(), *guard)
