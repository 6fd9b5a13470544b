"""Partition refinement: the coarsest stable partition of the states of a machine or an automaton.

Sources: Hopcroft, "An n log n algorithm for minimizing states in a finite automaton" (1971), for
renaming all parts of a class but the largest; Jacobs and Wißmann, "Fast coalgebraic bisimilarity
minimization" (POPL 2023), for revisiting only the states that lead to a renamed one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from penstock.streams.temporal.formula.decisions import Decisions

__all__ = ["coarsest"]

T = TypeVar("T", bound=Hashable)


def coarsest(
    diagrams: Decisions[T],
    functions: Sequence[int],
    outputs: Iterable[Hashable],
    targets: Callable[[T], Iterable[int]],
    seen: Callable[[T, Sequence[int]], Hashable],
) -> list[int]:
    """The class of each state, numbered in order of appearance: the first state is in class 0.

    States of one class have equal `outputs`, and diagrams in `functions` that are the same with
    classes in place of states; no partition into fewer classes has both. `targets` gives the states
    that a leaf leads to, `seen` the leaf with their classes in their place.

    Time: a state is renamed at most log2(states) times, and each time the diagram nodes that lead
          to it are visited. Memory: at most one entry for each visit.
    """
    classes = _numbered(outputs)
    members: list[set[int]] = [set() for _ in set(classes)]
    for state, its in enumerate(classes):
        members[its].add(state)
    views = _Views(diagrams, functions, targets, seen)
    leaves = views.leaves()
    while leaves:
        split: dict[int, dict[int, set[int]]] = {}
        for state in views.changed(leaves, classes):
            split.setdefault(classes[state], {}).setdefault(views.of(state), set()).add(state)
        renamed: list[int] = []
        for its, groups in split.items():
            # Those that did not change were alike, still are, and differ from all that did.
            rest = members[its]
            for group in groups.values():
                rest -= group
            members[its], *others = sorted((rest, *groups.values()), key=len, reverse=True)
            for group in filter(None, others):
                for state in group:
                    classes[state] = len(members)
                members.append(group)
                renamed += group
        leaves = views.leading_to(renamed)
    return _numbered(classes)


class _Views(Generic[T]):
    """The signatures of states: their diagrams with classes in place of states."""

    def __init__(
        self,
        diagrams: Decisions[T],
        functions: Sequence[int],
        targets: Callable[[T], Iterable[int]],
        seen: Callable[[T, Sequence[int]], Hashable],
    ) -> None:
        self._diagrams = diagrams
        self._functions = functions
        self._seen = seen
        # The states that have a node as their diagram, the parents of a node, the leaves to a
        # state.
        self._states: dict[int, list[int]] = {}
        self._above: dict[int, list[int]] = {}
        self._leaves: dict[int, list[int]] = {}
        for state, part in enumerate(functions):
            self._states.setdefault(part, []).append(state)
        self._all_leaves: list[int] = []
        work = list(self._states)
        found = set(work)
        while work:
            part = work.pop()
            if diagrams.is_leaf(part):
                self._all_leaves.append(part)
                for state in targets(diagrams.at(part, 0)):
                    self._leaves.setdefault(state, []).append(part)
                continue
            for half in diagrams.halves(part, diagrams.first_bit(part)):
                self._above.setdefault(half, []).append(part)
                if half not in found:
                    found.add(half)
                    work.append(half)
        self._views: dict[int, int] = {}
        self._numbers: dict[Hashable, int] = {}

    def leaves(self) -> Collection[int]:
        return self._all_leaves

    def leading_to(self, states: Iterable[int]) -> set[int]:
        """The leaves that lead to one of these states."""
        return {leaf for state in states for leaf in self._leaves.get(state, ())}

    def of(self, state: int) -> int:
        """The signature of a state; equal for two states whose diagrams are equal up to classes."""
        return self._views[self._functions[state]]

    def changed(self, leaves: Collection[int], classes: Sequence[int]) -> list[int]:
        """Recompute these leaves and all nodes above them; returns the states whose signature
        changed."""
        found = set(leaves)
        work = list(leaves)
        while work:
            for part in self._above.get(work.pop(), ()):
                if part not in found:
                    found.add(part)
                    work.append(part)
        states: list[int] = []
        # Bottom-up: a node tests a proposition before those that its children test.
        for part in sorted(found, key=self._diagrams.first_bit, reverse=True):
            view = self._look(part, classes)
            if view != self._views.get(part):
                self._views[part] = view
                states += self._states.get(part, ())
        return states

    def _look(self, part: int, classes: Sequence[int]) -> int:
        diagrams = self._diagrams
        if diagrams.is_leaf(part):
            key: Hashable = (self._seen(diagrams.at(part, 0), classes),)
        else:
            bit = diagrams.first_bit(part)
            without, with_it = (self._views[half] for half in diagrams.halves(part, bit))
            if without == with_it:
                return without
            key = (bit, without, with_it)
        return self._numbers.setdefault(key, len(self._numbers))


def _numbered(keys: Iterable[Hashable]) -> list[int]:
    """Equal ones have the same number, in order of appearance."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
