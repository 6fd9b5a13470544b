"""The stage with the rows of each key on both sides: a row is paired when it comes, and leaves when
the watermark has passed its time.

event_time ──> in flight ──┐
                           join ──> pairs, and rows without a partner
event_time ──> in flight ──┘
"""

from __future__ import annotations

from typing import Any, cast

from penstock.streams.joins.rows import PairedRows
from penstock.streams.joins.stage import LateRow, SidedStage
from penstock.streams.protocol.event import Event
from penstock.streams.state.changes import Cell
from penstock.streams.windows.states import Asked, Closed

__all__ = ["JoinStage"]


class JoinStage(SidedStage):
    """Sends each row with its partners, and those without one when none can come any more."""

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self._pairs = self._unpaired = 0

    @property
    def _rows(self) -> PairedRows:
        return cast(PairedRows, self._windows)

    def _has_added(self, event: Event[Any], cell: Cell, dropped: list[Event[Any]]) -> None:
        rows = self._rows
        if rows.unpaired:
            self._unpaired += 1
        else:
            self._pairs += len(rows.found)
        if not rows.found:
            dropped.append(event)
        else:
            self._emit(event, rows.found)

    def _send(self, cell: Cell, found: list[Any], done: Closed | Asked) -> None:
        self._unpaired += self._rows.unpaired
        super()._send(cell, found, done)

    def _why_late(self, event: Event[Any], watermark: float) -> Exception:
        return LateRow(
            f"it can have no partner any more: its time was passed by more than within= at the "
            f"watermark {watermark}"
        )

    def _lost_of(self, state: Any) -> int:
        return self._rows.alone(state)

    def statistics(self) -> dict[str, Any]:
        """Events that were `late`, which are among those `skipped` or `routed`; how many `rows` of
        the keys in memory are kept for partners that may come; how many rows had none in a run that
        has ended without a store, `lost_rows`; the `pairs` so far, and the rows that were let go
        `unpaired`; and the `watermark`, None before the first event and after the last."""
        numbers = super().statistics()
        rows, lost = numbers.pop("open_windows"), numbers.pop("lost_windows")
        return {
            **numbers,
            "late": numbers["late"],
            "watermark": numbers["watermark"],
            "rows": rows,
            "lost_rows": lost,
            "pairs": self._pairs,
            "unpaired": self._unpaired,
        }
