"""Deterministic machines with an output for each state (Moore machines), and the smallest of them.

Sources: Rabin and Scott (1959) for the subsets, Moore (1956) for the smallest machine.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Generic, TypeVar

from streams.temporal.automaton import Edge
from streams.temporal.decisions import Decisions
from streams.temporal.errors import FormulaTooLarge
from streams.temporal.simulation import stronger

__all__ = ["Machine", "minimal", "of_subsets"]

T = TypeVar("T", bound=Hashable)
S = TypeVar("S", bound=Hashable)

Subsets = tuple[frozenset[int], ...]
Reached = frozenset[tuple[int, int]]

# A table has at most so many entries; a larger machine is walked through its diagrams.
_LARGEST_TABLE = 1 << 20
_MOST_BITS = 16


@dataclass(frozen=True, slots=True)
class Machine(Generic[T]):
    """State 0 is the first. `steps[state]` is a diagram from letters to the next state."""

    bits: int
    decisions: Decisions[int]
    steps: tuple[int, ...]
    outputs: tuple[T, ...]

    def __len__(self) -> int:
        """The number of states."""
        return len(self.steps)

    def next(self, state: int, letter: int) -> int:
        return self.decisions.at(self.steps[state], letter)

    def successors(self, state: int) -> set[int]:
        return self.decisions.leaves(self.steps[state])

    def table(self) -> list[int] | None:
        """`table[state << bits | letter]` is the next state, shifted too; None if too large."""
        entries = len(self.steps) << self.bits
        if self.bits > _MOST_BITS or entries > _LARGEST_TABLE:
            return None
        table: list[int] = [0] * entries
        for state, step in enumerate(self.steps):
            for care, value, target in self.decisions.cubes(step):
                _fill(table, state << self.bits | value, self.bits, care, target << self.bits)
        return table


def _fill(table: list[int], first: int, bits: int, care: int, target: int) -> None:
    free = (1 << bits) - 1 & ~care
    # All subsets of the free bits, the empty one last.
    letter = free
    while True:
        table[first | letter] = target
        if not letter:
            return
        letter = (letter - 1) & free


def of_subsets(
    automata: Sequence[tuple[tuple[Edge, ...], ...]],
    accepts: Sequence[Callable[[int], bool]],
    initial: Subsets,
    output: Callable[[Subsets], tuple[T, bool]],
    bits: int,
    max_states: int,
) -> Machine[T]:
    """The machine that follows several automata in all the states that they may be in.

    `output` gives what a state puts out, and whether that is for ever; it may ask only whether a
    subset is empty, and whether one of its states `accepts`. Time and memory: exponential in the
    states at worst; FormulaTooLarge beyond `max_states` states.
    """
    above = [stronger(edges, known) for edges, known in zip(automata, accepts, strict=True)]
    reach: Decisions[Reached] = Decisions()
    nowhere = reach.leaf(frozenset())
    join = reach.joining(_together, nowhere)
    functions = [
        [
            reach.choose(
                ((e.care, e.value, frozenset(((which, e.target),))) for e in leaving), nowhere, join
            )
            for leaving in edges
        ]
        for which, edges in enumerate(automata)
    ]
    decisions: Decisions[int] = Decisions()
    numbers: dict[Subsets | T, int] = {}
    order: list[Subsets | None] = []
    outputs: list[T] = []

    def number(subsets: Subsets) -> int:
        out, for_ever = output(subsets)
        key = out if for_ever else subsets
        if key not in numbers:
            if len(order) >= max_states:
                raise FormulaTooLarge(
                    "the number of states of the monitor", len(order) + 1, max_states
                )
            numbers[key] = len(order)
            order.append(None if for_ever else subsets)
            outputs.append(out)
        return numbers[key]

    def reached(items: Reached) -> int:
        subsets: list[set[int]] = [set() for _ in automata]
        for which, state in items:
            subsets[which].add(state)
        return number(
            tuple(
                # A state says nothing beside one that accepts whenever it does.
                frozenset(state for state in states if states.isdisjoint(more[state]))
                for states, more in zip(subsets, above, strict=True)
            )
        )

    number(initial)
    to_states = reach.mapping(decisions, reached)
    steps: list[int] = []
    while len(steps) < len(order):
        subsets = order[len(steps)]
        if subsets is None:
            steps.append(decisions.leaf(len(steps)))
            continue
        each = (
            functions[which][at] for which, states in enumerate(subsets) for at in sorted(states)
        )
        steps.append(to_states(reduce(join, each, nowhere)))
    return Machine(bits, decisions, tuple(steps), tuple(outputs))


def _together(some: Reached, more: Reached) -> Reached:
    return some | more


def minimal(machine: Machine[T], output: Callable[[T], S]) -> Machine[S]:
    """The smallest machine with these outputs.

    Time: linear in the size of all diagrams, as often as states are told apart by one more
    letter.
    """
    outputs = [output(each) for each in machine.outputs]
    names: dict[Hashable, int] = {}
    classes = [names.setdefault(each, len(names)) for each in outputs]
    while True:
        decisions: Decisions[int] = Decisions()
        steps = list(map(machine.decisions.mapping(decisions, classes.__getitem__), machine.steps))
        refined: dict[tuple[int, int], int] = {}
        # In order of appearance, so that the first state stays the first.
        finer = [refined.setdefault(key, len(refined)) for key in zip(classes, steps, strict=True)]
        if len(refined) == len(set(classes)):
            break
        classes = finer
    first = {number: state for state, number in reversed(list(enumerate(classes)))}
    count = len(first)
    return Machine(
        machine.bits,
        decisions,
        tuple(steps[first[at]] for at in range(count)),
        tuple(outputs[first[at]] for at in range(count)),
    )
