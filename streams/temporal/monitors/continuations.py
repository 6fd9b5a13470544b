"""Satisfiability of a formula over infinite words, from the start or from a given state.

Source: Couvreur, "On-the-fly verification of linear temporal logic" (FM 1999).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.streams.temporal.automata.automaton import components
from penstock.streams.temporal.automata.tableau import Tableau
from penstock.streams.temporal.formula.normal import Normal

__all__ = ["Continuations", "leading_on"]

_Promises = frozenset[int]


@dataclass(slots=True)
class _Root:
    """The first state of what may become a component, by its place on the stack.

    `entry` are the promises of the step that led here, `broken` those that no step inside the
    component keeps, None if there is no such step.
    """

    place: int
    entry: _Promises
    broken: _Promises | None = None


class Continuations:
    """Answers for the formulas of one `Normal`; FormulaTooLarge beyond `max_states` states.

    The search stops at the first cycle on which all promises are kept. Time and memory: exponential
    in the size of the formula at worst.
    """

    def __init__(self, normal: Normal, max_states: int) -> None:
        self._tableau = Tableau(normal, max_states)
        self._empty: set[int] = set()

    def exist(self, number: int) -> bool:
        """Whether the formula holds of some infinite word."""
        first = self._tableau.first(number)
        if first in self._empty:
            return False
        stack = [first]
        places = {first: 0}
        roots = [_Root(0, frozenset())]
        work = [(first, self._steps(first))]
        while work:
            state, steps = work[-1]
            for target, promises in steps:
                if target in self._empty:
                    continue
                if target not in places:
                    places[target] = len(stack)
                    roots.append(_Root(len(stack), promises))
                    stack.append(target)
                    work.append((target, self._steps(target)))
                    break
                if not _closed(roots, places[target], promises):
                    return True
            else:
                work.pop()
                if roots[-1].place == places[state]:
                    # Everything reachable from here has been searched, and has no such cycle.
                    self._empty.update(stack[roots.pop().place :])
                    del stack[places[state] :]
        return False

    def _steps(self, state: int) -> Iterator[tuple[int, _Promises]]:
        tableau = self._tableau
        # A state with few obligations is the most likely to be satisfiable.
        for choice in sorted(tableau.choices(state), key=int.bit_count):
            yield tableau.after(choice), tableau.promises(choice)


def _closed(roots: list[_Root], place: int, promises: _Promises) -> _Promises:
    """Merge the states that a step back to `place` makes one component; return the promises that no
    step in it keeps."""
    broken = promises
    while roots[-1].place > place:
        root = roots.pop()
        broken &= root.entry if root.broken is None else root.entry & root.broken
    root = roots[-1]
    root.broken = broken if root.broken is None else root.broken & broken
    return root.broken


def leading_on(successors: Sequence[set[int]], goes_on: Callable[[int], bool]) -> frozenset[int]:
    """The states from which some word without end is accepted, of a deterministic machine.

    `goes_on` decides it for one state and is called for few: one of each component that leads to no
    other, then the states not yet known to accept a word, those nearest to the beginning first,
    because a state from which nothing is accepted has no successor that accepts anything. Apart
    from these calls, linear time.
    """
    parts = list(components(range(len(successors)), successors.__getitem__))
    homes = {state: at for at, component in enumerate(parts) for state in component}
    below = [{homes[to] for state in part for to in successors[state]} for part in parts]
    known: list[bool | None] = []
    for at, part in enumerate(parts):
        others = below[at] - {at}
        on = any(known[other] for other in others) or None
        known.append(on if others else goes_on(min(part)))
    for at in reversed(range(len(parts))):
        if known[at] is None:
            known[at] = goes_on(min(parts[at]))
        if not known[at]:
            for other in below[at]:
                known[other] = False
    return frozenset(state for state, at in homes.items() if known[at])
