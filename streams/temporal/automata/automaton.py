"""Büchi automata over events, with acceptance on transitions.

A run is accepted if it passes edges of every acceptance set infinitely often; with no set, every
infinite run is accepted. One set makes a Büchi automaton, several a generalised one.

Source: Couvreur, "On-the-fly verification of linear temporal logic" (FM 1999), for acceptance on
transitions; Tarjan (1972) for the components.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from penstock.streams.temporal.errors import UnknownProposition
from penstock.streams.temporal.formula.formula import Formula, propositions
from penstock.streams.temporal.formula.printer import to_text

__all__ = [
    "Automaton",
    "Edge",
    "components",
    "leading_to",
    "letter_of",
    "live",
    "names_in",
    "text_of",
]

T = TypeVar("T", bound=Hashable)


class Edge(NamedTuple):
    """A transition to `target`, taken on events that satisfy a conjunction of literals.

    Propositions are bits: those in `care` matter, and of these exactly those in `value` hold.
    `marks` are the acceptance sets that the edge belongs to, also as bits.
    """

    target: int
    care: int
    value: int
    marks: int

    def allows(self, letter: int) -> bool:
        """Whether the edge may be taken on an event for which exactly the propositions in `letter`
        hold."""
        return letter & self.care == self.value


@dataclass(frozen=True, slots=True)
class Automaton:
    """States are numbers; `edges[state]` are the edges that leave it.

    `propositions` are the names of the bits of letters, `sets` is the number of acceptance sets.
    """

    propositions: tuple[str, ...]
    edges: tuple[tuple[Edge, ...], ...]
    initial: tuple[int, ...]
    sets: int

    def __len__(self) -> int:
        """The number of states."""
        return len(self.edges)

    def literals(self, edge: Edge) -> frozenset[tuple[str, bool]]:
        """The guard of `edge`: names of propositions, and whether each must hold."""
        return frozenset(
            (name, bool(edge.value >> bit & 1))
            for bit, name in enumerate(self.propositions)
            if edge.care >> bit & 1
        )

    def letter(self, true: Iterable[str]) -> int:
        """The letter of an event for which exactly the propositions `true` hold.

        Raises UnknownProposition for any other name.
        """
        return letter_of(self.propositions, true)

    def successors(self, state: int) -> Iterator[int]:
        return (edge.target for edge in self.edges[state])

    def live(self) -> frozenset[int]:
        """The states from which some infinite word is accepted. Linear time."""
        return live([[(edge.target, edge.marks) for edge in row] for row in self.edges], self.sets)

    def is_empty(self) -> bool:
        """Whether the automaton accepts no word at all."""
        return self.live().isdisjoint(self.initial)


def names_in(what: Formula | Automaton) -> dict[str, int | None]:
    """The propositions of a formula, with the position of each in its text, or of an automaton."""
    if isinstance(what, Automaton):
        return dict.fromkeys(what.propositions)
    return propositions(what)


def text_of(what: Formula | Automaton) -> str:
    """A formula as text; of an automaton, its size and its propositions."""
    if isinstance(what, Automaton):
        names = ", ".join(what.propositions) or "nothing"
        return f"the automaton of {len(what):,} states about {names}"
    return to_text(what)


def letter_of(propositions: Sequence[str], true: Iterable[str]) -> int:
    """The bits of the propositions `true`. Raises UnknownProposition for a name that is not a
    proposition."""
    names = frozenset(true)
    for name in sorted(names.difference(propositions), key=str):
        raise UnknownProposition(name, None, propositions, in_letter=True)
    return sum(1 << bit for bit, name in enumerate(propositions) if name in names)


def live(leaving: Sequence[Collection[tuple[int, int]]], sets: int) -> frozenset[int]:
    """The states from which some infinite word is accepted. Linear time.

    Each entry has the targets and the marks of the edges that leave the state.
    """
    found: set[int] = set()
    # A component comes after all components that can be reached from it.
    for component in components(
        range(len(leaving)), lambda state: (target for target, _ in leaving[state])
    ):
        inside = frozenset(component)
        passed, cyclic = 0, False
        for state in component:
            for target, marks in leaving[state]:
                if target in inside:
                    passed |= marks
                    cyclic = True
                elif target in found:
                    found |= inside
        if cyclic and passed == (1 << sets) - 1:
            found |= inside
    return frozenset(found)


def leading_to(
    goals: Iterable[int], states: int, successors: Callable[[int], Iterable[int]]
) -> set[int]:
    """The states from which one of `goals` can be reached, themselves included. Linear time.

    `states` is the number of all states, which are numbered from 0.
    """
    before: list[list[int]] = [[] for _ in range(states)]
    for state in range(states):
        for target in successors(state):
            before[target].append(state)
    found = set(goals)
    work = list(found)
    while work:
        new = set(before[work.pop()]) - found
        found |= new
        work += new
    return found


def components(states: Iterable[T], successors: Callable[[T], Iterable[T]]) -> Iterator[list[T]]:
    """The strongly connected components in reverse topological order: each after those that can be
    reached from it.

    Linear time, and memory of a few words a state.
    """
    number: dict[T, int] = {}
    lowest: dict[T, int] = {}
    stack: list[T] = []
    on_stack: set[T] = set()
    for root in states:
        if root in number:
            continue
        number[root] = lowest[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(successors(root)))]
        while work:
            state, targets = work[-1]
            for target in targets:
                if target not in number:
                    number[target] = lowest[target] = len(number)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(successors(target))))
                    break
                if target in on_stack:
                    lowest[state] = min(lowest[state], number[target])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    lowest[above] = min(lowest[above], lowest[state])
                if lowest[state] == number[state]:
                    component: list[T] = []
                    while not component or component[-1] != state:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    yield component
