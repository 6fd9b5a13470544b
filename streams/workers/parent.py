"""A pipeline with workers: the stage that deals events, in place of those that run in workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.streams.base.errors import BuildError
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber, Subscription
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.overrides import Overrides
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink
from penstock.streams.stages.stream import Stream
from penstock.streams.workers.parent_stage import ParentStage
from penstock.streams.workers.placement import section_of
from penstock.streams.workers.supervisor import WorkerFactory

__all__ = ["in_workers"]


def in_workers(
    chain: Sequence[Stream[Any]], sinks: Sequence[Sink[Any]], crew: WorkerFactory
) -> Overrides:
    """The overrides of a pipeline, whose streams are given source first, that runs with a crew.

    Raises BuildError if it has nothing that could run in workers.
    """
    section = section_of(chain, sinks)
    begun: list[ParentStage] = []
    info = StageInfo("workers", f"{crew.workers}", section.bound())

    def attach(downstream: Subscriber[Any], run: Run) -> None:
        stage = ParentStage(downstream, run, dealing.info, section, crew)
        begun.append(stage)
        section.above.attach(stage, run)

    def numbers(stage: StageInfo) -> dict[str, Any]:
        return begun[-1].numbers_of(stage) if begun else {}

    dealing: Stream[Any] = Stream(attach, info, section.above)
    overrides = Overrides(section.last, dealing)
    overrides.elsewhere = frozenset(stage.number for stage in section.infos)
    overrides.encoded = section.encoding
    overrides.returns_values = section.encode is None
    if section.decode is not None:
        overrides.decoded_again = chain[0].info.number
    overrides.openings = {
        stage.number: partial(_OpenedThere, sink, numbers) for stage, sink in section.sinks
    }
    return overrides


class _OpenedThere(BaseSinkStage):
    """Takes the place of a sink that the workers open: results come here for other sinks."""

    def __init__(
        self,
        sink: Sink[Any],
        numbers: Callable[[StageInfo], dict[str, Any]],
        run: Run,
        closed: Closed,
    ) -> None:
        super().__init__(closed)
        self._sink = sink
        self._numbers = numbers
        self._run = run

    def on_subscribe(self, subscription: Subscription, /) -> None:
        try:
            self._sink.check_in_workers(self._run)
        except BuildError as error:
            self.upstream = subscription
            self.break_off(error)
        else:
            super().on_subscribe(subscription)

    def accept(self, event: Event[Any]) -> None:
        """The workers' sink accepts it."""

    def statistics(self) -> dict[str, Any]:
        """The statistics of the sink in all workers together."""
        return self._numbers(self.info)
