"""Reduction of automata: fewer states, the same language.

States from which nothing is accepted are removed, marks outside cycles are dropped, and bisimilar
states are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.streams.temporal.automata.automaton import components, live
from penstock.streams.temporal.automata.partition import coarsest
from penstock.streams.temporal.automata.steps import Step, Steps, best
from penstock.streams.temporal.formula.decisions import Decisions

__all__ = ["reduced"]


def reduced(steps: Steps) -> Steps:
    """An automaton that accepts the same words, with no more states.

    Time: as many rounds as there are states at worst, usually two; see `coarsest` for the time of
          each.
    """
    while True:
        living = _living(steps)
        steps = _merged(living)
        if len(steps.functions) == len(living.functions):
            return steps


def _living(steps: Steps) -> Steps:
    """Only reachable states from which a word is accepted, at least one; only steps on accepting
    cycles keep their marks, and redundant sets are removed."""
    leaving = [
        sorted(frozenset[Step]().union(*steps.diagrams.leaves(function)))
        for function in steps.functions
    ]
    alive = live(leaving, steps.sets)
    order = [state for state in dict.fromkeys(steps.initial) if state in alive]
    diagrams: Decisions[frozenset[Step]] = Decisions()
    if not order:
        return Steps(diagrams, (diagrams.leaf(frozenset()),), (0,), 0)
    initial = tuple(range(len(order)))
    numbers = {state: at for at, state in enumerate(order)}
    for state in order:
        for target, _ in leaving[state]:
            if target in alive and target not in numbers:
                numbers[target] = len(order)
                order.append(target)
    homes: dict[int, int] = {}
    accepting: set[int] = set()
    on_cycles: set[int] = set()
    every_set = (1 << steps.sets) - 1
    for component in components(
        order, lambda state: (target for target, _ in leaving[state] if target in numbers)
    ):
        home = component[0]
        homes.update(dict.fromkeys(component, home))
        within = {
            m for state in component for target, m in leaving[state] if homes.get(target) == home
        }
        passed = 0
        for marks in within:
            passed |= marks
        if passed == every_set:
            accepting.add(home)
            on_cycles |= within
        elif within:
            on_cycles.add(0)
    kept = _needed_sets(on_cycles, steps.sets)

    def remaining(home: int, its: frozenset[Step]) -> frozenset[Step]:
        inside = home if home in accepting else None
        return best(
            frozenset(
                (numbers[target], _of_sets(marks, kept) if homes[target] == inside else 0)
                for target, marks in its
                if target in numbers
            )
        )

    maps = {home: steps.diagrams.mapping(diagrams, partial(remaining, home)) for home in homes}
    functions = tuple(maps[homes[state]](steps.functions[state]) for state in order)
    return Steps(diagrams, functions, initial, len(kept))


def _needed_sets(on_cycles: set[int], sets: int) -> list[int]:
    """Without the sets that are implied by another one, or passed on every cycle anyway."""
    kept = [at for at in range(sets) if any(not marks >> at & 1 for marks in on_cycles)]
    for one in kept[:]:
        if any(
            all(marks >> one & 1 for marks in on_cycles if marks >> other & 1)
            for other in kept
            if other != one
        ):
            kept.remove(one)
    return kept


def _of_sets(marks: int, kept: list[int]) -> int:
    return sum(1 << new for new, old in enumerate(kept) if marks >> old & 1)


def _merged(steps: Steps) -> Steps:
    """The quotient by the coarsest bisimulation: states with the same steps to the same states are
    merged."""
    classes = coarsest(
        steps.diagrams,
        steps.functions,
        outputs=[None] * len(steps.functions),
        targets=lambda its: {target for target, _ in its},
        seen=_by_class,
    )
    diagrams: Decisions[frozenset[Step]] = Decisions()
    to_classes = steps.diagrams.mapping(diagrams, lambda its: _by_class(its, classes))
    first = {number: state for state, number in reversed(list(enumerate(classes)))}
    functions = tuple(to_classes(steps.functions[first[at]]) for at in range(len(first)))
    initial = tuple(dict.fromkeys(classes[state] for state in steps.initial))
    return Steps(diagrams, functions, initial, steps.sets)


def _by_class(its: frozenset[Step], classes: Sequence[int]) -> frozenset[Step]:
    return best(frozenset((classes[target], marks) for target, marks in its))
