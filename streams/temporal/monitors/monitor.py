"""The three-valued monitor of a formula: one table look-up per event.

Sources: Bauer, Leucker and Schallhart, "Runtime verification for LTL and TLTL" (TOSEM 2011) for
the three verdicts, and "Comparing LTL semantics for runtime verification" (JLC 2010) for RV-LTL.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import lru_cache

from penstock.streams.temporal.automata.automaton import Automaton, leading_to, letter_of
from penstock.streams.temporal.automata.translate import MAX_STATES
from penstock.streams.temporal.errors import bounded_recursion
from penstock.streams.temporal.formula.formula import (
    Formula,
    propositions,
    with_strong_next,
)
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.temporal.monitors.continuations import Continuations, leading_on
from penstock.streams.temporal.monitors.machine import Machine, differ, followed, minimal
from penstock.streams.temporal.monitors.progress import Progress
from penstock.streams.temporal.monitors.safety import safety
from penstock.streams.temporal.monitors.verdict import Said, Verdict

__all__ = ["Monitor"]

log = logging.getLogger("penstock")


class Monitor:
    """Evaluates a formula, its text, or a Büchi automaton on events as they come.

    A state is a number: `first`, and then `step(state, letter)`; the bits of a letter are the
    propositions that hold, in the order of `propositions`. A monitor may be shared: it keeps no
    state about the events.

    Of an automaton the safety part is watched: the verdict is `FALSE` when it accepts nothing that
    begins with these events, and `TRUE` when it accepts everything that does, which is found only
    if it is deterministic and complete. At the end of the events an inconclusive verdict stays.

    A text with PSL's weak `next` that `X` would judge differently at the end is logged, once.

    Raises FormulaSyntaxError, and FormulaTooLarge beyond `max_states` states. Time: a few
    milliseconds for a usual formula; the smallest monitor may have doubly exponentially many
    states. Memory: at most a million table entries; beyond that, a step walks a diagram, with at
    most one test for each proposition.
    """

    first = 0

    def __init__(self, formula: Formula | Automaton | str, max_states: int = MAX_STATES) -> None:
        if isinstance(formula, Automaton):
            self.formula: Formula | Automaton = formula
            self.propositions = formula.propositions
            self.machine = safety(formula, max_states)
        else:
            # The parser reports anything else.
            read = formula if isinstance(formula, Formula) else parse(formula)
            self.formula = read
            self.propositions = tuple(propositions(read))
            self.machine = _machine(read, max_states)
            if isinstance(formula, str):
                self._log_weak_next(read, formula, max_states)
        self._said = self.machine.outputs
        self.table = self.machine.table()
        self.bits = 0 if self.table is None else self.machine.bits

    def _log_weak_next(self, formula: Formula, text: str, max_states: int) -> None:
        strong = with_strong_next(formula)
        if strong != formula and differ(self.machine, _machine(strong, max_states)):
            log.info(
                "%s: next is weak, as in PSL, and holds at the last event; with next! or X, which "
                "do not, some verdicts at the end would differ",
                text,
            )

    def step(self, state: int, letter: int) -> int:
        """The state after an event."""
        if self.table is None:
            return self.machine.next(state, letter)
        return self.table[state | letter]

    def letter(self, true: Iterable[str]) -> int:
        """The letter of an event for which exactly the propositions `true` hold.

        Raises UnknownProposition for a name that is not in the formula. For facts that may include
        others, pass `facts & set(monitor.propositions)`.
        """
        return letter_of(self.propositions, true)

    def verdict(self, state: int) -> Verdict:
        """`TRUE` or `FALSE` when no later event can change it, else `INCONCLUSIVE`."""
        return self._said[state >> self.bits].verdict

    def presumable(self, state: int) -> Verdict:
        """As `verdict`, but an inconclusive verdict is presumed from whether the formula would hold
        if the events ended here."""
        verdict, holds = self._said[state >> self.bits]
        if verdict is not Verdict.INCONCLUSIVE or holds is None:
            return verdict
        return Verdict.PRESUMABLY_TRUE if holds else Verdict.PRESUMABLY_FALSE

    def at_end(self, state: int) -> Verdict:
        """The verdict if the events end here: a final one stays, else that of finite traces.

        An automaton has none of finite traces: an inconclusive verdict stays.
        """
        verdict, holds = self._said[state >> self.bits]
        if verdict is not Verdict.INCONCLUSIVE or holds is None:
            return verdict
        return Verdict.TRUE if holds else Verdict.FALSE

    def true_in(self, letter: int) -> frozenset[str]:
        """The propositions that hold in a letter."""
        return frozenset(name for bit, name in enumerate(self.propositions) if letter >> bit & 1)

    @property
    def states(self) -> frozenset[int]:
        """All states."""
        return frozenset(state << self.bits for state in range(len(self.machine)))

    @property
    def deciding(self) -> frozenset[int]:
        """The states whose verdict is final."""
        return frozenset(state for state in self.states if self.verdict(state).is_final)

    @property
    def verdicts(self) -> Machine[Verdict]:
        """The smallest machine for the three verdicts, which ignores how the events end."""
        return minimal(self.machine, [said.verdict for said in self._said])

    @property
    def monitorable(self) -> bool:
        """Whether a final verdict can be reached from every state."""
        size = len(self.machine)
        decided = [state for state in range(size) if self._said[state].verdict.is_final]
        return len(leading_to(decided, size, self.machine.successors)) == size


@bounded_recursion()
@lru_cache(maxsize=256)
def _machine(formula: Formula, max_states: int) -> Machine[Said]:
    names = tuple(propositions(formula))
    progress = Progress(formula, names)
    continuations = Continuations(progress.normal, max_states)
    machine = followed(progress.first, progress.after, progress.diagrams, len(names), max_states)
    left = machine.outputs
    successors = [machine.successors(state) for state in range(len(machine))]
    negation = progress.normal.negation
    may_hold = leading_on(
        successors, lambda state: continuations.exist(progress.formula(left[state]))
    )
    may_fail = leading_on(
        successors, lambda state: continuations.exist(negation(progress.formula(left[state])))
    )

    def said(state: int) -> Said:
        if state not in may_hold:
            return Said(Verdict.FALSE, False)
        if state not in may_fail:
            return Said(Verdict.TRUE, True)
        return Said(Verdict.INCONCLUSIVE, progress.may_end(left[state]))

    return minimal(machine, list(map(said, range(len(machine)))))
