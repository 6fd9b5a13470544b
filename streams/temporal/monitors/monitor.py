"""The three-valued monitor of a formula: one table look-up per event.

Sources: Bauer, Leucker and Schallhart, "Runtime verification for LTL and TLTL" (TOSEM 2011) for
the three verdicts, and "Comparing LTL semantics for runtime verification" (JLC 2010) for RV-LTL.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, overload

from penstock.streams.temporal.automata.automaton import (
    Automaton,
    leading_to,
    letter_of,
    text_of,
)
from penstock.streams.temporal.automata.translate import MAX_STATES
from penstock.streams.temporal.errors import TimedFormula, bounded_recursion
from penstock.streams.temporal.formula.formula import (
    Formula,
    propositions,
    with_strong_next,
)
from penstock.streams.temporal.formula.lexer import told_of_split_words
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.temporal.formula.timed_rules import in_any_time, split
from penstock.streams.temporal.monitors.continuations import Continuations, leading_on
from penstock.streams.temporal.monitors.machine import Machine, differ, followed, minimal
from penstock.streams.temporal.monitors.progress import Progress
from penstock.streams.temporal.monitors.safety import safety
from penstock.streams.temporal.monitors.timed.deadlines import Deadlines, Held, in_microseconds
from penstock.streams.temporal.monitors.timed.machine import timed_machine
from penstock.streams.temporal.monitors.verdict import Output, Verdict

__all__ = ["Monitor", "State", "TimedState"]

log = logging.getLogger("penstock")


class TimedState(NamedTuple):
    """The state of a monitor with bounds in time: that of its machine, what is open (None after a
    violation), the number of events, and the time of the last one in microseconds."""

    machine: int
    held: Held | None
    events: int
    at: int


State = int | TimedState


class Monitor:
    """Evaluates a formula, its text, or a Büchi automaton on events as they come.

    A state is a number: `first`, and then `step(state, {"a", "b"})` with the propositions that hold
    of an event. Of a formula with bounds in time it is a `TimedState`, and each step has the time
    of its event: `step(state, {"a"}, at=10.5)`. A monitor may be shared: it keeps no state about
    the events.

    Of an automaton the safety part is watched: the verdict is `FALSE` when it accepts nothing that
    begins with these events, and `TRUE` when it accepts everything that does, which is found only
    if it is deterministic and complete. At the end of the events an inconclusive verdict stays.

    A formula with bounds in time is a conjunction (see `TimedRule`). It is `FALSE` when a deadline
    is past, which `verdict(state, at)` sees without another event, and as soon as no events at any
    time could fulfil all parts. Where `G` with a bound stands beside `F` or `U` with one, that may
    be seen later, but at the latest when a part is violated.

    A text with PSL's weak `next` that `X` would judge differently at the end is logged, once, and
    so is one with a word such as `Foo`, which is read as `F oo`.

    Raises FormulaSyntaxError, TimedFormula for a bound in time where it cannot be watched, and
    FormulaTooLarge beyond `max_states` states. Time: a few milliseconds for a usual formula; the
    smallest monitor may have doubly exponentially many states. Memory: at most a million table
    entries; beyond that, a step walks a diagram, with at most one test for each proposition.
    """

    first = 0
    deadlines: Deadlines | None = None

    def __init__(self, formula: Formula | Automaton | str, max_states: int = MAX_STATES) -> None:
        if isinstance(formula, Automaton):
            self.formula: Formula | Automaton = formula
            self.propositions = formula.propositions
            self.machine = safety(formula, max_states)
        else:
            # The parser reports anything else.
            read = formula if isinstance(formula, Formula) else parse(formula)
            self.formula = read
            self.propositions = names = tuple(propositions(read))
            untimed, rules = split(read)
            self.machine = _machine(untimed, names, max_states)
            if isinstance(formula, str):
                if told := told_of_split_words(formula):
                    log.warning("%s: %s", formula, told)
                self._log_weak_next(untimed, formula, max_states)
            if rules:
                whole = _machine(in_any_time(untimed, rules), names, max_states)
                possible = [output.verdict is not Verdict.FALSE for output in whole.outputs]
                timed = timed_machine(
                    self.machine, minimal(whole, possible), rules, names, max_states
                )
                self.deadlines = Deadlines(rules, timed, names)
                outputs = tuple(phase.output for phase in timed.outputs)
                self.machine = Machine(timed.bits, timed.decisions, timed.steps, outputs)
        self._outputs = self.machine.outputs
        self.table = self.machine.table()
        self.bits = 0 if self.table is None else self.machine.bits

    def _log_weak_next(self, formula: Formula, text: str, max_states: int) -> None:
        strong = with_strong_next(formula)
        names = self.propositions
        if strong != formula and differ(self.machine, _machine(strong, names, max_states)):
            log.info(
                "%s: next is weak, as in PSL, and holds at the last event; with next! or X, which "
                "do not, some verdicts at the end would differ",
                text,
            )

    @overload
    def step(self, state: int, true: int | Iterable[str], at: None = None) -> int: ...
    @overload
    def step(self, state: State, true: int | Iterable[str], at: float) -> TimedState: ...
    def step(self, state: State, true: int | Iterable[str], at: float | None = None) -> State:
        """The state after an event for which exactly the propositions `true` hold: their names, or
        a `letter`.

        `at` is the time of the event, in seconds, for a formula with bounds in time; only then it
        is needed, and given. Raises UnknownProposition for a name that is not in the formula,
        TypeError where the time is missing, no number or has no use, and ValueError where it goes
        back or is not finite.
        """
        letter = true if isinstance(true, int) else self.letter(true)
        if self.deadlines is None:
            if at is not None or isinstance(state, TimedState):
                raise TypeError(f"{text_of(self.formula)} has no bound in time: leave out at=")
            return self.next(state, letter)
        if at is None:
            raise TypeError(
                f"{text_of(self.formula)} has a bound in time: give the time of the event, in "
                "seconds, as at="
            )
        now = in_microseconds(at)
        machine, held, events, before = self._timed(state, now)
        if now < before:
            raise ValueError(f"at={at} is before the event before it, at {before / 1_000_000}")
        machine = self.next(machine, letter)
        if held is not None:
            late = self.deadlines.missed(held, now) is not None
            after = self.deadlines.after(held, machine >> self.bits, letter, now, events + 1, now)
            held = None if late else after
        return TimedState(machine, held, events + 1, now)

    def next(self, state: int, letter: int) -> int:
        """The state of the machine after an event, whatever its time."""
        if self.table is None:
            return self.machine.next(state, letter)
        return self.table[state | letter]

    def _timed(self, state: State, at: int = 0) -> TimedState:
        if isinstance(state, TimedState):
            return state
        assert self.deadlines is not None
        return TimedState(state, self.deadlines.nothing, 0, at)

    def letter(self, true: Iterable[str]) -> int:
        """The letter of an event for which exactly the propositions `true` hold.

        Raises UnknownProposition for a name that is not in the formula. For facts that may include
        others, pass `facts & set(monitor.propositions)`.
        """
        return letter_of(self.propositions, true)

    def verdict(self, state: State, at: float | None = None) -> Verdict:
        """`TRUE` or `FALSE` when no later event can change it, else `INCONCLUSIVE`.

        With bounds in time, `at` is the present time, by default that of the last event.
        """
        return self.output(state, at).verdict

    def presumable(self, state: State, at: float | None = None) -> Verdict:
        """As `verdict`, but an inconclusive verdict is presumed from whether the formula would hold
        if the events ended here."""
        return self.output(state, at).presumable

    def at_end(self, state: State, at: float | None = None) -> Verdict:
        """The verdict if the events end here: a final one stays, else the one of finite traces.

        An automaton has none of finite traces: an inconclusive verdict stays.
        """
        return self.output(state, at).at_end

    def output(self, state: State, at: float | None = None) -> Output:
        """The verdict, and whether the formula holds if the events end here."""
        if self.deadlines is None:
            assert not isinstance(state, TimedState)
            return self._outputs[state >> self.bits]
        machine, held, _, now = self._timed(state)
        if at is not None:
            now = max(now, in_microseconds(at))
        machine >>= self.bits
        return self.deadlines.output(self._outputs[machine], machine, held, now)

    def deadline(self, state: State) -> float | None:
        """The first time, in seconds, by which something must come; None if nothing must."""
        held = self._timed(state).held if self.deadlines is not None else None
        if self.deadlines is None or held is None:
            return None
        first = self.deadlines.earliest(held)
        return None if first is None else first.deadline / 1_000_000

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
        """The smallest machine for the three verdicts, which ignores how the events end.

        Raises TimedFormula for a formula with a bound in time, whose verdicts are not its states.
        """
        if self.deadlines is not None:
            raise TimedFormula(
                f"{text_of(self.formula)} has a bound in time: its verdicts are not those of a "
                "machine"
            )
        return minimal(self.machine, [output.verdict for output in self._outputs])

    @property
    def monitorable(self) -> bool:
        """Whether a final verdict can be reached from every state."""
        size = len(self.machine)
        timed = self.deadlines
        decided = [
            state
            for state, output in enumerate(self._outputs)
            if (output.verdict.is_final if timed is None else timed.decide(output, state))
        ]
        return len(leading_to(decided, size, self.machine.successors)) == size


@bounded_recursion()
@lru_cache(maxsize=256)
def _machine(formula: Formula, names: tuple[str, ...], max_states: int) -> Machine[Output]:
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

    def output(state: int) -> Output:
        if state not in may_hold:
            return Output(Verdict.FALSE, False)
        if state not in may_fail:
            return Output(Verdict.TRUE, True)
        return Output(Verdict.INCONCLUSIVE, progress.may_end(left[state]))

    return minimal(machine, list(map(output, range(len(machine)))))
