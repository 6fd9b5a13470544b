"""The running stage of `latency_histogram`: it notes the times of each event, and reports them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from operator import add
from typing import TYPE_CHECKING, Any, TextIO

from penstock.streams.base import clock
from penstock.streams.base.errors import CALL_ERRORS, CannotOpen, add_note, cancelled_inside
from penstock.streams.base.keys import By, key_function, key_name, lack_of
from penstock.streams.diagnostics.histogram import IntervalLog, LatencyHistogram, Summary
from penstock.streams.diagnostics.key_latencies import KeyLatencies
from penstock.streams.protocol.blame import fail_event
from penstock.streams.protocol.event import BaseEvent, Event, finish_all, give_back_all
from penstock.streams.protocol.stage import CLOSED
from penstock.streams.runtime.context import Run
from penstock.streams.stages.shown_arrow import ShownArrows
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LatencyStage", "Report"]

Report = Callable[[dict[str, Summary]], None]

# Events whose times are counted together.
_TOGETHER = 512


def _opened(path: str | Path) -> TextIO:
    try:
        return open(path, "w", encoding="utf-8")
    except OSError as error:
        raise CannotOpen(f"Cannot write {path}: {error.strerror}.") from error


class LatencyStage(BaseSinkStage):
    """Counts the times of every event in histograms, and reports those of each interval."""

    observes = True

    def __init__(
        self,
        run: Run,
        closed: Closed,
        every: int | float | None,
        log: str | Path | None,
        report: Report | None,
        by: By[Any] | None,
        keys: int,
        stage: int | None,
    ) -> None:
        super().__init__(closed)
        self._run = run
        self._every = every
        self._report = report
        self._whole = {name: LatencyHistogram() for name in ("waiting", "service", "total")}
        self._interval = {name: LatencyHistogram() for name in self._whole}
        # Microseconds that are not counted yet: a count costs much the same for many as for one.
        self._waiting: list[float] = []
        self._service: list[float] = []
        self._timer: asyncio.TimerHandle | None = None
        self._file = None if log is None else _opened(log)
        self._offset = clock.wall() - run.now()
        self._since = run.now()
        self._log = None if self._file is None else IntervalLog(self._file, clock.wall())
        # Reads the key of a value, if the times are counted by keys too, each with its own.
        self._key = None if by is None else key_function(by)
        self._by = by
        self._by_key = KeyLatencies(keys)
        self._times: dict[Any, tuple[list[float], list[float]]] = {}
        # The stage whose events are measured; None: those that come here.
        self._stage = stage
        if stage is not None:
            ShownArrows(run, lambda number: self._measure if number == stage else None)
        # The statistics and metrics have the numbers of the first such sink.
        run.latencies.setdefault(stage, self.latencies)

    def on_events(self, events: list[Event[Any]], /) -> None:
        if self.state and self.state >= CLOSED:
            give_back_all(events)
            return
        if self._stage is None:
            self._measure(events)
            if self.state and self.state >= CLOSED:
                # A key could not be read. Where there are other sinks, they have the events.
                if self.finishes:
                    give_back_all(events)
                return
        if self.finishes:
            finish_all(events)

    def _measure(self, events: list[Event[Any]]) -> None:
        if self.state and self.state >= CLOSED:
            return
        waiting, service = self._waiting, self._service
        event: BaseEvent
        for event in events:
            started = event.started
            if started is None:
                started = event.started = event.ended = self._run.now()
            waiting.append((started - event.created) * 1e6)
            service.append((event.ended - started) * 1e6)
        key = self._key
        if key is not None and not self._note_keys(key, events, len(waiting) - len(events)):
            return
        if len(waiting) >= _TOGETHER:
            self._count()
        if self._timer is None and self._every is not None:
            self._timer = self._run.call_later(self._every, self.info, self._tick)

    def _note_keys(
        self, key_of: Callable[[Any], Any], events: list[Event[Any]], place: int
    ) -> bool:
        """Note the times of events by their keys; whether they could all be read.

        The times are those from this place on. An error of the user's ends the pipeline.
        """
        times, waiting, service = self._times, self._waiting, self._service
        noted = self._current
        outer, noted.stage = noted.stage, self
        try:
            for event in events:
                try:
                    key = key_of(event.value)
                    own = times.get(key)
                    if own is None:
                        own = times[key] = [], []
                except CALL_ERRORS as raised:
                    error = fail_event(event, raised, self.info)
                    if self._by is not None and (lack := lack_of(event.value, self._by)):
                        add_note(error, lack)
                    self.upstream.cancel()
                    self.close(error)
                    return False
                own[0].append(waiting[place])
                own[1].append(service[place])
                place += 1
        finally:
            noted.stage = outer
        return True

    def _count(self) -> None:
        """Count the times noted so far."""
        if self._times:
            self._by_key.count(self._times)
            self._times.clear()
        waiting, service, interval = self._waiting, self._service, self._interval
        interval["waiting"].count(waiting)
        interval["service"].count(service)
        interval["total"].count(list(map(add, waiting, service)))
        waiting.clear()
        service.clear()

    def _tick(self) -> None:
        self._timer = None
        try:
            self._end_interval()
            self._show(self._last)
        except Exception as error:
            add_note(error, f"in the report of {self.info}")
            self.upstream.cancel()
            self.close(error)

    def _end_interval(self) -> None:
        self._count()
        now = self._run.now()
        for name, histogram in self._interval.items():
            self._whole[name].add(histogram)
            if self._log is not None:
                offset = self._offset
                self._log.write(histogram, self._since + offset, now + offset, tag=name)
        self._since = now
        self._last, self._interval = self._interval, {n: LatencyHistogram() for n in self._whole}

    def _show(self, histograms: dict[str, LatencyHistogram]) -> None:
        if self._report is not None:
            try:
                self._report(self._summaries(histograms))
            except asyncio.CancelledError as error:
                raise cancelled_inside(f"the report of {self.info}", error) from error

    @staticmethod
    def _summaries(histograms: dict[str, LatencyHistogram]) -> dict[str, Summary]:
        return {name: histogram.snapshot() for name, histogram in histograms.items()}

    def close(self, error: BaseException | None = None) -> None:
        if self.state >= CLOSED:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            self._end_interval()
            self._show(self._whole)
            if self._file is not None:
                self._file.close()
        except Exception as raised:
            if error is None:
                error = raised
            elif raised is not error:
                self._run.late_error(raised)
        super().close(error)

    def statistics(self) -> dict[str, Any]:
        """`latency`: the summaries of the whole run so far, by name, as dicts; in seconds."""
        numbers: dict[str, Any] = {
            "waiting": 0,
            "of_stage": self._stage,
            "latency": {n: asdict(s) for n, s in self._summaries(self.latencies()).items()},
        }
        if self._by is not None:
            # They were counted with the latencies.
            hottest, others = self._by_key.statistics()
            numbers |= {"by": key_name(self._by), "by_key": hottest, "other_keys": others}
        return numbers

    def latencies(self) -> dict[str, LatencyHistogram]:
        """The histograms of the whole run so far, by name."""
        self._count()
        merged: dict[str, LatencyHistogram] = {}
        for name in self._whole:
            merged[name] = LatencyHistogram()
            merged[name].add(self._whole[name])
            merged[name].add(self._interval[name])
        return merged
