"""Record the waiting and service time of each event in HDR histograms.

Items:   accepts every event. waiting = created to started, service = started to finished, total =
         their sum; an event without a handler started when it arrived here. With `by`, the times of
         the keys with the most events are also counted by themselves.
Time:    a report every `every` seconds if events came, and one at the end.
Memory:  the histograms; with `by`, three of at most some 2,000 counts for 10 times `keys` keys.
Demand:  unbounded: it accepts at once, and never slows the pipeline.
Ends:    with the stream; the last report covers the whole run, and is not printed if no event
         came.
Errors:  what `report` and `by` raise, and a log that cannot be written, end the pipeline. Times
         beyond the histograms' range of an hour are counted.

    source                       --1--2--3--|
    latency_histogram(every=4)   ----R---R--R   R = a report
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By, Key, key_name
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import is_positive, require_count
from penstock.streams.diagnostics.histogram import (
    Summary,
    render,
    require_interval_log,
)
from penstock.streams.protocol.stage_info import Files, Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.latency_stage import LatencyStage, Report
from penstock.streams.stages.shown_arrow import check_stage, refuse_idle_stage
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["latency_histogram"]


def _to_standard_error(summaries: dict[str, Summary], where: str = "") -> None:
    # Looked up now, not at import: a status line replaces it. If it does not exist, print would use
    # standard output instead.
    if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison]
        # A closed or full standard error must not stop the pipeline.
        with suppress(OSError, ValueError):
            _print(summaries, sys.stderr, where)


def _print(summaries: dict[str, Summary], stream: TextIO, where: str) -> None:
    texts = [render(summary, where + name) for name, summary in summaries.items() if summary.count]
    if texts:
        print(*texts, sep="\n", file=stream, flush=True)


@recorded
class latency_histogram(Sink[Any]):
    """Print count, min, max, mean, median and percentiles to standard error, in milliseconds.

    `every` is the seconds between reports (None: only one at the end), `log` the path of an
    interval log for the usual HDR tools (needs the extra `hdr`), and `report` a function that gets
    the summaries by name instead of having them printed (None: print nothing, and only fill
    `running.statistics()["latency"]`).

    `by`, a field's name, an index or a function of the value, is a key: the report at the end of
    the run, the pages and `running.statistics()["stages"]` then have the times of the `keys` keys
    with the most events, and of all others together. With `stage`, the number of a stage that calls
    a handler (as in `penstock draw`), events are measured when they leave that stage, and not here.
    Raises BuildError unless `every` is positive, for a wrong `by`, `keys` or `stage`, and
    MissingExtra for a `log` without the extra.

    >>> from penstock import collect, from_iterable, latency_histogram, run
    >>> numbers = from_iterable([1, 2]).to(collect([]), latency_histogram(report=lambda text: None))
    >>> run(numbers).statistics["latency"]["total"]["count"]
    2
    """

    observes = True

    def __init__(
        self,
        every: float | None = 1.0,
        *,
        log: str | Path | None = None,
        report: Report | TextIO | None = _to_standard_error,
        by: By[Any] | None = None,
        keys: int = 20,
        stage: int | None = None,
    ) -> None:
        if every is not None and not is_positive(every):
            raise BuildError(
                f"latency_histogram(every={every!r}): must be positive seconds; the path of a log "
                "is given by name, as latency_histogram(log=...)"
            )
        if log is not None:
            require_interval_log()
        if by is not None:
            Key(by)
        require_count("latency_histogram", keys=keys)
        check_stage("latency_histogram", stage)
        details = (
            "" if every is None else f"every {every:g} s",
            "" if by is None else f"by {key_name(by)}",
            "" if stage is None else f"at stage {stage}",
        )
        self.info = StageInfo(
            "latency_histogram",
            ", ".join(filter(None, details)),
            0,
            files=Files(path=log),
            placement=Placement(reads=() if by is None else (by,)),
        )
        self.reads_values = by is not None
        self.stage = stage
        """The number of the stage whose events it measures; None: those that come here."""
        self._keys = keys
        self._by = by
        self._every = every
        self._log = log
        self._report = report

    def check_above(self, stages: Sequence[StageInfo]) -> None:
        refuse_idle_stage("latency_histogram", self.stage, stages)

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        report = self._report
        where = "" if self.stage is None else f"stage {self.stage}, "
        show: Report | None
        if report is _to_standard_error:
            show = partial(_to_standard_error, where=where)
        elif report is None or callable(report):
            show = report
        else:
            show = partial(_print, stream=report, where=where)
        return LatencyStage(
            run, closed, self._every, self._log, show, self._by, self._keys, self.stage
        )
