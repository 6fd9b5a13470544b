"""Searches the patterns for formulas that tell good traces from bad ones.

Source: Lemieux, Park and Beschastnikh, "General LTL specification mining" (ASE 2015), for trying
instances of patterns; the bad traces, and conjunctions, are as in Neider and Gavran, "Learning
linear temporal properties" (FMCAD 2018).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.streams.temporal.formula.formula import Nary, Unary, propositions
from penstock.streams.temporal.formula.lexer import tokens
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.temporal.learning.evaluation import Traces
from penstock.streams.temporal.learning.patterns import MOST_PROPOSITIONS, patterns
from penstock.streams.temporal.monitors.examples import shortest_trace

__all__ = ["Finding", "Learned", "learn"]

_MOST_SEPARATING, _MOST_OTHERS = 5, 3


class Finding(NamedTuple):
    """A formula, as the patterns that `&` joins, and the numbers, from 0, of the traces that it
    gets wrong: the good ones of which it fails, and the bad ones of which it holds."""

    parts: tuple[str, ...]
    fails_on_good: tuple[int, ...]
    holds_on_bad: tuple[int, ...]

    @property
    def formula(self) -> str:
        return " & ".join(map(_conjunct, self.parts) if len(self.parts) > 1 else self.parts)

    def refutation(self) -> tuple[frozenset[str], ...]:
        """A shortest trace on which it fails: the propositions that hold of each event."""
        return min(map(_refutation, self.parts), key=len)


@dataclass(frozen=True, slots=True)
class Learned:
    """The formulas that separate good from bad traces, smallest first, five at most; if none does,
    the three that get the fewest wrong. `tried` is the number of patterns."""

    findings: tuple[Finding, ...]
    tried: int

    @property
    def separates(self) -> bool:
        """Whether the formulas hold on every good trace and fail on every bad one."""
        return not any(one.fails_on_good or one.holds_on_bad for one in self.findings)


class _Candidate(NamedTuple):
    """The parts of a conjunction. Compared by the number of traces that it gets wrong, then by its
    size, then by the places of the parts in the list of patterns."""

    wrong: int
    size: int
    places: tuple[int, ...]
    parts: tuple[str, ...]


class _Holding(NamedTuple):
    """A pattern that holds on all good traces, and the bad ones on which it fails, as bits."""

    size: int
    place: int
    text: str
    fails_of: int


def learn(
    good: Sequence[Sequence[int]], bad: Sequence[Sequence[int]], names: Sequence[str]
) -> Learned:
    """Formulas that hold on all good traces and fail on all bad ones.

    A trace is a sequence of one or more letters, whose bits are the propositions `names`. All
    patterns are tried, and all conjunctions of two that hold on all good traces. Raises ValueError
    for more than 20 propositions, for an empty trace, and without good or bad ones.

    Time: linear in the number of events for each pattern; the number of patterns grows with the
    third power of that of propositions, to 7,000 for 8 and 120,000 for 20. Conjunctions: at worst
    quadratic in the number of patterns that hold on all good traces and fail on different bad ones.
    Memory: an entry for each of these, a bit for each event and proposition.
    """
    if len(names) > MOST_PROPOSITIONS:
        raise ValueError(f"{len(names)} propositions: at most {MOST_PROPOSITIONS} are possible")
    if not good or not bad or not all(map(len, [*good, *bad])):
        raise ValueError("good and bad traces are needed, each of one event or more")
    traces = Traces([*good, *bad], names)
    good_ones = traces.first & ((1 << sum(map(len, good))) - 1)
    bad_ones = traces.first ^ good_ones
    best = _Best()
    holding: dict[int, _Holding] = {}
    tried = 0
    for tried, text in enumerate(patterns(names), 1):
        holds = traces.holds(parse(text))
        failed, held = (good_ones & ~holds).bit_count(), (bad_ones & holds).bit_count()
        size = len(list(tokens(text)))
        best.put(_Candidate(failed + held, size, (tried,), (text,)))
        if failed == 0 < held < len(bad):
            fails_of = bad_ones & ~holds
            known = holding.get(fails_of)
            if known is None or size < known.size:
                holding[fails_of] = _Holding(size, tried, text, fails_of)
    _add_conjunctions(best, [_numbered(one, traces) for one in holding.values()], len(bad))
    findings: list[Finding] = []
    for one in best.chosen():
        holds = traces.first
        for part in one.parts:
            holds &= traces.holds(parse(part))
        fails_on_good = traces.numbers(good_ones & ~holds)
        holds_on_bad = [number - len(good) for number in traces.numbers(bad_ones & holds)]
        findings.append(Finding(one.parts, tuple(fails_on_good), tuple(holds_on_bad)))
    return Learned(tuple(findings), tried)


class _Best:
    """The five best candidates."""

    def __init__(self) -> None:
        self._candidates: list[_Candidate] = []

    def put(self, one: _Candidate) -> None:
        insort(self._candidates, one)
        del self._candidates[_MOST_SEPARATING:]

    @property
    def wrong(self) -> int:
        """A candidate that gets more wrong is not among the best."""
        return self._candidates[-1].wrong

    def chosen(self) -> list[_Candidate]:
        separating = [one for one in self._candidates if not one.wrong]
        return separating or self._candidates[:_MOST_OTHERS]


def _numbered(one: _Holding, traces: Traces) -> _Holding:
    """With a bit for each trace in place of one for each event."""
    return one._replace(fails_of=sum(1 << number for number in traces.numbers(one.fails_of)))


def _add_conjunctions(best: _Best, holding: list[_Holding], bad: int) -> None:
    """Put the conjunctions of two into `best`, except those that cannot be among them."""
    holding.sort(key=lambda one: (-one.fails_of.bit_count(), one.size, one.place))
    counts = [one.fails_of.bit_count() for one in holding]
    for at, one in enumerate(holding):
        for other, count in zip(holding[at + 1 :], counts[at + 1 :], strict=True):
            if bad - counts[at] - count > best.wrong:
                break
            wrong = bad - (one.fails_of | other.fails_of).bit_count()
            # It is better than each of its parts, of which the first fails on more.
            if wrong <= best.wrong and wrong < bad - counts[at]:
                first, second = sorted((one, other))
                best.put(
                    _Candidate(
                        wrong,
                        first.size + second.size,
                        (first.place, second.place),
                        (first.text, second.text),
                    )
                )


def _refutation(text: str) -> tuple[frozenset[str], ...]:
    formula = parse(text)
    names = tuple(propositions(formula))
    trace = shortest_trace(Unary("!", formula), names)
    assert trace is not None, "no pattern holds on everything"
    return tuple(
        frozenset(name for bit, name in enumerate(names) if letter >> bit & 1) for letter in trace
    )


def _conjunct(text: str) -> str:
    formula = parse(text)
    loose = isinstance(formula, Nary) and formula.operator == "|"
    return f"({text})" if loose else text
