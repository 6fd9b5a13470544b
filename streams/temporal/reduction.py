"""Automata with the same words and fewer states.

What can never be accepted goes, marks outside of cycles are forgotten, and states that can do the
same are one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from streams.temporal.automaton import Automaton, Edge, components
from streams.temporal.decisions import Decisions

__all__ = ["reduced"]


def reduced(automaton: Automaton) -> Automaton:
    """An automaton that accepts the same words, with no more states than `automaton` has.

    Time: as many rounds as there are states at worst, each linear in the edges and exponential at
    worst in the propositions of one state.
    """
    while True:
        living = _with_marks_that_count(_living(automaton))
        automaton = _merged(living)
        if len(automaton) == len(living):
            return automaton


def _living(automaton: Automaton) -> Automaton:
    """Only states that are reached and from which a word is accepted; at least one."""
    live = automaton.live()
    order = [state for state in dict.fromkeys(automaton.initial) if state in live]
    seen = set(order)
    for state in order:
        for target in automaton.successors(state):
            if target in live and target not in seen:
                seen.add(target)
                order.append(target)
    number = {state: at for at, state in enumerate(order)}
    edges = tuple(
        tuple(
            edge._replace(target=number[edge.target])
            for edge in automaton.edges[state]
            if edge.target in number
        )
        for state in order
    )
    initial = tuple(number[state] for state in dict.fromkeys(automaton.initial) if state in live)
    if not initial:
        return replace(automaton, edges=((),), initial=(0,), sets=0)
    return replace(automaton, edges=edges, initial=initial)


def _with_marks_that_count(automaton: Automaton) -> Automaton:
    """Only edges on cycles that can be accepted keep their marks, and needless sets go."""
    component_of: dict[int, int] = {}
    accepting: set[int] = set()
    for at, component in enumerate(components(range(len(automaton)), automaton.successors)):
        component_of.update(dict.fromkeys(component, at))
        marks = 0
        for state in component:
            for edge in automaton.edges[state]:
                if component_of.get(edge.target) == at:
                    marks |= edge.marks
        if marks == (1 << automaton.sets) - 1:
            accepting.add(at)
    on_cycles: set[int] = set()
    edges: list[list[Edge]] = []
    for state, leaving in enumerate(automaton.edges):
        edges.append([])
        at = component_of[state]
        for edge in leaving:
            cyclic = component_of[edge.target] == at
            marks = edge.marks if cyclic and at in accepting else 0
            edges[-1].append(edge._replace(marks=marks))
            if cyclic:
                on_cycles.add(marks)
    kept = _needed_sets(on_cycles, automaton.sets)
    return replace(
        automaton,
        edges=tuple(
            tuple(edge._replace(marks=_of_sets(edge.marks, kept)) for edge in leaving)
            for leaving in edges
        ),
        sets=len(kept),
    )


def _needed_sets(on_cycles: set[int], sets: int) -> list[int]:
    """Without the sets that are passed wherever another one is, or on every cycle anyway."""
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


def _merged(automaton: Automaton) -> Automaton:
    """States that have the same edges to the same states are one: the coarsest bisimulation."""
    steps: Decisions[frozenset[tuple[int, int]]] = Decisions()
    nowhere = steps.leaf(frozenset())
    join = steps.joining(_best, nowhere)
    functions = [
        steps.choose(
            ((e.care, e.value, frozenset(((e.target, e.marks),))) for e in leaving), nowhere, join
        )
        for leaving in automaton.edges
    ]
    classes = [0] * len(automaton)
    count = 1
    while True:
        to_classes = steps.mapping(Decisions(), partial(_by_class, classes))
        names: dict[tuple[int, int], int] = {}
        classes = [
            names.setdefault((its, to_classes(function)), len(names))
            for its, function in zip(classes, functions, strict=True)
        ]
        if len(names) == count:
            break
        count = len(names)
    first = {number: state for state, number in reversed(list(enumerate(classes)))}
    edges = tuple(
        _least(edge._replace(target=classes[edge.target]) for edge in automaton.edges[first[at]])
        for at in range(count)
    )
    initial = tuple(dict.fromkeys(classes[state] for state in automaton.initial))
    return replace(automaton, edges=edges, initial=initial)


def _by_class(classes: list[int], steps: frozenset[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    return _best(frozenset((classes[target], marks) for target, marks in steps), frozenset())


def _best(
    some: frozenset[tuple[int, int]], more: frozenset[tuple[int, int]]
) -> frozenset[tuple[int, int]]:
    """All steps but those that another one to the same state replaces, having all their marks."""
    steps = some | more
    return frozenset(
        (target, marks)
        for target, marks in steps
        if not any(
            other == target and all_its != marks and all_its & marks == marks
            for other, all_its in steps
        )
    )


def _least(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """As few edges as can be had by joining two that differ in one literal, and by leaving out
    those that another one replaces."""
    by_target: dict[int, set[Edge]] = {}
    for edge in edges:
        by_target.setdefault(edge.target, set()).add(edge)
    return tuple(sorted(edge for parallel in by_target.values() for edge in _fewest(parallel)))


def _fewest(edges: set[Edge]) -> list[Edge]:
    kept: list[Edge] = []
    work = sorted(edges, key=lambda edge: -edge.care.bit_count())
    while work:
        edge = work.pop()
        if any(_replaces(other, edge) for other in kept):
            continue
        kept = [other for other in kept if not _replaces(edge, other)]
        for other in kept:
            differing = edge.value ^ other.value
            alike = edge.care == other.care and edge.marks == other.marks
            if alike and differing.bit_count() == 1:
                kept.remove(other)
                work.append(
                    edge._replace(care=edge.care & ~differing, value=edge.value & ~differing)
                )
                break
        else:
            kept.append(edge)
    return kept


def _replaces(one: Edge, other: Edge) -> bool:
    """Of two edges to the same state."""
    return (
        one.marks & other.marks == other.marks
        and one.care & other.care == one.care
        and (one.value ^ other.value) & one.care == 0
    )
