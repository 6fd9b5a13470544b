"""What a monitor says of the events so far."""

from __future__ import annotations

from enum import Enum

__all__ = ["Verdict"]


class Verdict(Enum):
    """`TRUE` and `FALSE` are final, whatever follows.

    `PRESUMABLY_TRUE` and `PRESUMABLY_FALSE` tell, where RV-LTL is asked for, an `INCONCLUSIVE`
    that would be true or false if the events ended now.
    """

    TRUE = "true"
    FALSE = "false"
    INCONCLUSIVE = "inconclusive"
    PRESUMABLY_TRUE = "presumably true"
    PRESUMABLY_FALSE = "presumably false"

    @property
    def is_final(self) -> bool:
        return self in (Verdict.TRUE, Verdict.FALSE)
