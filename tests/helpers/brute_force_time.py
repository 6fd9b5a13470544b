"""The meaning of bounds in time, word for word: every obligation is kept, and looked at again after
every event."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from hypothesis import strategies as st

from penstock.streams.temporal.formula.formula import (
    TRUE,
    Binary,
    Formula,
    Joined,
    Letter,
    Match,
    Nary,
    Repeat,
    Timed,
    Unary,
)
from penstock.streams.temporal.formula.timed_rules import TimedRule, split
from tests.helpers.brute_force import (
    LETTERS,
    Word,
    booleans,
    holds,
    holds_finitely,
    letters,
    matches,
    seres,
)


class Moment(NamedTuple):
    """An event with its time, in milliseconds."""

    letter: frozenset[str]
    time: int


def broken(formula: Formula, trace: Sequence[Moment], clock: int) -> bool:
    """Whether one of the rules with a bound is violated for good, when no older event can come."""
    return any(fate is False for fate in _fates(formula, trace, clock))


def broken_at_end(formula: Formula, trace: Sequence[Moment], clock: int) -> bool:
    """The same if no event comes at all."""
    _, rules = split(formula)
    return any(
        fate is False or (fate is None and rule.then.operator != "G")
        for rule in rules
        for fate in _of_rule(rule, trace, clock)
    )


def open_ones(formula: Formula, trace: Sequence[Moment], clock: int) -> int:
    """The number of undecided obligations."""
    return _fates(formula, trace, clock).count(None)


def can_go_on(formula: Formula, trace: Sequence[Moment], clock: int) -> bool:
    """Whether one of some short infinite words keeps the formula, which is not broken so far.

    Their events come all at once, or each after all deadlines.
    """
    seen: Word = [moment.letter for moment in trace]
    untimed, rules = split(formula)
    meanings = [_all_at_once(untimed, rules)]
    if not open_ones(formula, trace, clock):
        meanings.append(_one_after_the_other(untimed, rules))
    return any(
        holds(meaning, [*seen, *stem], list(loop))
        for meaning in meanings
        for stem in ((), *product(LETTERS, repeat=1))
        for size in (1, 2)
        for loop in product(LETTERS, repeat=size)
    )


def _all_at_once(untimed: Formula, rules: Sequence[TimedRule]) -> Formula:
    """All that must come does so in time, and nothing ends that must last."""
    parts = [untimed]
    for rule in rules:
        timed = rule.then
        if timed.operator == "U":
            then: Formula = Binary("U", timed.left, timed.right)
        else:
            then = Unary("F" if timed.operator == "F" else "G", timed.right)
        parts.append(Match("|->", rule.sere, then))
    return Nary("&", (*parts, TRUE))


def _one_after_the_other(untimed: Formula, rules: Sequence[TimedRule]) -> Formula:
    """Whatever is required is required of one event."""
    parts = [Match("|->", rule.sere, rule.then.right) for rule in rules]
    return Nary("&", (untimed, *parts))


def _fates(formula: Formula, trace: Sequence[Moment], clock: int) -> list[bool | None]:
    _, rules = split(formula)
    return [fate for rule in rules for fate in _of_rule(rule, trace, clock)]


def _of_rule(rule: TimedRule, trace: Sequence[Moment], clock: int) -> list[bool | None]:
    word: Word = [moment.letter for moment in trace]
    begins = [end - 1 for end in matches(rule.sere, word, 0) if end > 0]
    return [_fate(rule.then, trace, begin, clock) for begin in sorted(begins)]


def _fate(timed: Timed, trace: Sequence[Moment], begin: int, clock: int) -> bool | None:
    deadline = trace[begin].time + timed.milliseconds
    for moment in trace[begin:]:
        left = holds_finitely(timed.left, [moment.letter])
        right = holds_finitely(timed.right, [moment.letter])
        if timed.operator == "G":
            if moment.time <= deadline and not right:
                return False
        elif moment.time <= deadline and right:
            return True
        elif not left:
            return False
    if clock <= deadline:
        return None
    return timed.operator == "G"


# What to try.

_bounds = st.integers(0, 6)
_timed = st.builds(Timed, st.sampled_from("FG"), st.just(TRUE), booleans, _bounds) | st.builds(
    Timed, st.just("U"), booleans, booleans, _bounds
)
rules: st.SearchStrategy[Formula] = st.one_of(
    _timed,
    st.builds(lambda b, then: Unary("G", Binary("->", b, then)), booleans, _timed),
    st.builds(Match, st.just("|->"), seres, _timed),
    st.builds(
        lambda sere, then: Match("|->", Joined(";", (Repeat(Letter(TRUE), 0, None), sere)), then),
        seres,
        _timed,
    ),
)


def _can_come(formula: Formula) -> bool:
    (rule,) = split(formula)[1]
    return any(holds_finitely(rule.then.right, [letter]) for letter in LETTERS)


fulfillable = rules.filter(_can_come)
"""Those that are not false before a deadline because no event can fulfil them."""

_gaps = st.lists(st.tuples(letters, st.integers(0, 4)), max_size=8)


def in_order(gaps: list[tuple[frozenset[str], int]]) -> list[Moment]:
    """A trace from letters and the times between them."""
    trace: list[Moment] = []
    for letter, gap in gaps:
        trace.append(Moment(letter, gap + (trace[-1].time if trace else 0)))
    return trace


timed_traces = _gaps.map(in_order)
"""With times that never go back."""

jumbled_traces = st.lists(st.builds(Moment, letters, st.integers(0, 12)), max_size=8)
"""With any times."""
