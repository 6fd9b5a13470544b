"""The core: Flowable, the pipelines made of it, and what runs them."""

from __future__ import annotations

if __name__ != "penstock.streams":
    # Else each module would be there twice, in a checkout.
    raise ImportError(
        "'streams' is 'penstock.streams': write `from penstock import ...`",
        name=__name__,
    )

from typing import TYPE_CHECKING, Any

from penstock.streams.errors import PenstockError
from penstock.streams.failures.policy import Backoff, DeadLetter, retry, route
from penstock.streams.flowable import Flowable
from penstock.streams.keyed.grouped import Group
from penstock.streams.limits import Fixed
from penstock.streams.pipeline import Pipeline, run
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.sink_stage import Sink, SinkStage
from penstock.streams.runtime.running import Report, Running
from penstock.streams.rx.lift import lift

if TYPE_CHECKING:
    from penstock.streams.boundary.from_iterable import from_async_iterable, from_iterable
    from penstock.streams.boundary.from_observable import (
        buffer,
        drop_newest,
        drop_oldest,
        error,
        latest,
    )
    from penstock.streams.limits.hill_climb import HillClimb
    from penstock.streams.limits.shared import Shared

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

# Imported on first use, so that a pipeline that needs none of them starts sooner.
_ELSEWHERE = {
    "HillClimb": "penstock.streams.limits.hill_climb",
    "Shared": "penstock.streams.limits.shared",
    "buffer": "penstock.streams.boundary.from_observable",
    "drop_newest": "penstock.streams.boundary.from_observable",
    "drop_oldest": "penstock.streams.boundary.from_observable",
    "error": "penstock.streams.boundary.from_observable",
    "from_async_iterable": "penstock.streams.boundary.from_iterable",
    "from_iterable": "penstock.streams.boundary.from_iterable",
    "latest": "penstock.streams.boundary.from_observable",
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
