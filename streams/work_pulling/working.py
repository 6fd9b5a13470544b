"""The pipeline of a worker: its jobs, a working stage, and the reports."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, Protocol

from penstock.streams.base.errors import BuildError
from penstock.streams.base.validation import is_async
from penstock.streams.execution.handler import check_handler
from penstock.streams.execution.options import CallOptions
from penstock.streams.execution.plain_stage import working_stage
from penstock.streams.execution.worker_stage import WorkerStage
from penstock.streams.failures.policy import DeadLetter, LettersOnly, routed_by
from penstock.streams.limits.choice import Limit, limiter_for
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.pipelines.pipeline import Pipeline
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

__all__ = ["UNREPORTED", "GivenUp", "JobSource", "worker"]

# The most results that wait for demand, or until the master has them.
UNREPORTED = 512


class JobSource(Protocol):
    """Supplies the jobs of one worker, and takes their outcomes."""

    def succeeded(self, event: Event[Any], reported: Callable[[], None]) -> None:
        """Report the value of a job's event; when the master knows, finish the event and call
        `reported`."""

    def failed_for_good(self, event: Event[DeadLetter], reported: Callable[[], None]) -> None:
        """The same for a job that failed for good."""


class Job(Protocol):
    """The token of a job's event."""

    @property
    def source(self) -> JobSource:
        """The worker that has the job."""
        ...


def worker(jobs: Flowable[Any], limit: Limit, options: CallOptions) -> Pipeline:
    """The pipeline that processes `jobs` and reports; raises BuildError for invalid options."""
    handler, name, timeout = options.handler, options.name, options.timeout
    check_handler(handler, "work")
    if inspect.isasyncgenfunction(handler):
        raise BuildError(f"work({name}): a job has one result; return a list of several")
    if timeout is not None and not (timeout > 0 and is_async(handler)):
        raise BuildError(
            f"work({name}, timeout={timeout!r}): needs positive seconds and an async handler; "
            "wrap a plain one in in_threads(n)(...) or in_processes(n)(...)"
        )
    limiter_for(limit)

    def make(downstream: Subscriber[Any], run: Run, info: StageInfo) -> WorkerStage:
        own = limiter_for(copy.deepcopy(limit if run.limit is None else run.limit))
        return working_stage(downstream, run, info, options, own)

    info = StageInfo("work", name, None, routed=routed_by(options.on_error))
    return jobs.then(make, info).to(_Done())


class _Done(Sink[Any]):
    """Reports results."""

    info = StageInfo("report", "", UNREPORTED)

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        return _Reporting(closed)


class GivenUp(Sink[DeadLetter], LettersOnly):
    """Reports jobs that failed for good."""

    info = StageInfo("report failures", "", UNREPORTED)

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        return _Reporting(closed, failures=True)


class _Reporting(BaseSinkStage):
    """Requests another event for each one that the master knows of."""

    asks_first = UNREPORTED

    def __init__(self, closed: Closed, *, failures: bool = False) -> None:
        super().__init__(closed)
        self._failures = failures
        self._open = 0

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._open += len(events)
        for event in events:
            job: Job = event.token
            report = job.source.failed_for_good if self._failures else job.source.succeeded
            report(event, self._reported)

    def _reported(self) -> None:
        self._open -= 1
        if self.state:
            self.end_if_idle()
        else:
            self.upstream.request(1)

    @property
    def is_idle(self) -> bool:
        return not self._open

    def statistics(self) -> dict[str, Any]:
        """The number of outcomes that the master does not know of yet."""
        return {"unreported": self._open}
