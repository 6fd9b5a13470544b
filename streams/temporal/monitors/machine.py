"""Moore machines, which are deterministic with an output for each state, and their minimisation.

Source: Moore, "Gedanken-experiments on sequential machines" (1956), for the smallest machine.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.streams.temporal.automata.partition import coarsest
from penstock.streams.temporal.errors import FormulaTooLarge
from penstock.streams.temporal.formula.decisions import Decisions

__all__ = ["Machine", "differ", "followed", "minimal"]

T = TypeVar("T", bound=Hashable)
S = TypeVar("S", bound=Hashable)

# The most entries of a table; a larger machine is stepped through its diagrams.
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
        """The transition table: `table[state << bits | letter]` is the next state, also shifted;
        None if it would be too large."""
        entries = len(self.steps) << self.bits
        if self.bits > _MOST_BITS or entries > _LARGEST_TABLE:
            return None
        shifted: Decisions[int] = Decisions()
        shift = self.decisions.mapping(shifted, lambda state: state << self.bits)
        row = shifted.row(self.bits)
        return [target for step in self.steps for target in row(shift(step))]


def followed(
    first: int, after: Callable[[int], int], states: Decisions[int], bits: int, max_states: int
) -> Machine[int]:
    """The machine whose outputs are its states, with the successors of each as a diagram of
    `states`.

    Raises FormulaTooLarge beyond `max_states` states.
    """
    decisions: Decisions[int] = Decisions()
    numbers = {first: 0}
    order = [first]

    def number(state: int) -> int:
        found = numbers.get(state)
        if found is None:
            found = numbers[state] = len(order)
            if found >= max_states:
                raise FormulaTooLarge("the number of states of the monitor", found + 1, max_states)
            order.append(state)
        return found

    to_numbers = states.mapping(decisions, number)
    # Grows during the loop.
    steps = [to_numbers(after(state)) for state in order]
    return Machine(bits, decisions, tuple(steps), tuple(order))


def minimal(machine: Machine[Any], outputs: Sequence[S]) -> Machine[S]:
    """The smallest machine with these outputs; see `coarsest` for the time it takes."""
    classes = coarsest(
        machine.decisions,
        machine.steps,
        outputs,
        targets=lambda state: (state,),
        seen=lambda state, classes: classes[state],
    )
    first = {number: state for state, number in reversed(list(enumerate(classes)))}
    decisions: Decisions[int] = Decisions()
    to_classes = machine.decisions.mapping(decisions, classes.__getitem__)
    return Machine(
        machine.bits,
        decisions,
        tuple(to_classes(machine.steps[first[at]]) for at in range(len(first))),
        tuple(outputs[first[at]] for at in range(len(first))),
    )


def differ(one: Machine[S], other: Machine[S]) -> bool:
    """Whether there is a sequence of at least one letter after which their outputs differ."""
    decisions: Decisions[int] = Decisions()
    shift = len(one)
    own = one.decisions.mapping(decisions, lambda state: state)
    others = other.decisions.mapping(decisions, lambda state: state + shift)
    steps = [*map(own, one.steps), *map(others, other.steps)]
    classes = coarsest(
        decisions,
        steps,
        [*one.outputs, *other.outputs],
        targets=lambda state: (state,),
        seen=lambda state, classes: classes[state],
    )
    to_classes = decisions.mapping(Decisions[int](), classes.__getitem__)
    return to_classes(steps[0]) != to_classes(steps[shift])
