"""The running stage of `objective`: it judges the latency of each event, and sends nothing on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.streams.base.errors import CALL_ERRORS
from penstock.streams.diagnostics.objective import Budget, Target
from penstock.streams.protocol.blame import fail_event
from penstock.streams.protocol.event import Event, finish_all, give_back_all
from penstock.streams.protocol.stage import CLOSED
from penstock.streams.runtime.context import Run
from penstock.streams.stages.shown_arrow import ShownArrows
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed

__all__ = ["Asked", "ObjectiveStage"]


class Asked(NamedTuple):
    """What an objective asks, of which events, and how it is called."""

    name: str
    target: Target
    share: float
    where: Callable[[Any], Any] | None
    stage: int | None
    required: bool


class ObjectiveStage(BaseSinkStage):
    """Counts the events that were within the bound of an objective, and those that were not."""

    observes = True

    def __init__(self, run: Run, closed: Closed, asked: Asked, budget: Budget) -> None:
        super().__init__(closed)
        self._run = run
        self._asked = asked
        self._budget = budget
        self._ended: float | None = None
        if asked.stage is not None:
            ShownArrows(run, lambda number: self._judge if number == asked.stage else None)

    def on_events(self, events: list[Event[Any]], /) -> None:
        if self.state >= CLOSED:
            give_back_all(events)
            return
        if self._asked.stage is None:
            self._judge(events)
        if self.finishes:
            if self.state >= CLOSED:
                give_back_all(events)
            else:
                finish_all(events)

    def _judge(self, events: list[Event[Any]]) -> None:
        if self._asked.where is not None:
            events = self._chosen(events, self._asked.where)
        if not events:
            return
        now = self._run.now()
        part, _, bound = self._asked.target
        # An event without a handler starts, and ends, when it arrives here.
        if part == "waiting":
            late = sum(
                (now if event.started is None else event.started) - event.created >= bound
                for event in events
            )
        elif part == "total":
            late = sum(
                (now if event.started is None else event.ended) - event.created >= bound
                for event in events
            )
        else:
            late = sum(
                event.started is not None and event.ended - event.started >= bound
                for event in events
            )
        self._budget.count(len(events), late, now)

    def _chosen(self, events: list[Event[Any]], where: Callable[[Any], Any]) -> list[Event[Any]]:
        """The events of which something is asked. An error of `where` ends the pipeline."""
        chosen: list[Event[Any]] = []
        noted = self._current
        outer, noted.stage = noted.stage, self
        try:
            for event in events:
                try:
                    if where(event.value):
                        chosen.append(event)
                except CALL_ERRORS as raised:
                    self.break_off(fail_event(event, raised, self.info))
                    return []
        finally:
            noted.stage = outer
        return chosen

    def close(self, error: BaseException | None = None) -> None:
        if self._ended is None:
            self._ended = self._run.now()
            self._budget.end()
        super().close(error)

    def statistics(self) -> dict[str, Any]:
        """What is asked, and how it is kept; numbers of events, or of slices of ten seconds."""
        name, target, share, _, stage, required = self._asked
        return {
            "objective": name,
            "share": share,
            "of": "events" if target.percentile is None else "slices",
            "of_stage": stage,
            "required": required,
            **self._budget.statistics(self._run.now() if self._ended is None else self._ended),
        }
