"""What a cluster overrides in a pipeline: its source, its default error policy, its
deduplication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.streams.failures.policy import OnError
from penstock.streams.keyed.key import By

if TYPE_CHECKING:
    from penstock.streams.flowable import Flowable

__all__ = ["Engine"]


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
    unique_by: By[Any] | None = None
