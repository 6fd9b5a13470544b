"""The stage behind `count_over_time`: reads the rows, and emits periods when they become final."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.streams.base.errors import describe
from penstock.streams.base.keys import By
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.failures.policy import OnError
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.flat_map import Expanding
from penstock.streams.stages.forgetting import refuse_early_end
from penstock.streams.temporal.periods.intervals import (
    IntervalError,
    LateInterval,
    Period,
    Watermark,
    amount,
    reader,
)
from penstock.streams.temporal.periods.live_counts import LiveCounts

__all__ = ["Counting", "Reading"]


class Reading:
    """Reads the fields of a row and passes them to the counts."""

    def __init__(
        self,
        by: By[Any] | None,
        begin: By[Any],
        end: By[Any],
        of: By[Any] | None,
        id: By[Any] | None,
    ) -> None:
        self._key = _nothing if by is None else reader(by)
        self._of = _nothing if of is None else _amount_of(reader(of))
        self._id = None if id is None else reader(id)
        self._begin = reader(begin, optional=id is not None)
        self._end = reader(end, optional=True)

    def insert(self, row: Any, counts: LiveCounts) -> Any:
        """Pass the row on; returns its beginning as a point, None if it only closes another or is
        empty."""
        begin, end = self._begin(row), self._end(row)
        if self._id is None or (begin is not None and end is not None):
            return counts.insert(self._key(row), begin, end, self._of(row))
        if begin is not None:
            return counts.open(self._id(row), self._key(row), begin, self._of(row))
        if end is None:
            raise IntervalError(f"the row {describe(row)} has neither a beginning nor an end")
        counts.close(self._id(row), end)
        return None


def _nothing(_: Any) -> None:
    return None


def _amount_of(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda row: amount(read(row))


class Counting(Expanding):
    """Feeds rows and watermarks to the counts, and emits the periods that become final."""

    def __init__(
        self,
        downstream: Subscriber[Period],
        run: Run,
        info: StageInfo,
        counts: LiveCounts,
        read: Reading,
        late: OnError,
        on_error: OnError,
    ) -> None:
        super().__init__(downstream, run, info)
        self._counts = counts
        self._late = ErrorPolicy(late, run, info)
        self._faults = ErrorPolicy(on_error, run, info)
        self._read = read

    def answer(self, event: Event[Any]) -> Iterable[Period]:
        refuse_early_end(self.info, (event,))
        value = event.value
        if isinstance(value, Watermark):
            return self._counts.advance(value.time)
        begin = self._read.insert(value, self._counts)
        return () if begin is None else self._counts.follow(begin)

    def rest(self) -> Iterable[Period]:
        return self._counts.rest()

    def survives(self, event: Event[Any], error: Exception) -> bool:
        faults = self._late if isinstance(error, LateInterval) else self._faults
        return faults.survives(event, error)

    def statistics(self) -> dict[str, Any]:
        """The size of the memory, and how many rows were `late`, `skipped` and `routed`."""
        return {
            **super().statistics(),
            **self._counts.statistics(),
            "late": self._late.skipped + self._late.routed,
            "skipped": self._faults.skipped + self._late.skipped,
            "reverted": self._faults.reverted + self._late.reverted,
            "routed": self._faults.routed + self._late.routed,
        }
