"""The messages between a parent and its workers.

They arrive in the order in which they were sent, or not at all, because the other process has
ended. Events are numbered by the parent, for each worker by itself.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from penstock.streams.base.errors import NotPicklable
from penstock.streams.failures.sent_error import SentError
from penstock.streams.limits import Completion

__all__ = [
    "Cancel",
    "Complete",
    "Completed",
    "Completions",
    "Confirmed",
    "Counted",
    "Ended",
    "Events",
    "Grant",
    "Letter",
    "Link",
    "Numbers",
    "Over",
    "Parts",
    "Ready",
    "Room",
    "Stop",
    "Stopping",
    "Traced",
    "Unsendable",
    "Warn",
    "Withdraw",
    "Withdrawn",
    "packed",
]


# From the parent to a worker.


class Traced(NamedTuple):
    """The first message, if events are traced; the rest is as for `Tracing`."""

    last: int
    field: str | None
    show_values: bool


class Counted(NamedTuple):
    """Before the first grant: count what the stages send to each other."""


class Events(NamedTuple):
    """Events that are numbered from `first` on, with their source's facts about each.

    The `values` are lines if the section has a function that decodes these. `tokens` are numbers of
    lines, or texts for errors; None if no event has one. `room` is as in a `Room`. `contexts` are
    the contexts of their traces, empty for an event without; None if none is traced.
    """

    first: int
    values: list[Any]
    created: array[float]
    tokens: list[Any] | None
    room: int
    contexts: list[dict[str, str]] | None = None


class Grant(NamedTuple):
    """So many calls may be in flight at once; whether the parent learns from how they end."""

    number: int
    limit: int
    learns: bool


class Room(NamedTuple):
    """So many more results may be sent."""

    n: int


class Complete(NamedTuple):
    """No more events follow: the worker ends when those that it has have ended."""


class Withdraw(NamedTuple):
    """Return the events that have not begun, and go on; answered by `Withdrawn`."""


class Stop(NamedTuple):
    """Return the events that have not begun, and end when the others have."""


class Cancel(NamedTuple):
    """Cancel the calls, and end."""


# From a worker to its parent.


class Ready(NamedTuple):
    """The first message of a process that had to import the pipeline."""


class Ended(NamedTuple):
    """Events that have ended with one result each, and when their calls began and ended."""

    numbers: list[int]
    results: list[Any]
    started: array[float]
    ended: array[float]


class Parts(NamedTuple):
    """Results of events that have not ended: each may have more, or a sink in the worker has not
    accepted it yet."""

    numbers: list[int]
    results: list[Any]
    started: array[float]
    ended: array[float]


class Over(NamedTuple):
    """Events that have ended without a further result; `why` as for `Origin.settle`."""

    numbers: list[int]
    ending: int
    why: Any


class Letter(NamedTuple):
    """An event that was given up by a stage that routes such events, with its value there.

    Without `has_value` that one cannot be sent, and the letter has the value from before.
    """

    number: int
    value: Any
    error: BaseException
    stage: int
    attempts: int
    has_value: bool = True


class Unsendable(NamedTuple):
    """A result of an event cannot be sent."""

    number: int
    error: NotPicklable


class Completions(NamedTuple):
    """Calls that have ended, for the limiter."""

    ends: list[Completion]


class Stopping(NamedTuple):
    """A stage begins nothing more, or has not been closed, because of an error; `numbers` are those
    of the events that have failed with it, whose identities the parent adds."""

    sent: SentError
    numbers: Sequence[int] = ()


class Withdrawn(NamedTuple):
    """All events that had not begun when `Withdraw` came were returned before this message."""


class Numbers(NamedTuple):
    """The statistics of the stages by their numbers."""

    stages: dict[int, dict[str, Any]]


class Confirmed(NamedTuple):
    """No more calls are in flight than the grant of this number, the last one, says."""

    grant: int


class Warn(NamedTuple):
    """A line of text for the log, with what programs should know of it; `number` is the number of
    the event that it is about, whose identity the parent adds."""

    text: str
    fields: dict[str, Any] | None = None
    number: int | None = None


class Completed(NamedTuple):
    """The last message."""


class Link(Protocol):
    """The way to the other side."""

    @property
    def pid(self) -> int | None:
        """The process there, if it is another one that is known."""

    def send(self, message: Any, /) -> None:
        """Send a message; to a process that has ended it is not sent.

        Raises NotPicklable for a value that cannot leave its process.
        """

    def close(self) -> None:
        """Send nothing more."""


def packed(message: Any) -> bytes:
    """The bytes of a message. Raises NotPicklable."""
    try:
        return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise NotPicklable(f"cannot be sent to another process: {error}") from error
