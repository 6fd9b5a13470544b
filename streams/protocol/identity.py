"""The identity of an event: the same whenever its source gives it again, also to the next run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from penstock.streams.protocol.acknowledgement import roots
from penstock.streams.protocol.event import Event

__all__ = ["Identified", "Identity", "identities", "shown"]


class Identity(NamedTuple):
    """The place of an event in its source.

    `partition` names what is read in order, such as a file, a partition of a topic or a table.
    `generation` tells it from others of the same name: the file after a rotation, a stream or topic
    that was deleted and made again, a row whose id was used again. `sequence` is that of the event
    in it, a number or a tuple of numbers (of a table whatever its ids are), which grows in the
    order in which the partition gives its events.
    """

    partition: str
    generation: str
    sequence: Any

    def __str__(self) -> str:
        sequence = self.sequence
        if isinstance(sequence, tuple):
            sequence = ".".join(map(str, cast("tuple[int, ...]", sequence)))
        return f"{self.partition}@{self.generation}:{sequence}"


@runtime_checkable
class Identified(Protocol):
    """An origin that knows the identities of events by their tokens."""

    def identity(self, token: Any, /) -> Identity | None:
        """The identity of the event that has this token, while it has not ended.

        None if its source does not give events again. Made when it is asked for, from the token.
        """
        ...


def identities(event: Event[Any]) -> tuple[Identity, ...]:
    """The identities of the events of sources that `event` was made of, each once; those of sources
    that do not give events again have none."""
    found = (
        origin.identity(token) for origin, token in roots(event) if isinstance(origin, Identified)
    )
    return tuple(dict.fromkeys(one for one in found if one is not None))


def shown(identities: Sequence[Identity]) -> str:
    """The first of these, and how many others there are, in a line; empty if there are none."""
    if not identities:
        return ""
    others = len(identities) - 1
    return str(identities[0]) + (f" and {others:,} more" if others else "")
