"""Iterators, which are read once: one that has been read is an error, and not an empty input."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from inspect import isasyncgen, isgenerator
from typing import Any, TypeVar
from weakref import ref

from penstock.streams.base.errors import BuildError, describe

__all__ = ["Once", "ReadOnce", "Reading", "is_iterator", "new_iterator", "once_of", "used_up"]

Items = TypeVar("Items")

# What has no weak references, such as a map or a zip, is kept for as long as a stream keeps it, and
# of those that are over the last ones. Chosen: such a one has let go of what it has read.
_LAST = 64


# What makes a new iterator each time; the others may be an iterator, or return the same one.
_ANEW = frozenset({list, tuple, range, str, bytes, dict, set, frozenset, deque})


class Once:
    """What was done with an iterator: who reads it, and whether it is over."""

    __slots__ = ("__weakref__", "_of", "has_begun", "is_over", "reader")

    def __init__(self, items: object) -> None:
        self.has_begun = self.is_over = False
        self.reader: object = None
        # It is called with the dead reference, which is the default of pop.
        forget: Any = partial(_known.pop, id(items))
        try:
            self._of: object = ref(items, forget)
            _known[id(items)] = self
        except TypeError:
            self._of = items
            _known[id(items)] = ref(self, forget)

    def ends(self) -> None:
        """It is over."""
        self.is_over = True
        if not isinstance(self._of, ref):
            _last.append(self)


# By the identity of the iterator, which does not change while it is here.
_known: dict[int, Once | ref[Once]] = {}
_last: deque[Once] = deque(maxlen=_LAST)


def is_iterator(items: object) -> bool:
    """Whether this is an iterator, plain or async."""
    return hasattr(type(items), "__next__") or hasattr(type(items), "__anext__")


def once_of(items: object) -> Once:
    """The same object for the same iterator, in whichever stream it is."""
    found = _known.get(id(items))
    if isinstance(found, ref):
        found = found()
    return found or Once(items)


class Reading:
    """The reading of one iterable by one stream, by its `iterator`.

    `goes_on`: items of the iterator have been read before. Raises BuildError if no items are left,
    or while another stream reads it.
    """

    __slots__ = ("goes_on", "iterator", "once")

    def __init__(self, items: Any, iterate: Callable[[Any], Any]) -> None:
        self.goes_on = False
        self.once: Once | None = None
        if is_iterator(items):
            # An open file that has been closed cannot be iterated over.
            self._begin(items)
            self.iterator = iterate(items)
        else:
            self.iterator = iterate(items)
            if type(items) not in _ANEW:
                self._begin(self.iterator)

    def _begin(self, items: Any) -> None:
        known = once_of(items)
        if known.is_over or _has_ended(items):
            raise used_up(items)
        if known.reader is not None:
            raise BuildError(
                f"{describe(items)} is being read by another stream, and each would have a part of "
                "its items: give the function that makes a new one, which each stream calls"
            )
        self.goes_on, known.has_begun = known.has_begun, True
        known.reader = self
        self.once = known

    def leave(self, *, is_over: bool) -> None:
        """Read it no more."""
        known = self.once
        if known is not None and known.reader is self:
            known.reader = None
            if is_over:
                known.ends()


def new_iterator(items: Any, iterate: Callable[[Any], Items]) -> Items:
    """The iterator of the items that one event is answered with. Raises BuildError if an event or a
    stream has had the same iterator before.

    Of those without weak references, the last 64 are known. Time: some microseconds.
    """
    if type(items) in _ANEW:
        return iterate(items)
    read = items if is_iterator(items) else iterate(items)
    known = once_of(read)
    if known.has_begun or _has_ended(read):
        raise BuildError(
            f"{describe(read)} has ended, or is read for another event, and has no items for this "
            "one: give the function that makes a new one, which each event calls"
        )
    known.has_begun = True
    known.ends()
    return iterate(read)


class ReadOnce(Iterable[Any]):
    """An iterator that an operator reads beside its stream: BuildError if it was read before."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return new_iterator(self._items, iter)


def used_up(items: object) -> BuildError:
    return BuildError(
        f"{describe(items)} has ended, such as in an earlier run, and has no more items: give "
        "the function that makes a new one, which each run calls"
    )


def _has_ended(items: object) -> bool:
    """Whether this is a generator that has ended."""
    if isgenerator(items):
        return items.gi_frame is None
    return isasyncgen(items) and items.ag_frame is None
