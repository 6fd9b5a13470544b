"""The place of an event in the buffer of a `group_by` with operators in its groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.streams.protocol.event import Turn

if TYPE_CHECKING:
    from penstock.streams.keyed.substreams import Substream

__all__ = ["Place"]


class Place:
    """Taken when the event comes in, free when nothing that came of it is in the group any more.

    It goes with the event as a turn would: what several operators make of it shares the place, and
    what is made of several events has the places of all. So does the dead letter of an event that
    failed in an operator. `outer` is the turn that the event holds.
    """

    __slots__ = ("holders", "outer", "substream")

    def __init__(self, substream: Substream, outer: Turn | None) -> None:
        self.holders = 1
        self.substream = substream
        self.outer = outer

    def end(self) -> None:
        """One share has ended inside the group, or has left it."""
        self.holders -= 1
        if self.holders:
            return
        self.substream.freed()
        if self.outer is not None:
            self.outer.end()

    def leave(self) -> Turn | None:
        outside = self.outside()
        self.end()
        return outside

    def outside(self) -> Turn | None:
        if self.outer is not None:
            self.outer.holders += 1
        return self.outer

    def place(self) -> Turn:
        return _LettersShare(self)

    def move(self, substream: Substream) -> None:
        """Its event begins anew with another substream of its group."""
        self.substream.held -= 1
        substream.held += 1
        self.substream = substream


class _LettersShare:
    """A letter's share of a place: it ends when the letter is out, whatever the group does."""

    __slots__ = ("_place", "holders")

    def __init__(self, place: Place) -> None:
        self.holders = 1
        self._place = place
        place.holders += 1
        place.substream.letter_sent()

    def end(self) -> None:
        substream = self._place.substream
        self._place.end()
        substream.letter_out()

    # A letter leaves no group.

    def leave(self) -> None:
        self.end()

    def outside(self) -> None:
        return None

    def place(self) -> None:
        return None
