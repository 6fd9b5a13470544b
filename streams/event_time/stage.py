"""The stage that reads the times of events, and emits them on time lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from penstock.streams.base.ahead import Ahead
from penstock.streams.base.errors import CALL_ERRORS, own_error
from penstock.streams.base.keys import By, Key
from penstock.streams.base.validation import seconds_of
from penstock.streams.event_time.line import TimeLine
from penstock.streams.event_time.source_time import SourceTime
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.protocol.event import BaseEvent, Count, Event, Origin, by_origin
from penstock.streams.protocol.partitions import Partitioned
from penstock.streams.protocol.stage import BaseStage, Subscriber, Subscription
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run

__all__ = ["EventTimeStage", "WholeTimeStage"]


class EventTimeStage(BaseStage):
    """Emits the events unchanged, each with its time."""

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        field: By[Any],
        time: SourceTime,
        ahead: Ahead,
        faults: KeyFaults,
    ) -> None:
        super().__init__(downstream)
        self._run = run
        self._info = info
        self._current = run.current
        self._key = Key(field)
        self._time = time
        time.when_let_go = self._go_on
        self._ahead = ahead
        self._faults = faults
        # Requested of a source that waits for others.
        self._withheld = 0

    def on_subscribe(self, subscription: Subscription, /) -> None:
        source = subscription
        while isinstance(source, BaseStage):
            source = source.upstream
        if isinstance(source, Partitioned):
            self._time.watch(source)
        super().on_subscribe(subscription)

    def request(self, n: Count, /) -> None:
        whole = self._time.whole
        if whole is not None and whole.is_held:
            self._withheld += n
            return
        self._time.demand.requested(n)
        self.upstream.request(n)

    def _go_on(self) -> None:
        """The events of other sources have come as far."""
        # Soon: nothing is emitted while the watermark is looked at.
        self._run.call_soon(None, self._request_withheld)

    def _request_withheld(self) -> None:
        n, self._withheld = self._withheld, 0
        if n and not self.state:
            self.request(n)

    def _request_again(self, n: Count) -> None:
        self.request(n)

    def on_events(self, events: list[Event[Any]], /) -> None:
        count = len(events)
        self._time.demand.came(count)
        passed: list[Event[Any]] = []
        while True:
            times, error = self._current.call(self, self._times, events)
            place = len(times)
            if error is None:
                passed += self._emitted(events, times)
                break
            passed += self._emitted(events[:place], times)
            bad, events = events[place], events[place + 1 :]
            if not self._faults.survives(bad, error):
                self._run.stopping(error)
                self._fail(error, passed, events)
                self._time.close()
                return
        self._let_pass(passed, count)

    def _times(self, events: list[Event[Any]]) -> tuple[list[float], Exception | None]:
        """The times of the events up to one whose time cannot be read, and its error."""
        key = self._key
        latest = self._ahead.latest()
        times: list[float] = []
        stamp: Any
        event: BaseEvent
        get = key.get
        for event in events:
            try:
                try:
                    stamp = get(event.value)
                except CALL_ERRORS:
                    if not key.adapts(event.value):
                        raise
                    get = key.get
                    stamp = get(event.value)
                time = stamp if stamp.__class__ is float else seconds_of(stamp)
                # NaN is outside these bounds too.
                if not -latest <= time <= latest:
                    time = seconds_of(stamp)
                    self._ahead.check(time, stamp)
            except CALL_ERRORS as raised:
                return times, own_error(raised)
            times.append(time)
        return times, None

    def _emitted(self, events: list[Event[Any]], times: list[float]) -> list[Event[Any]]:
        begin = 0
        for line, origin, part in self._parts(events):
            end = begin + len(part)
            line.emit(origin, part, times[begin:end])
            begin = end
        return events

    def _parts(
        self, events: list[Event[Any]]
    ) -> Iterator[tuple[TimeLine, Origin, list[Event[Any]]]]:
        """The lists of successive events that have one line and one origin."""
        whole = self._time.whole
        if whole is not None:
            for origin, part in by_origin(events):
                yield whole, origin, part
        else:
            parts: Iterable[Event[Any]]
            for (line, origin), parts in groupby(events, self._time.place):
                yield line, origin, list(parts)

    def on_completed(self) -> None:
        if self._run.pauses.input_ended:
            self._time.end()
        super().on_completed()
        self._time.close()

    def on_error(self, error: BaseException, /) -> None:
        super().on_error(error)
        self._time.close()

    def cancel(self) -> None:
        super().cancel()
        self._time.close()

    def statistics(self) -> dict[str, Any]:
        """How many events were `skipped` or `routed` because their time cannot be read, and the
        `watermarks` of the time lines."""
        return {**self._faults.statistics(), **self._time.statistics()}


class WholeTimeStage(EventTimeStage):
    """Has one time line for all events, whatever partitions they are of."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        BaseStage.on_subscribe(self, subscription)
