"""The machine of a formula with bounds in time: its part without bounds, and where each rule with a
bound becomes due.

A state is a set: the state of the machine for the part without bounds, that of the machine for the
whole in any time, and what remains of each regular expression behind which an operator with a bound
stands. Time is not part of it (see `penstock.streams.temporal.monitors.timed.deadlines`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.streams.temporal.automata.guards import Covers
from penstock.streams.temporal.formula.decisions import Decisions
from penstock.streams.temporal.formula.derivatives import Derivatives
from penstock.streams.temporal.formula.formula import Sere, may_be_empty
from penstock.streams.temporal.formula.normal import FALSE, Normal
from penstock.streams.temporal.formula.timed_rules import TimedRule
from penstock.streams.temporal.monitors.machine import Machine, followed, minimal
from penstock.streams.temporal.monitors.verdict import Output, Verdict

__all__ = ["Facts", "Phase", "timed_machine"]

# A machine with its state, or a rule with what remains of its expression.
_Part = tuple[int, int | Sere]
_UNTIMED, _WHOLE = 0, 1

_IMPOSSIBLE = Output(Verdict.FALSE, False)


class Phase(NamedTuple):
    """What is known in a state: of the part without bounds, which is false where the whole can no
    longer be fulfilled in any time, and, as bits of the rules, for which of them a match ended with
    the last event, and which may still be required later."""

    output: Output
    due: int
    later: int


class Facts:
    """Which operands of the operators with a bound hold of an event, as bits: of rule n, the left
    one is bit 2n and the right one is bit 2n + 1."""

    def __init__(self, rules: tuple[TimedRule, ...], names: tuple[str, ...]) -> None:
        normal = Normal(False, names)
        covers = Covers(normal)
        self._decisions: Decisions[int] = Decisions()
        none = self._decisions.leaf(0)
        operands = [operand for rule in rules for operand in (rule.then.left, rule.then.right)]
        self._diagram = self._decisions.choose(
            [
                (care, value, 1 << bit)
                for bit, operand in enumerate(operands)
                for care, value in covers.of(normal.of(operand))
            ],
            none,
            self._decisions.joining(lambda a, b: a | b, none),
        )

    def at(self, letter: int) -> int:
        """The operands that hold of a letter."""
        return self._decisions.at(self._diagram, letter)

    def possible(self, operands: int) -> bool:
        """Whether so many operands hold of some letter."""
        return any(operands & ~facts == 0 for facts in self._decisions.leaves(self._diagram))


def timed_machine(
    untimed: Machine[Output],
    whole: Machine[bool],
    rules: tuple[TimedRule, ...],
    names: tuple[str, ...],
    max_states: int,
) -> Machine[Phase]:
    """The smallest machine for the part without bounds, whether the whole can be fulfilled in any
    time, and the rules.

    Raises FormulaTooLarge beyond `max_states` states.
    """
    normal = Normal(False, names)
    covers, derivatives = Covers(normal), Derivatives(normal)
    targets: Decisions[frozenset[_Part]] = Decisions()
    nowhere = targets.leaf(frozenset())
    union = targets.joining(frozenset[_Part].union, nowhere)
    machines: tuple[Machine[Output], Machine[bool]] = (untimed, whole)
    sets: list[frozenset[_Part]] = []
    numbers: dict[frozenset[_Part], int] = {}
    steps: dict[_Part, int] = {}

    def mapped(at: int) -> Callable[[int], int]:
        return machines[at].decisions.mapping(
            targets, lambda state: frozenset[_Part](((at, state),))
        )

    to_parts = [mapped(at) for at in (_UNTIMED, _WHOLE)]

    def number(parts: frozenset[_Part]) -> int:
        found = numbers.get(parts)
        if found is None:
            found = numbers[parts] = len(sets)
            sets.append(parts)
        return found

    def step_of(part: _Part) -> int:
        found = steps.get(part)
        if found is None:
            of, rest = part
            if isinstance(rest, int):
                found = to_parts[of](machines[of].steps[rest])
            else:
                cases = [
                    (care, value, frozenset[_Part](((of, left),)))
                    for guard, left in derivatives.of(rest)
                    for care, value in covers.of(guard)
                ]
                found = targets.choose(cases, nowhere, union)
            steps[part] = found
        return found

    numbered: Decisions[int] = Decisions()
    to_numbers = targets.mapping(numbered, number)

    def after(state: int) -> int:
        step = nowhere
        for part in sets[state]:
            step = union(step, step_of(part))
        return to_numbers(step)

    def phase(state: int) -> Phase:
        output, due, later = _IMPOSSIBLE, 0, 0
        for of, rest in sets[state]:
            if not isinstance(rest, int):
                if may_be_empty(rest):
                    due |= 1 << of
                if any(guard != FALSE for guard, _ in derivatives.of(rest)):
                    later |= 1 << of
            elif of == _UNTIMED:
                output = untimed.outputs[rest]
            elif not whole.outputs[rest]:
                return Phase(_IMPOSSIBLE, 0, 0)
        return Phase(output, due, later)

    parts: list[_Part] = [(_UNTIMED, 0), (_WHOLE, 0)]
    parts += [(at, rule.sere) for at, rule in enumerate(rules)]
    machine = followed(number(frozenset(parts)), after, numbered, len(names), max_states)
    return minimal(machine, [phase(state) for state in machine.outputs])
