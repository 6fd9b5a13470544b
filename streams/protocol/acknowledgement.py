"""Origins in place of a source: fan-out, fan-in, hooks on the end of events.

Fan-out makes children of an event (`Family`), fan-in makes one event of several (`Joined`), and
an operator that must know how events end puts an `AckHook` in front of their origin.

A source that has its events on lease is a `Lessor`: an event that it no longer holds must not
begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from penstock.streams.protocol.event import (
    DROPPED,
    FINISHED,
    FORGIVEN,
    RETURNED,
    BaseEvent,
    Cause,
    Ending,
    Event,
    Origin,
    by_origin,
    end_all,
)

__all__ = [
    "NOBODY",
    "AckHook",
    "Again",
    "Family",
    "Hooks",
    "Joined",
    "Lessor",
    "Nobody",
    "Withdrawn",
    "hooks",
    "is_nobodys",
    "may_begin",
    "parents",
    "revise",
    "roots",
    "with_ancestors",
]

T = TypeVar("T")


class Family:
    """The origin of an event's children: the parent ends when the last of them has ended.

    The maker of the children holds the family open until `close`, so that children may come one
    by one. A failed child fails the parent, else a returned one returns it, else it finishes; with
    no children, or only dropped ones, it is dropped for `cause`.
    """

    __slots__ = ("_cause", "_error", "_open", "_worst", "parent")

    def __init__(self, parent: Event[Any], cause: Cause) -> None:
        self.parent = parent
        self._cause = cause
        self._open = 1
        self._worst = DROPPED
        self._error: Any = None

    def child(self, value: T, kind: type[Event[Any]] = Event) -> Event[T]:
        """Make one more event from the parent; it shares the parent's times and turn."""
        parent = self.parent
        child = kind(value, parent.created, self, parent.token)
        if parent.started is not None:
            child.started = parent.started
            # In a compiled class it is None before it is set.
            ended = getattr(parent, "ended", None)
            child.ended = parent.started if ended is None else ended
        turn = parent.turn
        if turn is not None:
            turn.holders += 1
            child.turn = turn
        self._open += 1
        return child

    def close(self) -> None:
        """No more children will come."""
        try:
            self.parent.end_turn()
        finally:
            # The next event of the group may have begun, in a function that raises an exit.
            self._less(1)

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        if why is not None:
            if ending is DROPPED:
                self._cause = why
            elif self._error is None:
                self._error = why
        if ending > self._worst:
            self._worst = ending
        self._less(len(events))

    def _less(self, count: int) -> None:
        self._open -= count
        if self._open:
            return
        if self._worst is FINISHED:
            self.parent.finish()
        elif self._worst is DROPPED:
            self.parent.drop(self._cause)
        elif self._worst is RETURNED:
            self.parent.give_back()
        else:
            self.parent.fail(self._error, acknowledged=self._worst is FORGIVEN)


class AckHook:
    """An origin in front of another, which is notified first of how events end.

    To be notified of an event, set `event.outer = (event.origin, event.outer, ...)`, or anything
    else from which `behind` finds these two, and `event.origin` to the hook.
    """

    __slots__ = ()

    holds_back = False
    """Whether it notifies the origin behind it only when nothing can revise the end any more."""

    def behind(self, outer: Any, /) -> tuple[Origin, Any]:
        """The origin and the `outer` that an event had before this one."""
        return outer[0], outer[1]

    def ended(
        self, events: list[Event[Any]], ending: Ending, error: BaseException | None, /
    ) -> None:
        """`events` have ended, with `error` if they failed; each has its `outer` still."""
        raise NotImplementedError

    def noted(self, outer: Any, /) -> Any:
        """What `revised` gets of an event with this `outer`, which has not ended."""
        return outer

    def revised(self, noted: Any, ending: Ending, /) -> None:
        """An event has finished, and then a transaction did not write what was made of it: it has
        ended like this after all."""

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        self.ended(events, ending, None if ending is DROPPED else why)
        event: BaseEvent
        for event in events:
            event.origin, event.outer = self.behind(event.outer)
        for origin, part in by_origin(events):
            origin.settle(part, ending, why)


class Joined:
    """The origin of an event that was made from several others; they share its outcome."""

    __slots__ = ("parents",)

    def __init__(self, parents: Iterable[Event[Any]]) -> None:
        self.parents: Sequence[Event[Any]] = tuple(parents)

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        end_all(self.parents, ending, why)

    def roots(self) -> Iterator[tuple[Origin, Any]]:
        """The sources of all of them, as `roots` gives those of an event."""
        for parent in self.parents:
            yield from roots(parent)


class Nobody:
    """The origin of values that an operator adds by itself, such as `start_with`'s."""

    __slots__ = ()

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None: ...


NOBODY = Nobody()


def _behind_hooks(event: Event[Any]) -> Origin:
    """The origin of an event behind its hooks."""
    origin, outer = event.origin, event.outer
    while isinstance(origin, AckHook):
        origin, outer = origin.behind(outer)
    return origin


def roots(event: Event[Any]) -> Iterator[tuple[Origin, Any]]:
    """The sources that `event` comes from, each with the token that it gave the event."""
    origin = _behind_hooks(event)
    if isinstance(origin, Family):
        yield from roots(origin.parent)
    elif isinstance(origin, Joined):
        yield from origin.roots()
    else:
        yield origin, event.token


def parents(event: Event[Any]) -> Sequence[Event[Any]]:
    """The events that `event` was made of; none if it is as its source made it."""
    origin = _behind_hooks(event)
    if isinstance(origin, Family):
        return (origin.parent,)
    return origin.parents if isinstance(origin, Joined) else ()


def is_nobodys(event: Event[Any]) -> bool:
    """Whether nobody gives the event again if it is returned: neither a source nor a store."""
    origin, outer = event.origin, event.outer
    while isinstance(origin, AckHook):
        if origin.holds_back:
            return False
        origin, outer = origin.behind(outer)
    made_of = parents(event)
    return all(map(is_nobodys, made_of)) if made_of else origin is NOBODY


def with_ancestors(events: Iterable[Event[Any]]) -> Iterator[Event[Any]]:
    """`events`, and those that they were made of."""
    for event in events:
        yield event
        yield from with_ancestors(parents(event))


Hooks = list[tuple[AckHook, Any]]
"""Hooks, each with what it has `noted` of an event."""


def hooks(event: Event[Any]) -> Hooks:
    """The hooks in front of `event`, and of those that it was made of, up to one that holds back
    their ends."""
    found: Hooks = []
    origin, outer = event.origin, event.outer
    while isinstance(origin, AckHook):
        if origin.holds_back:
            return found
        found.append((origin, origin.noted(outer)))
        origin, outer = origin.behind(outer)
    for parent in parents(event):
        found += hooks(parent)
    return found


def revise(hooks: Hooks, ending: Ending) -> None:
    """Notify the hooks of an event that has finished how it has ended after all."""
    for hook, noted in hooks:
        hook.revised(noted, ending)


class Again(AckHook):
    """The hook in front of an event in place of one that has finished: it notifies the hooks of
    that one."""

    def put(self, event: Event[Any], hooks: Hooks) -> Event[Any]:
        event.outer = event.origin, event.outer, hooks
        event.origin = self
        return event

    def ended(
        self, events: list[Event[Any]], ending: Ending, error: BaseException | None, /
    ) -> None:
        for event in events:
            self.revised(event.outer, ending)

    def revised(self, noted: Any, ending: Ending, /) -> None:
        revise(noted[2], ending)


class Lessor(Origin, Protocol):
    """A source that holds its events for as long as a lease lasts: see `Run.lessors`."""

    def holds(self, token: Any, /) -> bool:
        """Whether it is certain that no other process works on the event with this token.

        Asked on the loop, just before user code is called with it. If not, the event is returned,
        and is not asked about again before its source has emitted it anew.
        """
        ...


class Withdrawn(Exception):
    """An event must no longer begin, and is returned to its source."""


def may_begin(event: Event[Any], lessors: Sequence[Lessor]) -> bool:
    """Whether all sources that `event` comes from still hold it."""
    for lessor in lessors:
        # Fast path, for every event that is as its source made it.
        if event.origin is lessor:
            return lessor.holds(event.token)
    return all(
        lessor.holds(token)
        for origin, token in roots(event)
        for lessor in lessors
        if lessor is origin
    )
