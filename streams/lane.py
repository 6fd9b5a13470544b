"""A lane: the waiting events of one key, and their turn, which belongs to the key.

While the turn is held no event of the key leaves. Whoever has it may open it, as a batch does while
it is being filled: it is then given more events of that lane, one after the other of each such
lane, when no other lane is in line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from streams.event import Event, Turn

if TYPE_CHECKING:
    from streams.group_state import State
    from streams.rotation import Rotation

__all__ = ["Lane", "Turns", "close_turns", "end_turns", "hand_over", "open_turns"]


class Lane:
    """One key's waiting events and its turn, which is held while it has holders."""

    __slots__ = ("events", "holders", "is_open", "key", "outer", "rotation", "state")

    def __init__(self, key: Any, rotation: Rotation) -> None:
        self.key = key
        self.rotation = rotation
        self.events: deque[Event[Any]] = deque()
        self.holders = 0
        self.is_open = False
        self.outer: Turn | None = None
        self.state: State | None = None

    def take(self) -> Event[Any]:
        """The next event, which now holds the turn, and with it any turn it held before."""
        event = self.events.popleft()
        self.holders = 1
        self.hold(event)
        return event

    def hold(self, event: Event[Any]) -> None:
        """Give `event`, which leaves, the turn; the one that it has is the turn's from now on."""
        turn, event.turn = event.turn, self
        if turn is not None and self.state is not None:
            turn = turn.leave()
        if turn is not None:
            self.outer = turn if self.outer is None else Turns(self.outer, turn)

    def take_another(self) -> Event[Any]:
        """One more event for whoever has the turn."""
        event = self.events.popleft()
        self.holders += 1
        self.hold(event)
        return event

    def end(self) -> None:
        """One share of the turn is given up; with the last the next event may go."""
        self.holders = holders = self.holders - 1
        if holders:
            return
        outer, self.outer = self.outer, None
        rotation = self.rotation
        if self.events:
            if rotation.direct:
                rotation.line.append(self)
                if rotation.demand and not rotation.passing:
                    rotation.pass_on()
            else:
                rotation.ready(self)
        elif rotation.direct and self.key in rotation.lanes:
            del rotation.lanes[self.key]
            rotation.spare.append(self)
        else:
            rotation.emptied(self)
        # Last, because it may send this lane its next event.
        if outer is not None:
            outer.end()

    def leave(self) -> Turn:
        # What shares the turn and has not left keeps what the turn has.
        if self.outer is not None and self.holders == 1:
            self.outer = self.outer.leave()
        return self

    def outside(self) -> Turn:
        self.holders += 1
        return self

    def place(self) -> Turn | None:
        return None if self.outer is None else self.outer.place()


class Turns:
    """What several events held, as one: all end when this does."""

    def __init__(self, *turns: Turn) -> None:
        self.holders = 1
        self._turns = turns

    def end(self) -> None:
        self.holders -= 1
        if not self.holders:
            for turn in self._turns:
                turn.end()

    def leave(self) -> Turn | None:
        outside = self.outside()
        self.end()
        return outside

    def outside(self) -> Turn | None:
        return _as_one([turn.outside() for turn in self._turns])

    def place(self) -> Turn | None:
        return _as_one([turn.place() for turn in self._turns])


def hand_over(events: Collection[Event[Any]]) -> Turn | None:
    """The turns of all these events, for the one event that is made of them."""
    turns = [event.turn for event in events]
    for event in events:
        event.turn = None
    return _as_one(turns)


def _as_one(turns: Iterable[Turn | None]) -> Turn | None:
    held = [turn for turn in turns if turn is not None]
    return Turns(*held) if held else None


def end_turns(turns: Iterable[Turn | None]) -> None:
    """`end` for each; their lanes are all in line before the next events go."""
    lanes: dict[Rotation, list[Lane]] = {}
    for turn in turns:
        if type(turn) is Lane and turn.holders == 1:
            lanes.setdefault(turn.rotation, []).append(turn)
        elif turn is not None:
            turn.end()
    for rotation, ended in lanes.items():
        rotation.end_turns(ended)


def open_turns(turns: Iterable[Turn | None]) -> None:
    """Let whoever has these turns be given more events of their groups, of each in turn."""
    rotations: dict[Rotation, None] = {}
    for turn in turns:
        if type(turn) is Lane and not turn.is_open:
            turn.is_open = True
            if turn.events:
                turn.rotation.open_lanes[turn] = None
                rotations[turn.rotation] = None
    for rotation in rotations:
        rotation.go_on()


def close_turns(turns: Iterable[Turn | None]) -> None:
    """Let no more events of their groups come before these turns end."""
    for turn in turns:
        if type(turn) is Lane and turn.is_open:
            turn.is_open = False
            turn.rotation.open_lanes.pop(turn, None)
