"""The machine of a formula with bounds in time: its part without bounds, and where each rule with a
bound becomes due.

A state is a set: the state of the machine for the part without bounds, and what remains of each
regular expression behind which an operator with a bound stands. Time is not part of it (see
`penstock.streams.temporal.monitors.deadlines`).
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.streams.temporal.automata.guards import Covers
from penstock.streams.temporal.formula.decisions import Decisions
from penstock.streams.temporal.formula.derivatives import Derivatives
from penstock.streams.temporal.formula.normal import FALSE, Normal
from penstock.streams.temporal.formula.sere import Sere, may_be_empty
from penstock.streams.temporal.formula.timed_rules import TimedRule
from penstock.streams.temporal.monitors.machine import Machine, followed, minimal
from penstock.streams.temporal.monitors.verdict import Said

__all__ = ["Facts", "Phase", "timed_machine"]

# The state of the part without bounds, or a rule with what remains of its expression.
_Part = int | tuple[int, Sere]


class Phase(NamedTuple):
    """What is known in a state: of the part without bounds, and, as bits of the rules, for which of
    them a match ended with the last event, and which may still be required later."""

    said: Said
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


def timed_machine(
    untimed: Machine[Said], rules: tuple[TimedRule, ...], names: tuple[str, ...], max_states: int
) -> Machine[Phase]:
    """The smallest machine for both; FormulaTooLarge beyond `max_states` states."""
    normal = Normal(False, names)
    covers, derivatives = Covers(normal), Derivatives(normal)
    targets: Decisions[frozenset[_Part]] = Decisions()
    nowhere = targets.leaf(frozenset())
    union = targets.joining(frozenset[_Part].union, nowhere)
    to_parts = untimed.decisions.mapping(targets, lambda state: frozenset[_Part]((state,)))
    sets: list[frozenset[_Part]] = []
    numbers: dict[frozenset[_Part], int] = {}
    steps: dict[_Part, int] = {}

    def number(parts: frozenset[_Part]) -> int:
        found = numbers.get(parts)
        if found is None:
            found = numbers[parts] = len(sets)
            sets.append(parts)
        return found

    def step_of(part: _Part) -> int:
        found = steps.get(part)
        if found is None:
            if isinstance(part, int):
                found = to_parts(untimed.steps[part])
            else:
                rule, sere = part
                cases = [
                    (care, value, frozenset[_Part](((rule, rest),)))
                    for guard, rest in derivatives.of(sere)
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
        said, due, later = None, 0, 0
        for part in sets[state]:
            if isinstance(part, int):
                said = untimed.outputs[part]
                continue
            rule, rest = part
            if may_be_empty(rest):
                due |= 1 << rule
            if any(guard != FALSE for guard, _ in derivatives.of(rest)):
                later |= 1 << rule
        assert said is not None
        return Phase(said, due, later)

    first = number(frozenset((0, *((at, rule.sere) for at, rule in enumerate(rules)))))
    machine = followed(first, after, numbered, len(names), max_states)
    return minimal(machine, [phase(state) for state in machine.outputs])
