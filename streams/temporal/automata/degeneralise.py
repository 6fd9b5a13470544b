"""Degeneralisation: from a generalised Büchi automaton to a Büchi automaton of the same
language."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import permutations

from penstock.streams.temporal.automata.automaton import Automaton
from penstock.streams.temporal.automata.reduction import reduced
from penstock.streams.temporal.automata.steps import Step, Steps, best, drawn_up, steps_of
from penstock.streams.temporal.formula.decisions import Decisions

__all__ = ["degeneralised"]

# More sets have too many orders to try.
_MOST_TRIED = 3


def degeneralised(automaton: Automaton) -> Automaton:
    """An automaton with one acceptance set: its states count through the sets, in the order that
    needs the fewest states.

    Time and states: those of `automaton`, once for each of its sets; time six times that for
    three sets, beyond which only one order is tried. Source: Gastin and Oddoux, "Fast LTL to Büchi
    automata translation" (CAV 2001).
    """
    if automaton.sets < 2:
        return automaton
    steps = steps_of(automaton)
    orders = permutations(range(automaton.sets))
    tried = orders if automaton.sets <= _MOST_TRIED else (range(automaton.sets),)
    found = min((_counted(steps, order) for order in tried), key=lambda one: len(one.functions))
    return drawn_up(found, automaton.propositions)


def _counted(steps: Steps, order: Sequence[int]) -> Steps:
    sets = len(order)
    numbers = {(state, 0): at for at, state in enumerate(steps.initial)}
    found = list(numbers)
    diagrams: Decisions[frozenset[Step]] = Decisions()

    def onward(level: int, its: frozenset[Step]) -> frozenset[Step]:
        onto: set[Step] = set()
        for target, marks in sorted(its):
            passed = level
            while passed < sets and marks >> order[passed] & 1:
                passed += 1
            key = (target, passed % sets)
            if key not in numbers:
                numbers[key] = len(found)
                found.append(key)
            onto.add((numbers[key], int(passed == sets)))
        return best(frozenset(onto))

    maps = [steps.diagrams.mapping(diagrams, partial(onward, level)) for level in range(sets)]
    # Grows during the loop.
    functions = tuple([maps[level](steps.functions[state]) for state, level in found])
    initial = tuple(range(len(steps.initial)))
    return reduced(Steps(diagrams, functions, initial, 1))
