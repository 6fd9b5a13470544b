"""The stage with the rows of each key on both sides: a row is paired when it comes, and leaves when
the watermark has passed its time.

event_time ──> in flight ──┐
                           join ──> pairs, and rows without a partner
event_time ──> in flight ──┘
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from penstock.streams.base.keys import By
from penstock.streams.event_time.above import Timed
from penstock.streams.event_time.clock import Watermark
from penstock.streams.event_time.result_time import ResultTime
from penstock.streams.joins.rows import Paired, PairedRows
from penstock.streams.joins.stage import LateRow, SidedStage
from penstock.streams.protocol.event import Count, Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.state.changes import Cell
from penstock.streams.windows.states import Asked, Closed

__all__ = ["JoinStage"]


class JoinStage(SidedStage):
    """Sends each row with its partners, and those without one when none can come any more."""

    _times: ResultTime

    def __init__(
        self,
        timed: Timed,
        within: float,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        bys: tuple[By[Any], By[Any]],
        rows: PairedRows,
        clock: Callable[..., Watermark],
        *options: Any,
    ) -> None:
        self._pairs = self._unpaired = 0

        def made(*calls: Any) -> Watermark:
            watermark = clock(*calls)
            self._times = times = watermark.results(timed, run, str(info), within, self._is_over)
            times.when_let_go = self._go_on_soon
            if run is not run.root or info.within is not None:
                times.may_leave = True
                times.on_gone(partial(timed.remove, run, times))
            return watermark

        # The stage may begin before this has returned.
        super().__init__(downstream, run, info, bys, rows, made, *options)

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

    # The times of results.

    def _made_of(self, event: Event[Any], found: list[Paired]) -> list[Event[Any]]:
        made = super()._made_of(event, [result for _, result in found])
        if self._times.is_read:
            self._times.stamp(made, [time for time, _ in found])
        return made

    def fire(self) -> None:
        super().fire()
        if self._times.is_read and not self._is_more_due():
            self._times.follow(self._clock.watermark)

    def _is_more_due(self) -> bool:
        """Whether rows are to leave by the watermark of now."""
        timers = self._timers
        return self._is_reading or self._again.is_set or timers.is_behind or timers.is_due

    def _is_over(self) -> bool:
        """Whether no row is kept that may leave without a partner."""
        return self._is_nothing_due(self._timers)

    def undone(self, cell: Cell, /) -> None:
        super().undone(cell)
        self._times.went_back()

    def ask(self, n: Count) -> None:
        if not self._times.is_held:
            super().ask(n)

    def _go_on_soon(self) -> None:
        # Nothing is emitted while a stage below looks at its watermark.
        self.run.call_soon(self.info, self._drain)

    def complete(self) -> None:
        if self.error is None and self.run.pauses.input_ended:
            self._times.end()
        super().complete()

    def release(self) -> None:
        super().release()
        self._times.close()

    # Results.

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
