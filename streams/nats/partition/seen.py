"""Deduplication within a partition: the identities seen within the window."""

from __future__ import annotations

from collections import deque
from itertools import repeat

__all__ = ["Seen"]


class Seen:
    """The identities of a partition's messages, in the order in which these were stored.

    Times are those at which servers stored the messages: all readers of the same messages get the
    same answers. An identity is new again `window` seconds after its first message.

    Memory: the identities of the window, twice.
    """

    def __init__(self, window: float) -> None:
        self._window = window
        # The number of the message in which each came first.
        self._first: dict[int | str, int] = {}
        self._count = 0
        # When these messages were stored, their numbers, and their identities.
        self._messages: deque[tuple[float, int, list[int | str]]] = deque()

    def repeats(self, identities: list[int | str], stored: float) -> set[int]:
        """The places of the repeated identities; all are remembered."""
        self._forget(stored)
        self._count = number = self._count + 1
        self._messages.append((stored, number, identities))
        known = len(self._first)
        said = list(map(self._first.setdefault, identities, repeat(number)))
        if len(self._first) == known + len(identities):
            return set()
        found: set[int] = set()
        here: set[int | str] = set()
        for place, (identity, first) in enumerate(zip(identities, said, strict=True)):
            if first != number or identity in here:
                found.add(place)
            here.add(identity)
        return found

    def _forget(self, now: float) -> None:
        messages, first = self._messages, self._first
        while messages and messages[0][0] + self._window <= now:
            _, number, identities = messages.popleft()
            for identity in identities:
                if first.get(identity) == number:
                    del first[identity]
