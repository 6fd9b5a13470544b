"""The verdicts of a monitor."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

__all__ = ["Output", "Verdict"]


class Verdict(Enum):
    """`TRUE` and `FALSE` are final, whatever follows.

    With RV-LTL, `PRESUMABLY_TRUE` and `PRESUMABLY_FALSE` replace an `INCONCLUSIVE` verdict that
    would be true or false if the events ended now.
    """

    TRUE = "true"
    FALSE = "false"
    INCONCLUSIVE = "inconclusive"
    PRESUMABLY_TRUE = "presumably true"
    PRESUMABLY_FALSE = "presumably false"

    @property
    def is_final(self) -> bool:
        return self in (Verdict.TRUE, Verdict.FALSE)


class Output(NamedTuple):
    """The verdict on the events so far, and whether the formula holds if they end here; None if
    that is unknown, as for an automaton, which says nothing about finite traces.
    """

    verdict: Verdict
    holds_at_end: bool | None

    @property
    def presumable(self) -> Verdict:
        """The verdict, where an inconclusive one is presumed from what would hold at the end."""
        if self.verdict is not Verdict.INCONCLUSIVE or self.holds_at_end is None:
            return self.verdict
        return Verdict.PRESUMABLY_TRUE if self.holds_at_end else Verdict.PRESUMABLY_FALSE

    @property
    def at_end(self) -> Verdict:
        """The verdict if the events end here; an unknown one stays inconclusive."""
        if self.verdict is not Verdict.INCONCLUSIVE or self.holds_at_end is None:
            return self.verdict
        return Verdict.TRUE if self.holds_at_end else Verdict.FALSE
