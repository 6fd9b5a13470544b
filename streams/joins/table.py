"""A table that a stream keeps up to date, as users describe it."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

from penstock.streams.base.keys import By
from penstock.streams.stages.stream import Stream
from penstock.streams.state.store import Store

__all__ = ["Table"]

T_co = TypeVar("T_co", covariant=True)


class _Table(NamedTuple, Generic[T_co]):
    stream: Stream[T_co]
    """The rows, with their times."""
    by: By[Any]
    """The key of a row."""
    keep: float
    """How many seconds of event time a row is kept that was replaced, for events that are late."""
    timed: Any
    """What gives the rows their times."""
    store: Store | None
    """Where the rows are kept; None: in memory."""
    whole: bool = False
    """Whether each process reads all rows for itself, and events wait for those of the
    beginning."""


# A tuple has no room for the record of its call, and a class of one has.
class Table(_Table[T_co]):
    """What `table` returns, for `lookup`: the rows of a stream by their key, each valid from its
    time until that of the next."""
