"""The watermark of a partition as it is stored: what the events that come again must find.

    emitted      1: 10   2: 30   3: 20       (number: time)
    done         1       2                   3 is on its way
    stored       greatest 10 before the oldest list that is not done; 2 raised it to 30

When 3 comes again, the greatest time before it is 30, as it was: so it is late again, or again not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import dropwhile
from operator import itemgetter
from typing import Any, Protocol

from penstock.streams.protocol.event import RETURNED, Event, Origin
from penstock.streams.protocol.identity import Identified, identities

__all__ = ["KeptList", "KeptPartition", "SequenceOf", "Waits"]

SequenceOf = Callable[[Any], Any]
"""The place of an event in its partition, by its token."""

Waits = Callable[[Any, Event[Any]], bool]
"""Whether an event comes again after the commit that begins now, by its root."""

_Ahead = tuple[str, Any, float]


class _InFlight(Protocol):
    left: int


class KeptList:
    """What is kept of a list: the greatest time `before` it and the `first` term then, the tokens
    of the events that `raised` it with their times, those that were `ahead` of its events and
    raised it too, the roots of events that have arrived, each with its event, and the tokens of
    those that were `returned` before. An event that was returned comes again: it is waited for
    until it is in a later list.
    """

    __slots__ = (
        "_again",
        "_looked",
        "_number",
        "_origin",
        "_sequence_of",
        "_waiting",
        "ahead",
        "before",
        "first",
        "held",
        "in_flight",
        "raised",
        "returned",
    )

    def __init__(
        self,
        origin: Origin,
        before: float,
        first: float,
        in_flight: _InFlight,
        sequence_of: SequenceOf | None,
        again: dict[Any, int],
        number: int,
    ) -> None:
        self._origin = origin
        self._sequence_of = sequence_of
        self._again = again
        self._number = number
        # Of those that are held, how many are done by the commits so far, and by the one that
        # begins now.
        self._waiting = self._looked = 0
        self.before = before
        self.first = first
        self.in_flight = in_flight
        self.raised: list[tuple[Any, float]] = []
        self.ahead: list[_Ahead] = []
        self.held: list[tuple[Any, Event[Any]]] = []
        self.returned: list[Any] = []

    def is_done(self, waits: Waits) -> bool:
        """Whether no event of it comes again after the commit that begins now."""
        held, looked = self.held, self._waiting
        if self.in_flight.left:
            return False
        while looked < len(held) and not self._waits(waits, *held[looked]):
            looked += 1
        self._looked = looked
        while self.returned and self._has_come_again(self.returned[-1]):
            self.returned.pop()
        return looked == len(held) and not self.returned

    def written(self) -> None:
        """The commit that began when it was asked last has been made."""
        self._waiting = self._looked

    def _waits(self, waits: Waits, root: Any, event: Event[Any]) -> bool:
        if getattr(root, "event", None) is event and (root.ending or 0) >= RETURNED:
            return not self._has_come_again(event.token)
        return waits(root, event)

    def _has_come_again(self, token: Any) -> bool:
        """Whether an event that was returned is in a later list, as far as that can be known."""
        place_of = _places_of(self._origin, self._sequence_of)
        return place_of is None or self._again.get(place_of(token), 0) > self._number

    def identities(self, last: bool) -> list[_Ahead]:
        """The events that raised it; only the `last` of them, if none before it comes again."""
        origin, sequence_of = self._origin, self._sequence_of
        raised = self.raised[-1:] if last else self.raised
        all_: list[_Ahead] = []
        if sequence_of is not None:
            all_ = [("", sequence_of(token), time) for token, time in raised]
        elif isinstance(origin, Identified):
            found = [(origin.identity(token), time) for token, time in raised]
            all_ = [(one.generation, one.sequence, time) for one, time in found if one is not None]
        else:
            return []
        all_ += self.ahead
        return [max(all_, key=itemgetter(2))] if last and all_ else all_


class KeptPartition:
    """The lists of a partition from the oldest that is not done on.

    `ahead` are events that were done before others, in an earlier run: their generations, numbers
    and times, in the order in which they were emitted. With `sequence_of` there is one generation.
    """

    __slots__ = ("_again", "_count", "_done", "_last", "_lists", "_sequence_of", "ahead")

    def __init__(self, sequence_of: SequenceOf | None) -> None:
        self._sequence_of = sequence_of
        self._lists: deque[KeptList] = deque()
        # How many lists there were, the last place in one of them, and the number of the last list
        # of each event that has come again.
        self._count = 0
        self._last: Any = None
        # How many of the lists are done by the commit that begins now.
        self._done = 0
        self._again: dict[Any, int] = {}
        self.ahead: list[_Ahead] = []

    def new_list(
        self,
        origin: Origin,
        greatest: float,
        first: float,
        in_flight: _InFlight,
        events: Sequence[Event[Any]],
    ) -> KeptList:
        """The record of a list of events that is emitted now."""
        self._count += 1
        places = self._sequence_of, self._again, self._count
        kept = KeptList(origin, greatest, first, in_flight, *places)
        self._lists.append(kept)
        if (place_of := _places_of(origin, self._sequence_of)) is not None:
            # In the order of their places.
            last = self._last
            if last is not None and place_of(events[0].token) <= last:
                for event in events:
                    if (place := place_of(event.token)) <= last:
                        self._again[place] = self._count
            self._last = max(last or 0, place_of(events[-1].token))
        return kept

    def restore(self, stored: dict[str, Any]) -> None:
        """Go on from what was stored."""
        self.ahead = [(born, _number(number), time) for born, number, time in stored["ahead"]]

    def greatest_before(self, event: Event[Any], greatest: float, kept: KeptList) -> float:
        """The greatest time before an event of a list, with those that were done ahead of it."""
        if self._sequence_of is not None:
            generation, sequence = "", self._sequence_of(event.token)
        else:
            identity = next(iter(identities(event)), None)
            if identity is None:
                return greatest
            generation, sequence = identity.generation, identity.sequence
        behind = 0
        for place, (born, number, _) in enumerate(self.ahead, 1):
            if born == generation and number < sequence:
                behind = place
        for _, _, time in self.ahead[:behind]:
            greatest = max(greatest, time)
        kept.ahead += self.ahead[:behind]
        del self.ahead[:behind]
        return greatest

    def mark(self, greatest: float, first: float, waits: Waits) -> dict[str, Any]:
        """What is stored, of the greatest time and the first term now."""
        lists = [*dropwhile(lambda one: one.is_done(waits), self._lists)]
        self._done = len(self._lists) - len(lists)
        ahead = [*self.ahead]
        for one in lists:
            ahead += one.identities(one.is_done(waits))
        if len(ahead) > 1:
            # Some have come again: each generation in the order of its numbers.
            ahead = [*dict.fromkeys(ahead)]
            born = {one[0]: place for place, one in enumerate(reversed(ahead))}
            ahead.sort(key=lambda one: (-born[one[0]], one[1]))
        if lists:
            greatest, first = lists[0].before, lists[0].first
        return {"greatest": greatest, "first": first, "ahead": ahead}

    def written(self) -> None:
        """The commit with the last mark has been made."""
        for _ in range(self._done):
            self._lists.popleft()
        self._done = 0
        for one in self._lists:
            one.written()
        if not self._lists:
            self._again.clear()


def _places_of(origin: Origin, sequence_of: SequenceOf | None) -> SequenceOf | None:
    """The places of events by their tokens; None of those that a stage behind the source made."""
    return sequence_of if hasattr(origin, "sequence_of") else None


def _number(number: Any) -> Any:
    """A number of an identity, which may be a tuple."""
    return tuple(number) if number.__class__ is list else number
