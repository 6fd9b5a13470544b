"""The report of a violated formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.streams.base.errors import PenstockError, describe
from penstock.streams.temporal.monitors.verdict import Verdict

__all__ = ["Violated", "Violation"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Violation(Generic[T]):
    """`formula` does not hold for the events of `key`.

    `index` is the number, from 1, of the key's event that decided it, and `evidence` its events up
    to that one: values, or sets of propositions for `evidence="letters"`. `truncated` is true if
    there were more. `at_end`: the stream ended before the formula was fulfilled; no event decided
    it.

    `deadline` is given where something with a bound in time did not come: when it should have come,
    in seconds of the loop's clock or of the events' own times, asked for by event `opened` of the
    key; `left` are the seconds that it still had when the stream ended. Then `index` is the number
    of the key's events so far.
    """

    formula: str
    key: Any
    index: int
    verdict: Verdict
    evidence: tuple[T | frozenset[str], ...]
    truncated: bool
    at_end: bool
    deadline: float | None = None
    opened: int | None = None
    left: float | None = None

    def __str__(self) -> str:
        whose = "" if self.key is None else f" of {describe(self.key)}"
        if self.at_end:
            plural = "" if self.index == 1 else "s"
            when = f"at the end of the stream, after {self.index:,} event{plural}{whose}"
            if self.left is not None:
                when += f", {self.left:g} s before the deadline that event {self.opened:,} set"
        elif self.deadline is not None:
            when = f"because the deadline that event {self.opened:,}{whose} set is past"
        else:
            when = f"by event {self.index:,}{whose}"
        last = f": {describe(self.evidence[-1])}" if self.evidence else ""
        how = "violated" if self.verdict is Verdict.FALSE else "presumably violated"
        return f"{self.formula} is {how} {when}{last}"


class Violated(PenstockError):
    """A monitor that stops its pipeline found a violation, which is in `violation`."""

    def __init__(self, violation: Violation[Any]) -> None:
        self.violation = violation
        super().__init__(str(violation))
