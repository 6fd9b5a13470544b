"""A push source: other code puts events in, such as a web service its requests.

Items:   every value that was put or asked about, in the order in which room was found for it.
Time:    in the loop iteration after it was taken in, or when it is requested. An event counts as
         created when it was taken in.
Memory:  `capacity` events, and the callers that wait for room; for each event that a caller has
         asked about, its results until it has ended.
Demand:  events wait until they are requested; when `capacity` events wait, callers wait too.
Ends:    when the block of `async with pipeline.start()` is left, or by a drain: callers are refused
         with InboxClosed, and what was taken in is finished. A cancel, an error or a deadline that
         passes returns the rest: callers that ask, or put with `wait`, get Returned. Returned
         events without a waiting caller are lost; a warning at the end reports their number and the
         first few values.
Errors:  none of its own. A second run at the same time fails with BuildError.

    put        --1--2--345--------
    request    3--------------2---
    inbox(1)   --1--2--3------45--     4 is taken in and waits; 5 waits for room
"""

from __future__ import annotations

import asyncio
from concurrent import futures
from functools import partial
from math import inf
from typing import Any, TypeVar

from penstock.streams.base.clock import monotonic, running_loop
from penstock.streams.base.errors import (
    AnswerTimeout,
    BadArgument,
    BufferFull,
    BuildError,
    as_raised,
)
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import is_count
from penstock.streams.inbox.callers import (
    Admission,
    Caller,
    OnLoop,
    OnLoopEnded,
    ThreadsEnded,
    as_list,
    as_one,
    check_timeout,
    expire,
    give_up,
    overdue,
    unanswered,
)
from penstock.streams.inbox.entrance import Entrance
from penstock.streams.inbox.reader import Reader
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.answers import Answer
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.source_stage import source

__all__ = ["Inbox", "inbox"]

T = TypeVar("T")


@recorded
@source
def inbox(capacity: int) -> Inbox[Any]:
    """A stream into which other code puts events, with room for `capacity` events.

    `hooks: Inbox[Hook] = inbox(100)` says what its events are. Raises BadArgument unless
    `capacity` is at least 1.

    >>> import asyncio
    >>> from penstock import for_each, inbox
    >>> async def main():
    ...     orders = inbox(10)
    ...     async with orders.to(for_each(print)).start():
    ...         await orders.put({"id": 1}, wait=True)
    >>> asyncio.run(main())
    {'id': 1}
    """
    return Inbox(capacity)


class Inbox(Flowable[T]):
    """The stream that `inbox` returns, with the methods to put events in.

    It belongs to one run at a time, on whose loop `put`, `put_nowait` and `ask` are called. Until a
    run begins, `put` and `ask` wait, and raise NoLoop if it begins on another loop; once the run
    drains or has ended, all methods raise InboxClosed, until another run begins. That also holds
    for a run that ended without reading the inbox, such as one cancelled before it began. A run
    begins in the loop iteration after `start()`. `put` and `ask` wait for it, also after an earlier
    run; for the methods that do not wait, and for those of threads, the inbox stays until then as
    it was before `start()`.
    """

    def __init__(self, capacity: int) -> None:
        if not is_count(capacity):
            raise BadArgument(f"inbox(capacity={capacity!r}): at least 1 event must fit")
        entrance = self._entrance = Entrance[T]()
        info = StageInfo(
            "inbox", bound=capacity, delivery=Delivery(answers=True, on_end=entrance.end)
        )

        def attach(downstream: Subscriber[T], run: Run) -> None:
            Reader(downstream, run, info, entrance).start()

        super().__init__(attach, info)

    async def put(self, value: T, *, wait: bool = False) -> None:
        """Put a value in; wait while there is no room.

        With `wait` returns when the event has finished, or was dropped on purpose (as a duplicate:
        when the first one has finished). Raises the event's own error when it failed, was skipped
        or routed, and Returned when it was returned unfinished, as on a cancel; a duplicate of an
        event in progress raises the error of that event.

        A caller cancelled while waiting for room has put nothing; later the event goes on. A caller
        gets its room one loop iteration before it resumes: if it is cancelled in between, its event
        is withdrawn, unless it has left the inbox already, in which case it goes on.

        Raises InboxClosed when the pipeline drains or has ended; if that was by an error, it is the
        `__cause__`.
        """
        if not wait:
            await self._put(value, None, None)
            return
        ended: OnLoopEnded = asyncio.get_running_loop().create_future()
        await self._put(value, ended, None)
        if (error := await ended) is not None:
            raise as_raised(error)

    async def ask(self, value: T, *, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        """Put a value in, and return what came of it: the value that reached the sinks.

        That is the result of the pipeline for this event, also through `batch` and after retries;
        several results are a list of them, in the order in which the sinks got them. A value that
        was made of several events, as by `chunk`, is the result of each of them. Its type is not
        known here: it is whatever the stages make.

        Returns when the event has finished, as `put` with `wait`: with a store, or with sinks that
        confirm, after its commit. Raises the event's own error when it failed, was skipped or
        routed; Dropped, with its `cause`, when it ended without a result; Returned when it was
        returned unfinished. A duplicate gets the answer about the first event with its key, for as
        long as `distinct_within` remembers that; Duplicate if nobody has asked about the first one,
        or more than `hold` others were asked about since.

        After `timeout` seconds, the wait for room included, raises AnswerTimeout. Then, and when
        the caller is cancelled, an event that was taken in goes on.

        Raises what `put` raises, BadArgument for a wrong timeout, and BuildError where the results
        reach no sinks in this process: in a stream that is read without a pipeline or made while
        it runs, or with `workers` that write or encode them.
        """
        return as_one(await self._ask(value, timeout))

    async def ask_all(
        self,
        value: T,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> list[Any]:
        """As `ask`, but always a list: empty when the handler has returned no results."""
        return as_list(await self._ask(value, timeout))

    async def _ask(self, value: T, timeout: float | None) -> Answer:  # noqa: ASYNC109
        answer = Answer()
        loop = asyncio.get_running_loop()
        ended: OnLoopEnded = loop.create_future()
        if timeout is None:
            await self._put(value, ended, answer)
            await ended
            return answer
        check_timeout(timeout)
        # Costs a third of `asyncio.timeout`.
        timer = loop.call_later(timeout, expire, ended, timeout)
        try:
            await self._put(value, ended, answer)
            error = await ended
        finally:
            timer.cancel()
        if isinstance(error, AnswerTimeout):
            raise error
        return answer

    async def _put(self, value: T, ended: OnLoopEnded | None, answer: Answer | None) -> None:
        """Wait until there is room, and put a value in."""
        if self._entrance.is_closed:
            # A run that was started in this loop iteration begins in the next.
            await asyncio.sleep(0)
        reader = self._entrance.reader_with_room()
        if reader is not None:
            if answer is not None and reader.run.asked is None:
                raise unanswered()
            reader.take_in(value, ended, answer)
            reader.wake_soon()
            return
        accepted: OnLoop = asyncio.get_running_loop().create_future()
        self._entrance.enter(accepted, (value, ended, answer))
        if answer is not None and ended is not None:
            ended.add_done_callback(partial(give_up, accepted))
        try:
            taken = await accepted
        except asyncio.CancelledError:
            self._entrance.leave(accepted)
            raise
        if isinstance(taken, AnswerTimeout):
            self._entrance.leave(accepted)
            raise AnswerTimeout(self._not_taken_in())
        if isinstance(taken, Exception):
            raise self._entrance.refused(taken)

    def _not_taken_in(self) -> str:
        why = (
            "no running pipeline reads this inbox"
            if self._entrance.reader is None
            else f"all {self.info.bound:,} places of this inbox are taken"
        )
        return f"the value was not put in before the timeout, and will not be: {why}"

    def put_nowait(self, value: T) -> None:
        """Put a value in if there is room, else raise BufferFull; on the pipeline's loop.

        Raises InboxClosed when the pipeline drains or has ended.
        """
        reader = self._entrance.reader_with_room()
        if reader is not None:
            reader.take_in(value, None, None)
            reader.wake_soon()
        elif self._entrance.reader is None:
            raise BufferFull("put_nowait(): no running pipeline reads this inbox yet")
        else:
            raise BufferFull(
                f"put_nowait(): this inbox has room for {self.info.bound:,}, and all of it is "
                "taken. `await inbox.put(value)` waits for room; or raise the capacity."
            )

    def put_threadsafe(self, value: T, *, wait: bool = False) -> None:
        """`put` for threads without an event loop; blocks the calling thread while `put` waits.

        Raises BuildError in a thread with a running event loop, which it would block.
        """
        ended: ThreadsEnded | None = futures.Future() if wait else None
        accepted = self._enter_from_thread((value, ended, None))
        if isinstance(answer := accepted.result(), Exception):
            raise self._entrance.refused(answer)
        if ended is not None and (error := ended.result()) is not None:
            raise error

    def ask_threadsafe(self, value: T, *, timeout: float | None = None) -> Any:
        """`ask` for threads without an event loop; blocks the calling thread.

        What waits for room when the `timeout` passes is still taken in later. Raises BuildError in
        a thread with a running event loop, which it would block.
        """
        return as_one(self._ask_threadsafe(value, timeout))

    def ask_all_threadsafe(self, value: T, *, timeout: float | None = None) -> list[Any]:
        """As `ask_threadsafe`, but always a list, as `ask_all`."""
        return as_list(self._ask_threadsafe(value, timeout))

    def _ask_threadsafe(self, value: T, timeout: float | None) -> Answer:
        until = inf
        if timeout is not None:
            check_timeout(timeout)
            until = monotonic() + timeout
        answer = Answer()
        ended: ThreadsEnded = futures.Future()
        accepted = self._enter_from_thread((value, ended, answer))
        # Errors are results here, so a TimeoutError is that of this wait.
        try:
            taken = accepted.result(timeout)
            if not isinstance(taken, Exception):
                ended.result(None if timeout is None else max(0.0, until - monotonic()))
        except TimeoutError:
            raise overdue(timeout or 0.0) from None
        if isinstance(taken, Exception):
            raise self._entrance.refused(taken)
        return answer

    def _enter_from_thread(self, caller: Caller[T]) -> futures.Future[Admission]:
        if running_loop() is not None:
            raise BuildError(
                "put_threadsafe() and ask_threadsafe() block their thread, and an event loop runs "
                "in this one: use `await inbox.put(value)` or `await inbox.ask(value)` here"
            )
        accepted: futures.Future[Admission] = futures.Future()
        self._entrance.enter_from_thread(accepted, caller)
        return accepted
