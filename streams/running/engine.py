"""Engines: what reads the events of a pipeline on a cluster, in place of its own source."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from penstock.streams.failures.policy import OnError
from penstock.streams.flowable import Flowable
from penstock.streams.runtime.overrides import Overrides

__all__ = ["Engine"]


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

    def overrides(self, source: Flowable[Any] | None) -> Overrides:
        """The overrides of a pipeline that begins with `source`."""
        overrides = Overrides(source, self.source)
        overrides.is_on_cluster = True
        overrides.in_place_of_stop = self.on_error
        overrides.unique_by = self.unique_by
        return overrides
