"""How many events groups have in memory, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from itertools import chain
from typing import Any

from penstock.streams.groups.folded import Gathered
from penstock.streams.groups.place import Place
from penstock.streams.groups.substream import Substream
from penstock.streams.keyed.queues import KeyedQueues
from penstock.streams.protocol.event import Event

__all__ = ["Contents", "Leaving", "hottest", "size"]

Contents = Substream | Gathered | Event[Any]
"""What holds the events of a group: its operators. One whose operators only make a value of all its
events has none: it is its only event, or what was gathered of several. Where groups are many, most
time goes into making them, and into the garbage collector, which traverses each."""
Leaving = Substream | Place
"""What holds the places of the events that outputs in a queue were made of."""


def size(group: Contents | Leaving) -> int:
    """How many events a group has in memory: in its operators, before them, and in its outputs."""
    if isinstance(group, Event):
        return 1
    if isinstance(group, Gathered):
        return group.held
    if isinstance(group, Place):
        return group.held if group.holders else 0
    return group.held + len(group.events)


def hottest(
    groups: Mapping[Any, Contents],
    leaving: Mapping[Any, Leaving],
    earlier: Mapping[Any, Iterable[Leaving]],
    queues: KeyedQueues,
    n: int,
) -> Iterator[tuple[Any, int, float | None]]:
    """The `n` keys of which most events wait, how many do, and since when, if it can be known."""

    def size_of(item: tuple[Any, Contents | Leaving]) -> int:
        key, group = item
        tail = group.tail if isinstance(group, Substream) else None
        before = sum(map(size, earlier.get(key, ())))
        return size(group) + (0 if tail is None else len(tail)) + before

    for item in nlargest(n, chain(groups.items(), leaving.items()), size_of):
        if waiting := size_of(item):
            key, group = item
            output = queues.first(key)
            yield key, waiting, _since(group) if output is None else output.created


def _since(group: Contents | Leaving) -> float | None:
    """When the first event of a group was created: of those in operators it is not known."""
    if isinstance(group, Place):
        return None
    if not isinstance(group, Substream):
        return group.created
    return group.events[0].created if group.events and not group.held else None
