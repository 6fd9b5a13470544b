"""The stage that pairs events with the newest rows of a table, of which it has all.

table ──┐
        lookup ──> events with their rows
events ─┘
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.streams.base.errors import CALL_ERRORS, own_error
from penstock.streams.base.keys import By, key_function
from penstock.streams.base.take_front import taken
from penstock.streams.failures.policy import OnError
from penstock.streams.joins.rows import LEFT, RIGHT
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.protocol.event import Event, finish_all, give_back_all
from penstock.streams.protocol.stage import CLOSED, Subscriber, send_list
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.several import Several, Waiting
from penstock.streams.stages.stream import Stream

__all__ = ["ROWS_AHEAD", "WholeStage"]

ROWS_AHEAD = 1_000
"""Rows that are requested at a time. They end when they come, so that none of them waits."""


class WholeStage(Several):
    """Sends each event with the newest row of its key, in the order in which they came.

    No event is requested before the table has all rows that were there at the beginning: `reading`
    makes the stream of them, given the function to call then. Without it the table has them when
    its stream has ended.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        bys: tuple[By[Any], By[Any]],
        on_error: OnError,
        reading: Callable[[Callable[[], object]], Any] | None,
        *,
        streams: Sequence[Stream[Any]],
        prefetch: int,
    ) -> None:
        super().__init__(downstream, run, info, streams, prefetch)
        table = self.inputs[RIGHT]
        table.prefetch = ROWS_AHEAD
        if reading is not None:
            source = streams[RIGHT].chain()[0]
            part = table.part
            part.overrides = part.overrides.with_other(source, reading(self._has_come))
        self._is_whole = False
        self._rows: dict[Any, Any] = {}
        self._keys = [key_function(by) for by in bys]
        self._faults = [KeyFaults(on_error, run, info, by) for by in bys]
        self._found = self._missing = 0

    def _has_come(self) -> None:
        self._is_whole = True
        self._drain()

    def over(self, source: Any, error: BaseException | None, /) -> None:
        # Where sources are stopped, the rows that have come may not be all.
        if source is self.inputs[RIGHT] and error is None and not self.run.drains:
            self._is_whole = True
        super().over(source, error)

    # Rows.

    def arrived(self, source: Waiting, events: list[Event[Any]]) -> None:
        if source is self.inputs[LEFT]:
            super().arrived(source, events)
            return
        done: list[Event[Any]] = []
        for at, event in enumerate(events):
            try:
                key = self._keys[RIGHT](event.value)
                if key is not None:
                    self._rows[key] = event.value
            except CALL_ERRORS as raised:
                error = own_error(raised)
                if not self._faults[RIGHT].survives(event, error):
                    give_back_all(events[at + 1 :])
                    self._failure = self._failure or error
                    break
            else:
                done.append(event)
        finish_all(done)

    # Events.

    def combine(self) -> bool:
        waiting = self.inputs[LEFT].events
        if self.demand and waiting:
            self._pair(taken(waiting, min(self.demand, len(waiting))))
            return True
        stays_partial = self.inputs[RIGHT].is_over and not self._is_whole
        if stays_partial or self.inputs[LEFT].has_ended:
            self.finish()
        return False

    def _pair(self, events: list[Event[Any]]) -> None:
        paired: list[Event[Any]] = []
        stopped: Exception | None = None
        for at, event in enumerate(events):
            try:
                key = self._keys[LEFT](event.value)
                row = None if key is None else self._rows.get(key)
            except CALL_ERRORS as raised:
                error = own_error(raised)
                if not self._faults[LEFT].survives(event, error):
                    give_back_all(events[at + 1 :])
                    stopped = error
                    break
                continue
            if row is None:
                self._missing += 1
            else:
                self._found += 1
            event.value = event.value, row
            paired.append(event)
        if self.state >= CLOSED:
            # The function of the key may have cancelled the pipeline.
            give_back_all(paired)
        elif paired:
            self.demand -= len(paired)
            send_list(self.downstream, paired)
        if stopped is not None:
            self.fail(stopped)

    def fill(self) -> bool:
        filled = self.inputs[RIGHT].fill(ROWS_AHEAD)
        if self._is_whole:
            filled |= self.inputs[LEFT].fill(self.demand)
        return filled

    def statistics(self) -> dict[str, Any]:
        """Events that were sent with a row, `found`, and without one, `missing`; the `rows` of the
        table; whether it `is_whole`, so that events are read; and the events that are `waiting` for
        demand."""
        faults = [one.statistics() for one in self._faults]
        return {
            "found": self._found,
            "missing": self._missing,
            "rows": len(self._rows),
            "is_whole": self._is_whole,
            "waiting": len(self.inputs[LEFT].events),
            **{name: faults[LEFT][name] + faults[RIGHT][name] for name in faults[LEFT]},
        }
