"""Partial derivatives of SEREs: what remains to be matched after an event, and for which events.

Source: Antimirov, "Partial derivatives of regular expressions and finite automaton constructions"
(1996).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from penstock.streams.temporal.errors import FormulaTooLarge
from penstock.streams.temporal.formula.failures import Failures
from penstock.streams.temporal.formula.formula import (
    EMPTY,
    Failure,
    Joined,
    Letter,
    Repeat,
    Sere,
    may_be_empty,
)
from penstock.streams.temporal.formula.normal import FALSE, Normal

__all__ = ["Derivatives"]

# As many as are derived in one second, and three for each state that a monitor may have.
_MOST_STEPS = 30_000


class Derivatives:
    """The memoised derivatives of any SERE, whose letters become formulas of one `Normal`.

    Raises FormulaTooLarge beyond 30,000 derivatives altogether.
    """

    def __init__(self, normal: Normal) -> None:
        self._normal = normal
        self._failures = Failures(normal, self.of)
        self._made = 0
        self._known: dict[Sere, tuple[tuple[int, Sere], ...]] = {}

    def of(self, sere: Sere) -> tuple[tuple[int, Sere], ...]:
        """The partial derivatives of `sere`: what may remain after an event, with the formula that
        the event must satisfy."""
        known = self._known.get(sere)
        if known is None:
            # Remainders that are equal after the same guard are merged into one.
            steps = {step: None for step in self._derive(sere) if step[0] != FALSE}
            known = self._known[sere] = tuple(steps)
            self._made += len(known)
            if self._made > _MOST_STEPS:
                raise FormulaTooLarge(
                    "the number of steps of its regular expressions", self._made, _MOST_STEPS
                )
        return known

    def _derive(self, sere: Sere) -> Iterable[tuple[int, Sere]]:
        if isinstance(sere, Letter):
            return [(self._normal.of(sere.formula), EMPTY)]
        if isinstance(sere, Failure):
            return self._failures.of(sere)
        if isinstance(sere, Repeat):
            if sere.high == 0:
                return []
            low = 0 if may_be_empty(sere.sere) else max(sere.low - 1, 0)
            high = None if sere.high is None else sere.high - 1
            rest = EMPTY if high == 0 else Repeat(sere.sere, low, high)
            return [(guard, _chain(left, rest)) for guard, left in self.of(sere.sere)]
        if sere.operator == "|":
            return [step for part in sere.parts for step in self.of(part)]
        if len(sere.parts) != 2:
            return self.of(_in_pairs(sere))
        first, second = sere.parts
        if sere.operator == "&&":
            return [
                (self._normal.both(guard, other), together)
                for guard, left in self.of(first)
                for other, rest in self.of(second)
                if (together := _together(left, rest)) is not None
            ]
        steps: list[tuple[int, Sere]] = []
        for guard, left in self.of(first):
            if sere.operator == ";":
                steps.append((guard, _chain(left, second)))
                continue
            if left != EMPTY:
                steps.append((guard, Joined(":", (left, second))))
            if may_be_empty(left):
                fused = self.of(second)
                steps += [(self._normal.both(guard, other), rest) for other, rest in fused]
        if sere.operator == ";" and may_be_empty(first):
            steps += self.of(second)
        return steps


def _in_pairs(sere: Joined) -> Sere:
    """The same expression, nested so that its remainder after the first part is a subterm, not a
    copy."""
    return reduce(lambda rest, part: Joined(sere.operator, (part, rest)), reversed(sere.parts))


def _chain(first: Sere, second: Sere) -> Sere:
    if first == EMPTY:
        return second
    return first if second == EMPTY else Joined(";", (first, second))


def _together(first: Sere, second: Sere) -> Sere | None:
    if EMPTY in (first, second):
        # Nothing but the empty match is as long as the empty match.
        return EMPTY if may_be_empty(first) and may_be_empty(second) else None
    return Joined("&&", (first, second))
