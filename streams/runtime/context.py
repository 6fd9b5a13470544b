"""The context that the stages of one run share: the loop, its time, its tasks, its sources.

A `Run` belongs to one running of one pipeline on one loop; several runs on a loop know
nothing of each other. It owns every task that a stage starts and ends them all.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from penstock.streams.clock import clock_of
from penstock.streams.diagnostics.loop_lag import Blocks
from penstock.streams.errors import BadLine, DrainTimeout, NoLoop, message_of
from penstock.streams.execution.handler import cancelled_inside
from penstock.streams.failures.dead_letters import DeadLetterChannel
from penstock.streams.failures.policy import DeadLetter, OnError
from penstock.streams.limits import Limiter
from penstock.streams.protocol.acknowledgement import Lessor
from penstock.streams.protocol.stage import StageInfo

if TYPE_CHECKING:
    from penstock.streams.flowable import Flowable
    from penstock.streams.protocol.sink_stage import Sink
    from penstock.streams.protocol.time_slice import Sliced
    from penstock.streams.runtime.overrides import Engine

__all__ = ["Run", "Source", "Statistics", "in_a_line"]

log = logging.getLogger("penstock")

_SHOWN_ERRORS = 10
# Characters of an error's text in a warning.
_SHOWN_TEXT = 2_000
# What the names of tasks begin with.
_TASK = "penstock "
# Seconds that cancelled work gets for its clean-up.
_GRACE = 5.0


Statistics = Callable[[], dict[str, Any]]
"""Plain numbers by documented names; `waiting` and `in_flight` count events."""


class Source(Protocol):
    """A running source, as its run controls it."""

    is_pushed: bool

    def statistics(self) -> dict[str, Any]: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> None: ...


class Run:
    """One running.

    `drain_deadline` is the seconds that in-flight work gets after a stop, and that a sink of
    dead letters may take none at the end; `limit`, if given, the bounds that take the place of
    every working stage's own.
    """

    def __init__(self, drain_deadline: float = 20.0, limit: tuple[int, int] | None = None) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        self.now: Callable[[], float] = clock_of(self._loop)
        self.drain_deadline = drain_deadline
        self.limit = limit
        self.sources: list[Source] = []
        # Sources that have their events on lease. Where there is one, every stage that calls user
        # code asks `may_begin` of each event before it does.
        self.lessors: list[Lessor] = []
        self.stages: list[tuple[StageInfo, Statistics]] = []
        self.on_warning: Callable[[str], None] = log.warning
        self.on_stopping: Callable[[BaseException], None] | None = None
        self.blocks = Blocks(self)
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._nested: dict[Run, None] = {}
        self._closers: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._letters: dict[int, tuple[Sink[DeadLetter], DeadLetterChannel]] = {}
        self.ended_by: BaseException | None = None
        """The error that this running ends with, as far as it is known."""
        self.errors = 0
        self.bad_lines = 0
        # Groups that ended before their time, by cause.
        self.closed_early: dict[str, int] = {}
        # The stage that is connecting itself to the one above it.
        self.attaching: StageInfo | None = None
        # Those of the stages above one that asks for them.
        self.slices: list[Sliced] | None = None
        self.tunable: dict[int, Callable[[Limiter], None]] = {}
        # Why the sources are paused.
        self._held_by: set[object] = set()
        self._closing: asyncio.Task[None] | None = None
        self._engine: tuple[Flowable[Any], Engine] | None = None
        self._failed: Callable[[BaseException], None] | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that this run lives on; NoLoop if it was started outside of one."""
        if self._loop is None:
            raise NoLoop(
                "This stream needs a running event loop. Call it inside async code, or end it "
                "with .to(sink) and run the pipeline: `run(pipeline)`."
            )
        return self._loop

    def use_engine(self, source: Flowable[Any], engine: Engine) -> None:
        """Run on `engine`, whose source takes the place of `source`."""
        self._engine = source, engine

    @property
    def has_engine(self) -> bool:
        """Whether other runs of the pipeline may write where this one writes."""
        return self._engine is not None

    def in_place_of(self, stream: Flowable[Any]) -> Flowable[Any]:
        """What is attached where a pipeline says `stream`."""
        if self._engine is None or self._engine[0] is not stream:
            return stream
        return self._engine[1].source

    def is_unique(self, stream: Flowable[Any], by: object) -> bool:
        """Whether no two events of `stream` with the same key come within the window."""
        if self._engine is None:
            return False
        source, engine = self._engine
        return source is stream and engine.unique_by is not None and engine.unique_by == by

    def policy(self, on_error: OnError) -> OnError:
        """What a stage does that was built with `on_error`."""
        if self._engine is None or on_error != "stop":
            return on_error
        return self._engine[1].on_error

    @property
    def has_loop(self) -> bool:
        """Whether a loop runs; a stream of plain steps over an iterable needs none."""
        return self._loop is not None

    def add_stage(self, info: StageInfo, statistics: Statistics) -> None:
        """Let a running stage's numbers appear in the statistics."""
        self.stages.append((info, statistics))

    def add_source(self, info: StageInfo, source: Source) -> None:
        """Let a running source be paused, stopped and counted."""
        self.sources.append(source)
        self.stages.append((info.at(1), source.statistics))
        if self._held_by:
            source.pause()

    def hold(self, why: object) -> None:
        """Pause all sources, and those that are still to begin, until `why` is released, and
        whatever else holds them."""
        self._held_by.add(why)
        for source in self.sources:
            source.pause()
        for nested in self._nested:
            nested.hold(why)

    def release(self, why: object) -> None:
        """Let all sources go on, unless something else holds them."""
        if why in self._held_by:
            self._held_by.remove(why)
            if not self._held_by:
                for source in self.sources:
                    source.resume()
            for nested in list(self._nested):
                nested.release(why)

    def on_failure(self, function: Callable[[BaseException], None]) -> None:
        """Who is notified of an error that no subscriber can receive."""
        self._failed = function

    def stopping(self, error: BaseException) -> None:
        """A stage begins no new calls because of `error`; those in flight may finish."""
        if self.on_stopping is not None:
            self.on_stopping(error)

    def failed(self, error: BaseException) -> None:
        """Report an error that no subscriber can receive: it ends the run, or is logged."""
        if isinstance(error, asyncio.CancelledError):
            # Raised as it is, it would be taken for the end of whoever waits for the run.
            error = cancelled_inside("a function of the stream", error)
        if self._failed is not None:
            self._failed(error)
        else:
            log.error("penstock: %s", error, exc_info=error)

    def late_error(self, error: BaseException) -> None:
        """An error after the one that ends the run: it changes nothing, and is not hidden."""
        self.on_warning(f"after the first error: {in_a_line(error)}")

    def inner(self) -> Run:
        """This run as the operators inside a group see it: their stages are not listed."""
        inner = copy.copy(self)
        inner.add_stage = _ignore  # type: ignore[method-assign]
        inner.attaching = None
        return inner

    def nested(self) -> Run:
        """A run for a stream that a stage of this one reads, until it is left.

        Its sources pause with those of this one, and what they give is not counted here; its errors
        and its dead letters are this one's.
        """
        nested = copy.copy(self)
        nested.sources, nested.stages, nested.tunable = [], [], {}
        nested._tasks, nested._nested, nested._closers, nested._letters = {}, {}, [], {}
        nested._held_by = set(self._held_by)
        nested._engine = nested._failed = nested.slices = nested.attaching = None
        nested.letters = self.letters  # type: ignore[method-assign]
        nested.count_error = self.count_error  # type: ignore[method-assign]
        nested.count_bad_line = self.count_bad_line  # type: ignore[method-assign]
        self._nested[nested] = None
        return nested

    def leave(self, nested: Run) -> None:
        """The stream of a nested run is over, and so are all events of it: close that run."""
        if nested._tasks or nested._closers or nested._nested:
            self.spawn(self._close_nested(nested), "close of a nested stream")
        else:
            self._nested.pop(nested, None)

    async def _close_nested(self, nested: Run) -> None:
        await nested.close()
        self._nested.pop(nested, None)

    async def _close_all_nested(self) -> None:
        for nested in list(self._nested):
            await self._close_nested(nested)

    def letters(self, sink: Sink[DeadLetter]) -> DeadLetterChannel:
        """The channel to a dead-letter sink, which is opened once for all stages."""
        if id(sink) not in self._letters:
            self._letters[id(sink)] = (sink, DeadLetterChannel(sink, self))
        return self._letters[id(sink)][1]

    def count_error(self, info: StageInfo, error: BaseException) -> None:
        """An event failed in a stage that carries on; the first few are reported at once."""
        self.errors += 1
        if self.errors <= _SHOWN_ERRORS:
            notes = "; ".join(getattr(error, "__notes__", ()))
            self.on_warning(f"{type(error).__name__}: {message_of(error, _SHOWN_TEXT)} ({notes})")
        elif self.errors == _SHOWN_ERRORS + 1:
            self.on_warning("more events have failed; they are counted and no longer shown")

    def count_bad_line(self, error: BadLine) -> None:
        """A line of the input was not an event; the first few are reported at once."""
        self.bad_lines += 1
        if self.bad_lines <= _SHOWN_ERRORS:
            self.on_warning(str(error))
        elif self.bad_lines == _SHOWN_ERRORS + 1:
            self.on_warning("there are more bad lines; they are counted and no longer shown")

    def unhandled(self, error: BaseException) -> None:
        """An error that a foreign subscriber raised: the loop's exception handler gets it."""
        if self._loop is None:
            raise error
        self._loop.call_exception_handler(
            {"message": "penstock: a subscriber raised", "exception": error}
        )

    # What the loop calls for a stage: an error in it ends the run, or nobody would know why
    # nothing moves any more.

    def call_soon(
        self, info: StageInfo | None, callback: Callable[..., object], *args: Any
    ) -> asyncio.Handle:
        """Have the loop call `callback` next, for the stage `info`: an error in it ends the run."""
        return self.loop.call_soon(self.call, info, callback, *args)

    def call_later(
        self, seconds: float, info: StageInfo | None, callback: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """The same, in so many seconds."""
        return self.loop.call_later(seconds, self.call, info, callback, *args)

    def call_at(
        self, when: float, info: StageInfo | None, callback: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """The same, at a time of the loop."""
        return self.loop.call_at(when, self.call, info, callback, *args)

    def call_soon_threadsafe(
        self, info: StageInfo | None, callback: Callable[..., object], *args: Any
    ) -> asyncio.Handle:
        """The same as `call_soon`, from another thread."""
        return self.loop.call_soon_threadsafe(self.call, info, callback, *args)

    def call(self, info: StageInfo | None, callback: Callable[..., object], *args: Any) -> None:
        """Call `callback` now, where the loop called: an error in it ends the run."""
        try:
            callback(*args)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # The loop would only log it, and the run would hang.
            if info is not None:
                error.add_note(f"in {info}")
            self.failed(error)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that this run owns: an error in it ends the run, `close` cancels it."""
        task = self.loop.create_task(work, name=f"{_TASK}{name}")
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)
        return task

    def on_close(self, closer: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have `closer` awaited once, after all tasks have ended."""
        self._closers.append(closer)

    def hurry(self) -> None:
        """Do not wait for slow dead letters any more when closing: give them a moment."""
        for _, letters in self._letters.values():
            letters.hurry(_GRACE)

    def close_soon(self) -> None:
        """Close in the background; an error goes to the loop's exception handler."""
        opened = self._tasks or self._closers or self._letters or self._nested
        if opened and self._loop is not None and self._loop.is_running():
            closing = self._loop.create_task(self.close(), name="penstock close")
            # The loop itself remembers a task only weakly.
            self._closing = closing
            closing.add_done_callback(self._closed)

    def _closed(self, closing: asyncio.Task[None]) -> None:
        if not closing.cancelled() and (error := closing.exception()) is not None:
            self.unhandled(error)

    async def close(self) -> None:
        """Have dead letters written, cancel what still runs and wait for it, release the rest.

        When the sink of dead letters takes none for as long as the drain deadline, they are
        taken back, which is raised as DrainTimeout. Work that does not end when it is cancelled
        is cancelled again after five seconds, and after five more it is left behind, with a
        warning that names it.

        A closing that is cancelled, as by the end of the loop, breaks off what it waits for, and
        still takes the steps that are left.
        """
        # Letters first: a task of their sink's may have to write them.
        steps: list[Callable[[], Coroutine[Any, Any, None]]] = [
            *(partial(self._flush, *ways) for ways in self._letters.values()),
            self._end_tasks,
            self._close_all_nested,
            *self._closers[::-1],
        ]
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

    async def _flush(self, sink: Sink[DeadLetter], letters: DeadLetterChannel) -> None:
        closing = asyncio.ensure_future(letters.close())
        settled = -1
        try:
            # A slow sink may take its time, one that hangs may not.
            while letters.settled > settled:
                settled = letters.settled
                if (await asyncio.wait([closing], timeout=self.drain_deadline))[0]:
                    return await closing
            letters.hurry(0)
            await asyncio.wait([closing], timeout=_GRACE)
        finally:
            closing.cancel()
        raise DrainTimeout(
            f"{sink.info.name} has taken no dead letter for {self.drain_deadline:g} s at the end; "
            "the events of those that are left have failed and are not acknowledged. Find out "
            "why it hangs, or raise drain_deadline."
        )

    async def _end_tasks(self) -> None:
        again = False
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                # Who is cancelled already cleans up, and may take a moment for it.
                if again or not task.cancelling():
                    task.cancel()
            _, left = await asyncio.wait(tasks, timeout=_GRACE)
            if again and left:
                names = ", ".join(sorted(task.get_name() for task in left))
                self.on_warning(f"left behind, because it does not end when cancelled: {names}")
                return
            again = bool(left)

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            if not getattr(error, "__notes__", ()):
                error.add_note(f"in {self._where(task.get_name().removeprefix(_TASK))}")
            self.failed(error)

    def _where(self, name: str) -> str:
        """The stage that gave its task this name, or else the task."""
        stages = [str(info) for info, _ in self.stages if info.name == name]
        return stages[0] if len(stages) == 1 else f"the task '{name}'"


def in_a_line(error: BaseException) -> str:
    """What happened, and in which stage."""
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    text = " ".join(message_of(error, _SHOWN_TEXT).splitlines())
    return f"{type(error).__name__}: {text}{notes}"


def _ignore(info: StageInfo, statistics: Statistics) -> None: ...
