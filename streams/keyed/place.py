"""The place of an event in the buffer of a `group_by` with operators in its groups."""

from __future__ import annotations

from typing import Protocol

from penstock.streams.keyed.queues import Turns, release
from penstock.streams.protocol.event import Turn

__all__ = ["Buffer", "Holder", "Place"]


class Buffer(Protocol):
    """The stage whose buffer has the places."""

    letters: int
    """Dead letters that keep a place."""

    def freed(self, n: int, /) -> None:
        """`n` places are free; 0 where only a letter has been written."""


class Holder(Protocol):
    """One group's operators: `held` events in them have a place."""

    held: int

    @property
    def stage(self) -> Buffer: ...


class Place:
    """The place of an event inside a group's operators, free when nothing made of it is there.

    It is passed on as a turn is: what several operators make of the event shares the place, and
    what is made of several events has the places of all. So does the dead letter of an event that
    failed in an operator. `outer` is the turn that the event held before. `size` is the number of
    places, more than 1 for one value that was made of as many events.
    """

    __slots__ = ("holder", "holders", "outer", "size")

    def __init__(self, holder: Holder, outer: Turn | None, size: int = 1) -> None:
        self.holders = 1
        self.holder = holder
        self.outer = outer
        self.size = size

    def end(self) -> None:
        self.holders -= 1
        if self.holders:
            return
        holder = self.holder
        holder.held -= self.size
        holder.stage.freed(self.size)
        if self.outer is not None:
            self.outer.end()

    def end_together(self, turns: list[Turn], /) -> None:
        release(turns)

    def leave(self) -> Turn | None:
        outside = self.outer
        if outside is not None:
            outside.holders += 1
        self.end()
        return outside

    def outside(self) -> Turn | None:
        if self.outer is not None:
            self.outer.holders += 1
        return self.outer

    def place(self) -> Turn:
        self.holders += 1
        return _LetterPlace(self, self.holder.stage)


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
            self._stage.freed(0)
