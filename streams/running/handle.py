"""One run of a pipeline from its start to its end: statistics, pause, drain, cancel.

A pipeline runs, drains (stops the source, finishes its events, flushes the sinks, within a
deadline) and is closed. The end of the input drains without a deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from penstock.streams.base.clock import is_virtual
from penstock.streams.base.errors import (
    BadArgument,
    BuildError,
    DrainTimeout,
    OutputClosed,
    as_raised,
    counted,
)
from penstock.streams.base.validation import is_at_least
from penstock.streams.diagnostics.blocked_loop import WATCHDOG
from penstock.streams.failures.policy import OverflowPolicy, check_overflow, check_share
from penstock.streams.limits.choice import Limit, limiter_for
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.running.description import description
from penstock.streams.running.open_sinks import Opening, OpenSinks
from penstock.streams.running.report import Outcome, Report, State, numbers_of, snapshot
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.depth import Room
from penstock.streams.runtime.error_log import in_a_line
from penstock.streams.runtime.overrides import Overrides
from penstock.streams.runtime.process.standard_streams import Taken
from penstock.streams.runtime.tasks import new_task
from penstock.streams.stages.forgetting import unknown_again
from penstock.streams.stages.sink_stage import BaseSinkStage, Sink
from penstock.streams.stages.stream import Stream

if TYPE_CHECKING:
    from penstock.streams.recording.recorder import Recorder

__all__ = ["Handle"]


class Handle:
    """One run of a pipeline on a running loop; users have it as a `Running`."""

    def __init__(
        self,
        flowable: Stream[Any],
        sinks: Sequence[Sink[Any]],
        drain_deadline: float,
        limit: tuple[int, int] | int | None = None,
        overrides: Overrides | None = None,
        standard_streams: Iterable[int] = (),
    ) -> None:
        self._run = run = Run(drain_deadline, limit, overrides)
        loop = run.loop_for("start()")  # Raises NoLoop here rather than in some stage.
        run.is_pipeline = True
        self._standard_streams = [Taken(number) for number in standard_streams]
        chain = [stream.info for stream in flowable.chain()]
        run.reads(chain, chain)
        run.on_failed = self._failed
        run.numbers = self._counts
        run.errors.on_stopping = self._stopping
        self._flowable = flowable
        self._recorder: Recorder | None = None
        # Writes the report page.
        self._page: Callable[[], None] | None = None
        self._stages = description(flowable, sinks, limit)
        # An engine that moves states has a source that keeps with them what is done.
        unknown = () if run.overrides.moves_states else unknown_again(self._stages)
        self._unmarked = sorted({source.number for source, _ in unknown})
        self._room = Room(self._stages)
        run.late_numbers.begin_after(self._stages[-1].number)
        self._plan: list[tuple[StageInfo, Opening]] = [
            (info, run.overrides.openings.get(info.number, sink.open))
            for info, sink in zip(self._stages[-len(sinks) :], sinks, strict=True)
        ]
        self._sinks = OpenSinks(run, self._sink_failed, self._close_if_over)
        self._started = run.now()
        self._ended: float | None = None
        self._state: State | Literal["closed"] = "running"
        self._outcome: Outcome = "completed"
        # Whether `wait` has returned, or has raised the error.
        self._awaited = False
        # Callers that wait for the end, and receive the error.
        self._waiting = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._done: asyncio.Future[None] = loop.create_future()
        self._closing: asyncio.Task[None] | None = None
        if not is_virtual(loop):
            WATCHDOG.watch(loop, run.blocks)
        # The caller gets the handle first; the stream begins in the next loop iteration.
        self._beginning: asyncio.Handle | None = run.call_soon(None, self._begin)

    def _begin(self) -> None:
        try:
            head: Subscriber[Any] = self._sinks.open(self._plan)
        finally:
            self._beginning = None
        if self._may_be_asked():
            from penstock.streams.running.answering import Answering

            self._run.asked = {}
            head = Answering(head, self._run.asked)
        self._flowable.attach(head, self._run)
        self._sinks.check_connected()

    def _may_be_asked(self) -> bool:
        """Whether a caller may ask for the results of an event, and they come to the sinks here."""
        return self._run.overrides.returns_values and any(
            stage.delivery.answers for stage in all_stages(self._stages)
        )

    async def __aenter__(self) -> Self:
        """On leaving the block, wait for the end of the input, and finish its events.

        An `inbox` is closed, and what was put into it is finished. Leaving the block by an
        exception cancels the pipeline.
        """
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
            if self._error is not None and self._error is not error and not self._awaited:
                self._run.late_error(self._error)
        elif self._awaited:
            # The error was raised by `wait` or `drain`, and handled in the block.
            await self._until_closed()
        else:
            if self._beginning is not None:
                await asyncio.sleep(0)
            self._run.stop_pushed()
            await self.wait()

    async def wait(self) -> Report:
        """Wait for the end, and return the report. Raises the error that stopped the pipeline.

        If the waiting task is cancelled, the pipeline is cancelled, and closed before this returns.
        Raises BuildError in a call of the pipeline itself, such as its handler, which would wait
        for its own end.
        """
        self._refuse_own_tasks()
        try:
            await self._until_closed()
        except asyncio.CancelledError:
            self.cancel()
            await self._until_closed()
            raise
        self._awaited = True
        if self._error is not None and self._outcome in ("stopped", "overrun"):
            raise as_raised(self._error)
        return self.report()

    def _refuse_own_tasks(self) -> None:
        if self._run.is_in_own_task():
            raise BuildError(
                "wait() and drain() return when the pipeline has ended, and this call is a part of "
                "it, which would wait for itself: call `running.begin_drain()` here, and wait in a "
                "task of your own"
            )

    async def _until_closed(self) -> None:
        self._waiting += 1
        try:
            await asyncio.shield(self._done)
        finally:
            self._waiting -= 1

    def report(self) -> Report:
        """How the pipeline ended; before the end, whether it is running, paused or draining."""
        outcome = self._outcome if self._state == "closed" else self._state
        return Report(outcome, self.statistics(), self._error)

    def _repr_html_(self) -> str:
        return self.report().as_html()

    def show_progress(self, every: float = 0.5) -> None:
        """Show the numbers in this cell of a notebook, anew each `every` seconds, then the report.

        That is also there when the cell is interrupted, which cancels the pipeline. Costs one
        snapshot of the statistics each time. Raises BuildError where no notebook runs, and for an
        `every` that is not a positive number.
        """
        from penstock.streams.running.cell import Cell

        Cell(self.report, self._done, every)

    # Control.

    def pause(self) -> None:
        """Read no more from the sources; events in the pipeline go on. Leases are still renewed."""
        if self._state == "running":
            self._state = "paused"
            self._run.pauses.hold(self)

    def resume(self) -> None:
        """Read from the sources again."""
        if self._state == "paused":
            self._state = "running"
            self._run.pauses.release(self)

    def retune(self, limit: Limit, stage: int | None = None) -> None:
        """Replace the limiter, or the bounds, of a working stage from the next event on.

        `stage` is its number (see `statistics`), needed if there are several working stages. Work
        in flight is not cancelled. How many events the stage may hold, as shown by
        `Pipeline.describe`, changes with the ceiling. Raises BuildError for a wrong limit or stage.
        """
        # Some may begin later, as in a stream that `concat` reads.
        later = [one.number for one in all_stages(self.describe()) if one.picture.under is not None]
        stages = self._run.tunable
        stages.change(stages.chosen(stage, later), limiter_for(limit))

    def set_share(
        self,
        share: int | None = None,
        overflow: OverflowPolicy | None = None,
        stage: int | None = None,
    ) -> None:
        """Change the `share` or the `overflow` of a `group_by`, for events that come from now on.

        None leaves a value as it is. `stage` is the number of the `group_by` (see `statistics`),
        needed if there are several. Events on disk stay there until their turn. Raises BuildError
        for a wrong share, policy or stage.
        """
        if overflow is not None:
            check_overflow(overflow, "set_share")
        later: dict[int | str, StageInfo] = {
            one.number: one for one in all_stages(self.describe()) if one.placement.has_share
        }
        stages = self._run.keyed
        place = stages.chosen(stage, later)
        buffer = later[place].bound if place in later else None
        if share is not None and buffer is not None:
            check_share(share, buffer, "set_share")
        stages.change(place, share, overflow)

    async def drain(self, deadline: float | None = None) -> Report:
        """Stop reading, finish the events in the pipeline, flush the sinks.

        After `deadline` seconds the pipeline is cancelled. What the source has emitted is finished;
        a queue of your own that it reads from is left unchanged (an `inbox` is emptied). Returns
        the report. Raises DrainTimeout if the deadline passed with events unfinished, the error
        that stopped the pipeline, and BuildError for a wrong deadline, and in a call of the
        pipeline itself, which may only `begin_drain`.
        """
        self._refuse_own_tasks()
        self.begin_drain(deadline)
        return await self.wait()

    def begin_drain(self, deadline: float | None = None, *, by_signal: bool = False) -> None:
        """Start a drain without waiting for it. Of several deadlines the earliest counts.

        Raises BuildError for a deadline that is not a number of seconds.
        """
        if deadline is not None and not is_at_least(deadline, 0):
            raise BadArgument(f"drain(deadline={deadline!r}): must be seconds, 0 or more")
        if self._state == "closed":
            return
        if deadline is not None:
            self._set_deadline(deadline)
        if self._state == "draining":
            return
        self._state = "draining"
        if by_signal and self._outcome == "completed":
            self._outcome = "drained"
        if self._beginning is not None:
            self._abort()
            return
        self._run.stop_sources()
        # A paused source still emits what it has read.
        self._run.pauses.release(self)

    def cancel(self) -> None:
        """Stop now: calls are cancelled, unfinished events are returned to their sources."""
        if self._state != "closed":
            if self._outcome not in ("overrun", "stopped"):
                self._outcome = "cancelled"
            self._abort()

    def _abort(self) -> None:
        if self._beginning is not None:
            self._beginning.cancel()
            self._beginning = None
        self._sinks.cancel()
        self._run.hurry()
        self._close_if_over()

    def _set_deadline(self, seconds: float) -> None:
        loop = self._run.loop
        when = loop.time() + seconds
        if self._deadline is None or when < self._deadline.when():
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = loop.call_at(when, self._overrun)

    def _overrun(self) -> None:
        unfinished = self.statistics()["unfinished"]
        if self._error is None:
            self._outcome = "overrun"
            self._run.errors.ended_by = DrainTimeout(
                f"the drain's deadline passed with {counted(unfinished, 'event')} unfinished; they "
                "are given back to their source, and lost where it cannot give them again. Give "
                "the drain more time, or the handler less work."
                if unfinished
                else "the drain's deadline passed when all events had ended, and a source, a sink "
                "or a store had not yet been closed. Give the drain more time."
            )
        self._abort()

    # The end.

    @property
    def _error(self) -> BaseException | None:
        return self._run.errors.ended_by

    def _ends_with(self, error: BaseException) -> None:
        """The run ends with the first error; later ones are logged."""
        if self._error is None and self._outcome != "cancelled":
            self._run.errors.ended_by, self._outcome = error, "stopped"
        elif error is not self._error:
            self._run.late_error(error)

    def _stopping(self, error: BaseException) -> None:
        self._ends_with(error)
        self._state = "draining"
        self._set_deadline(self._run.drain_deadline)

    def _failed(self, error: BaseException) -> None:
        self._ends_with(error)
        self._abort()

    def _check_account(self) -> None:
        """All events have ended by now, unless a part of the user's own has forgotten some."""
        unfinished = self._counts()["unfinished"]
        if unfinished and self._outcome in ("completed", "drained"):
            self._outcome = "incomplete"
            have = counted(unfinished, "event has", "events have")
            self._run.errors.warn(
                f"{have} not ended: a stage or a sink of your own has to pass on each event, or to "
                "call its finish, drop, fail or give_back, and a sink is not `is_idle` before that"
            )

    def _warn_of_left(self, count: int) -> None:
        events = counted(count, "event")
        self._run.errors.warn(
            f"{events} failed after the source had ended, or shortly before, as those do that an "
            "operator such as chunk or to_list holds until then, and those behind take. The source "
            "has taken them back, and this run tries them no more: start another one"
        )

    def _sink_failed(self, error: BaseException) -> None:
        if isinstance(error, OutputClosed):
            if self._outcome == "completed":
                self._outcome = "output closed"
            self._run.errors.warn(str(error))
        else:
            self._ends_with(error)

    def _close_if_over(self) -> None:
        if not self._sinks.are_open and self._beginning is None and self._closing is None:
            self._begin_closing()

    def _begin_closing(self) -> None:
        self._closing = new_task(self._close(), "penstock close", self._run.loop)
        self._closing.add_done_callback(self._closing_ended)

    def _closing_ended(self, closing: asyncio.Task[None]) -> None:
        if self._state != "closed":
            # It was cancelled before its first step, as by the end of `asyncio.run` after a
            # SystemExit, and has closed nothing.
            self._begin_closing()

    async def _close(self) -> None:
        try:
            await self._run.close()
            self._check_account()
        except Exception as error:
            self._ends_with(error)
        finally:
            if self._deadline is not None:
                self._deadline.cancel()
            WATCHDOG.leave(self._run.loop, self._run.blocks)
            self._room.close()
            for stream in self._standard_streams:
                stream.close()
            self._ended = self._run.now()
            self._state = "closed"
            if self._run.nesting.left and self._outcome in ("completed", "drained"):
                self._outcome = "incomplete"
                if not self._run.drains:
                    self._warn_of_left(self._run.nesting.left)
            for stage in all_stages(self._stages):
                if stage.delivery.on_end is not None:
                    stage.delivery.on_end(self._run)
            if self._recorder is not None:
                self._recorder.end()
            if self._page is not None:
                self._write_page(self._page)
            if self._error is not None and not self._waiting:
                # A later `wait` raises it too, but there may never be one.
                text = f"a pipeline has ended with {in_a_line(self._error)}"
                logging.getLogger("penstock").error(text)
            if not self._done.done():
                self._done.set_result(None)

    def _write_page(self, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:
            # The events are where they are: this changes nothing of how the run ended.
            self._run.errors.warn(f"the report page was not written: {in_a_line(error)}")

    def statistics(self) -> dict[str, Any]:
        """A snapshot as a plain dict; the names are API.

        `in` = `finished` + the sum of `dropped` (by cause) + `failed` + `returned` + `waiting` +
        `in_flight`, all of them events of the sources; `unfinished` is the last two together.
        `limit` is the sum of the limits, `limit_reason` why each of them changed last.
        `closed_early` counts, by cause, the groups that `group_by(each=...)` ended early: their
        results may be made from only a part of their events. `stages` has the numbers of each
        stage; `latency` the percentiles, in seconds, of a `latency_histogram` sink if there is one.
        docs/statistics.md explains them one by one.
        """
        numbers = self._snapshot(self._sinks.stages)
        if self._recorder is not None and numbers["latency"] is None:
            numbers.update(latency=self._recorder.latency())
        return numbers

    def _snapshot(self, sinks: Iterable[BaseSinkStage]) -> dict[str, Any]:
        now = self._run.now() if self._ended is None else self._ended
        numbers = [(stage.info, stage.statistics) for stage in sinks]
        return snapshot(self._run, numbers, self._state, now - self._started, self._unmarked)

    def _counts(self) -> dict[str, Any]:
        """The statistics without those of sinks that only observe: they may take long."""
        return self._snapshot(sink for sink in self._sinks.stages if not sink.observes)

    def stage_statistics(self, number: int) -> dict[str, Any]:
        """The numbers of one stage, as in `statistics()["stages"]`; the source is stage 1.

        For code that reads them at each event: the numbers of all stages take several times as
        long. Raises IndexError where no such stage is running (yet).
        """
        for info, statistics in self._run.nesting.stages:
            if info.number == number:
                return numbers_of(info, statistics)
        for sink in self._sinks.stages:
            if sink.info.number == number:
                return numbers_of(sink.info, sink.statistics)
        raise IndexError(f"no stage {number} is running")

    def describe(self) -> list[StageInfo]:
        """All stages with their bounds in this run, source first, sinks last."""
        return list(self._stages)

    # Telemetry.

    def record(self) -> Recorder:
        """Record what a live page and metrics show, from the first event on.

        Call it before anything is awaited after `start`; a first call later raises BuildError.
        Costs an addition for each list of events between two stages, and measuring about a thousand
        events per second.
        """
        if self._recorder is None:
            if self._beginning is None:
                raise BuildError(
                    "a run is recorded from its first event on: call serve() or web_app().add() "
                    "right after start(), before anything is awaited"
                )
            from penstock.streams.recording.recorder import Recorder

            self._recorder = Recorder(self._run, self._counts, self._flowable.info)
        return self._recorder

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop on which it runs."""
        return self._run.loop

    @property
    def state(self) -> str:
        """What it does: "running", "paused", "draining" or "closed"."""
        return self._state

    @property
    def is_ready(self) -> bool:
        """Whether it takes events: it has begun, is neither paused nor draining, and its sources
        are connected."""
        if self._beginning is not None or self._state != "running":
            return False
        return all(source.is_connected for source in self._run.nesting.sources)
