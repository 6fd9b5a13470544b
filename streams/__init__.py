"""What a stream is: Flowable, the pipelines made of it, and what they are run with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streams.errors import PenstockError
from streams.event import Event
from streams.faults import Backoff, DeadLetter, retry, route
from streams.flowable import Flowable
from streams.groups import Group
from streams.lift import lift
from streams.limits import Fixed
from streams.pipeline import Pipeline, run
from streams.running import Report, Running
from streams.sink import Sink, SinkStage

if TYPE_CHECKING:
    from streams.border import buffer, drop_newest, drop_oldest, error, latest
    from streams.iterables import from_async_iterable, from_iterable
    from streams.limits.hill_climb import HillClimb
    from streams.limits.shared import Shared

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
    "Shared",
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

# Imported when they are asked for, so that a pipeline that needs none of them starts sooner.
_ELSEWHERE = {
    "HillClimb": "streams.limits.hill_climb",
    "Shared": "streams.limits.shared",
    "buffer": "streams.border",
    "drop_newest": "streams.border",
    "drop_oldest": "streams.border",
    "error": "streams.border",
    "from_async_iterable": "streams.iterables",
    "from_iterable": "streams.iterables",
    "latest": "streams.border",
}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_ELSEWHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
