"""The context of one run: the loop as its stages use it, and the parts that they share.

A `Run` is one execution of one pipeline on one loop; several on one loop are
independent. It owns everything that its stages start, and ends it.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Handle, TimerHandle
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.streams.base.clock import clock_of, running_loop, wall_of
from penstock.streams.base.errors import NoLoop, add_note, cancelled_inside, notes_of
from penstock.streams.diagnostics.current import current
from penstock.streams.diagnostics.loop_lag import Blocks
from penstock.streams.limits import Limiter
from penstock.streams.protocol.acknowledgement import Lessor
from penstock.streams.protocol.blame import note_stage
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.arrivals import Arrivals
from penstock.streams.runtime.attachments import Attachments
from penstock.streams.runtime.changeable import Changeable
from penstock.streams.runtime.channels import Channels
from penstock.streams.runtime.error_log import ErrorLog, in_a_line
from penstock.streams.runtime.nested_runs import Nesting
from penstock.streams.runtime.observing import Observer, Statistics, TracedCalls, Tracing
from penstock.streams.runtime.overrides import Overrides
from penstock.streams.runtime.places import LateNumbers, Places
from penstock.streams.runtime.process.unrun import note_use
from penstock.streams.runtime.sources import Pauses, Source
from penstock.streams.runtime.tasks import Tasks

if TYPE_CHECKING:
    from penstock.streams.diagnostics.histogram import LatencyHistogram
    from penstock.streams.protocol.answers import Asked

__all__ = ["Run"]


_Step = Callable[[], Coroutine[Any, Any, None]]
_Info = StageInfo | None
_Callback = Callable[..., object]


class Run:
    """The context of one run, or of a stream that a stage of the run `outer` reads.

    Its parts: the `tasks` that it owns, the `pauses` of its sources, the `errors` that are counted
    and reported, the `letters` to each dead-letter sink, the `overrides` of an engine.

    `drain_deadline` is the seconds that in-flight work gets after a stop, and for which a
    dead-letter sink or a store may accept nothing at the end; `limit`, if given, is the floor and
    the ceiling that replace those of every working stage; `overrides` is what an engine changes.
    """

    def __init__(
        self,
        drain_deadline: float = 20.0,
        limit: tuple[int, int] | int | None = None,
        overrides: Overrides | None = None,
        outer: Run | None = None,
    ) -> None:
        self.drain_deadline = drain_deadline
        self.limit = limit
        self.overrides = overrides or Overrides()
        # Shared with nested runs. `lessors` are sources that hold their events on lease: if there
        # is one, every stage checks each event by `may_begin` before it calls user code.
        if outer is None:
            note_use()
            self._loop = running_loop()
            self.now, self.wall = clock_of(self._loop), wall_of(self._loop)
            # The context variables of the start. Callbacks and tasks have them, whoever makes them
            # due: a handler must not log the request of a client that happened to call `put`.
            self._context = copy_context()
            self.errors, self.pauses, self.lessors = ErrorLog(), Pauses(), list[Lessor]()
            self.letters = Channels(self)
            self.blocks = Blocks(self._loop, self.errors.warn)
            self.current = current()
            self.attachments, self.arrivals = Attachments(), Arrivals()
            self.late_numbers = LateNumbers()
            # The answers that callers wait for; None where the results reach no sinks.
            self.asked: Asked | None = None
        else:
            self._loop, self._context = outer._loop, outer._context
            self.now, self.wall = outer.now, outer.wall
            self.errors, self.pauses, self.lessors = outer.errors, outer.pauses, outer.lessors
            self.letters, self.blocks = outer.letters, outer.blocks
            self.current = outer.current
            self.attachments, self.arrivals = outer.attachments, outer.arrivals
            self.late_numbers = outer.late_numbers
            self.asked = outer.asked
        # Whether it is the running of a pipeline, which waits for all of its events.
        self.is_pipeline = False
        # Its own. Observers are there from before the stages are attached, or not at all;
        # `on_failed` is called with an error that no subscriber can receive.
        self.observers: list[Observer] = []
        self.tracing: Tracing | None = None
        # Called with the stage, its old limit, the new one and the reason; likewise.
        self.on_limit: Callable[[StageInfo, int, int, str], None] | None = None
        # The latencies of all events, as sinks have measured them, by their parts: of those that
        # leave a stage, by its number, and of those that come to the sinks, by None.
        self.latencies: dict[int | None, Callable[[], dict[str, LatencyHistogram]]] = {}
        self.on_failed: Callable[[BaseException], None] | None = None
        # The statistics of the whole running, without those that may take long.
        self.numbers: Callable[[], dict[str, Any]] | None = None
        # Whether SystemExit and KeyboardInterrupt leave the loop, as they do in any program.
        self.is_left_by_exits = True
        # The object that each reopening stream opened last.
        self.newest: dict[object, Any] = {}
        # The stores of this run, each a `streams.delivery.marks.MarksOfRun`. Any: that is above.
        self.stores: list[Any] = []
        # The sinks that are opened in this run.
        self.sinks: list[StageInfo] = []
        self.tunable = Changeable("retune", "the stages with a limit")
        self.keyed = Changeable("set_share", "the stages with a share")
        # See `withdraw`; in the order in which the stages are made, the last of them first.
        self.withdrawals: list[Callable[[Callable[[Event[Any]], bool]], None]] = []
        # See `cancel_calls`; by the stages that make calls in tasks.
        self.calling: list[Callable[[Callable[[Event[Any]], bool]], None]] = []
        # Whether a stage that holds events for others has less ready than is wanted below it.
        self.starvations: list[Callable[[], bool]] = []
        self.tasks = Tasks(self._task_failed)
        self.nesting: Nesting[Run] = Nesting(self, None if outer is None else outer.nesting)
        # Whether its stages are listed in the whole running, and whether a stage goes on after an
        # error in it.
        self._is_shown = outer is None
        self._recovers: bool = False if outer is None else outer._recovers
        self._flushes: list[_Step] = []
        self._closers: list[_Step] = []
        # The stage that is connecting itself to the one above it.
        self.attaching: StageInfo | None = None
        # The places of the stages of the stream that is read here; None: no pipeline is run.
        self._places: Places | None = None
        # In a part that reads a stream which was not known before: the stage for which it is read.
        self.read_by: int | None = None
        # Where the stages that are being attached note their time slices, while a stage below
        # collects them.
        self.slices: list[Any] | None = None

    # Stages.

    def add_stage(self, info: StageInfo, statistics: Statistics) -> None:
        """Include a stage in the statistics, unless it belongs to a single group."""
        if info.within is None:
            self.nesting.own_stages.append((info, self._placed_statistics(info, statistics)))

    def watch_of_limit(self, info: StageInfo) -> Callable[[int, int, str], None] | None:
        """The function to call when the limit of the stage has changed, if anything watches it."""
        if self.on_limit is None or not self.is_own(info):
            return None
        return partial(self.on_limit, info)

    def traced(self, info: StageInfo, calls: str) -> TracedCalls | None:
        """The tracer of the calls of function `calls` in a stage, if there are both."""
        if self.tracing is None or not calls:
            return None
        return self.tracing.calls(info, calls, None)

    def add_source(self, info: StageInfo, source: Source) -> None:
        """Include a source in the statistics, in pauses and in drains."""
        statistics = self._placed_statistics(self.attaching or info, source.statistics)
        self.nesting.own_sources.append(source)
        self.nesting.own_stages.append((info, statistics))
        self.pauses.add(source)

    def reads(self, chain: Iterable[StageInfo], numbered: Iterable[StageInfo]) -> None:
        """The stream that is read here has these stages, with these numbers in the pipeline."""
        self._places = Places(self.late_numbers, chain, numbered)

    def placed(self, info: StageInfo) -> StageInfo:
        """A stage that is attached here, with its number in the pipeline.

        One that was not known before gets a number of its own, if it is listed, which those of a
        single group are not.
        """
        if self._places is None or info.within is not None:
            return info
        place = self._places.find(info)
        if place is not None:
            return place
        if self.attaching is not None and self.attaching.is_source and self.read_by is None:
            # A source that is made of another one, which is read in its place.
            return info.at(self.attaching.number)
        if not self._is_shown:
            return info
        read_by = self.read_by
        if read_by is None and self.attaching is not None:
            read_by = self.known_reader(self.attaching)
        return self._places.add(info, read_by)

    def is_the_same(self, info: StageInfo, known: StageInfo) -> None:
        """The stage `info`, which is attached here, is the stage `known` of the pipeline."""
        if self._places is not None:
            self._places.note(info, self.placed(known))

    def is_own(self, info: StageInfo) -> bool:
        """Whether a stage that is attached here, as `placed`, was known before the pipeline ran."""
        return self._places is None or self._places.is_own(info)

    def known_reader(self, reader: StageInfo) -> int | None:
        """The number of the stage, known before, for which the stage `reader` reads a stream."""
        if self._places is None or self._places.is_own(reader):
            return reader.number
        return self._places.reader_of(reader)

    def add_tunable(self, info: StageInfo, retune: Callable[[Limiter], None]) -> None:
        """Include a working stage in those whose limit may be replaced."""
        self._add_changeable(self.tunable, info, retune)

    def add_keyed(self, info: StageInfo, set_share: Callable[[int | None, Any], None]) -> None:
        """Include a stage in those whose share of a key, and what becomes of more, may be
        replaced."""
        self._add_changeable(self.keyed, info, set_share)

    def _add_changeable(
        self, stages: Changeable, info: StageInfo, change: Callable[..., None]
    ) -> None:
        has_number = self._is_shown or self.is_own(info)
        place = info.number if has_number else f"{self.read_by or ''}/{info.number}"
        wanted = stages.add(place, change)
        if wanted is not None:
            self.call_soon(info, wanted)

    def _placed_statistics(self, info: StageInfo, statistics: Statistics) -> Statistics:
        """The statistics of a stage, with its place."""
        is_own = self.is_own(info)
        for observer in self.observers:
            statistics = observer.counted_statistics(info, statistics, is_own=is_own)
        if is_own:
            return statistics
        read_by = self.read_by
        if read_by is None and self._places is not None:
            read_by = self._places.reader_of(info)
        return lambda: {"read_by": read_by, **statistics()}

    # The loop. It would only log an error of a callback, and the stream would stand still for no
    # visible reason.

    @property
    def has_loop(self) -> bool:
        """Whether there is a loop; a stream of plain functions over an iterable needs none."""
        return self._loop is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of this run. Raises NoLoop if it was started without one."""
        loop = self._loop
        return self.loop_for("This stream") if loop is None else loop

    def loop_for(self, what: str) -> asyncio.AbstractEventLoop:
        """The loop of this run, for `what`, which NoLoop names if there is none."""
        if self._loop is None:
            raise NoLoop(
                f"{what} needs a running event loop. Use it inside async code, or run the pipeline "
                "(a stream that ends in .to(sink)) from a script: `run(pipeline)`."
            )
        return self._loop

    def _loop_of(self, info: _Info) -> asyncio.AbstractEventLoop:
        return self.loop_for("This stream" if info is None else info.name)

    def call_soon(self, info: _Info, callback: _Callback, *args: Any) -> Handle:
        """Call `callback` in the next loop iteration, for stage `info`. An error ends the run."""
        loop = self._loop or self._loop_of(info)
        return loop.call_soon(self.call, info, callback, *args, context=self._context.copy())

    def call_later(
        self, seconds: float, info: _Info, callback: _Callback, *args: Any
    ) -> TimerHandle:
        """As `call_soon`, but after so many seconds."""
        loop, context = self._loop or self._loop_of(info), self._context.copy()
        return loop.call_later(seconds, self.call, info, callback, *args, context=context)

    def call_at(self, when: float, info: _Info, callback: _Callback, *args: Any) -> TimerHandle:
        """As `call_soon`, but at a time of the loop's clock."""
        loop, context = self._loop or self._loop_of(info), self._context.copy()
        return loop.call_at(when, self.call, info, callback, *args, context=context)

    def call_soon_threadsafe(self, info: _Info, callback: _Callback, *args: Any) -> Handle:
        """As `call_soon`, from another thread."""
        context = self._context.copy()
        return self.loop.call_soon_threadsafe(self.call, info, callback, *args, context=context)

    def call(self, info: _Info, callback: _Callback, *args: Any) -> None:
        """Call `callback` now, in a callback of the loop. An error ends the run."""
        noted, outer = self.current, self.current.stage
        noted.stage = info
        try:
            callback(*args)
        except BaseException as error:
            if self.is_left_by_exits and isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            if info is not None:
                note_stage(error, info)
            self.failed(error)
        finally:
            noted.stage = outer

    def new_context(self) -> Context:
        """The context variables of the start, for a task."""
        return self._context.copy()

    def spawn(
        self,
        work: Coroutine[Any, Any, None],
        name: str,
        *,
        stage: object = None,
        context: Context | None = None,
        replaced: bool = False,
    ) -> asyncio.Task[None]:
        """Start a task that this run owns: an error in it ends the run, and `close` cancels it.

        If anybody else cancels it that ends the run too, unless it is `replaced`. `stage` is the
        one that calls functions of the user's in the task, `context` a `new_context` for it.
        """
        context = self._context.copy() if context is None else context
        task = self.tasks.spawn(self.loop, work, name, context, replaced=replaced)
        if stage is not None:
            self.current.tasks[task] = stage
        return task

    def is_in_own_task(self) -> bool:
        """Whether the current task is one that this run, or a run nested in it, owns."""
        task = asyncio.current_task()
        return any(task in one.run.tasks for one in self.nesting.with_inner())

    def _task_failed(self, name: str, error: BaseException) -> None:
        if not notes_of(error):
            # The one stage of this name, or else the task.
            infos = [info for info, _ in self.nesting.stages] + self.sinks
            stages = [str(info) for info in infos if info.name == name]
            where = stages[0] if len(stages) == 1 else f"the task '{name}'"
            add_note(error, f"in {where}")
        self.failed(error)

    # Errors that end the run.

    def stopping(self, error: BaseException) -> None:
        """Report that a stage begins no more calls because of `error`; its calls may finish."""
        if self.errors.on_stopping is not None and not self._recovers:
            self.errors.on_stopping(error)

    def failed(self, error: BaseException) -> None:
        """Report an error that no subscriber can receive. It ends the run, or is logged."""
        if isinstance(error, asyncio.CancelledError):
            # Raised unchanged, it would cancel the task that waits for the run.
            error = cancelled_inside("a function of the stream", error)
        # One that is no Exception ends all, and no stream goes on after it.
        on_failed = self.on_failed if isinstance(error, Exception) else self.root.on_failed
        if on_failed is not None:
            on_failed(error)
        else:
            logging.getLogger("penstock").error("penstock: %s", error, exc_info=error)

    def late_error(self, error: BaseException) -> None:
        """Warn of an error that comes after the one that ends the run."""
        self.errors.warn(f"after the first error: {in_a_line(error)}")

    # Sources.

    @property
    def drains(self) -> bool:
        """Whether the sources are stopped; a stage that reads several streams begins no other."""
        return self.pauses.drains

    def withdraw(self, is_gone: Callable[[Event[Any]], bool] = lambda event: True) -> None:
        """Return the events that wait in a stage, and for which this is true, to their sources.

        From the source down, or an event that waits would take the place of another.
        """
        for withdraw in reversed(self.withdrawals):
            withdraw(is_gone)

    def cancel_calls(self, is_gone: Callable[[Event[Any]], bool]) -> None:
        """Cancel the calls of handlers, here and in inner runs, with events for which this is true.

        These are returned when their calls have really ended, however they ended. A call with
        several events is cancelled if all of them are gone. Calls of plain functions and those in
        other processes go on.
        """
        for one in self.nesting.with_inner():
            for cancel in one.run.calling:
                cancel(is_gone)

    @property
    def calls(self) -> bool:
        """Whether handlers are being called, or are to be called again, in any stage or sink."""
        numbers = [statistics() for _, statistics in self.nesting.stages]
        if self.root.numbers is not None:
            numbers += self.root.numbers()["stages"]
        return any(one.get("in_flight") or one.get("retrying") for one in numbers)

    @property
    def is_starved(self) -> bool:
        """Whether what is below the stages that hold events for others wants more than these have
        ready."""
        return all(is_starved() for is_starved in self.starvations)

    def stop_sources(self) -> None:
        """Stop all sources: the first step of a drain."""
        self.pauses.drain(self.nesting.sources)
        for source in self.nesting.sources:
            self.call(source.info, source.stop)
        self.stop_pushed()

    def stop_pushed(self) -> None:
        """Stop the sources that read what the code around the running puts in, nested ones too: no
        other end comes to them."""
        for source in self.pauses.sources:
            if source.is_pushed:
                source.stop()

    # Inner runs: see `Nesting`.

    @property
    def root(self) -> Run:
        """The outermost run that this one is in."""
        return self.nesting.root.run

    def nested(self, event: Event[Any] | None = None) -> Run:
        """A run for a stream that a stage of this one reads, for `event` if one is given.

        Its sources pause with those of this one. Its errors and its dead letters are this one's,
        and its calls belong to the trace of `event`.
        """
        nested = Run(self.drain_deadline, self.limit, outer=self)
        nested.reads((), ())
        tracing = self.tracing
        if event is not None and tracing is not None:
            observer = tracing.within(event)
            if observer is not None:
                nested.tracing = tracing
                nested.observers.append(observer)
        return nested

    def part(
        self,
        *,
        listed: bool = True,
        recovers: bool = False,
        instead_of: Run | None = None,
        of_root: bool = False,
    ) -> Run:
        """A run for a stream that this one reads as a part of its own, or as a part of `root`: then
        several streams of that read it, this one first, and it may go on alone.

        As `nested`, but with the overrides and observers of this run. Its stages are `listed` in
        the statistics if those of this run are, in place of those of the part `instead_of`.
        `recovers`: an error in it does not end this run.
        """
        whole = self.root if of_root else self
        part = Run(self.drain_deadline, self.limit, whole.overrides, outer=whole)
        part._is_shown = listed and self._is_shown
        part._recovers = recovers or self._recovers
        part.nesting.become_part(
            listed=part._is_shown if of_root else listed,
            instead_of=None if instead_of is None else instead_of.nesting,
            counted_in=self.nesting,
        )
        part.tunable, part.keyed, part.attaching = whole.tunable, whole.keyed, whole.attaching
        part.observers, part.tracing, part.on_limit = whole.observers, whole.tracing, whole.on_limit
        part._places, part.read_by = self._places, self.read_by
        if self._places is not None and part._is_shown:
            part._places = self._places.inner()
        if of_root:
            part.letters = Channels(part, whole.letters)
        return part

    def go_on_alone(self) -> None:
        """Make this part a run of its own, for the readers that are left when `root` has ended."""
        whole, pauses, errors = self.pauses, Pauses(), ErrorLog()
        self.nesting.go_on_alone()
        self.letters.leave()
        self._recovers = False
        for one in self.nesting.with_inner():
            own = [source for source in one.own_sources if source in whole.sources]
            whole.remove(own)
            for source in own:
                pauses.add(source)
                # If it is paused, the root has paused it.
                source.resume()
            one.run.pauses, one.run.errors = pauses, errors

    def released(self) -> None:
        """This inner run has ended, and so have its events."""
        sources = self.nesting.sources
        self.pauses.remove(sources)
        ended = set[object](sources)
        # In place: stages have the list.
        self.lessors[:] = [one for one in self.lessors if one not in ended]
        if self.letters is not self.root.letters:
            self.letters.leave()
        if self._is_shown and self._places is not None:
            self._places.free()

    # The end.

    def on_flush(self, flush: _Step) -> None:
        """Await `flush` when the run is closed, while its tasks still run."""
        self._flushes.append(flush)

    def not_on_flush(self, flush: _Step) -> None:
        """Take back an `on_flush`."""
        if flush in self._flushes:
            self._flushes.remove(flush)

    def on_close(self, closer: _Step) -> None:
        """Await `closer` when the run is closed, after all tasks have ended."""
        self._closers.append(closer)

    @property
    def is_open(self) -> bool:
        """Whether anything is left to close."""
        return bool(self.tasks or self.nesting.inner or self._flushes or self._closers)

    def hurry(self) -> None:
        """Limit the wait for slow dead-letter sinks and stores to a few seconds."""
        self.letters.hurry()
        for store in self.stores:
            store.hurry()

    async def close(self) -> None:
        """Write the dead letters, cancel the tasks and wait for them, then release the rest.

        Raises DrainTimeout if a dead-letter sink accepts nothing for the drain deadline; its
        letters are then taken back. Raises DatabaseUnavailable if a store whose backend can give up
        takes no commit for so long. A task that does not end when it is cancelled is abandoned
        after ten seconds, with a warning that names it.

        If the closing itself is cancelled, as at the end of the loop, it stops waiting for the
        step in progress, and still takes the steps that are left.
        """
        nested = [one.close for one in self.nesting.inner]
        # Letters first: a task of their sink may have to write them.
        flushes = [partial(self._flush, flush) for flush in self._flushes]
        steps: list[_Step] = [*flushes, self._end_tasks, *nested, *self._closers[::-1]]
        self._closers.clear()
        errors: list[Exception] = []
        cancelled: asyncio.CancelledError | None = None
        for step in steps:
            try:
                await step()
            except asyncio.CancelledError as error:
                cancelled = error
            except Exception as error:
                errors.append(error)
        if cancelled is not None:
            raise cancelled
        if errors:
            raise errors[0] if len(errors) == 1 else ExceptionGroup("closing failed", errors)

    async def _flush(self, flush: _Step) -> None:
        # Another flush may have taken it back.
        if flush in self._flushes:
            self._flushes.remove(flush)
            await flush()

    async def _end_tasks(self) -> None:
        if left := await self.tasks.end():
            self.errors.warn(f"left behind, because it does not end when cancelled: {left}")
