"""The deadlines of operators with a bound in time: one for each operator.

A rule `{r} |-> F[<=t] q` may be due several times before q comes: each time opens an obligation
with a deadline of its own. One of them is enough, because all of them wait for the same events:

- Of `F` and `U` the *earliest* deadline is kept. An event with q that is in time for it is in time
  for all others, and fulfils them all. A later one cannot be violated first: whatever ends `p U q`
  early, an event without p and q, ends all of them, and the earliest deadline passes first. When it
  has passed the formula is false, and no other is needed.
- Of `G` the *latest* is kept. An event that violates any open obligation comes before its deadline,
  so it comes before the latest one too; and while the latest is open, an event without q violates.

This holds also where the times of successive events go back, by no more than a clock allows. An
event with q that comes too late for the earliest deadline fulfils others, but the earliest stays
open, and those that it fulfils would be fulfilled by any event that still is in time for it.

The answer to an open `F` or `U` comes before its deadline, so all `G` that are open until then hold
of it. Where no event can be all that, the formula is false before a deadline passes.

Times are whole microseconds, so that a bound includes its end exactly.

Source: Maler and Nickovic, "Monitoring temporal properties of continuous signals" (2004), for
bounded operators; Koymans (1990), for their meaning over timed events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from penstock.streams.base.errors import describe
from penstock.streams.temporal.formula.timed_rules import TimedRule
from penstock.streams.temporal.monitors.machine import Machine
from penstock.streams.temporal.monitors.timed.machine import Facts, Phase
from penstock.streams.temporal.monitors.verdict import Output, Verdict

__all__ = ["Deadlines", "Held", "Open", "in_microseconds"]


class Open(NamedTuple):
    """An obligation: its deadline, and the number of the event that opened it."""

    deadline: int
    opened: int


Held = tuple[Open | None, ...]
"""The open obligation of each rule, if any."""

_FALSE = Output(Verdict.FALSE, False)


class Deadlines:
    """The rules with a bound of one formula. Keeps no state about the events.

    A clock is the time up to which events have come: none that comes later is older.
    """

    def __init__(
        self, rules: tuple[TimedRule, ...], machine: Machine[Phase], names: tuple[str, ...]
    ) -> None:
        self.nothing: Held = (None,) * len(rules)
        self.longest = max(rule.then.milliseconds for rule in rules) * 1_000
        self._phases = machine.outputs
        self._facts = Facts(rules, names)
        self._bounds = [rule.then.milliseconds * 1_000 for rule in rules]
        self._lasting = [rule.then.operator == "G" for rule in rules]
        self._mixed = len(set(self._lasting)) == 2
        self._possible: dict[int, bool] = {}

    def after(
        self, held: Held, state: int, letter: int, at: int, number: int, clock: float
    ) -> Held | None:
        """What is open after event `number`, which has the time `at` and led to the state of the
        machine; None if it violates a rule."""
        due = self._phases[state].due
        if not due and held is self.nothing:
            return held
        facts = self._facts.at(letter)
        left: list[Open | None] = []
        for one, bound, lasting in zip(held, self._bounds, self._lasting, strict=True):
            if lasting and one is not None and one.deadline < clock:
                one = None
            if due & 1:
                deadline = at + bound
                # Of events that set the same deadline, the first is named.
                if one is None or (deadline > one.deadline if lasting else deadline < one.deadline):
                    one = Open(deadline, number)
            if one is not None:
                in_time = at <= one.deadline
                if lasting:
                    if in_time and not facts & 2:
                        return None
                elif in_time and facts & 2:
                    one = None
                elif not facts & 1:
                    return None
            left.append(one)
            due >>= 1
            facts >>= 2
        if not any(left):
            return self.nothing
        return None if self._mixed and self._in_conflict(left) else tuple(left)

    def _in_conflict(self, held: Sequence[Open | None]) -> bool:
        """Whether no event can fulfil what must come, because of what must last until then."""
        rules = list(enumerate(zip(held, self._lasting, strict=True)))
        for awaited, (owed, lasting) in rules:
            if owed is None or lasting:
                continue
            needed = 2 << 2 * awaited
            for other, (one, lasts) in rules:
                if lasts and one is not None and one.deadline >= owed.deadline:
                    needed |= 2 << 2 * other
            if needed not in self._possible:
                self._possible[needed] = self._facts.possible(needed)
            if not self._possible[needed]:
                return True
        return False

    def earliest(self, held: Held) -> Open | None:
        """The obligation to be fulfilled first."""
        first: Open | None = None
        # Not a min of a generator, which takes longer: this is asked several times an event.
        if held is not self.nothing:
            for one, lasting in zip(held, self._lasting, strict=True):
                if one is not None and not lasting and (first is None or one < first):
                    first = one
        return first

    def missed(self, held: Held, clock: float) -> Open | None:
        """The first obligation whose deadline is past, if there is one."""
        first = self.earliest(held)
        return first if first is not None and first.deadline < clock else None

    def any_open(self, held: Held, clock: float) -> bool:
        """Whether an event could still violate something that is open, or must fulfil it."""
        if held is self.nothing:
            return False
        return any(one is not None and one.deadline >= clock for one in held)

    def output(self, untimed: Output, state: int, held: Held | None, clock: float) -> Output:
        """The output for all rules and the part without bounds, at a time."""
        if held is None:
            return _FALSE
        first = self.earliest(held)
        if first is not None and first.deadline < clock:
            return _FALSE
        if untimed.verdict is Verdict.FALSE:
            return untimed
        holds = bool(untimed.holds_at_end) and first is None
        if self._phases[state].later or self.any_open(held, clock):
            return Output(Verdict.INCONCLUSIVE, holds)
        return untimed

    def open_in(self, successors: Callable[[int], Iterable[int]]) -> set[int]:
        """The states of the machine in which an operator with a bound can be open."""
        found = {state for state, phase in enumerate(self._phases) if phase.due}
        queue = list(found)
        for state in queue:
            for target in successors(state):
                if target not in found:
                    found.add(target)
                    queue.append(target)
        return found

    def is_decided(self, untimed: Output, state: int) -> bool:
        """Whether a verdict is final in a state, if nothing is open."""
        return untimed.verdict is Verdict.FALSE or (
            untimed.verdict is Verdict.TRUE and not self._phases[state].later
        )

    def decide(self, untimed: Output, state: int) -> bool:
        """Whether a verdict may be final in a state, or when what it opens is decided."""
        return self.is_decided(untimed, state) or bool(self._phases[state].due)


def in_microseconds(seconds: float) -> int:
    """Raises ValueError for a number that is not finite, or beyond 1E+302, and TypeError for
    anything else."""
    try:
        return round(seconds * 1_000_000)
    except (OverflowError, ValueError, TypeError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"{describe(seconds)} is not a time: a number of seconds up to 1E+302 is needed"
        ) from None
