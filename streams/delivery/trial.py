"""Which event ended its holder: one search by processes that are lost one after another.

A process that an event ends leaves no word of it. So who holds a part of a log has a note stored
beside it, which is taken out when the part is given up. A note that is still there says that its
writer was lost. Then the next holder begins a few of the events that may have been the cause, and
has stored which before it does; nothing else is at work beside them. If it is lost, too, one of
these was the cause, and the next one begins fewer of them. An event that was alone when as many
holders in a row were lost as it has attempts is given up.

    at work when the first was lost   . . . . . . . . . . . . . . . . . . 100
    the second begins 10 at once      . . . . . . . . . .  and is lost with the third of such parts
    the third begins one by one       .                    and is lost with the fourth of these
    others begin this one first       .                    and are lost with it
    it is given up

A holder may be lost for another reason, as when its machine lets it wait for longer than its lease.
So an event costs nothing while it is among others, and a loss with another one begins the count
anew.
"""

from __future__ import annotations

from bisect import bisect_left
from math import inf, isqrt
from typing import Any, NamedTuple

from penstock.streams.delivery.ledger import Ledger

__all__ = ["HELD", "NOTE", "Doubt", "Trial", "doubt_in"]

NOTE = "!"
"""The first character of a note; no text of ranges has it."""

# Events that begin together after a loss of which nothing is known, and then twice as many each
# time, until so many have begun. Of more suspects than the third number some begin together.
# Chosen: a pipeline holds 1,024 to 4,096 events by default, and an event is alone from the fourth
# or fifth loss on; before it may come some that were finished, which the last holder did not have
# stored.
_FIRST, _MOST, _ONE_BY_ONE = 16, 8192, 32


class Doubt(NamedTuple):
    """One of `suspects` events below the position `until` has ended the last holder; either is 0 if
    unknown. `lost` counts the holders that were lost in a row with a single suspect, the same each
    time; it is 1 if there are several, and 0 if no holder was lost. `begun` counts the events below
    `reach` that may have begun since; `reach` is 0 if any may have, and -1 if none has."""

    lost: int = 0
    until: int = 0
    suspects: int = 0
    reach: int = 0
    begun: int = 0

    def __str__(self) -> str:
        return NOTE + ",".join(map(str, self))

    def after(self) -> Doubt:
        """The doubt of the next holder, if this was the note of the last one."""
        if self.reach < 0:
            return self
        is_same = self.suspects == self.begun == 1 and self.until == self.reach
        return Doubt(self.lost + 1 if is_same else 1, self.reach, self.begun, -1)

    @property
    def width(self) -> int:
        """How many events may begin first."""
        if not self.suspects:
            return _FIRST
        return 1 if self.suspects <= _ONE_BY_ONE else isqrt(self.suspects - 1) + 1

    def is_certain(self, attempts: int) -> bool:
        """Whether one event was alone when so many holders in a row were lost."""
        return self.suspects == 1 and self.until > 0 and self.lost >= attempts


HELD = Doubt()
"""The note of a holder that has no doubt."""


def doubt_in(note: str) -> Doubt | None:
    """The doubt in a note, without what it begins with; None if there is no note. Raises ValueError
    for another text."""
    if not note:
        return None
    lost, until, count, reach, begun = map(int, note.split(","))
    return Doubt(lost, until, count, reach, begun)


class Trial:
    """The parts of a ledger that may begin while events of it are in doubt.

    Its user asks for `more`, has the note that it is given stored, and lets the events begin; it
    asks again when these `have_ended`, or cannot be the cause any more, until there is no more.
    `doubt` is what `Doubt.after` says of the note that was found; all in doubt is before `end`.
    """

    def __init__(self, ledger: Ledger[Any], doubt: Doubt, attempts: int, end: float = inf) -> None:
        self.note = doubt
        """The note that is stored now."""
        self.reach = 0
        """No event from this position on may begin."""
        self._ledger = ledger
        self._attempts = attempts
        self._until = min(doubt.until or inf, end)
        # How many may begin in all; none is left out if it is known where they end.
        self._most = inf if doubt.until else max(_MOST, 2 * doubt.suspects)
        # How many have begun, and are to begin next.
        self._begun, self._width = 0, doubt.width

    @property
    def have_ended(self) -> bool:
        """Whether all that have begun are finished."""
        floor = self._ledger.floor
        return floor is None or floor >= self.reach

    @property
    def guilty(self) -> int | None:
        """The position of an event that is given up instead of begun, if there is one."""
        if not self.note.is_certain(self._attempts):
            return None
        first = self._ledger.first(1)
        return first[0] if first and first[0] < self._until else None

    def more(self) -> Doubt | None:
        """The note that is to be stored before more events may begin; None if there are none."""
        unfinished = self._ledger.first(self.note.begun + self._width)
        at_work = bisect_left(unfinished, self.reach)
        is_over = self._begun >= self._most or self.note.is_certain(self._attempts)
        some = [] if is_over else unfinished[: at_work + self._width]
        some = some[: bisect_left(some, self._until)]
        if len(some) <= at_work:
            return None
        return self.note._replace(reach=some[-1] + 1, begun=len(some))

    @property
    def may_have_more(self) -> bool:
        """Whether events in doubt may not have been read yet."""
        return self._begun < self._most and (self._ledger.next or 0) < self._until

    def begin(self, note: Doubt) -> None:
        """The note is stored: the events below its reach may begin."""
        self._begun += note.begun - bisect_left(self._ledger.first(note.begun), self.reach)
        if self._begun > note.suspects or not self.have_ended:
            # More are at work than could be the cause, or those that are take long.
            self._width *= 2
        self.note, self.reach = note, note.reach
