"""Overrides of a pipeline that runs on a cluster or in several processes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.streams.failures.policy import OnError
from penstock.streams.limits import Limiter

if TYPE_CHECKING:
    from penstock.streams.flowable import Flowable
    from penstock.streams.protocol.sink_stage import Sink
    from penstock.streams.runtime.open_sinks import Opening

__all__ = ["Engine", "Overrides"]


@dataclass(frozen=True, slots=True)
class Engine:
    """The overrides of a pipeline, which is otherwise unchanged.

    `source` replaces the pipeline's own source. `on_error` replaces the policy "stop", with which
    one bad event would stop one worker after the other. `unique_by` is the key by which the engine
    itself drops duplicates. A `distinct_within` by that key directly behind the source is then
    left out: it would drop events that are delivered again.
    """

    source: Flowable[Any]
    on_error: OnError
    unique_by: str | int | Callable[[Any], Hashable] | None = None


class Overrides:
    """The changes that `engine`, if any, makes to the pipeline that begins with `source`.

    Without one, `other` is attached in place of the stream `source`.
    """

    lent: Limiter | None = None
    """The limiter of the working stage, where its limit is lent by another process."""

    encoded: tuple[Sink[Any], ...] = ()
    """The sinks to which values come encoded, by `Sink.encode`."""

    is_bounded: bool = False
    """Whether another process bounds what comes: how much may wait of all keys, and of one."""

    openings: Mapping[int, Opening] = {}
    """What is opened in place of the sinks with these numbers, which worker processes open."""

    elsewhere: frozenset[int] = frozenset()
    """The numbers of the stages that run in worker processes."""

    decoded_again: int | None = None
    """The number of the source whose lines workers decode again, if there is one."""

    parallel: int = 0
    """How many calls a batch stage may have at once, where that is lent; 0: its own number."""

    def __init__(
        self,
        source: Flowable[Any] | None = None,
        engine: Engine | None = None,
        other: Flowable[Any] | None = None,
    ) -> None:
        self._source = source
        self.engine = engine
        self._other = other if engine is None else engine.source

    def in_place_of(self, stream: Flowable[Any]) -> Flowable[Any]:
        """The stream to attach in place of `stream`."""
        return stream if self._other is None or stream is not self._source else self._other

    def is_unique(self, stream: Flowable[Any], by: object) -> bool:
        """Whether the engine drops the events of `stream` with the same key `by`."""
        unique_by = None if self.engine is None else self.engine.unique_by
        return unique_by is not None and stream is self._source and unique_by == by

    def policy(self, on_error: OnError) -> OnError:
        """The policy of a stage that was built with `on_error`."""
        return on_error if self.engine is None or on_error != "stop" else self.engine.on_error
