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
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from concurrent import futures
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Generic, TypeGuard, TypeVar

from penstock.streams.base.clock import monotonic, running_loop
from penstock.streams.base.errors import (
    AnswerTimeout,
    BadArgument,
    BufferFull,
    BuildError,
    Dropped,
    InboxClosed,
    NoLoop,
    Returned,
    as_raised,
    describe,
)
from penstock.streams.base.validation import is_count, is_positive
from penstock.streams.execution.call import IN_STATE, NO_RESULTS
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.answers import Answer, Asked
from penstock.streams.protocol.event import Ending, Event, give_back_all
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.source_stage import BaseSourceStage, source
from penstock.streams.stages.time_slice import fitting

__all__ = ["Inbox", "inbox"]

T = TypeVar("T")

# The most lost events that are shown.
_SHOWN = 5

# Belongs to the caller's loop, or to a thread. Errors are set as results, because a caller that has
# gone away would not retrieve an exception.
_Refusal = InboxClosed | NoLoop | BuildError | AnswerTimeout
# The answer to a waiting caller: a refusal, or how to withdraw its event.
_Answer = _Refusal | Callable[[], None]
_OnLoop = asyncio.Future[_Answer]
_Accepted = _OnLoop | futures.Future[_Answer]
_OnLoopEnded = asyncio.Future[BaseException | None]
_ThreadsEnded = futures.Future[BaseException | None]
_Ended = _OnLoopEnded | _ThreadsEnded
_Caller = tuple[T, _Ended | None, Answer | None]


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
        entrance = self._entrance = _Entrance[T]()
        info = StageInfo(
            "inbox", bound=capacity, delivery=Delivery(answers=True, on_end=entrance.end)
        )

        def attach(downstream: Subscriber[T], run: Run) -> None:
            _Reader(downstream, run, info, entrance).start()

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
        ended: _OnLoopEnded = asyncio.get_running_loop().create_future()
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
        return _as_one(await self._ask(value, timeout))

    async def ask_all(
        self,
        value: T,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> list[Any]:
        """As `ask`, but always a list: empty when the handler has returned no results."""
        return _as_list(await self._ask(value, timeout))

    async def _ask(self, value: T, timeout: float | None) -> Answer:  # noqa: ASYNC109
        answer = Answer()
        loop = asyncio.get_running_loop()
        ended: _OnLoopEnded = loop.create_future()
        if timeout is None:
            await self._put(value, ended, answer)
            await ended
            return answer
        _check(timeout)
        # Costs a third of `asyncio.timeout`.
        timer = loop.call_later(timeout, _expire, ended, timeout)
        try:
            await self._put(value, ended, answer)
            error = await ended
        finally:
            timer.cancel()
        if isinstance(error, AnswerTimeout):
            raise error
        return answer

    async def _put(self, value: T, ended: _OnLoopEnded | None, answer: Answer | None) -> None:
        """Wait until there is room, and put a value in."""
        if self._entrance.is_closed:
            # A run that was started in this loop iteration begins in the next.
            await asyncio.sleep(0)
        reader = self._entrance.reader_with_room()
        if reader is not None:
            if answer is not None and reader.run.asked is None:
                raise _unanswered()
            reader.take_in(value, ended, answer)
            reader.wake_soon()
            return
        accepted: _OnLoop = asyncio.get_running_loop().create_future()
        self._entrance.enter(accepted, (value, ended, answer))
        if answer is not None and ended is not None:
            ended.add_done_callback(partial(_give_up, accepted))
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
        ended: _ThreadsEnded | None = futures.Future() if wait else None
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
        return _as_one(self._ask_threadsafe(value, timeout))

    def ask_all_threadsafe(self, value: T, *, timeout: float | None = None) -> list[Any]:
        """As `ask_threadsafe`, but always a list, as `ask_all`."""
        return _as_list(self._ask_threadsafe(value, timeout))

    def _ask_threadsafe(self, value: T, timeout: float | None) -> Answer:
        until = inf
        if timeout is not None:
            _check(timeout)
            until = monotonic() + timeout
        answer = Answer()
        ended: _ThreadsEnded = futures.Future()
        accepted = self._enter_from_thread((value, ended, answer))
        # Errors are results here, so a TimeoutError is that of this wait.
        try:
            taken = accepted.result(timeout)
            if not isinstance(taken, Exception):
                ended.result(None if timeout is None else max(0.0, until - monotonic()))
        except TimeoutError:
            raise _overdue(timeout or 0.0) from None
        if isinstance(taken, Exception):
            raise self._entrance.refused(taken)
        return answer

    def _enter_from_thread(self, caller: _Caller[T]) -> futures.Future[_Answer]:
        if running_loop() is not None:
            raise BuildError(
                "put_threadsafe() and ask_threadsafe() block their thread, and an event loop runs "
                "in this one: use `await inbox.put(value)` or `await inbox.ask(value)` here"
            )
        accepted: futures.Future[_Answer] = futures.Future()
        self._entrance.enter_from_thread(accepted, caller)
        return accepted


class _Entrance(Generic[T]):
    """Connects an inbox's reader with the callers that wait for room; outlives the runs."""

    def __init__(self) -> None:
        self.reader: _Reader | None = None
        self.callers: OrderedDict[_Accepted, _Caller[T]] = OrderedDict()
        self._from_threads: deque[tuple[_Accepted, _Caller[T]]] = deque()
        self.is_closed = False
        # The last run that has begun to read, or has ended.
        self._run: Run | None = None
        # Held by a thread that enters, and by the loop when a run begins or ends, so that no caller
        # is left waiting for a run that is over.
        self._lock = threading.Lock()

    def open(self, reader: _Reader) -> None:
        """A run begins."""
        with self._lock:
            if self.reader is not None:
                raise BuildError(
                    "an inbox belongs to one run at a time, and this one is being read: wait "
                    "until that pipeline has ended, or make an inbox for each"
                )
            self.reader = reader
            self._run = reader.run
            self.is_closed = False
            self._refuse_elsewhere(_elsewhere())

    def end(self, run: Run) -> None:
        """A run has ended, which may never have read this inbox."""
        with self._lock:
            if self.reader is not None:
                return
            self._run = run
            self._refuse_elsewhere(_closed())
        self.close()

    def _refuse_elsewhere(self, refusal: _Refusal) -> None:
        """Refuse the callers that wait on other loops than that of the run."""
        for accepted in [one for one in self.callers if self._is_elsewhere(one)]:
            del self.callers[accepted]
            # Its loop may be gone, with all its waiting callers.
            with suppress(RuntimeError):
                accepted.get_loop().call_soon_threadsafe(_refuse, accepted, refusal)

    def close(self) -> None:
        """Refuse all callers that wait for room."""
        with self._lock:
            self.is_closed = True
        self.let_threads_in_line()
        while self.callers:
            accepted, _ = self.callers.popitem(last=False)
            if not accepted.done():
                accepted.set_result(_closed())

    def reader_with_room(self) -> _Reader | None:
        """The reader, if it takes an event now; None if the caller has to wait."""
        if self.is_closed:
            raise self.refused(_closed())
        reader = self.reader
        if reader is None or self.callers:
            return None
        if reader.run.loop is not running_loop():
            raise _elsewhere()
        return reader if reader.has_room else None

    def enter(self, accepted: _OnLoop, caller: _Caller[T]) -> None:
        """Wait for room, or for a run to begin."""
        # Before the run begins its loop is unknown.
        with self._lock:
            self._check_open()
            if self._is_elsewhere(accepted):
                raise _elsewhere()
            self.callers[accepted] = caller

    def leave(self, accepted: _OnLoop) -> None:
        """Stop waiting, and withdraw an event taken in meanwhile."""
        with self._lock:
            self.callers.pop(accepted, None)
        if accepted.done() and not accepted.cancelled():
            answer = accepted.result()
            if not isinstance(answer, Exception):
                answer()

    def _is_elsewhere(self, accepted: _Accepted) -> TypeGuard[_OnLoop]:
        """Whether this caller's loop is not that of the run."""
        return (
            self._run is not None
            and isinstance(accepted, asyncio.Future)
            and accepted.get_loop() is not self._run.loop
        )

    def enter_from_thread(self, accepted: _Accepted, caller: _Caller[T]) -> None:
        """Wait for room, in any thread."""
        with self._lock:
            self._check_open()
            self._from_threads.append((accepted, caller))
            if self.reader is not None:
                self.reader.run.call_soon_threadsafe(self.reader.info, self.reader.admit)

    def let_threads_in_line(self) -> None:
        """Add the threads that have arrived to the callers."""
        while self._from_threads:
            accepted, caller = self._from_threads.popleft()
            self.callers[accepted] = caller

    def _check_open(self) -> None:
        if self.is_closed:
            raise self.refused(_closed())

    def refused(self, refusal: Exception) -> Exception:
        """A refusal, if possible with the error that ended the run."""
        if self._run is not None and isinstance(refusal, InboxClosed):
            refusal.__cause__ = self._run.errors.ended_by
        return refusal


class _Reader(BaseSourceStage):
    """The source stage: accepted events wait here for demand."""

    is_pushed = True

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, entrance: _Entrance[Any]
    ) -> None:
        super().__init__(downstream, run, info)
        self._entrance = entrance
        self._taken_in: deque[Event[Any]] = deque()
        self._awaited: dict[Event[Any], _Ended] = {}
        # Those of other inboxes are in it, too.
        self._asked: Asked = {} if run.asked is None else run.asked
        self._stopped = False
        self._lost = 0
        self._first_lost: list[str] = []

    def start(self) -> None:
        self._entrance.open(self)
        self.run.on_close(self._forget)
        super().start()
        self.admit()

    @property
    def has_room(self) -> bool:
        return len(self._taken_in) < (self.info.bound or 0)

    def take_in(self, value: Any, ended: _Ended | None, answer: Answer | None) -> Event[Any]:
        """Accept a value; there must be room. `wake_soon` is to be called then."""
        event = Event(value, self.run.now(), self)
        if ended is not None:
            self._awaited[event] = ended
            if answer is not None:
                self._asked[event] = answer
        self._taken_in.append(event)
        return event

    def _withdraw(self, event: Event[Any]) -> None:
        """Remove an event, if it still waits here, which frees its place."""
        if event in self._taken_in:
            self._taken_in.remove(event)
            self._awaited.pop(event, None)
            self._asked.pop(event, None)
            self.admit()
            self._complete_if_drained()

    def admit(self) -> None:
        """Accept the events of waiting callers, as far as there is room."""
        if self.state or self._stopped:
            return
        self._entrance.let_threads_in_line()
        callers = self._entrance.callers
        while callers and self.has_room:
            accepted, (value, ended, answer) = callers.popitem(last=False)
            # A caller that was cancelled, although it has not resumed yet, has put nothing.
            if accepted.done():
                continue
            if answer is not None and self.run.asked is None:
                accepted.set_result(_unanswered())
            else:
                event = self.take_in(value, ended, answer)
                accepted.set_result(partial(self._withdraw, event))
        if self._taken_in:
            # After all callers have been notified, so that they can still withdraw their events.
            self.wake_soon()

    def request(self, n: int, /) -> None:
        if self._taken_in or self.state or self._withheld is not None:
            super().request(n)
        else:
            # As most often: what is requested is still to be put in.
            self.demand += n

    def produce(self) -> None:
        now = self.run.now()
        waiting = self._taken_in
        while waiting and self.demand and not self._slice.is_over(now):
            size = min(len(waiting), self.demand, self._chunk)
            self.send_all([waiting.popleft() for _ in range(size)])
            self.admit()
            before, now = now, self.run.now()
            self._chunk = fitting(self._chunk, now - before)
        if self._stopped:
            self._complete_if_drained()

    def stop(self) -> None:
        """Accept nothing more; accepted events still go out."""
        if self.state:
            return
        self._stopped = True
        self._entrance.close()
        self._complete_if_drained()

    def _complete_if_drained(self) -> None:
        if self._stopped and not self._taken_in:
            self.complete()

    def release(self) -> None:
        self._entrance.close()
        self._entrance.reader = None
        waiting = list(self._taken_in)
        self._taken_in.clear()
        self.received += len(waiting)
        give_back_all(waiting)

    @property
    def needs_ends(self) -> bool:
        return bool(self._awaited)

    async def _forget(self) -> None:
        """Release all callers that wait for an event of a run that is over."""
        left = list(self._awaited)
        self._note_ends(left, _returned())
        self._tell(left, _returned())
        if self._lost:
            more = self._lost - len(self._first_lost)
            values = ", ".join(self._first_lost) + (f" and {more:,} more" if more else "")
            self.run.errors.warn(
                "lost, because they were not finished and no caller waits for them any more: "
                f"{self._lost:,} of the events in the {self.info.name}: {values}"
            )

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        super().settle(events, ending, why)
        error: BaseException | None = None if ending is Ending.DROPPED else why
        if ending is Ending.RETURNED:
            for event in events:
                ended = self._awaited.get(event)
                if ended is None or ended.done():
                    self._lost += 1
                    if self._lost <= _SHOWN:
                        self._first_lost.append(describe(event.value))
            error = _returned()
        if self._awaited:
            if self._asked:
                self._note_ends(events, _dropped(why) if ending is Ending.DROPPED else error)
            self._tell(events, error)

    def _note_ends(self, events: Iterable[Event[Any]], error: BaseException | None) -> None:
        for event in events:
            answer = self._asked.pop(event, None)
            if answer is not None:
                answer.error = _own(error)

    def _tell(self, events: Iterable[Event[Any]], error: BaseException | None) -> None:
        for event in events:
            ended = self._awaited.pop(event, None)
            if ended is not None and not ended.done():
                ended.set_result(_own(error))

    def statistics(self) -> dict[str, Any]:
        """`buffered` events are accepted and not requested yet; `callers` wait for room;
        `lost` were returned, and no caller waits for them."""
        numbers = super().statistics()
        buffered = len(self._taken_in)
        return {
            **numbers,
            "in": numbers["in"] + buffered,
            "buffered": buffered,
            "callers": len(self._entrance.callers),
            "lost": self._lost,
        }


def _own(error: BaseException | None) -> BaseException | None:
    """`error` for one caller: each that raises it would add its frames for all others."""
    return _returned() if isinstance(error, Returned) else error


def _refuse(accepted: _OnLoop, refusal: _Refusal) -> None:
    if not accepted.done():
        accepted.set_result(refusal)


def _check(timeout: float) -> None:
    if not is_positive(timeout):
        raise BadArgument(f"ask(timeout={timeout!r}): must be positive seconds, or None")


def _overdue(seconds: float) -> AnswerTimeout:
    return AnswerTimeout(
        f"no answer within {seconds:g} s. If the event was taken in, it goes on: give it more "
        "time, or ask again behind distinct_within"
    )


def _expire(ended: _OnLoopEnded, seconds: float) -> None:
    if not ended.done():
        ended.set_result(_overdue(seconds))


def _give_up(accepted: _OnLoop, ended: _OnLoopEnded) -> None:
    if not (accepted.done() or ended.cancelled()):
        error = ended.result()
        assert isinstance(error, AnswerTimeout)
        accepted.set_result(error)


def _dropped(cause: str) -> Dropped:
    """The error of an event that was dropped for this cause."""
    what = f"was dropped ({cause})"
    if cause == IN_STATE:
        what = "is kept in a state: its results come with other events"
    error = Dropped(f"the event ended without a result: it {what}")
    error.cause = cause
    return error


def _as_one(answer: Answer) -> Any:
    results = answer.all()
    if not results:
        raise _dropped(NO_RESULTS)
    return results[0] if len(results) == 1 else results


def _as_list(answer: Answer) -> list[Any]:
    try:
        return answer.all()
    except Dropped as error:
        if error.cause not in (NO_RESULTS, IN_STATE):
            raise
        return []


def _unanswered() -> BuildError:
    return BuildError(
        "ask() returns what reaches the sinks of a pipeline in this process: read the inbox in a "
        "pipeline (.to(sink), and start()), and with workers= give it a sink that gets the results "
        "as they are, such as for_each or collect"
    )


def _elsewhere() -> NoLoop:
    return NoLoop(
        "this inbox is read on an event loop that does not run here: from another thread use "
        "put_threadsafe(value) or ask_threadsafe(value)"
    )


def _closed() -> InboxClosed:
    return InboxClosed(
        "the pipeline that reads this inbox drains or has ended, and takes no new events"
    )


def _returned() -> Returned:
    return Returned("the event was returned unfinished: the pipeline stopped before its end")
