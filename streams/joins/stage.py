"""The stage with the rows of each key on both sides: a row is paired when it comes, and leaves when
the watermark has passed its time.

event_time ──> in flight ──┐
                           join ──> pairs, and rows without a partner
event_time ──> in flight ──┘
"""

from __future__ import annotations

from typing import Any, cast

from orjson import loads

from penstock.streams.base.errors import WrongType, describe
from penstock.streams.base.keys import By
from penstock.streams.failures.policy import OnError
from penstock.streams.joins.rows import PairedRows, Sided
from penstock.streams.joins.sides import SidedFaults, SidedKey, SidedPolicy
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.state.changes import Cell
from penstock.streams.state.codec import encoded
from penstock.streams.state.commits import Commits
from penstock.streams.windows.stage import WindowStage
from penstock.streams.windows.states import Asked, Closed, WindowStates

__all__ = ["JoinStage", "LateRow"]


class LateRow(Exception):
    """A row that could have no partner any more when it was emitted."""


class JoinStage(WindowStage):
    """Sends each row with its partners, and those without one when none can come any more."""

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        by: By[Any],
        rows: PairedRows,
        clock: Any,
        states: WindowStates,
        commits: Commits,
        late: OnError,
        on_error: OnError,
        is_stored: bool,
    ) -> None:
        windows: Any = rows
        key: Any = SidedKey(by)
        options = None, late, on_error, is_stored
        super().__init__(downstream, run, info, by, windows, clock, states, commits, *options)
        self._key = key
        self._faults = SidedFaults(on_error, run, info, by)
        self._late = SidedPolicy(late, run, info)
        self._value_of = self._row_of
        self._pairs = self._unpaired = 0

    @property
    def _rows(self) -> PairedRows:
        return cast(PairedRows, self._windows)

    def _row_of(self, event: Event[Any], _: float, key: Any) -> Sided:
        side, value, _ = event.value
        if self._is_stored:
            _check_plain(value)
        return Sided(side, value, key is not None)

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
        if found or self._is_stored:
            super()._send(cell, found, done)
        else:
            # Most rows leave without a result.
            self._states.follow(cell)
            self._forget_empty(cell)
            self._timers.note(cell)

    def _why_late(self, event: Event[Any], watermark: float) -> Exception:
        return LateRow(
            f"it can have no partner any more: its time was passed by more than within= at the "
            f"watermark {watermark}"
        )

    def statistics(self) -> dict[str, Any]:
        """Events that were `late`, which are among those `skipped` or `routed`; how many `rows` of
        the keys in memory wait for partners, or did in a run that has ended without a store, as
        `lost_rows`; the `pairs` so far, and the rows that were let go `unpaired`; and the
        `watermark`, None before the first event and after the last."""
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


def _check_plain(value: Any) -> None:
    """Raise WrongType for a row that would come back from a store as another one."""
    try:
        is_same = loads(encoded(value)) == value
    except (TypeError, ValueError):
        is_same = False
    if not is_same:
        raise WrongType(
            f"join(store=) keeps rows as JSON, and {describe(value, 80)} would come back as "
            "another value: make a dict, a list, a text or a number of it in front of the join, as "
            "by ops.map(dataclasses.asdict)"
        )
