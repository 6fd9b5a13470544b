"""The place of an event in the buffer of a `group_by` with operators in its groups."""

from __future__ import annotations

from typing import Protocol

from penstock.streams.keyed.overflow import Overflow
from penstock.streams.keyed.queues import Turns, release
from penstock.streams.protocol.event import Turn

__all__ = ["Buffer", "Place", "new_place"]


class Buffer(Protocol):
    """The stage whose buffer has the places."""

    overflow: Overflow
    letters: int
    """Dead letters that keep a place."""

    def freed(self) -> None:
        """Places were vacated, or a letter has been written."""


class _Holder(Protocol):
    """One group's operators: `held` events in them have a place."""

    held: int
    over: bool

    def left(self, n: int, /) -> None:
        """`n` of them have left, and the key is `over`."""


class Place:
    """The place of an event inside a group's operators, free when nothing made of it is there.

    It is passed on as a turn is: what several operators make of the event shares the place, and
    what is made of several events has the places of all. So does the dead letter of an event that
    failed in an operator. `outer` is the turn that the event held before. `held` is the number of
    places, more than 1 for one value that was made of as many events. `holder` are the operators,
    if they are still there.
    """

    __slots__ = ("held", "holder", "holders", "outer", "stage")

    stage: Buffer
    outer: Turn | None
    held: int
    holder: _Holder | None
    holders: int

    def end(self) -> None:
        if self.holders > 1:
            self.holders -= 1
        else:
            outside = self.leave()
            self.stage.freed()
            if outside is not None:
                outside.end()

    def end_together(self, turns: list[Turn], /) -> None:
        release(turns)

    def leave(self) -> Turn | None:
        # It is the stage that takes an event out, and looks for what that vacates.
        self.holders -= 1
        if self.holders:
            return self.outside()
        holder = self.holder
        if holder is not None:
            holder.held -= self.held
            if holder.over:
                holder.left(self.held)
        self.stage.overflow.vacated += self.held
        return self.outer

    def outside(self) -> Turn | None:
        if self.outer is not None:
            self.outer.holders += 1
        return self.outer

    def place(self) -> Turn:
        self.holders += 1
        return _LetterPlace(self, self.stage)


def new_place(
    stage: Buffer, outer: Turn | None, held: int = 1, holder: _Holder | None = None
) -> Place:
    """Make a place, in two thirds of the time that an initializer takes."""
    place = Place()
    place.stage = stage
    place.outer = outer
    place.held = held
    place.holder = holder
    place.holders = 1
    return place


class _LetterPlace(Turns):
    """A dead letter's share of a place, which ends when the letter has been written."""

    def __init__(self, place: Place, stage: Buffer) -> None:
        super().__init__(place)
        self._stage = stage
        stage.letters += 1

    def end(self) -> None:
        super().end()
        if not self.holders:
            self._stage.letters -= 1
            self._stage.freed()
