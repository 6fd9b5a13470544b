"""Origins that stand in for a source: fan-out, fan-in, hooks on the end of events.

Fan-out makes children of an event (`Family`), fan-in makes one event of several (`Joined`), and
an operator that must know how events end puts an `AckHook` in front of their origin.

A source that has its events on lease is a `Lessor`: an event that it no longer holds must not
begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from penstock.streams.protocol.event import (
    Ending,
    Event,
    Origin,
    by_origin,
    drop_all,
    fail_all,
    finish_all,
    give_back_all,
)

__all__ = [
    "AckHook",
    "Family",
    "Joined",
    "Lessor",
    "Nobody",
    "Withdrawn",
    "may_begin",
    "roots",
]

T = TypeVar("T")


class Family:
    """The origin of an event's children: the parent ends when the last of them has ended.

    The maker of the children holds the family open until `close`, so that children may come one
    by one. A failed child fails the parent, else a returned one returns it, else it finishes; with
    no children, or only dropped ones, it is dropped for `cause`.
    """

    __slots__ = ("_cause", "_error", "_finished", "_forgive", "_open", "_returned", "parent")

    def __init__(self, parent: Event[Any], cause: str) -> None:
        self.parent = parent
        self._cause = cause
        self._open = 1
        self._finished = self._returned = False
        self._error: BaseException | None = None
        self._forgive = True

    def child(self, value: T) -> Event[T]:
        """Make one more event from the parent; it shares the parent's times and turn."""
        parent = self.parent
        child = Event(value, parent.created, self, parent.token)
        if parent.started is not None:
            child.started = parent.started
            child.ended = getattr(parent, "ended", parent.started)
        turn = parent.turn
        if turn is not None:
            turn.holders += 1
            child.turn = turn
        self._open += 1
        return child

    def close(self) -> None:
        """No more children will come."""
        self.parent.end_turn()
        self._less(1)

    def finished(self, events: list[Event[Any]], /) -> None:
        self._finished = True
        self._less(len(events))

    def dropped(self, events: list[Event[Any]], cause: str, /) -> None:
        self._cause = cause
        self._less(len(events))

    def failed(self, events: list[Event[Any]], error: BaseException, acknowledged: bool, /) -> None:
        if self._error is None:
            self._error = error
        self._forgive = self._forgive and acknowledged
        self._less(len(events))

    def returned(self, events: list[Event[Any]], /) -> None:
        self._returned = True
        self._less(len(events))

    def _less(self, count: int) -> None:
        self._open -= count
        if self._open:
            return
        if self._error is not None and not self._forgive:
            self.parent.fail(self._error)
        elif self._returned:
            self.parent.give_back()
        elif self._error is not None:
            self.parent.fail(self._error, acknowledged=True)
        elif self._finished:
            self.parent.finish()
        else:
            self.parent.drop(self._cause)


class AckHook:
    """An origin in front of another, which is notified first of how events end.

    To be notified of an event, set `event.outer = (event.origin, event.outer, ...)`, or anything
    else from which `behind` finds these two, and `event.origin` to the hook.
    """

    __slots__ = ()

    def behind(self, outer: Any, /) -> tuple[Origin, Any]:
        """The origin and the `outer` that an event had before this one."""
        return outer[0], outer[1]

    def ended(
        self, events: list[Event[Any]], ending: Ending, error: BaseException | None, /
    ) -> None:
        """`events` have ended, with `error` if they failed; each has its `outer` still."""
        raise NotImplementedError

    def _end(
        self, events: list[Event[Any]], ending: Ending, error: BaseException | None = None
    ) -> Iterator[tuple[Origin, list[Event[Any]]]]:
        self.ended(events, ending, error)
        for event in events:
            event.origin, event.outer = self.behind(event.outer)
        return by_origin(events)

    def finished(self, events: list[Event[Any]], /) -> None:
        for origin, part in self._end(events, Ending.FINISHED):
            origin.finished(part)

    def dropped(self, events: list[Event[Any]], cause: str, /) -> None:
        for origin, part in self._end(events, Ending.DROPPED):
            origin.dropped(part, cause)

    def failed(self, events: list[Event[Any]], error: BaseException, acknowledged: bool, /) -> None:
        ending = Ending.FORGIVEN if acknowledged else Ending.FAILED
        for origin, part in self._end(events, ending, error):
            origin.failed(part, error, acknowledged)

    def returned(self, events: list[Event[Any]], /) -> None:
        for origin, part in self._end(events, Ending.RETURNED):
            origin.returned(part)


class Joined:
    """The origin of an event that was made from several others; they share its outcome."""

    __slots__ = ("parents",)

    def __init__(self, parents: Iterable[Event[Any]]) -> None:
        self.parents = tuple(parents)

    def finished(self, events: list[Event[Any]], /) -> None:
        finish_all(list(self.parents))

    def dropped(self, events: list[Event[Any]], cause: str, /) -> None:
        drop_all(self.parents, cause)

    def failed(self, events: list[Event[Any]], error: BaseException, acknowledged: bool, /) -> None:
        fail_all(self.parents, error, acknowledged=acknowledged)

    def returned(self, events: list[Event[Any]], /) -> None:
        give_back_all(self.parents)


class Nobody:
    """The origin of values that an operator adds by itself, such as `start_with`'s."""

    __slots__ = ()

    def finished(self, events: list[Event[Any]], /) -> None: ...

    def dropped(self, events: list[Event[Any]], cause: str, /) -> None: ...

    def failed(
        self, events: list[Event[Any]], error: BaseException, acknowledged: bool, /
    ) -> None: ...

    def returned(self, events: list[Event[Any]], /) -> None: ...


def roots(event: Event[Any]) -> Iterator[tuple[Origin, Any]]:
    """The sources that `event` comes from, each with the token that it gave the event."""
    origin, outer = event.origin, event.outer
    while isinstance(origin, AckHook):
        origin, outer = origin.behind(outer)
    if isinstance(origin, Family):
        yield from roots(origin.parent)
    elif isinstance(origin, Joined):
        for parent in origin.parents:
            yield from roots(parent)
    else:
        yield origin, event.token


class Lessor(Origin, Protocol):
    """A source that holds its events for as long as a lease lasts: see `Run.lessors`."""

    def holds(self, token: Any, /) -> bool:
        """Whether it is certain that nobody else works on the event with this token.

        Asked on the loop, just before user code is called with it. Once False, always False.
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
