"""The automata that accept every beginning of a word on which a formula holds.

That is all that a verdict asks: which promises are kept is forgotten once it is known from which
states some word is accepted. So they are made as diagrams, without edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from streams.temporal.automaton import Automaton, Edge
from streams.temporal.decisions import Decisions, ones
from streams.temporal.formula import Formula
from streams.temporal.tableau import Tableau

__all__ = ["Beginnings", "beginnings"]


class Beginnings(NamedTuple):
    """`steps[state]` is a diagram from letters to the states after it, as bits.

    `initial` are the first states of each formula, as bits too; none if it never holds.
    """

    diagrams: Decisions[int]
    steps: list[int]
    initial: tuple[int, ...]


def beginnings(formulas: Sequence[Formula], names: tuple[str, ...], max_states: int) -> Beginnings:
    """Those of several formulas, which share states that ask the same.

    Time and memory: exponential in the size of the formulas at worst; FormulaTooLarge beyond
    `max_states` states.
    """
    tableau = Tableau(names, max_states)
    first = [tableau.first(formula) for formula in formulas]
    choices: list[dict[int, int]] = []
    for asked in tableau.asked:
        its = sorted(frozenset[int]().union(*tableau.expansion.diagrams.leaves(asked)))
        choices.append({choice: tableau.after(choice) for choice in its})
    sets, marks = tableau.acceptance()
    # Whether a word is accepted does not depend on what letters it has.
    edges = tuple(
        tuple(Edge(target, 0, 0, marks[choice]) for choice, target in leaving.items())
        for leaving in choices
    )
    live = Automaton(names, edges, (), sets).live()
    bits = {
        choice: 1 << target
        for leaving in choices
        for choice, target in leaving.items()
        if target in live
    }
    diagrams: Decisions[int] = Decisions()
    to_states = tableau.expansion.diagrams.mapping(
        diagrams, lambda some: sum({bits[choice] for choice in some if choice in bits})
    )
    reached = dict.fromkeys(state for state in first if state in live)
    steps: dict[int, int] = {}
    work = list(reached)
    for state in work:
        steps[state] = to_states(tableau.asked[state])
        for states in diagrams.leaves(steps[state]):
            new = [target for target in ones(states) if target not in reached]
            reached.update(dict.fromkeys(new))
            work += new
    return _merged(diagrams, steps, first)


def _merged(diagrams: Decisions[int], steps: dict[int, int], first: list[int]) -> Beginnings:
    """States that have the same steps to the same states are one: the coarsest bisimulation."""
    classes = dict.fromkeys(steps, 0)
    count = 1
    while True:
        merged: Decisions[int] = Decisions()
        to_classes = diagrams.mapping(merged, partial(_by_class, classes))
        names: dict[int, int] = {}
        finer = {
            state: names.setdefault(to_classes(step), len(names)) for state, step in steps.items()
        }
        if len(names) <= count:
            break
        classes, count = finer, len(names)
    # As many classes as before: they are the same, and have the same numbers.
    return Beginnings(
        merged,
        list(names),
        tuple(1 << classes[state] if state in classes else 0 for state in first),
    )


def _by_class(classes: dict[int, int], states: int) -> int:
    found = 0
    for state in ones(states):
        found |= 1 << classes[state]
    return found
