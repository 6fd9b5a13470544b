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

import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from penstock.streams.base.errors import BuildError
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import is_positive
from penstock.streams.diagnostics.histogram import (
    Summary,
    render,
    require_interval_log,
)
from penstock.streams.protocol.stage_info import Files, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.latency_stage import LatencyStage, Report
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["latency_histogram"]


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


@recorded
class latency_histogram(Sink[Any]):
    """Print count, min, max, mean, median and percentiles to standard error, in milliseconds.

    `every` is the seconds between reports (None: only one at the end), `log` the path of an
    interval log for the usual HDR tools (needs the extra `hdr`), and `report` a function that gets
    the summaries by name instead of having them printed (None: print nothing, and only fill
    `running.statistics()["latency"]`). Raises BuildError unless `every` is positive, MissingExtra
    for a `log` without the extra.

    >>> from penstock import collect, from_iterable, latency_histogram, run
    >>> numbers = from_iterable([1, 2]).to(collect([]), latency_histogram(report=lambda text: None))
    >>> run(numbers).statistics["latency"]["total"]["count"]
    2
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
        return LatencyStage(run, closed, self._every, self._log, show)
