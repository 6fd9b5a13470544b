"""The meaning of bounds in time, word for word: every obligation is kept, and looked at again after
every event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from penstock.streams.temporal.formula.formula import TRUE, Binary, Formula, Match, Timed, Unary
from penstock.streams.temporal.formula.sere import Joined, Letter, Repeat
from penstock.streams.temporal.formula.timed_rules import TimedRule, split
from tests.helpers.brute_force import Word, booleans, holds_finitely, letters, matches, seres


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
