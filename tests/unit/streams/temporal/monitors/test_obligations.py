"""Which obligations can hold together: many formulas of two names against the definitions."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.streams.temporal.formula.formula import Binary, Formula, Nary, Proposition, Unary
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.temporal.monitors.monitor import Monitor
from penstock.streams.temporal.monitors.verdict import Verdict
from tests.helpers.brute_force import holds_finitely

_LETTERS = [frozenset(names) for names in ("", "a", "b", "ab")]


def _formula(rng: random.Random, leaves: int) -> Formula:
    if leaves == 1:
        name = Proposition(rng.choice("ab"))
        return Unary("!", name) if rng.random() < 0.3 else name
    if rng.random() < 0.3:
        return Unary(rng.choice(["!", "X", "next", "F", "G"]), _formula(rng, leaves - 1))
    left = rng.randrange(1, leaves)
    parts = _formula(rng, left), _formula(rng, leaves - left)
    if rng.random() < 0.3:
        return Nary(rng.choice(["&", "|"]), parts)
    return Binary(rng.choice(["U", "R", "W", "M"]), *parts)


def _check(formula: Formula, traces: list[list[frozenset[str]]]) -> None:
    monitor = Monitor(formula)
    known = frozenset(monitor.propositions)
    for trace in traces:
        state: Any = monitor.first
        for end in range(len(trace) + 1):
            if end:
                state = monitor.step(state, monitor.letter(trace[end - 1] & known))
            if monitor.verdict(state).is_final:
                # What is final on every word is another test's.
                break
            held = holds_finitely(formula, trace[:end])
            assert monitor.at_end(state) is (Verdict.TRUE if held else Verdict.FALSE), (
                formula,
                trace[:end],
            )


@pytest.mark.parametrize("seed", range(6))
def test_each_beginning_of_a_trace_is_judged_as_the_definitions_do(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(500):
        formula = _formula(rng, rng.randint(2, 6))
        _check(formula, [rng.choices(_LETTERS, k=5) for _ in range(5)])


@pytest.mark.parametrize(
    "text", ["b U X !b", "b R X !b", "(X b) R !b", "a U (b U X !b)", "X b U !b", "(X !b) U b"]
)
def test_an_operand_that_is_about_the_next_event_does_not_decide_this_one(text: str) -> None:
    traces: list[list[frozenset[str]]] = [[]]
    for _ in range(4):
        traces += [[*trace, letter] for trace in traces for letter in _LETTERS]
    _check(parse(text), [trace for trace in traces if len(trace) == 4])
