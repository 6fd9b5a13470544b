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


def in_workers(chain: Sequence[Flowable[Any]], sinks: Sequence[Sink[Any]], crew: Crew) -> Overrides:
    """The overrides of a pipeline, whose streams are given source first, that runs with a crew.

    Raises BuildError if it has nothing that could run in workers.
    """
    section = section_of(chain, sinks)
    info = StageInfo("workers", f"{crew.workers}", section.bound())

    def attach(downstream: Subscriber[Any], run: Run) -> None:
        section.above.attach(Dealing(downstream, run, dealing.info, section, crew), run)

    dealing: Flowable[Any] = Flowable(attach, info, section.above)
    overrides = Overrides(section.last, other=dealing)
    overrides.elsewhere = frozenset(stage.number for stage in section.infos)
    overrides.encoded = section.encoding
    return overrides
