"""The envelope that carries a value through a pipeline.

An event ends exactly once, in one of four ways. It *finishes* when every sink accepted all of its
results; it is *dropped* when an operator discards it on purpose; it *fails*; or it is *returned*,
unfinished, to its source. The source learns which through the event's origin.

Operators may be origins in place of a source (see `penstock.streams.protocol.acknowledgement`), so
an operator settles every event in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import groupby, repeat
from operator import attrgetter
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

__all__ = [
    "DROPPED",
    "FAILED",
    "FINISHED",
    "FORGIVEN",
    "RETURNED",
    "BaseEvent",
    "Cause",
    "Count",
    "Decoded",
    "Ending",
    "Event",
    "Origin",
    "Seconds",
    "Turn",
    "by_origin",
    "drop_all",
    "end_all",
    "finish_all",
    "give_back_all",
    "new_events",
    "take_turns",
]

T = TypeVar("T")

# The types of what a caller outside gives. Compiled, a parameter that is declared by a built-in
# type refuses what is derived from that, such as a member of an enum, or makes a float of a number.
Cause = str
Count = int
Seconds = float


class Origin(Protocol):
    """The origin of events, which is notified of how they ended: of those that ended alike by one
    call."""

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        """`events` have ended. The list is the origin's own, and never empty.

        `why` is the cause of a drop, which names it in the statistics, or the error of a failure;
        otherwise it is None.
        """


class Turn(Protocol):
    """The right of one event of a group to be processed.

    Children of a fan-out share the turn of their parent; it ends with the last holder.
    """

    holders: int

    def end(self) -> None:
        """Give up one share of the turn."""

    def end_together(self, turns: list[Turn], /) -> None:
        """`end` for each of `turns`, of which this is one."""

    def leave(self) -> Turn | None:
        """Give up the share of an event that leaves its group's operators: its outer turn."""

    def outside(self) -> Turn | None:
        """One more share of the turn that an event goes on with."""

    def place(self) -> Turn | None:
        """A share of the event's places in buffers, for the dead letter about it."""


class Ending(IntEnum):
    """How an event ended, in order of severity: an event from which several were made ends like
    the most severe of them.

    The source may forget an event whose ending is below RETURNED, and may redeliver the others.
    """

    DROPPED = 0
    """An operator discarded it on purpose."""
    FINISHED = 1
    """Every sink accepted all of its results."""
    FORGIVEN = 2
    """It failed, and was skipped or routed."""
    RETURNED = 3
    """It was not processed to its end."""
    FAILED = 4


# Looking up a member of an enum takes six times as long as a name of a module (Python 3.11).
DROPPED, FINISHED, FORGIVEN, RETURNED, FAILED = Ending


class BaseEvent:
    """A value in a pipeline, with its times (seconds of the loop's clock) and its origin.

    `Event` is the same class; to type checkers it has the type of the value.

    `token` is the source's own mark (a line number, a row's id). `outer` is for an origin in front
    of another one: what it knows about the event, including the previous origin and its `outer`.
    `pending` counts the missing acceptances; at 0 or less the event has ended. `call` and `level`
    are the fields of the working stage that has the event: the record of its call, if it needs one,
    and how many calls were in flight when it began, itself included. `time` is when it happened, in
    seconds since 1970: only an event that was emitted by `event_time` has it.
    """

    __slots__ = (
        "call",
        "created",
        "ended",
        "level",
        "origin",
        "outer",
        "pending",
        "started",
        "time",
        "token",
        "turn",
        "value",
    )

    started: float | None
    ended: float
    time: float

    def __init__(self, value: Any, created: Seconds, origin: Origin, token: Any = None) -> None:
        self.value = value
        self.created = created
        self.origin = origin
        self.token = token
        self.started = None
        self.turn: Turn | None = None
        self.outer: Any = None
        self.call: Any = None
        self.level = 0
        self.pending = 1

    def __class_getitem__(cls, kind: Any, /) -> GenericAlias:
        return GenericAlias(cls, kind)

    def finish(self) -> None:
        """One sink accepted the event; with the last of them it has finished."""
        self.pending = pending = self.pending - 1
        if pending:
            return
        alone: list[Any] = [self]
        self.origin.settle(alone, FINISHED, None)
        if self.turn is not None:
            self.end_turn()

    def drop(self, cause: Cause) -> None:
        """Drop the event on purpose. The source may forget it."""
        self._end(DROPPED, cause)

    def fail(self, error: BaseException, *, acknowledged: bool = False) -> None:
        """The event failed; acknowledged when it was skipped or routed."""
        self._end(FORGIVEN if acknowledged else FAILED, error)

    def give_back(self) -> None:
        """Return the event, unfinished, to its source."""
        self._end(RETURNED, None)

    def _end(self, ending: Ending, why: Any) -> None:
        if self.pending > 0:
            self.pending = 0
            alone: list[Any] = [self]
            self.origin.settle(alone, ending, why)
            self.end_turn()

    def end_turn(self) -> None:
        """End this event's share of its group's turn, if it holds one."""
        turn = self.turn
        if turn is not None:
            self.turn = None
            turn.end()

    def place(self) -> Turn | None:
        """A share of this event's places in buffers, for the dead letter about it."""
        return None if self.turn is None else self.turn.place()


class Decoded(BaseEvent):
    """An event with the bytes from which its source has made the value."""

    __slots__ = ("data",)

    data: bytes | bytearray


if TYPE_CHECKING:

    class Event(BaseEvent, Generic[T]):
        """A `BaseEvent` whose value is of a type."""

        value: T

        def __init__(self, value: T, created: float, origin: Origin, token: Any = None) -> None: ...

else:
    Event = BaseEvent


def new_events(
    values: Sequence[T],
    created: Seconds,
    origin: Origin,
    tokens: Iterable[Any] = repeat(None),
    kind: type[BaseEvent] = BaseEvent,
) -> list[Event[T]]:
    """`kind(value, created, origin, token)` for each of `values`, in half the time."""
    event: BaseEvent
    events: list[Any] = []
    for value, token in zip(values, tokens, strict=False):
        # Compiled, this makes one at once; `kind.__new__` would be looked up and called.
        event = BaseEvent.__new__(BaseEvent) if kind is BaseEvent else kind.__new__(kind)
        event.value = value
        event.created = created
        event.origin = origin
        event.token = token
        event.started = event.turn = event.outer = event.call = None
        event.level = 0
        event.pending = 1
        events.append(event)
    return events


def finish_all(events: list[Event[Any]]) -> None:
    """`finish` for each of `events`; their origins are notified in as few calls as possible."""
    if not events:
        return
    origin = events[0].origin
    holds_turns = False
    event: BaseEvent
    for event in events:
        if event.pending != 1 or event.origin is not origin:
            alike = events.index(event)
            break
        event.pending = 0
        if event.turn is not None:
            holds_turns = True
    else:
        ended = events.copy() if holds_turns else None
        origin.settle(events, FINISHED, None)
        if ended is not None:
            _end_turns(ended)
        return
    for event in events[alike:]:
        event.pending -= 1
    _end([event for event in events if not event.pending], FINISHED, None)


def drop_all(events: Iterable[Event[Any]], cause: Cause) -> None:
    """`drop` for each of `events`."""
    end_all(events, DROPPED, cause)


def give_back_all(events: Iterable[Event[Any]]) -> None:
    """`give_back` for each of `events`."""
    end_all(events, RETURNED, None)


def end_all(events: Iterable[Event[Any]], ending: Ending, why: Any) -> None:
    """End each of `events` in this way; `why` as in `Origin.settle`."""
    if ending is FINISHED:
        finish_all(list(events))
    else:
        _end([event for event in events if event.pending > 0], ending, why)


def _end(events: list[Event[Any]], ending: Ending, why: Any) -> None:
    event: BaseEvent
    for event in events:
        event.pending = 0
    for origin, part in by_origin(events):
        origin.settle(part, ending, why)
    _end_turns(events)


def _end_turns(events: list[Event[Any]]) -> None:
    if turns := take_turns(events):
        turns[0].end_together(turns)


def take_turns(events: Collection[Event[Any]]) -> list[Turn]:
    """The turns that these events hold, which hold none any more."""
    event: BaseEvent
    turns: list[Turn] = []
    for event in events:
        turn = event.turn
        if turn is not None:
            turns.append(turn)
            event.turn = None
    return turns


def by_origin(events: Iterable[Event[Any]]) -> Iterator[tuple[Origin, list[Event[Any]]]]:
    """The lists of successive events that have one origin."""
    for origin, part in groupby(events, _origin_of):
        yield origin, list(part)


_origin_of: Callable[[Event[Any]], Origin] = attrgetter("origin")
