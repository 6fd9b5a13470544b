"""Overrides of a pipeline that runs on a cluster or in several processes."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from copy import copy
from typing import Any, TypeVar

from penstock.streams.limits import Limiter

__all__ = ["Overrides"]

T = TypeVar("T")


class Overrides:
    """The changes to a pipeline: `other` is attached in place of its stream `source`.

    By default nothing is changed.
    """

    is_on_cluster: bool = False
    """Whether an engine reads the events: other processes run the same pipeline."""

    moves_states: bool = False
    """Whether the states of its stages move with the partitions of the engine's events."""

    in_place_of_stop: Any = "stop"
    """The policy of a stage that was built with "stop", see `policy_in`."""

    unique_by: Any = None
    """The key by which duplicates are dropped before they come here."""

    lent: Limiter | None = None
    """The limiter of the working stage, where its limit is lent by another process."""

    encoded: Container[object] = ()
    """The sinks to which values come encoded, by `Sink.encode`."""

    returns_values: bool = True
    """Whether the sinks get results as the stages have made them, and not as bytes or nothing."""

    is_bounded: bool = False
    """Whether another process bounds what comes: how much may wait of all keys, and of one."""

    openings: Mapping[int, Callable[..., Any]] = {}
    """Functions that open, as `Sink.open` does, what replaces the sinks with these numbers, which
    worker processes open."""

    elsewhere: frozenset[int] = frozenset()
    """The numbers of the stages that run in worker processes."""

    decoded_again: int | None = None
    """The number of the source whose lines workers decode again, if there is one."""

    parallel: int = 0
    """How many calls a batch stage may have at once, where that is lent; 0: its own number."""

    def __init__(self, source: object = None, other: Any = None) -> None:
        self._source = source
        self._other = other

    def in_place_of(self, stream: T) -> T:
        """The stream to attach in place of `stream`."""
        return stream if self._other is None or stream is not self._source else self._other

    def with_other(self, source: object, other: Any) -> Overrides:
        """The same changes, but for `other` in place of the stream `source`."""
        changed = copy(self)
        changed._source, changed._other = source, other
        return changed

    def is_unique(self, stream: object, by: object) -> bool:
        """Whether the events of `stream` with the same key `by` are dropped before they come."""
        unique_by = self.unique_by
        return unique_by is not None and stream is self._source and bool(unique_by == by)
