"""Record the waiting and service time of each event in HDR histograms.

Items:   accepts every event. waiting = created to started, service = started to finished, total =
         their sum; an event without a handler started when it arrived here.
Time:    a report every `every` seconds if events came, and one at the end.
Memory:  the histograms.
Demand:  unbounded: it accepts at once, and never slows the pipeline.
Ends:    with the stream; the last report covers the whole run, and is not printed if no event
         came.
Errors:  what `report` raises, and a log that cannot be written, end the pipeline. Times beyond
         the histograms' range of an hour are counted.

    source                       --1--2--3--|
    latency_histogram(every=4)   ----R---R--R   R = a report
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from operator import add
from typing import TYPE_CHECKING, Any, TextIO

from penstock.streams.base import clock
from penstock.streams.base.errors import BuildError, CannotOpen, add_note, cancelled_inside
from penstock.streams.base.validation import is_positive
from penstock.streams.diagnostics.histogram import (
    IntervalLog,
    LatencyHistogram,
    Summary,
    render,
    require_interval_log,
)
from penstock.streams.protocol.event import Event, finish_all, give_back_all
from penstock.streams.protocol.stage import CLOSED
from penstock.streams.protocol.stage_info import Files, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["latency_histogram"]


Report = Callable[[dict[str, Summary]], None]


def _to_standard_error(summaries: dict[str, Summary]) -> None:
    # Looked up now, not at import: a status line replaces it. If it does not exist, print would use
    # standard output instead.
    if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison]
        # A closed or full standard error must not stop the pipeline.
        with suppress(OSError, ValueError):
            _print(summaries, sys.stderr)


def _print(summaries: dict[str, Summary], stream: TextIO) -> None:
    texts = [render(summary, name) for name, summary in summaries.items() if summary.count]
    if texts:
        print(*texts, sep="\n", file=stream, flush=True)


class latency_histogram(Sink[Any]):
    """Print count, min, max, mean, median and percentiles to standard error, in milliseconds.

    `every` is the seconds between reports (None: only one at the end), `log` the path of an
    interval log for the usual HDR tools (needs the extra `hdr`), and `report` a function that gets
    the summaries by name instead of having them printed (None: print nothing, and only fill
    `running.statistics()["latency"]`). Raises BuildError unless `every` is positive, MissingExtra
    for a `log` without the extra.
    """

    reads_values = False
    observes = True

    def __init__(
        self,
        every: float | None = 1.0,
        *,
        log: str | Path | None = None,
        report: Report | TextIO | None = _to_standard_error,
    ) -> None:
        if every is not None and not is_positive(every):
            raise BuildError(
                f"latency_histogram(every={every!r}): must be positive seconds; the path of a log "
                "is given by name, as latency_histogram(log=...)"
            )
        if log is not None:
            require_interval_log()
        detail = "" if every is None else f"every {every:g} s"
        self.info = StageInfo("latency_histogram", detail, 0, files=Files(path=log))
        self._every = every
        self._log = log
        self._report = report

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        report = self._report
        show = report if report is None or callable(report) else partial(_print, stream=report)
        return _Recording(run, closed, self._every, self._log, show)


def _opened(path: str | Path) -> TextIO:
    try:
        return open(path, "w", encoding="utf-8")
    except OSError as error:
        raise CannotOpen(f"Cannot write {path}: {error.strerror}.") from error


# Events whose times are counted together.
_TOGETHER = 512


class _Recording(BaseSinkStage):
    observes = True

    def __init__(
        self,
        run: Run,
        closed: Closed,
        every: float | None,
        log: str | Path | None,
        report: Report | None,
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
        # The statistics have the numbers of the first such sink.
        if run.latencies is None:
            run.latencies = self.latencies

    def on_events(self, events: list[Event[Any]], /) -> None:
        if self.state and self.state >= CLOSED:
            give_back_all(events)
            return
        waiting, service = self._waiting, self._service
        for event in events:
            started = event.started
            if started is None:
                started = event.started = event.ended = self._run.now()
            waiting.append((started - event.created) * 1e6)
            service.append((event.ended - started) * 1e6)
        if len(waiting) >= _TOGETHER:
            self._count()
        if self.finishes:
            finish_all(events)
        if self._timer is None and self._every is not None:
            self._timer = self._run.call_later(self._every, self.info, self._tick)

    def _count(self) -> None:
        """Count the times noted so far."""
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
        return {
            "waiting": 0,
            "latency": {n: asdict(s) for n, s in self._summaries(self.latencies()).items()},
        }

    def latencies(self) -> dict[str, LatencyHistogram]:
        """The histograms of the whole run so far, by name."""
        self._count()
        merged: dict[str, LatencyHistogram] = {}
        for name in self._whole:
            merged[name] = LatencyHistogram()
            merged[name].add(self._whole[name])
            merged[name].add(self._interval[name])
        return merged
