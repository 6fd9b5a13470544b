"""The context of one running: the loop as its stages use it, and the parts that they share.

A `Run` belongs to one running of one pipeline on one loop; several runs on a loop know nothing of
each other. It owns all that its stages start, and ends it.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Handle, TimerHandle
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.streams.clock import clock_of
from penstock.streams.diagnostics.loop_lag import Blocks
from penstock.streams.errors import NoLoop, cancelled_inside
from penstock.streams.failures.dead_letters import DeadLetterChannels
from penstock.streams.limits import Limiter
from penstock.streams.protocol.acknowledgement import Lessor
from penstock.streams.protocol.stage import StageInfo
from penstock.streams.runtime.error_log import ErrorLog, in_a_line
from penstock.streams.runtime.overrides import Overrides
from penstock.streams.runtime.pauses import Pauses, Source
from penstock.streams.runtime.tasks import Tasks

if TYPE_CHECKING:
    from penstock.streams.protocol.time_slice import Sliced

__all__ = ["Run", "Statistics"]

Statistics = Callable[[], dict[str, Any]]
"""Plain numbers by documented names; `waiting` and `in_flight` count events."""

_Step = Callable[[], Coroutine[Any, Any, None]]
_Info = StageInfo | None
_Callback = Callable[..., object]


class Run:
    """One running, or a nested one, of a stream that a stage of `outer` reads.

    Its parts: the `tasks` that it owns, the `pauses` of its sources, the `errors` that are counted
    and reported, the `letters` to each sink of dead letters, the `overrides` of an engine.

    `drain_deadline` is the seconds that in-flight work gets after a stop, and that a sink of
    dead letters may take none at the end; `limit`, if given, the bounds that take the place of
    every working stage's own; `overrides` what an engine changes.
    """

    def __init__(
        self,
        drain_deadline: float = 20.0,
        limit: tuple[int, int] | None = None,
        overrides: Overrides | None = None,
        outer: Run | None = None,
    ) -> None:
        self.drain_deadline = drain_deadline
        self.limit = limit
        self.overrides = overrides or Overrides()
        self.policy = self.overrides.policy
        # Shared with the runs nested in it. `lessors` are sources that have their events on lease:
        # where there is one, every stage that calls user code asks `may_begin` of each event before
        # it does.
        if outer is None:
            self._loop = _running_loop()
            self.now = clock_of(self._loop)
            self.errors, self.pauses, self.lessors = ErrorLog(), Pauses(), list[Lessor]()
            self.letters = DeadLetterChannels(self)
            self.blocks = Blocks(self._loop, self.errors.warn)
        else:
            self._loop, self.now = outer._loop, outer.now
            self.errors, self.pauses, self.lessors = outer.errors, outer.pauses, outer.lessors
            self.letters, self.blocks = outer.letters, outer.blocks
        # Its own. `on_failed` is told of an error that no subscriber can receive.
        self.on_failed: Callable[[BaseException], None] | None = None
        self.sources: list[Source] = []
        self.stages: list[tuple[StageInfo, Statistics]] = []
        self.tunable: dict[int, Callable[[Limiter], None]] = {}
        self.tasks = Tasks(self._task_failed)
        self._nested: dict[Run, None] = {}
        self._flushes: list[_Step] = []
        self._closers: list[_Step] = []
        # The stage that is connecting itself to the one above it.
        self.attaching: StageInfo | None = None
        # Those of the stages above one that asks for them.
        self.slices: list[Sliced] | None = None

    # What is built for this run.

    def add_stage(self, info: StageInfo, statistics: Statistics) -> None:
        """Let a running stage's numbers appear in the statistics; not those of a single group."""
        if info.within is None:
            self.stages.append((info, statistics))

    def add_source(self, info: StageInfo, source: Source) -> None:
        """Let a running source be paused, stopped and counted."""
        self.sources.append(source)
        self.stages.append((info.at(1), source.statistics))
        self.pauses.add(source)

    # The loop. It would only log an error in what it calls, and nobody would know why nothing
    # moves any more.

    @property
    def has_loop(self) -> bool:
        """Whether a loop runs; a stream of plain steps over an iterable needs none."""
        return self._loop is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that this run lives on; NoLoop if it was started outside of one."""
        if self._loop is None:
            raise NoLoop(
                "This stream needs a running event loop. Call it inside async code, or end it "
                "with .to(sink) and run the pipeline: `run(pipeline)`."
            )
        return self._loop

    def call_soon(self, info: _Info, callback: _Callback, *args: Any) -> Handle:
        """Have the loop call `callback` next, for the stage `info`: an error in it ends the run."""
        return self.loop.call_soon(self.call, info, callback, *args)

    def call_later(
        self, seconds: float, info: _Info, callback: _Callback, *args: Any
    ) -> TimerHandle:
        """The same, in so many seconds."""
        return self.loop.call_later(seconds, self.call, info, callback, *args)

    def call_at(self, when: float, info: _Info, callback: _Callback, *args: Any) -> TimerHandle:
        """The same, at a time of the loop."""
        return self.loop.call_at(when, self.call, info, callback, *args)

    def call_soon_threadsafe(self, info: _Info, callback: _Callback, *args: Any) -> Handle:
        """The same as `call_soon`, from another thread."""
        return self.loop.call_soon_threadsafe(self.call, info, callback, *args)

    def call(self, info: _Info, callback: _Callback, *args: Any) -> None:
        """Call `callback` now, where the loop called: an error in it ends the run."""
        try:
            callback(*args)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if info is not None:
                error.add_note(f"in {info}")
            self.failed(error)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that this run owns: an error in it ends the run, `close` cancels it."""
        return self.tasks.spawn(self.loop, work, name)

    def _task_failed(self, name: str, error: BaseException) -> None:
        if not getattr(error, "__notes__", ()):
            # The stage that gave its task this name, or else the task.
            stages = [str(info) for info, _ in self.stages if info.name == name]
            where = stages[0] if len(stages) == 1 else f"the task '{name}'"
            error.add_note(f"in {where}")
        self.failed(error)

    # Errors that end it.

    def stopping(self, error: BaseException) -> None:
        """A stage begins no new calls because of `error`; those in flight may finish."""
        if self.errors.on_stopping is not None:
            self.errors.on_stopping(error)

    def failed(self, error: BaseException) -> None:
        """Report an error that no subscriber can receive: it ends the run, or is logged."""
        if isinstance(error, asyncio.CancelledError):
            # Raised as it is, it would be taken for the end of whoever waits for the run.
            error = cancelled_inside("a function of the stream", error)
        if self.on_failed is not None:
            self.on_failed(error)
        else:
            logging.getLogger("penstock").error("penstock: %s", error, exc_info=error)

    def late_error(self, error: BaseException) -> None:
        """An error after the one that ends the run: it changes nothing, and is not hidden."""
        self.errors.warn(f"after the first error: {in_a_line(error)}")

    # Streams that its stages read.

    def nested(self) -> Run:
        """A run for a stream that a stage of this one reads, until it is left.

        Its sources pause with those of this one, and what they give is not counted here; its errors
        and its dead letters are this one's.
        """
        nested = Run(self.drain_deadline, self.limit, outer=self)
        self._nested[nested] = None
        return nested

    def leave(self, nested: Run) -> None:
        """The stream of a nested run is over, and so are all events of it: close that run."""
        if nested.is_open:
            self.spawn(self._close_nested(nested), "close of a nested stream")
        else:
            self._forget(nested)

    async def _close_nested(self, nested: Run) -> None:
        try:
            await nested.close()
        finally:
            self._forget(nested)

    def _forget(self, nested: Run) -> None:
        if nested in self._nested:
            del self._nested[nested]
            self.pauses.remove(nested.sources)

    # The end.

    def on_flush(self, flush: _Step) -> None:
        """Have `flush` awaited when the run is closed, while its tasks still run."""
        self._flushes.append(flush)

    def on_close(self, closer: _Step) -> None:
        """Have `closer` awaited once, after all tasks have ended."""
        self._closers.append(closer)

    @property
    def is_open(self) -> bool:
        """Whether there is something to close."""
        return bool(self.tasks or self._nested or self._flushes or self._closers)

    async def close(self) -> None:
        """Have dead letters written, cancel what still runs and wait for it, release the rest.

        When the sink of dead letters takes none for as long as the drain deadline, they are
        taken back, which is raised as DrainTimeout. Work that does not end when it is cancelled
        is left behind after a while, with a warning that names it.

        A closing that is cancelled, as by the end of the loop, breaks off what it waits for, and
        still takes the steps that are left.
        """
        nested = [partial(self._close_nested, nested) for nested in self._nested]
        # Letters first: a task of their sink's may have to write them.
        steps: list[_Step] = [*self._flushes, self._end_tasks, *nested, *self._closers[::-1]]
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

    async def _end_tasks(self) -> None:
        if left := await self.tasks.end():
            self.errors.warn(f"left behind, because it does not end when cancelled: {left}")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    with suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None
