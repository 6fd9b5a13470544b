"""Deterministic machines with an output for each state (Moore machines), and the smallest of them.

Sources: Rabin and Scott (1959) for the subsets, Moore (1956) for the smallest machine.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from streams.temporal.beginnings import Beginnings
from streams.temporal.decisions import Decisions, ones
from streams.temporal.errors import FormulaTooLarge
from streams.temporal.progress import Progress
from streams.temporal.simulation import stronger

__all__ = ["Machine", "minimal", "of_subsets"]

T = TypeVar("T", bound=Hashable)
S = TypeVar("S", bound=Hashable)

# Sets of states are numbers, whose bits are the states.
Subsets = tuple[int, ...]

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
    automata: Beginnings,
    beside: Progress,
    output: Callable[[Subsets, int], tuple[T, bool]],
    bits: int,
    max_states: int,
) -> Machine[T]:
    """The machine that follows the automata of several formulas in all the states that they may
    be in.

    All runs of the automata are accepted, and a deterministic machine is followed `beside` them.
    `output` gives what a state puts out, and whether that is for ever; of a subset it may ask only
    whether it is empty. Time and memory: exponential in the states at worst; FormulaTooLarge beyond
    `max_states` states.
    """
    reach = _Reach(automata)
    decisions: Decisions[int] = Decisions()
    numbers: dict[tuple[int, int] | T, int] = {}
    order: list[tuple[int, int] | None] = []
    outputs: list[T] = []

    def number(joined: int, its: int) -> int:
        out, for_ever = output(reach.parted(joined), its)
        key = out if for_ever else (joined, its)
        if key not in numbers:
            if len(order) >= max_states:
                raise FormulaTooLarge(
                    "the number of states of the monitor", len(order) + 1, max_states
                )
            numbers[key] = len(order)
            order.append(None if for_ever else (joined, its))
            outputs.append(out)
        return numbers[key]

    number(reach.first, beside.first)
    to_states = reach.diagrams.pairing(beside.diagrams, decisions, number)
    steps: list[int] = []
    while len(steps) < len(order):
        state = order[len(steps)]
        if state is None:
            steps.append(decisions.leaf(len(steps)))
        else:
            steps.append(to_states(reach.after(state[0]), beside.after(state[1])))
    return Machine(bits, decisions, tuple(steps), tuple(outputs))


class _Reach:
    """Which states are reached from the first ones of each formula, by the letter.

    A set of states for each formula is one number: those of each have bits of their own. A state
    is left out beside one that accepts whenever it does, for it says nothing then.
    """

    def __init__(self, automata: Beginnings) -> None:
        self.diagrams, self._steps, initial = automata
        self._count = count = len(self._steps)
        self._formulas = len(initial)
        self.first = sum(states << count * at for at, states in enumerate(initial))
        self._above = stronger(self.diagrams, self._steps)
        self._nowhere = nowhere = self.diagrams.leaf(0)
        self._join = self.diagrams.joining(self._together, nowhere)
        self._shifts = [
            self.diagrams.mapping(self.diagrams, partial(_shifted, count * at))
            for at in range(self._formulas)
        ]

    def after(self, joined: int) -> int:
        """From a letter to all states that can be reached by it from one of these, joined."""
        result = self._nowhere
        for bit in ones(joined):
            at, state = divmod(bit, self._count)
            result = self._join(result, self._shifts[at](self._steps[state]))
        return result

    def parted(self, joined: int) -> Subsets:
        """The states of each formula."""
        every = (1 << self._count) - 1
        return tuple(joined >> self._count * at & every for at in range(self._formulas))

    def _together(self, some: int, more: int) -> int:
        states = kept = some | more
        for bit in ones(states):
            at, state = divmod(bit, self._count)
            if self._above[state] & states >> self._count * at:
                kept ^= 1 << bit
        return kept


def _shifted(places: int, states: int) -> int:
    return states << places


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
