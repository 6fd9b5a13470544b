"""The stage behind `count_over_time`: the rows of each key, and periods that the watermark ends."""

from __future__ import annotations

from typing import Any, cast

from penstock.streams.protocol.event import Event
from penstock.streams.stages.forgetting import refuse_early_end
from penstock.streams.temporal.periods.intervals import LateInterval
from penstock.streams.temporal.periods.live_counts import LiveCounts
from penstock.streams.windows.stage import WindowStage

__all__ = ["CountingStage"]


class CountingStage(WindowStage):
    """Adds each row to those of its key, and sends the periods that the watermark has passed."""

    @property
    def _counts(self) -> LiveCounts:
        return cast(LiveCounts, self._windows)

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        if not self._is_stored:
            self._value_of = self._counted

    def _counted(self, event: Event[Any], _: float, key: Any) -> Any:
        refuse_early_end(self.info, (event,))
        return event.value

    def _why_late(self, event: Event[Any], watermark: float) -> Exception:
        return LateInterval(self._counts.why_late(event.value, watermark))

    def statistics(self) -> dict[str, Any]:
        """The end `points` that are remembered, or were in a run that has ended without a store, as
        `lost_points`, and the rows that are `open` by name, of the keys in memory; and rows that
        were skipped because they are `empty`."""
        numbers = super().statistics()
        points, lost = numbers.pop("open_windows"), numbers.pop("lost_windows")
        is_open = self._states.sum_of(lambda state: len(state.open))
        return {
            **numbers,
            "points": points,
            "lost_points": lost,
            "open": is_open,
            "empty": self._counts.empty,
        }
