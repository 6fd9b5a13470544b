"""Deduplication within a partition: the identities seen within the window."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple

__all__ = ["MOST_RENEWED", "Renewed", "Seen"]

MOST_RENEWED = 10_000
"""How many renewed identities a partition remembers: they are written with its floor."""


class Renewed(NamedTuple):
    """A message, when it was stored, and the places of its events whose identities were new again,
    although they had been repeated less than a window before."""

    sequence: int
    stored: float
    places: list[int]


class Seen:
    """The identities of a partition's messages, in the order in which these were stored.

    Times are those at which servers stored the messages: all readers of the same messages get the
    same answers. An identity is new again `window` seconds after its first message.

    A reader that begins in the middle cannot know when an identity that never pauses was new. So a
    reader notes these events. The next one is given the notes, begins two windows before a message,
    and gives the same answers from there on.

    Memory: the identities of the window, twice, and at most `MOST_RENEWED` places.
    """

    def __init__(self, window: float, renewed: Iterable[Renewed] = ()) -> None:
        self._window = window
        # The count of messages when each came first, and when it was last repeated.
        self._first: dict[int | str, int] = {}
        self._again: dict[int | str, int] = {}
        self._count = 0
        # When these messages were stored, their counts, and their identities.
        self._messages: deque[tuple[float, int, list[int | str]]] = deque()
        self._renewed = deque(renewed)
        self._places = sum(len(one.places) for one in self._renewed)
        self._given = {one.sequence: one.places for one in self._renewed}

    def repeats(self, identities: list[int | str], stored: float, sequence: int) -> set[int]:
        """The places of the repeated identities of a message; all are remembered."""
        self._forget(stored)
        self._count = number = self._count + 1
        self._messages.append((stored, number, identities))
        first, again = self._first, self._again
        given = self._given.pop(sequence, None) if self._given else None
        for place in given or ():
            first.pop(identities[place], None)
        known = len(first)
        numbers = list(map(first.setdefault, identities, repeat(number)))
        found: set[int] = set()
        if len(first) < known + len(identities):
            here: set[int | str] = set()
            for place, (identity, at) in enumerate(zip(identities, numbers, strict=True)):
                if at != number or identity in here:
                    found.add(place)
                here.add(identity)
        if again and given is None and not again.keys().isdisjoint(identities):
            new = set(range(len(identities))) - found
            self._note(sequence, stored, [one for one in new if identities[one] in again])
        again.update((identities[place], number) for place in found)
        return found

    def renewed(self, stored: float) -> list[Renewed]:
        """The notes for a reader that continues after a message stored then; earlier ones are
        forgotten."""
        renewed, since = self._renewed, stored - 2 * self._window
        while renewed and renewed[0].stored < since:
            self._places -= len(renewed.popleft().places)
        return list(renewed)

    def _note(self, sequence: int, stored: float, places: list[int]) -> None:
        if places:
            self._renewed.append(Renewed(sequence, stored, places))
            self._places += len(places)
        while self._places > MOST_RENEWED:
            self._places -= len(self._renewed.popleft().places)

    def _forget(self, now: float) -> None:
        messages, first, again = self._messages, self._first, self._again
        while messages and messages[0][0] + self._window <= now:
            _, number, identities = messages.popleft()
            for identity in identities:
                if first.get(identity) == number:
                    del first[identity]
                if again and again.get(identity) == number:
                    del again[identity]
