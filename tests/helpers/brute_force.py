"""The meaning of formulas, word for word from their definitions, without the library's methods.

Letters are sets of names. An infinite word is a stem and a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from math import prod

from hypothesis import strategies as st

from penstock.streams.temporal.formula.formula import (
    EMPTY,
    FALSE,
    TRUE,
    Binary,
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
    Unary,
    propositions,
)

Word = Sequence[frozenset[str]]

# How often the loop is unrolled to look for matches: more than the matcher has states.
UNROLLED = 14


def holds(formula: Formula, stem: Word, loop: Word) -> bool:
    """Whether the formula holds of the infinite word."""
    return _Infinite([*stem, *loop], len(stem)).of(formula)[0]


class _Infinite:
    def __init__(self, letters: Word, loop_begins: int) -> None:
        self.letters = letters
        self.begin = loop_begins

    def next(self, place: int) -> int:
        return place + 1 if place + 1 < len(self.letters) else self.begin

    def later(self, place: int) -> list[int]:
        """This place and the following ones, until all have been visited."""
        places = [place]
        for _ in range(2 * len(self.letters)):
            places.append(self.next(places[-1]))
        return places

    def of(self, formula: Formula) -> list[bool]:
        everywhere = range(len(self.letters))
        if isinstance(formula, Constant):
            return [formula.value for _ in everywhere]
        if isinstance(formula, Proposition):
            return [formula.name in letter for letter in self.letters]
        if isinstance(formula, Nary):
            parts = [self.of(operand) for operand in formula.operands]
            join = all if formula.operator == "&" else any
            return [join(part[i] for part in parts) for i in everywhere]
        if isinstance(formula, Unary):
            inner = self.of(formula.operand)
            return [
                {
                    "!": not inner[i],
                    "X": inner[self.next(i)],
                    "next": inner[self.next(i)],
                    "F": any(inner[k] for k in self.later(i)),
                    "G": all(inner[k] for k in self.later(i)),
                }[formula.operator]
                for i in everywhere
            ]
        if isinstance(formula, Match):
            inner = self.of(formula.formula)
            return [
                (any if formula.operator == "<>->" else all)(
                    inner[k] for k in self.ends(formula.sere, i)
                )
                for i in everywhere
            ]
        left, right = self.of(formula.left), self.of(formula.right)
        if formula.operator == "->":
            return [not left[i] or right[i] for i in everywhere]
        if formula.operator == "<->":
            return [left[i] == right[i] for i in everywhere]
        return [
            binary(formula.operator, [left[k] for k in self.later(i)],
                   [right[k] for k in self.later(i)])
            for i in everywhere
        ]  # fmt: skip

    def ends(self, sere: Sere, place: int) -> set[int]:
        places = [place]
        for _ in range(len(self.letters) + UNROLLED * (len(self.letters) - self.begin)):
            places.append(self.next(places[-1]))
        word = [self.letters[k] for k in places]
        return {places[end - 1] for end in matches(sere, word, 0) if end > 0}


def binary(operator: str, left: list[bool], right: list[bool]) -> bool:
    """A binary operator on enough of its operands' values from now on."""
    span = range(len(left))
    until = any(right[k] and all(left[:k]) for k in span)
    return {
        "U": until,
        "W": until or all(left),
        "R": all(right[k] or any(left[:k]) for k in span),
        "M": any(left[k] and all(right[: k + 1]) for k in span),
    }[operator]


def holds_finitely(formula: Formula, trace: Word) -> bool:
    """Whether the formula holds of the finite trace (LTLf)."""
    if isinstance(formula, Constant):
        return formula.value
    if isinstance(formula, Proposition):
        return bool(trace) and formula.name in trace[0]
    if isinstance(formula, Nary):
        return (all if formula.operator == "&" else any)(
            holds_finitely(operand, trace) for operand in formula.operands
        )
    rests = [trace[k:] for k in range(len(trace))]
    if isinstance(formula, Unary):
        if formula.operator == "!":
            return not holds_finitely(formula.operand, trace)
        if formula.operator == "X":
            return len(trace) > 1 and holds_finitely(formula.operand, trace[1:])
        if formula.operator == "next":
            return len(trace) < 2 or holds_finitely(formula.operand, trace[1:])
        return (any if formula.operator == "F" else all)(
            holds_finitely(formula.operand, rest) for rest in rests
        )
    if isinstance(formula, Match):
        ends = [end for end in matches(formula.sere, trace, 0) if end > 0]
        return (any if formula.operator == "<>->" else all)(
            holds_finitely(formula.formula, trace[end - 1 :]) for end in ends
        )
    if formula.operator == "->":
        return not holds_finitely(formula.left, trace) or holds_finitely(formula.right, trace)
    if formula.operator == "<->":
        return holds_finitely(formula.left, trace) == holds_finitely(formula.right, trace)
    left = [holds_finitely(formula.left, rest) for rest in rests]
    right = [holds_finitely(formula.right, rest) for rest in rests]
    return binary(formula.operator, left, right)


def matches(sere: Sere, word: Word, begin: int) -> set[int]:
    """Where a match that begins at `begin` may have ended: the place after its last letter."""
    if isinstance(sere, Letter):
        fits = begin < len(word) and holds_finitely(sere.formula, word[begin : begin + 1])
        return {begin + 1} if fits else set()
    if isinstance(sere, Repeat):
        found = {begin} if sere.low == 0 else set[int]()
        ends, times = {begin}, 0
        most = sere.low + len(word) + 1 if sere.high is None else sere.high
        while ends and times < most:
            ends = {end for at in ends for end in matches(sere.sere, word, at)}
            times += 1
            if times >= sere.low:
                ends -= found
                found |= ends
        return found
    if isinstance(sere, Failure):
        for end in range(begin + 1, len(word) + 1):
            if matches(sere.sere, word[:end], begin) - {begin}:
                return set()
            if not _may_match(sere.sere, word[begin:end]):
                return {end}
        return set()
    first = matches(sere.parts[0], word, begin)
    if len(sere.parts) == 1:
        return first
    rest = Joined(sere.operator, sere.parts[1:])
    if sere.operator == "|":
        return first | matches(rest, word, begin)
    if sere.operator == "&&":
        return first & matches(rest, word, begin)
    if sere.operator == ";":
        return {end for at in first for end in matches(rest, word, at)}
    return {end for at in first if at > begin for end in matches(rest, word, at - 1) if end >= at}


def _may_match(sere: Sere, word: Word) -> bool:
    """Whether it matches all of the word with more letters after it."""
    names = sorted({name for letter in sere.letters() for name in propositions(letter)})
    tries = [
        frozenset(name for bit, name in enumerate(names) if number >> bit & 1)
        for number in range(1 << len(names))
    ]
    return any(
        len(word) + more in matches(sere, [*word, *rest], 0)
        for more in range(1, _room(sere) + 1)
        for rest in product(tries, repeat=more)
    )


def _room(sere: Sere) -> int:
    """The most letters that the shortest completion of a match can need."""
    if isinstance(sere, Letter):
        return 1
    if isinstance(sere, Repeat):
        return max(sere.low, 1) * _room(sere.sere)
    assert isinstance(sere, Joined)
    rooms = [_room(part) for part in sere.parts]
    if sere.operator == "|":
        return max(rooms)
    return sum(rooms) if sere.operator in ";:" else prod(room + 1 for room in rooms) - 1


# What to try.

NAMES = ("a", "b", "c")

LETTERS = tuple(frozenset(some) for size in range(4) for some in combinations(NAMES, size))

letters = st.frozensets(st.sampled_from(NAMES))
words = st.lists(letters, max_size=4)
loops = st.lists(letters, min_size=1, max_size=3)
_atoms = st.sampled_from([*map(Proposition, NAMES), TRUE, FALSE])


def _booleans(inner: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
    return st.builds(Unary, st.just("!"), inner) | st.builds(
        Nary, st.sampled_from("&|"), st.lists(inner, min_size=2, max_size=3).map(tuple)
    )


booleans = st.recursive(_atoms, _booleans, max_leaves=3)


def _seres(inner: st.SearchStrategy[Sere]) -> st.SearchStrategy[Sere]:
    bounds = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 2), (2, None)])
    return st.builds(
        Joined,
        st.sampled_from([";", ":", "|", "&&"]),
        st.lists(inner, min_size=2, max_size=3).map(tuple),
    ) | st.builds(lambda sere, span: Repeat(sere, *span), inner, bounds)


seres = st.recursive(st.builds(Letter, booleans) | st.just(EMPTY), _seres, max_leaves=3)


# Trying all completions takes long for larger ones.
closures = seres.filter(lambda sere: _room(sere) <= 3).map(
    lambda sere: Match("|->", Failure(sere), FALSE)
)


def _temporal(inner: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
    return st.one_of(
        st.builds(Unary, st.sampled_from(["!", "X", "next", "F", "G"]), inner),
        st.builds(Nary, st.sampled_from("&|"), st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Binary, st.sampled_from(["->", "<->", "U", "W", "R", "M"]), inner, inner),
        st.builds(Match, st.sampled_from(["|->", "<>->"]), seres, inner),
    )


formulas = st.recursive(_atoms, _temporal, max_leaves=5)
formulas_with_closures = st.recursive(_atoms | closures, _temporal, max_leaves=3)
