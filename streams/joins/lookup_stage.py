"""The stage with the rows of a table, and the events that wait until all rows of their times have
come.

table ──> event_time ──> in flight ──┐
                                     lookup ──> events with their rows
events ──> event_time ──> in flight ─┘
"""

from __future__ import annotations

from math import inf
from typing import Any, cast

from penstock.streams.joins.rows import LEFT
from penstock.streams.joins.stage import LateRow, SidedStage
from penstock.streams.joins.versions import VersionedRows
from penstock.streams.protocol.event import Event
from penstock.streams.state.changes import Cell, Root
from penstock.streams.windows.states import Added, Asked, Closed

__all__ = ["LookupStage"]


class LookupStage(SidedStage):
    """Sends each event with the row of a table that is valid at its time, or now."""

    def __init__(self, *options: Any) -> None:
        *rest, is_timed = options
        super().__init__(*rest)
        self._found = self._missing = 0
        if not is_timed:
            self._stamp_of = self._stamp_of_row

    @property
    def _rows(self) -> VersionedRows:
        return cast(VersionedRows, self._windows)

    def _stamp_of_row(self, event: Event[Any]) -> float:
        """The time of a row; an event has none, and comes after all rows so far."""
        return inf if event.value[0] == LEFT else self._clock.stamp(event)

    def _note(self, cell: Cell, root: Root, done: Any) -> None:
        if done.__class__ is Added and not self._rows.has_changed:
            cell.used = True
        else:
            super()._note(cell, root, done)

    def _has_added(self, event: Event[Any], cell: Cell, dropped: list[Event[Any]]) -> None:
        found = self._rows.found
        if found:
            self._count(found)
            self._emit(event, found)
        else:
            dropped.append(event)
        self._forget_empty(cell)

    def _send(self, cell: Cell, found: list[Any], done: Closed | Asked) -> None:
        self._count(found)
        super()._send(cell, found, done)

    def _count(self, found: list[tuple[Any, Any]]) -> None:
        missing = sum(row is None for _, row in found)
        self._missing += missing
        self._found += len(found) - missing

    def _why_late(self, event: Event[Any], watermark: float) -> Exception:
        return LateRow(
            f"rows that were valid at its time may be gone: that was passed by more than keep= of "
            f"the table at the watermark {watermark}"
        )

    def _lost_of(self, state: Any) -> int:
        return self._rows.waiting(state)

    def statistics(self) -> dict[str, Any]:
        """How many `rows` of the keys in memory are kept, also older ones, and how many `events` of
        these keys wait, or did in a run that has ended without a store, as `lost_events`; events
        that were sent with a row, `found`, and without one, `missing`; events that were `late`,
        which are among those `skipped` or `routed`; and the `watermark`, None before the first
        event and after the last."""
        numbers = super().statistics()
        rows, lost = numbers.pop("open_windows"), numbers.pop("lost_windows")
        return {
            **numbers,
            "late": numbers["late"],
            "watermark": numbers["watermark"],
            "rows": rows,
            "events": self._states.sum_of(self._rows.waiting),
            "lost_events": lost,
            "found": self._found,
            "missing": self._missing,
        }
