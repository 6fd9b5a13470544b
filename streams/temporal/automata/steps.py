"""Automata in symbolic form: diagrams from letters to the steps that may be taken."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple, TypeAlias

from penstock.streams.temporal.automata.automaton import Automaton, Edge
from penstock.streams.temporal.formula.cubes import Guards
from penstock.streams.temporal.formula.decisions import Decisions

__all__ = ["Step", "Steps", "best", "drawn_up", "steps_of"]

Step: TypeAlias = tuple[int, int]
"""A target, and the acceptance sets that the step belongs to, as bits."""


class Steps(NamedTuple):
    """`functions[state]` is the diagram of the steps that leave it."""

    diagrams: Decisions[frozenset[Step]]
    functions: tuple[int, ...]
    initial: tuple[int, ...]
    sets: int


def steps_of(automaton: Automaton) -> Steps:
    """The same automaton as diagrams. Time: exponential in the propositions of a state at worst."""
    diagrams: Decisions[frozenset[Step]] = Decisions()
    nowhere = diagrams.leaf(frozenset())
    join = diagrams.joining(lambda some, more: best(some | more), nowhere)
    functions = tuple(
        diagrams.choose(
            ((e.care, e.value, frozenset(((e.target, e.marks),))) for e in row), nowhere, join
        )
        for row in automaton.edges
    )
    return Steps(diagrams, functions, automaton.initial, automaton.sets)


def drawn_up(steps: Steps, names: tuple[str, ...]) -> Automaton:
    """The automaton with few edges. FormulaTooLarge if a step needs more than 10,000."""
    guards = Guards(steps.diagrams)
    either = guards.cubes.either
    rows: list[tuple[Edge, ...]] = []
    for function in steps.functions:
        by_target: dict[int, list[tuple[int, int]]] = {}
        for (target, marks), guard in guards.of(function).items():
            by_target.setdefault(target, []).append((marks, guard))
        row: list[Edge] = []
        for target, parallel in by_target.items():
            for marks, guard in parallel:
                # A step with more marks to the same target makes this one redundant.
                more = (its for other, its in parallel if other & marks == marks)
                cubes = guards.cubes.of(guard, reduce(either, more))
                row += (Edge(target, care, value, marks) for care, value in cubes)
        rows.append(tuple(sorted(row)))
    return Automaton(names, tuple(rows), steps.initial, steps.sets)


def best(steps: frozenset[Step]) -> frozenset[Step]:
    """The steps without those subsumed by another step to the same state that has all their
    marks."""
    return frozenset(
        (target, marks)
        for target, marks in steps
        if not any(
            other == target and all_its != marks and all_its & marks == marks
            for other, all_its in steps
        )
    )
