"""A running pipeline: watch it, pause it, drain it, cancel it.

run → drain (stop the source, finish what is in, flush the sinks, within a deadline) → closed.
The end of the input drains without a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from streams.errors import BuildError, DrainTimeout, MissingExtra, OutputClosed
from streams.flowable import Flowable
from streams.fork import Fork
from streams.limits.choice import Limit, limiter_for
from streams.run import Run
from streams.sink import Sink, SinkStage

__all__ = ["Outcome", "Report", "Running"]

Outcome = Literal["completed", "drained", "output closed", "stopped", "overrun", "cancelled"]


@dataclass(frozen=True, slots=True)
class Report:
    """How a running ended. `statistics` is the last snapshot; `error` is what stopped it."""

    outcome: Outcome
    statistics: dict[str, Any]
    error: BaseException | None = None

    @property
    def exit_status(self) -> int:
        """What a process should exit with.

        0 all finished; 1 stopped by an error; 2 an input or output cannot be opened, or the
        pipeline cannot be built after all; 3 completed, but some lines or events were bad,
        skipped or routed; 4 drained on a signal, nothing lost; 5 cancelled or past the deadline
        with unfinished events.
        """
        numbers = self.statistics
        if self.outcome == "stopped":
            return 2 if isinstance(self.error, BuildError | MissingExtra) else 1
        if self.outcome in ("overrun", "cancelled"):
            return 5
        if numbers["failed"] or numbers["bad_lines"]:
            return 3
        return 4 if self.outcome == "drained" else 0


class Running:
    """One running of a pipeline; made by `Pipeline.start` on a running loop."""

    def __init__(
        self,
        flowable: Flowable[Any],
        sinks: Sequence[Sink[Any]],
        drain_deadline: float,
        limit: tuple[int, int] | None = None,
    ) -> None:
        self._run = run = Run(drain_deadline, limit)
        run.loop  # noqa: B018 - raises NoLoop here rather than in some stage
        self._started = run.now()
        self._ended: float | None = None
        self._outcome: Outcome = "completed"
        self._error: BaseException | None = None
        self._state = "running"
        self._report: Report | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._done: asyncio.Future[None] = run.loop.create_future()
        self._closing: asyncio.Task[None] | None = None
        self._open_sinks = len(sinks)
        run.on_failure(self._failed)
        run.on_stopping = self._stopping
        self._flowable = flowable
        self._sinks: list[SinkStage[Any]] = [
            sink.open(run, lambda error, i=i: self._sink_closed(i, error))
            for i, sink in enumerate(sinks)
        ]
        self._closed_sinks = [False] * len(sinks)
        self._sink_infos = [sink.info for sink in sinks]
        self._head = self._sinks[0] if len(sinks) == 1 else Fork(self._sinks)
        # The caller gets the handle first; the stream begins with the loop's next step.
        self._attaching: asyncio.Handle | None = run.loop.call_soon(self._attach)

    def _attach(self) -> None:
        self._attaching = None
        try:
            self._flowable.attach(self._head, self._run)
        except Exception as error:
            self._failed(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.cancel()
            await self._until_closed()
        else:
            await self.wait()

    async def wait(self) -> Report:
        """Wait for the end. Raises the error that stopped the pipeline.

        Cancelling the waiting task cancels the pipeline, and still waits until it is closed.
        """
        try:
            await self._until_closed()
        except asyncio.CancelledError:
            self.cancel()
            await self._until_closed()
            raise
        if self._error is not None and self._outcome in ("stopped", "overrun"):
            raise self._error
        return self.report()

    async def _until_closed(self) -> None:
        await asyncio.shield(self._done)

    def report(self) -> Report:
        """How it ended; before the end, how it stands."""
        if self._report is not None:
            return self._report
        report = Report(self._outcome, self.statistics(), self._error)
        if self._state == "closed":
            self._report = report
        return report

    # Control.

    def pause(self) -> None:
        """Take no more from the source; what is in goes on. Leases are still renewed."""
        if self._state == "running":
            self._state = "paused"
            for source in self._run.sources:
                source.pause()

    def resume(self) -> None:
        """Go on where `pause` stopped, at once."""
        if self._state == "paused":
            self._state = "running"
            for source in self._run.sources:
                source.resume()

    def retune(self, limit: Limit, stage: int | None = None) -> None:
        """Give the working stage another limiter, or bounds, from the next event on.

        `stage` is its number (see `statistics`), needed when there is more than one. Work in
        flight is not cancelled. Raises BuildError for a wrong limit or stage.
        """
        stages = self._run.tunable
        if stage is None and len(stages) == 1:
            (stage,) = stages
        if stage is None or stage not in stages:
            numbers = ", ".join(str(number) for number in stages) or "none"
            raise BuildError(f"retune(stage={stage}): the stages with a limit are: {numbers}")
        stages[stage](limiter_for(limit))

    async def drain(self, deadline: float | None = None) -> Report:
        """Stop reading, finish what is in, flush the sinks; past `deadline` seconds, cancel.

        Returns the report; raises DrainTimeout when the deadline passed with events unfinished,
        and the error if one stopped the pipeline.
        """
        self.begin_drain(deadline)
        return await self.wait()

    def begin_drain(self, deadline: float | None = None, *, by_signal: bool = False) -> None:
        """The first step of a drain, for callers that cannot wait."""
        if self._state in ("draining", "closed"):
            return
        self._state = "draining"
        self._outcome = "drained" if by_signal else "completed"
        if self._attaching is not None:
            self._attaching.cancel()
            self.cancel()
            return
        if deadline is not None:
            self._set_deadline(deadline)
        for source in list(self._run.sources):
            source.stop()

    def cancel(self) -> None:
        """Stop now: calls are cancelled, what is unfinished is given back to its source."""
        if not self._done.done() and self._outcome not in ("cancelled", "overrun", "stopped"):
            self._outcome = "cancelled"
        self._abort()

    def _abort(self) -> None:
        if self._attaching is not None:
            self._attaching.cancel()
            self._attaching = None
        else:
            upstream = getattr(self._head, "upstream", None)
            if upstream is not None and not all(self._closed_sinks):
                upstream.cancel()
        for i, sink in enumerate(self._sinks):
            if not self._closed_sinks[i]:
                sink.cancel()

    def _set_deadline(self, seconds: float) -> None:
        if self._deadline is None:
            self._deadline = self._run.loop.call_later(seconds, self._overrun)

    def _overrun(self) -> None:
        unfinished = self.statistics()["unfinished"]
        if self._error is None:
            self._outcome = "overrun"
            self._error = DrainTimeout(
                f"the drain's deadline passed with {unfinished:,} events unfinished; they are "
                "given back to their source. Give the drain more time, or the handler less work."
            )
        self._abort()

    # The end.

    def _stopping(self, error: BaseException) -> None:
        if self._error is None:
            self._error, self._outcome = error, "stopped"
        self._set_deadline(self._run.drain_deadline)

    def _failed(self, error: BaseException) -> None:
        if self._error is None:
            self._error, self._outcome = error, "stopped"
        elif error is not self._error:
            self._run.on_warning(f"after the first error: {type(error).__name__}: {error}")
        self._abort()

    def _sink_closed(self, index: int, error: BaseException | None) -> None:
        if self._closed_sinks[index]:
            return
        self._closed_sinks[index] = True
        self._open_sinks -= 1
        if isinstance(error, OutputClosed):
            if self._outcome == "completed":
                self._outcome = "output closed"
            self._run.on_warning(str(error))
        elif error is not None and self._error is None:
            self._error, self._outcome = error, "stopped"
        if error is not None:
            for i, sink in enumerate(self._sinks):
                if not self._closed_sinks[i]:
                    sink.on_completed()
        if not self._open_sinks and self._closing is None:
            self._closing = self._run.loop.create_task(self._close(), name="penstock close")

    async def _close(self) -> None:
        try:
            await self._run.close()
        except Exception as error:
            if self._error is None:
                self._error, self._outcome = error, "stopped"
        finally:
            if self._deadline is not None:
                self._deadline.cancel()
            self._ended = self._run.now()
            self._state = "closed"
            if not self._done.done():
                self._done.set_result(None)

    # Numbers.

    def statistics(self) -> dict[str, Any]:
        """A snapshot as a plain dict; the names are API.

        `in` = `finished` + the sum of `dropped` (by cause) + `failed` + `returned` + `waiting`
        + `in_flight`, all of them events of the sources; `unfinished` is the last two together.
        `stages` has the numbers of each stage; `latency` the percentiles, in seconds, of a
        `latency_histogram` sink if there is one.
        """
        run = self._run
        totals = {"in": 0, "finished": 0, "failed": 0, "returned": 0}
        dropped: dict[str, int] = {}
        for source in run.sources:
            numbers = source.statistics()
            for name in totals:
                totals[name] += numbers[name]
            for cause, count in numbers["dropped"].items():
                dropped[cause] = dropped.get(cause, 0) + count
        stages = [
            {"stage": info.number, "name": info.name, "detail": info.detail, **numbers()}
            for info, numbers in sorted(run.stages, key=lambda stage: stage[0].number)
        ]
        last = self._flowable.info.number
        for i, (info, sink) in enumerate(zip(self._sink_infos, self._sinks, strict=True), 1):
            stages.append({"stage": last + i, "name": info.name, "detail": info.detail,
                           **sink.statistics()})  # fmt: skip
        unfinished = (
            totals["in"] - totals["finished"] - sum(dropped.values())
            - totals["failed"] - totals["returned"]
        )  # fmt: skip
        # Children of one event may be in flight together; the event counts once.
        in_flight = min(unfinished, sum(stage.get("in_flight", 0) for stage in stages))
        now = run.now() if self._ended is None else self._ended
        limits = [stage["limit"] for stage in stages if "limit" in stage]
        groups = [stage["groups"] for stage in stages if "groups" in stage]
        latency = [stage["latency"] for stage in stages if "latency" in stage]
        return {
            "state": self._state,
            "seconds": now - self._started,
            **totals,
            "dropped": dropped,
            "unfinished": unfinished,
            "waiting": unfinished - in_flight,
            "in_flight": in_flight,
            "bad_lines": run.bad_lines,
            "limit": sum(limits) if limits else None,
            "groups": sum(groups) if groups else None,
            "latency": latency[0] if latency else None,
            "stages": stages,
        }
