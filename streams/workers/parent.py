"""A pipeline with workers: the stage that deals events, in place of those that run in workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.streams.flowable import Flowable
from penstock.streams.protocol.sink_stage import Sink
from penstock.streams.protocol.stage import StageInfo, Subscriber
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.overrides import Overrides
from penstock.streams.workers.dealing import Crew, Dealing
from penstock.streams.workers.placement import section_of

__all__ = ["in_workers"]


class _Overrides(Overrides):
    """One stream in place of another."""

    def __init__(
        self, stream: Flowable[Any], other: Flowable[Any], elsewhere: frozenset[int]
    ) -> None:
        super().__init__()
        self.elsewhere = elsewhere
        self._stream = stream
        self._other = other

    def in_place_of(self, stream: Flowable[Any]) -> Flowable[Any]:
        return self._other if stream is self._stream else stream


def in_workers(chain: Sequence[Flowable[Any]], sinks: Sequence[Sink[Any]], crew: Crew) -> Overrides:
    """The overrides of a pipeline, whose streams are given source first, that runs with a crew.

    Raises BuildError if it has nothing that could run in workers.
    """
    section = section_of(chain, sinks)
    info = StageInfo("workers", f"{crew.workers}", section.bound())

    def attach(downstream: Subscriber[Any], run: Run) -> None:
        section.above.attach(Dealing(downstream, run, dealing.info, section, crew), run)

    dealing: Flowable[Any] = Flowable(attach, info, section.above)
    elsewhere = frozenset(stage.number for stage in section.infos)
    overrides = _Overrides(section.last, dealing, elsewhere)
    overrides.encoded = section.encoding
    return overrides
