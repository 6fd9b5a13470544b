"""Heavy hitters: counts of the keys with the most events, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from operator import attrgetter
from typing import Any, Protocol, runtime_checkable

from penstock.streams.protocol.event import Event

__all__ = ["MOST_KEYS", "KeyCount", "KeyCounts", "Keyed"]

MOST_KEYS = 2_000
"""Keys that are counted; when there are more, the half with fewer events is forgotten."""


@runtime_checkable
class Keyed(Protocol):
    """A stage that reads the keys of the events that come to it."""

    def keys_of(self, events: list[Event[Any]], /) -> list[Any]: ...


class KeyCount:
    """What is known of one key."""

    __slots__ = ("age", "events", "key", "waiting")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.events = 0
        """Events that were begun, or that the counted ones stand for."""
        self.waiting = 0
        """The most events that were seen waiting."""
        self.age = 0.0
        """The longest time that the first of them had waited, in seconds."""


class KeyCounts:
    """Counts events by key. Memory: 2,000 keys.

    A key that has more than a two-thousandth of the events is not forgotten for long: its count is
    then too low by what it had before.
    """

    def __init__(self) -> None:
        self._counts: dict[Any, KeyCount] = {}
        self.total = 0

    def count(self, key: Any, events: int) -> None:
        """So many events of a key were begun."""
        self._of(key).events += events
        self.total += events

    def waited(self, keys: Iterable[dict[str, Any]]) -> None:
        """These keys have `waiting` events now, the oldest of them for the time `age`, if that
        is known."""
        for numbers in keys:
            one = self._of(numbers["key"])
            one.waiting = max(one.waiting, numbers["waiting"])
            one.age = max(one.age, numbers["age"] or 0.0)

    def hottest(self, count: int) -> list[KeyCount]:
        """The keys with the most events."""
        return nlargest(count, self._counts.values(), key=attrgetter("events", "waiting"))

    def __len__(self) -> int:
        return len(self._counts)

    def _of(self, key: Any) -> KeyCount:
        one = self._counts.get(key)
        if one is None:
            if len(self._counts) >= MOST_KEYS:
                self._counts = {one.key: one for one in self.hottest(MOST_KEYS // 2)}
            one = self._counts[key] = KeyCount(key)
        return one
