"""An arrow of a pipeline that shows the events on it, as to a sink that measures them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.streams.base.errors import BuildError
from penstock.streams.base.validation import is_count
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.observing import Statistics

__all__ = ["ShownArrow", "ShownArrows", "check_stage", "refuse_idle_stage"]

Show = Callable[[list[Event[Any]]], None]


def check_stage(sink: str, stage: Any) -> None:
    """Raise BuildError if the option `stage` of a sink is not the number of a stage, nor None."""
    if stage is not None and not is_count(stage):
        raise BuildError(
            f"{sink}(stage={stage!r}): give the number of a stage, as penstock draw shows it"
        )


def refuse_idle_stage(sink: str, stage: int | None, stages: Sequence[StageInfo]) -> None:
    """Raise BuildError if the stage to be measured is not one of those that call a handler."""
    working = [one for one in stages if one.placement.works]
    if stage is not None and stage not in [one.number for one in working]:
        there = ", ".join(map(str, working)) or "none here"
        raise BuildError(
            f"{sink}(stage={stage}): give the number of a stage that calls a handler: {there}"
        )


class ShownArrows:
    """An observer of a run: shows what some stages send on, before the next stage has it.

    `shown(number)` is called with the number of each stage of the pipeline itself, and returns the
    function that gets the lists of its events, or None. The function must neither keep nor change a
    list. Events of a stage in worker processes are shown when they have come back from these.
    """

    counts = False

    def __init__(self, run: Run, shown: Callable[[int], Show | None]) -> None:
        self._elsewhere = run.overrides.elsewhere
        self._shown = shown
        run.observers.append(self)

    def arrow(
        self, info: StageInfo, below: Subscriber[Any], reader: StageInfo | None, *, is_own: bool
    ) -> Subscriber[Any]:
        """The subscriber to put between the stage `info` and the one `below` it."""
        if not is_own:
            return below
        # Of a part that runs elsewhere only the last stage is attached here.
        numbers = self._elsewhere if info.number in self._elsewhere else (info.number,)
        for number in sorted(numbers):
            if (show := self._shown(number)) is not None:
                below = ShownArrow(below, show)
        return below

    def counted_statistics(
        self, info: StageInfo, statistics: Statistics, *, is_own: bool
    ) -> Statistics:
        """The statistics of a stage as they are: it counts nothing of its own."""
        return statistics


class ShownArrow:
    """Shows the lists of events that go to the stage `below`, before it has them."""

    __slots__ = ("_on_events", "_show", "on_completed", "on_error", "on_subscribe")

    def __init__(self, below: Subscriber[Any], show: Show) -> None:
        self._show = show
        self._on_events = below.on_events
        self.on_subscribe = below.on_subscribe
        self.on_error = below.on_error
        self.on_completed = below.on_completed

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._show(events)
        self._on_events(events)
