"""What a cluster overrides in a pipeline: its source, its default error policy, its
deduplication."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.streams.failures.policy import OnError

if TYPE_CHECKING:
    from penstock.streams.flowable import Flowable

__all__ = ["Engine", "Overrides"]


@dataclass(frozen=True, slots=True)
class Engine:
    """The overrides of a pipeline, which is otherwise unchanged.

    `source` takes the place of its own source. `on_error` is what stages do whose own choice is
    "stop": one bad event would stop one worker after the other. `unique_by` is the key by which
    the engine itself drops duplicates, so that the pipeline's `distinct_within` by that key, at
    its head, need not: it would take an event that comes again for a duplicate.
    """

    source: Flowable[Any]
    on_error: OnError
    unique_by: str | int | Callable[[Any], Hashable] | None = None


class Overrides:
    """What `engine`, if there is one, changes of the pipeline that begins with `source`."""

    def __init__(self, source: Flowable[Any] | None = None, engine: Engine | None = None) -> None:
        self._source = source
        self.engine = engine

    def in_place_of(self, stream: Flowable[Any]) -> Flowable[Any]:
        """What is attached where the pipeline says `stream`."""
        return stream if self.engine is None or stream is not self._source else self.engine.source

    def is_unique(self, stream: Flowable[Any], by: object) -> bool:
        """Whether no two events of `stream` with the same key come within the window."""
        unique_by = None if self.engine is None else self.engine.unique_by
        return unique_by is not None and stream is self._source and unique_by == by

    def policy(self, on_error: OnError) -> OnError:
        """What a stage does that was built with `on_error`."""
        return on_error if self.engine is None or on_error != "stop" else self.engine.on_error
