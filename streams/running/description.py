"""The stages of a pipeline, as they are drawn and shown while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.streams.protocol.numbering import all_stages
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.stages.sink_stage import Sink
from penstock.streams.stages.stream import Stream
from penstock.streams.stages.time_slice import LARGEST

__all__ = ["description"]


def description(
    flowable: Stream[Any], sinks: Sequence[Sink[Any]], limit: tuple[int, int] | int | None = None
) -> list[StageInfo]:
    """The stages of a run with this limit, with their bounds, source first, sinks last.

    The stages of other streams are the `inputs` of those that read them.
    """
    stages = [stream.info.limited(limit) for stream in flowable.chain()]
    last = stages[-1]
    ends = [sink.info.after(last).at(last.number + i) for i, sink in enumerate(sinks, 1)]
    if all(sink.bound == 0 for sink in ends):
        # They accept every event at once: nothing waits but what is on its way to them.
        ends = [sink._replace(bound=LARGEST) for sink in ends]
    return stages + [_in_commits(sink, stages) for sink in ends]


def _in_commits(sink: StageInfo, stages: list[StageInfo]) -> StageInfo:
    """The same sink; a note says if it writes in the commits of a store of the stages above."""
    database = sink.delivery.database
    if database is not None:
        for stage in all_stages(stages):
            if getattr(stage.delivery.store, "database", None) == database:
                return sink._replace(note="in the commits of the store")
    return sink
