"""Poison-record detection: notes on which records may have ended the holder of a partition.

A process that a record ends leaves no word of it. So while one holds a partition, the metadata of
its commits has a note, which it takes out when it gives the partition up. A note that is still
there says that its writer was lost.
"""

from __future__ import annotations

from math import isqrt
from typing import NamedTuple

__all__ = ["HELD", "MOST", "NOTE", "Doubt", "doubt_in"]

NOTE = "!"
"""What a note begins with; no encoding of what is finished has it."""

# Records that begin together after a loss of which nothing is known, and then twice as many each
# time, until there are `MOST`. Of more suspects than the first number some begin together. Chosen:
# a pipeline holds 1,024 to 4,096 events by default, and a record is found at its fourth loss.
_FIRST, MOST, _ONE_BY_ONE = 16, 4096, 32


class Doubt(NamedTuple):
    """`lost` processes in a row have ended while they held the partition. One of `suspects` records
    below the offset `until` has ended the last one; where nothing is known, both are 0. Since then
    records below `reach` may have begun, which are `begun`; both are 0 where any may have, and
    `reach` is -1 where none has."""

    lost: int = 0
    until: int = 0
    suspects: int = 0
    reach: int = 0
    begun: int = 0

    def __str__(self) -> str:
        return NOTE + ",".join(map(str, self))

    def after(self) -> Doubt:
        """The doubt of the next holder."""
        if self.reach < 0:
            return self
        return Doubt(self.lost + 1, self.reach, self.begun, -1)

    @property
    def width(self) -> int:
        """How many records may begin first."""
        if not self.suspects:
            return _FIRST
        return 1 if self.suspects <= _ONE_BY_ONE else isqrt(self.suspects - 1) + 1

    def is_certain(self, attempts: int) -> bool:
        """Whether one record has ended so many processes, the last one while it was alone."""
        return self.suspects == 1 and self.lost >= attempts


HELD = Doubt()
"""The note of a holder that has no doubt."""


def doubt_in(note: str) -> Doubt | None:
    """The doubt in a note, without what it begins with; None if there is no note."""
    if not note:
        return None
    lost, until, count, reach, begun = map(int, note.split(","))
    return Doubt(lost, until, count, reach, begun)
