"""The safety part of a Büchi automaton: the machine that finds the bad prefixes of its language.

A prefix is bad when the automaton accepts no word that begins with it. The automaton is made
deterministic by sets of its states, without those from which no word is accepted; the prefix is bad
when the set is empty. Nothing is complemented: an automaton that is not deterministic is never
found to accept everything from some time on.

Sources: Alpern and Schneider, "Recognizing safety and liveness" (1987); d'Amorim and Rosu,
"Efficient monitoring of omega-languages" (CAV 2005).
"""

from __future__ import annotations

from penstock.streams.temporal.automata.automaton import Automaton, Edge, components, leading_to
from penstock.streams.temporal.formula.decisions import Decisions
from penstock.streams.temporal.monitors.machine import Machine, followed, minimal
from penstock.streams.temporal.monitors.verdict import Output, Verdict

__all__ = ["bad_words", "safety"]


def safety(automaton: Automaton, max_states: int) -> Machine[Output]:
    """The smallest machine that says of each prefix whether it is bad, or every continuation good.

    The second only for an automaton that is deterministic and complete. What a finite trace means
    at its end is unknown. Raises FormulaTooLarge beyond `max_states` sets of states.
    """
    live = automaton.live()
    sets: list[frozenset[int]] = []
    numbers: dict[frozenset[int], int] = {}

    def number(states: frozenset[int]) -> int:
        found = numbers.get(states)
        if found is None:
            found = numbers[states] = len(sets)
            sets.append(states)
        return found

    targets: Decisions[frozenset[int]] = Decisions()
    nowhere = targets.leaf(frozenset())
    union = targets.joining(frozenset[int].union, nowhere)
    rows = [
        targets.choose(
            [
                (edge.care, edge.value, frozenset((edge.target,)))
                for edge in row
                if edge.target in live
            ],
            nowhere,
            union,
        )
        for row in automaton.edges
    ]
    numbered: Decisions[int] = Decisions()
    to_numbers = targets.mapping(numbered, number)

    def after(state: int) -> int:
        step = nowhere
        for one in sets[state]:
            step = union(step, rows[one])
        return to_numbers(step)

    first = number(live.intersection(automaton.initial))
    machine = followed(first, after, numbered, len(automaton.propositions), max_states)
    accepting = _accepting_all(automaton) if _is_deterministic_and_complete(automaton) else ()

    def output(state: int) -> Output:
        states = sets[machine.outputs[state]]
        if not states:
            return Output(Verdict.FALSE, None)
        return Output(Verdict.TRUE if states.issubset(accepting) else Verdict.INCONCLUSIVE, None)

    return minimal(machine, list(map(output, range(len(machine)))))


def bad_words(machine: Machine[Output], propositions: tuple[str, ...]) -> Automaton:
    """The automaton of the infinite words that begin with a bad prefix."""
    edges = tuple(
        tuple(
            Edge(target, care, value, int(machine.outputs[state].verdict is Verdict.FALSE))
            for care, value, target in machine.decisions.cubes(step)
        )
        for state, step in enumerate(machine.steps)
    )
    return Automaton(propositions, edges, (0,), 1)


def _is_deterministic_and_complete(automaton: Automaton) -> bool:
    """Whether there is exactly one edge for each state and letter, and one initial state."""
    letters = 1 << len(automaton.propositions)
    return len(automaton.initial) == 1 and all(
        sum(letters >> edge.care.bit_count() for edge in row) == letters
        and not any(
            (one.value ^ other.value) & one.care & other.care == 0
            for at, one in enumerate(row)
            for other in row[:at]
        )
        for row in automaton.edges
    )


def _accepting_all(automaton: Automaton) -> frozenset[int]:
    """The states of a deterministic and complete automaton from which it accepts every word.

    From the others a cycle can be reached that avoids one of the acceptance sets.
    """
    states = range(len(automaton))
    rejecting: set[int] = set()
    for mark in (1 << each for each in range(automaton.sets)):
        avoiding = [
            [edge.target for edge in row if not edge.marks & mark] for row in automaton.edges
        ]
        for component in components(states, avoiding.__getitem__):
            if len(component) > 1 or component[0] in avoiding[component[0]]:
                rejecting.update(component)
    return frozenset(states) - leading_to(rejecting, len(automaton), automaton.successors)
