"""What a stream is: Flowable, the pipelines made of it, and what they are run with."""

from __future__ import annotations

from streams.border import buffer, drop_newest, drop_oldest, error, latest
from streams.errors import PenstockError
from streams.event import Event
from streams.faults import Backoff, DeadLetter, retry, route
from streams.flowable import Flowable
from streams.groups import Group
from streams.iterables import from_async_iterable, from_iterable
from streams.lift import lift
from streams.limits import Fixed, HillClimb
from streams.pipeline import Pipeline, run
from streams.running import Report, Running
from streams.sink import Sink, SinkStage

__all__ = [
    "Backoff",
    "DeadLetter",
    "Event",
    "Fixed",
    "Flowable",
    "Group",
    "HillClimb",
    "PenstockError",
    "Pipeline",
    "Report",
    "Running",
    "Sink",
    "SinkStage",
    "buffer",
    "drop_newest",
    "drop_oldest",
    "error",
    "from_async_iterable",
    "from_iterable",
    "latest",
    "lift",
    "retry",
    "route",
    "run",
]
