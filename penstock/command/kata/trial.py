"""The grader of the exercise: a user's consumer on the kata's load, observed from outside.

The consumer gets every event, in order, when it is due. It processes an event by `event.process()`
in a thread, or by `await event.process_async()`: that is the work, and it is where the start and
the end of processing are observed. An event that is never processed was a duplicate, or it is lost.

Source: T. Nurkiewicz, "Small scale stream processing kata. Part 1: thread pools" (2016), whose
requirements are graded.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from time import monotonic
from traceback import format_exception_only
from typing import Any, cast

from penstock.command.explain import users_line, users_line_of_frame
from penstock.command.kata.load.events import Event, Load
from penstock.command.kata.load.feed import Arrivals
from penstock.command.kata.load.work import Work
from penstock.command.kata.observe import Observer
from penstock.command.kata.solutions.consumer import Candidate

__all__ = ["Trial", "TriedEvent"]

_PATIENCE = 5.0
"""Seconds that the consumer has to end, when no event is worked on any more."""


class TriedEvent:
    """One event, as a consumer gets it: `uuid`, `client_id`, and `created` on `time.monotonic`.

    A duplicate is another event with the same `uuid` and `client_id`.
    """

    __slots__ = ("_event", "_trial", "client_id", "created", "uuid")

    def __init__(self, event: Event, trial: Trial) -> None:
        self.uuid = event["uuid"]
        self.client_id = event["client_id"]
        self.created = event["created"]
        self._event = event
        self._trial = trial

    def process(self) -> None:
        """Do the work on this event, in the calling thread, which waits for as long as it takes.

        Raises RuntimeError if this event was processed before.
        """
        if self._trial.begin(self._event):
            try:
                self._trial.work.block(self._event)
            except BaseException:
                self._trial.fail(self._event)
                raise
            self._trial.finish(self._event)

    async def process_async(self) -> None:
        """Do the work on this event; the event loop is free for others meanwhile.

        Raises RuntimeError if this event was processed before.
        """
        if self._trial.begin(self._event):
            try:
                await self._trial.work.pause(self._event)
            except BaseException:
                self._trial.fail(self._event)
                raise
            self._trial.finish(self._event)

    def __call__(self) -> None:
        """As `process`, so that an executor can be given the event itself."""
        self.process()

    def __repr__(self) -> str:
        return f"Event(uuid={self.uuid!r}, client_id={self.client_id}, created={self.created:.6f})"


class Trial:
    """One consumer on one load. `errors` are those that came out of it: of each place in its code
    and type the first one's text, and their number.

    The consumer gets the events until `grace` seconds after the load's end, at the latest; then
    what it returned is awaited, and it is closed. From that moment on nothing is measured, and no
    event takes any work, so that what still waits in the consumer ends.
    Memory: the events of the load.
    """

    def __init__(
        self, candidate: Candidate, load: Load, work: Work, observer: Observer, grace: float = 1.0
    ) -> None:
        self.work = work
        self.errors: dict[tuple[str, str], tuple[str, int]] = {}
        self.stuck: str | None = None
        """Where the consumer was when it had not returned long after the end."""
        self.unfit: Exception | None = None
        """Why the consumer could not be made."""
        self._candidate = candidate
        self._arrivals = Arrivals(load, observer)
        self._observer = observer
        self._deadline = observer.start + load.seconds + grace
        self._lock = threading.Lock()
        # By identity; a duplicate is another event.
        self._given: dict[int, Event] = {}
        self._begun: set[int] = set()
        # To be processed after the deadline.
        self._late: set[int] = set()
        # Taken for a duplicate that the consumer drops, when it was given.
        self._dropped: set[int] = set()
        self._uuids: set[str] = set()
        # Processed by the deadline.
        self._ended = 0
        # What the thread of the consumer waits for: every event that is given has been processed.
        self._when_all_ended: Callable[[], object] | None = None
        self._is_closed = False
        self._results: set[asyncio.Future[object]] = set()
        self._returned = 0

    def run(self) -> None:
        """Try the consumer; returns when it has ended, or is `stuck` long after the load's end.

        An interrupt passes through; the observer then has the numbers until it came.
        """
        thread = threading.Thread(target=self._in_thread, name="kata", daemon=True)
        # Taken before the thread starts, because the time until the deadline includes its start.
        ends = monotonic() + self._left() + _PATIENCE
        with self._errors_of_threads():
            thread.start()
            while thread.is_alive() and (left := ends - monotonic()) > 0:
                # A signal that another thread of the process gets does not end the wait for a lock.
                thread.join(min(left, 0.5))
            if thread.is_alive():
                frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
                frame = frames.get(thread.ident or 0)
                line = None if frame is None else users_line_of_frame(frame)
                self.stuck = line or self._candidate.name
        self._settle()

    # What the events report, from any thread.

    def begin(self, event: Event) -> bool:
        """Whether this event's work is to be done: it is too late at the deadline."""
        with self._lock:
            if id(event) in self._begun:
                raise RuntimeError("this event was processed before")
            if self._left() <= 0:
                self._late.add(id(event))
                return False
            self._begun.add(id(event))
            self._uuids.add(event["uuid"])
            if id(event) in self._dropped:
                self._dropped.discard(id(event))
                self._observer.kept(event)
        self._observer.started(event)
        return True

    def finish(self, event: Event) -> None:
        """Its work has been done."""
        if self._end():
            self._observer.finished(event)

    def fail(self, event: Event) -> None:
        """Its work was broken off."""
        if self._end():
            self._observer.failed(event)

    def _end(self) -> bool:
        with self._lock:
            in_time = self._left() > 0
            self._ended += in_time
            if self._when_all_ended is not None and self._ended == len(self._given):
                self._when_all_ended()
            return in_time

    def _left(self) -> float:
        return self._deadline - self._observer.now()

    # In the thread that gives events to the consumer, which has an event loop.

    def _in_thread(self) -> None:
        try:
            asyncio.run(self._try())
        except BaseException as error:
            # SystemExit and the like, which end a loop.
            self._note(error)

    async def _try(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self._note_of_loop)
        try:
            consumer = self._candidate.make()
        except Exception as error:
            self.unfit = error
            return
        is_function = inspect.isroutine(consumer)
        close = None if is_function else _close_of(consumer)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._left()):
                await self._give_all(consumer if is_function else consumer.submit, is_function)
                if self._results:
                    await asyncio.wait(self._results)
                if close is None and self._returned == len(self._given):
                    self._is_closed = True
                elif close is None:
                    await self._all_ended()
        if close is not None:
            await self._close(close)

    async def _all_ended(self) -> None:
        """Wait until every event has been processed; if some are duplicates, until the deadline."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            if self._ended == len(self._given):
                return
            self._when_all_ended = lambda: loop.call_soon_threadsafe(ended.set)
        try:
            await ended.wait()
        finally:
            with self._lock:
                self._when_all_ended = None

    async def _give_all(self, submit: Callable[[TriedEvent], Any], is_function: bool) -> None:
        arrivals = self._arrivals
        while True:
            arrivals.arrive(self._observer.now())
            event = arrivals.take()
            if event is not None:
                await self._give(submit, event, is_function)
                # What it has started goes on, and the deadline comes, while events wait.
                await asyncio.sleep(0)
            elif arrivals.next_due is not None:
                await asyncio.sleep(max(0.0, arrivals.next_due - self._observer.now()))
            else:
                return

    async def _give(
        self, submit: Callable[[TriedEvent], Any], event: Event, is_function: bool
    ) -> None:
        with self._lock:
            self._given[id(event)] = event
            if event["uuid"] in self._uuids:
                self._dropped.add(id(event))
                self._observer.dropped(event)
        try:
            result = submit(TriedEvent(event, self))
            if inspect.iscoroutine(result):
                result = asyncio.create_task(result) if is_function else await result
        except Exception as error:
            self._note(error)
        else:
            self._expect(result)

    def _expect(self, result: object) -> None:
        """Await what the consumer returned for an event, if that can be awaited."""
        future: asyncio.Future[object]
        if isinstance(result, concurrent.futures.Future):
            future = asyncio.wrap_future(cast("concurrent.futures.Future[object]", result))
        elif isinstance(result, asyncio.Future):
            future = cast("asyncio.Future[object]", result)
        else:
            return
        self._returned += 1
        self._results.add(future)
        future.add_done_callback(self._note_result)

    def _note_result(self, result: asyncio.Future[object]) -> None:
        self._results.discard(result)
        if not result.cancelled() and (error := result.exception()) is not None:
            self._note(error)

    async def _close(self, close: Callable[[], Any]) -> None:
        try:
            closing = close()
            if inspect.isawaitable(closing):
                async with asyncio.timeout(max(0.0, self._left()) + _PATIENCE / 2):
                    await closing
        except Exception as error:
            self._note(error)
        else:
            self._is_closed = True

    # What is found.

    def _note_of_loop(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            self._note(error)

    @contextmanager
    def _errors_of_threads(self) -> Generator[None]:
        """Inside the block, note what ends any thread."""
        before = threading.excepthook
        threading.excepthook = lambda thread: self._note(thread.exc_value)
        try:
            yield
        finally:
            threading.excepthook = before

    def _note(self, error: BaseException | None) -> None:
        if isinstance(error, BaseExceptionGroup):
            for each in cast("BaseExceptionGroup[BaseException]", error).exceptions:
                self._note(each)
        elif error is not None:
            line = users_line(error) or self._candidate.name
            key = line, type(error).__name__
            with self._lock:
                text, count = self.errors.get(key) or (format_exception_only(error)[-1].strip(), 0)
                self.errors[key] = text, count + 1

    def _settle(self) -> None:
        """Report what became of the events that were not processed."""
        # Those that the consumer did not take are there all the same.
        self._arrivals.arrive(self._deadline)
        with self._lock:
            seen = self._uuids | {self._given[key]["uuid"] for key in self._late}
            is_at_work = bool(self._late) or len(self._begun) > self._ended
            known = self._begun | self._late | self._dropped
            for key, event in self._given.items():
                if key in known:
                    continue
                if event["uuid"] in seen:
                    self._observer.dropped(event)
                elif self._is_closed or not is_at_work:
                    self._observer.lost(event)
                seen.add(event["uuid"])


def _close_of(consumer: Any) -> Callable[[], Any] | None:
    """The method that ends the consumer after the last event."""
    for name in ("aclose", "close", "shutdown"):
        method: Callable[[], Any] | None = getattr(consumer, name, None)
        if callable(method):
            return method
    return None
