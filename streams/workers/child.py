"""A worker: runs the section of a pipeline on the events that its parent sends."""

from __future__ import annotations

import os
from array import array
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count, repeat
from typing import Any, cast

from penstock.streams.diagnostics.loop_lag import Blocks
from penstock.streams.errors import NotPicklable, Returned
from penstock.streams.failures.policy import sink_of
from penstock.streams.flowable import Flowable
from penstock.streams.io.encoding import Unencoded
from penstock.streams.keyed.taken import taken
from penstock.streams.limits import Completion, Fixed, Limiter, Outcome
from penstock.streams.protocol.acknowledgement import AckHook, Family
from penstock.streams.protocol.event import (
    FAILED,
    FINISHED,
    RETURNED,
    Ending,
    Event,
    fail_all,
    new_events,
)
from penstock.streams.protocol.sink_stage import SinkStage
from penstock.streams.protocol.source_stage import SourceStage
from penstock.streams.protocol.stage import StageInfo, Subscriber
from penstock.streams.protocol.time_slice import LARGEST
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.overrides import Overrides
from penstock.streams.workers.messages import (
    Cancel,
    Complete,
    Completed,
    Completions,
    Confirmed,
    Ended,
    Events,
    Grant,
    Letter,
    Link,
    Numbers,
    Over,
    Part,
    Room,
    Stop,
    Stopping,
    Traced,
    Warn,
    Withdraw,
    Withdrawn,
    sendable,
)
from penstock.streams.workers.placement import Section

__all__ = ["Child"]

# Seconds for which a result waits for others that are sent with it.
_FLUSH_AFTER = 0.001

# Seconds between two reports of the statistics.
_REPORT = 0.2


class Lent:
    """A limit that another process grants, and that learns there from the calls that end here."""

    reason = "lent"

    def __init__(self, limit: int, completed: Callable[[list[Completion]], None]) -> None:
        self.limit = limit
        self.on_completions = completed

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        """Pass one completion on."""
        self.on_completions([(now, started, in_flight_at_start, outcome)])


class _Sent(Event[Any]):
    """An event of the parent, with its number there."""

    __slots__ = ("number",)

    number: int


_ONLY_SENT: set[type[Event[Any]]] = {_Sent}


class _Inlet(SourceStage[Any]):
    """The source of a section: emits what the parent has sent."""

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        settled: Callable[[list[Event[Any]], Ending, Any], None],
    ) -> None:
        super().__init__(downstream, run, info)
        self._settled = settled
        self._inbox: deque[Event[Any]] = deque()
        self._is_last = False

    def take(self, message: Events) -> None:
        """Events have come."""
        tokens = repeat(None) if message.tokens is None else message.tokens
        events: list[Any] = new_events(message.values, 0.0, self, tokens, _Sent)
        for event, created, number in zip(
            events, message.created, count(message.first), strict=False
        ):
            event.created = created
            event.number = number
        if message.contexts is not None and self.run.tracing is not None:
            self.run.tracing.join(events, message.contexts)
        if self.done:
            self._settled(events, RETURNED, None)
        else:
            self._inbox.extend(events)
            self.wake()

    def end(self) -> None:
        """No more events come."""
        self._is_last = True
        if not self._inbox:
            self.complete()

    def produce(self) -> None:
        while self.demand and self._inbox:
            self.send(taken(self._inbox, self.demand))
        if self._is_last and not self._inbox:
            self.complete()

    def withdraw(self) -> None:
        """Return what was not emitted yet."""
        if self._inbox:
            self._settled(taken(self._inbox, len(self._inbox)), RETURNED, None)

    def release(self) -> None:
        self.withdraw()

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        self._settled(events, ending, why)


class _Outlet(SinkStage[Any]):
    """The sink of a section: sends the results to the parent, as many as that has room for.

    Results wait for others until the loop goes on, at most 1 ms and until there are 256 of them.
    """

    def __init__(
        self,
        room: int,
        run: Run,
        send: Callable[[Any], None],
        unsendable: Callable[[Event[Any], NotPicklable], None],
        closed: Callable[[BaseException | None], None],
        encode: Callable[[Any], bytes] | None,
    ) -> None:
        super().__init__(closed)
        self.asks_first = room
        self._encode = encode
        self._run = run
        self._send = send
        self._unsendable = unsendable
        self._unsent: list[_Sent] = []

    def on_events(self, events: list[Event[Any]], /) -> None:
        unsent = self._unsent
        whole: list[Any] = events
        # Faster than to look at each, and there is rarely another kind.
        if set(map(type, events)) != _ONLY_SENT:
            whole = [event for event in events if type(event) is _Sent]
        if whole:
            if not unsent:
                self._run.call_soon(None, self.flush)
            unsent += whole
            if len(unsent) >= LARGEST or unsent[-1].ended >= unsent[0].ended + _FLUSH_AFTER:
                self.flush()
        if len(whole) < len(events):
            for event in events:
                if type(event) is not _Sent:
                    self._send_part(event)

    def flush(self) -> None:
        """Send the results that wait."""
        events, self._unsent = self._unsent, []
        if events:
            self._send_whole(events)

    def _send_whole(self, events: list[_Sent]) -> None:
        """Events with one result each, which is their value now."""
        try:
            self._send(
                Ended(
                    [event.number for event in events],
                    self._encoded([event.value for event in events]),
                    array("d", [event.started or event.created for event in events]),
                    array("d", [event.ended for event in events]),
                )
            )
        except NotPicklable as error:
            if len(events) > 1:
                for event in events:
                    self._send_whole([event])
            else:
                self._unsendable(events[0], error)

    def _encoded(self, values: list[Any]) -> list[Any]:
        """The values as they are sent."""
        encode = self._encode
        if encode is None:
            return values
        try:
            return list(map(encode, values))
        except Exception:
            if len(values) == 1:
                # The sink will find the same error, and do what it does about it.
                return [Unencoded(values[0])]
            return [self._encoded([value])[0] for value in values]

    def _send_part(self, event: Event[Any]) -> None:
        self.flush()
        try:
            started = event.started or event.created
            (value,) = self._encoded([event.value])
            self._send(Part(_root(event).number, value, started, event.ended))
        except NotPicklable as error:
            self._unsendable(event, error)
        else:
            event.finish()


class _Letters:
    """The dead letters of a section, which the parent writes."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def open(self, sink: Any) -> _Channel:
        """The channel of the stage that routes to `sink`."""
        return _Channel(self._child, sink)

    def hurry(self) -> None:
        """Nothing waits here."""


class _Channel:
    def __init__(self, child: Child, sink: Any) -> None:
        self._child = child
        self._stage = next(
            info.number for info in child.section.infos if sink_of(info.policy) is sink
        )

    def send(
        self,
        event: Event[Any],
        error: BaseException,
        stage: str,
        attempts: int,
        accepted: Callable[[], None] = lambda: None,
    ) -> None:
        """Send the letter to the parent."""
        # Counted here, and written there.
        number = _root(event).number
        self._child.send(Letter(number, event.value, sendable(error), self._stage, attempts))
        accepted()
        event.fail(error, acknowledged=True)


class _Blocks(Blocks):
    """A plain handler may block the loop of a worker, which has nothing else to do."""

    def called(self, who: str, seconds: float, *, is_own: bool) -> None:
        """Report nothing."""


class _Overrides(Overrides):
    """The section begins with the inlet, and its limit is lent."""

    def __init__(self, above: Flowable[Any], inlet: Flowable[Any], parallel: int) -> None:
        super().__init__()
        self._above = above
        self._inlet = inlet
        self.parallel = parallel

    def in_place_of(self, stream: Flowable[Any]) -> Flowable[Any]:
        return self._inlet if stream is self._above else stream


class Child:
    """One worker, on the running loop. `received` is called with each message of the parent.

    `over` is called after the last message.
    """

    def __init__(self, section: Section, link: Link, window: int, over: Callable[[], None]) -> None:
        self.section = section
        self._link = link
        self._room = window
        self._over = over
        self._grant, self._limit = 0, 1
        self._learns = False
        self._completions: list[Completion] = []
        self._failed_events: list[Over] = []
        # The numbers of events that have ended well without a result, by ending and cause.
        self._over_events: dict[tuple[int, Any], list[int]] = {}
        self._is_stopped = self._is_closing = False
        # Whether the parent waits until no more calls than the limit are in flight.
        self._confirms = False
        self._inlet: _Inlet | None = None
        self._run: Run | None = None
        self._traced: Traced | None = None

    def _begin(self) -> Run:
        section = self.section
        inlet: Flowable[Any] = Flowable(self._attach_inlet, section.above.info)
        self._overrides = _Overrides(section.above, inlet, self._limit)
        self._overrides.lent = self._limiter()
        self._run = run = Run(overrides=self._overrides)
        self._working: Callable[[], dict[str, Any]] | None = None
        run.letters = _Letters(self)  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
        run.on_failed = self._failed
        run.errors.on_stopping = self._stopping
        run.errors.on_warning = self._warned
        run.blocks = _Blocks(run.loop, self._blocked)
        if self._traced is not None:
            from penstock.streams.telemetry.traces import Tracing

            last, field, show_values = self._traced
            above = section.above.info
            Tracing(
                *(run, [above, *section.infos], last, None, 0.0, field),
                show_values=show_values,
                elsewhere=frozenset((above.number,)),
                begins=False,
            )
        self._outlet = _Outlet(
            self._room, run, self.send, self._unsendable, self._closed, section.encode
        )
        section.last.attach(self._outlet, run)
        self._working = next(
            numbers for info, numbers in run.stages if info.number == section.working.number
        )
        self._report_later(run)
        return run

    def _attach_inlet(self, downstream: Subscriber[Any], run: Run) -> None:
        self._inlet = _Inlet(downstream, run, self.section.above.info, self._settled)
        self._inlet.start()

    # Messages.

    def received(self, message: Any) -> None:
        """A message of the parent."""
        match message:
            case Events():
                if message.room:
                    self._give_room(message.room)
                if self._inlet is not None:
                    self._inlet.take(message)
            case Room():
                self._give_room(message.n)
            case Grant():
                self._granted(message)
            case Traced():
                self._traced = message
            case Withdraw():
                if self._inlet is not None and self._run is not None:
                    self._inlet.withdraw()
                    for withdraw in reversed(self._run.withdrawals):
                        withdraw()
                self.send(Withdrawn())
            case Stop():
                self._is_stopped = True
                if self._run is None:
                    self._cancel()
                elif self._inlet is not None:
                    self._inlet.error(Returned("the pipeline has stopped"))
            case Complete():
                if self._run is None:
                    self._cancel()
                elif self._inlet is not None:
                    self._inlet.end()
            case Cancel():
                self._cancel()
            case _:
                raise TypeError(f"unknown message: {message!r}")

    def _give_room(self, n: int) -> None:
        self._room += n
        if not self._is_closing:
            self._outlet.upstream.request(n)

    def abandon(self) -> None:
        """End at once, for tests: nothing more is sent."""
        self._link.close()
        self._cancel()

    def send(self, message: Any) -> None:
        """Send a message to the parent, after what waits."""
        self._send_waiting()
        self._link.send(message)
        if self._confirms:
            self._confirm()

    def _send_together(self) -> None:
        """Send what waits, if no message has come with which it was sent."""
        self._send_waiting()
        if self._confirms:
            self._confirm()

    def _send_waiting(self) -> None:
        """Send the results, completions and endings that wait to be sent together."""
        if self._run is not None:
            self._outlet.flush()
        if self._completions:
            ends, self._completions = self._completions, []
            self._link.send(Completions(ends))
        if self._over_events:
            over, self._over_events = self._over_events, {}
            for (ending, why), numbers in over.items():
                self._link.send(Over(numbers, ending, why))

    # The limit.

    def _limiter(self) -> Limiter:
        return Lent(self._limit, self._completed) if self._learns else Fixed(self._limit)

    def _granted(self, grant: Grant) -> None:
        self._grant, self._limit, self._learns = grant
        run = self._run or self._begin()
        self._overrides.lent = limiter = self._limiter()
        retune = run.tunable.get(self.section.working.number)
        if retune is not None:
            retune(limiter)
        self._confirms = True
        self._confirm()

    def _confirm(self) -> None:
        """Report when no more calls are in flight than were granted last."""
        if self._working is not None and self._working()["in_flight"] <= self._limit:
            self._confirms = False
            self._link.send(Confirmed(self._grant))

    def _completed(self, ends: list[Completion]) -> None:
        if not self._completions and self._run is not None:
            self._run.call_soon(None, self._send_together)
        self._completions += ends

    # Outcomes.

    def _settled(self, events: list[Event[Any]], ending: Ending, why: Any) -> None:
        numbers = [cast(_Sent, event).number for event in events]
        if ending <= FINISHED and self._run is not None:
            # In one message, because a stage that drops events may do so one by one.
            if not self._over_events:
                self._run.call_soon(None, self._send_together)
            self._over_events.setdefault((int(ending), why), []).extend(numbers)
            return
        if isinstance(why, BaseException):
            why = sendable(why)
        message = Over(numbers, int(ending), why)
        if ending is FAILED and not self._is_stopped and self._run is not None:
            # First the parent must know whether the stage stops because of it.
            self._failed_events.append(message)
            self._run.call_soon(None, self._send_failed)
        else:
            self.send(message)

    def _send_failed(self) -> None:
        messages, self._failed_events = self._failed_events, []
        for message in messages:
            self.send(message)

    def _warned(self, text: str, fields: dict[str, Any]) -> None:
        self.send(Warn(text, fields))

    def _blocked(self, text: str) -> None:
        self._warned(f"in worker process {os.getpid()} {text}", {})

    def _unsendable(self, event: Event[Any], error: NotPicklable) -> None:
        if self._is_stopped:
            event.give_back()
            return
        told = NotPicklable(f"the result of {self.section.working} {error}")
        fail_all([event], told)
        self._stopping(told)

    def _stopping(self, error: BaseException) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            self.send(Stopping(sendable(error)))
            self._send_failed()

    def _failed(self, error: BaseException) -> None:
        self._stopping(error)
        self._cancel()

    def _cancel(self) -> None:
        if self._run is None:
            self.send(Completed())
            self._over()
        elif not self._is_closing:
            self._outlet.upstream.cancel()
            self._outlet.close()

    def _closed(self, error: BaseException | None) -> None:
        if error is not None:
            self._stopping(error)
        if not self._is_closing:
            self._is_closing = True
            assert self._run is not None
            # Kept here, because a loop does not keep its tasks.
            self._closing = self._run.loop.create_task(self._close(self._run))

    async def _close(self, run: Run) -> None:
        await run.close()
        self._send_failed()
        self.send(Numbers(self._numbers()))
        self.send(Completed())
        self._link.close()
        self._over()

    # Numbers.

    def _numbers(self) -> dict[int, dict[str, Any]]:
        return {
            info.number: numbers()
            for info, numbers in ([] if self._run is None else self._run.stages)
            if info.number > self.section.above.info.number
        }

    def _report_later(self, run: Run) -> None:
        run.call_later(_REPORT, None, partial(self._report, run))

    def _report(self, run: Run) -> None:
        if run is self._run and not self._is_closing:
            self.send(Numbers(self._numbers()))
            self._report_later(run)


def _root(event: Event[Any]) -> _Sent:
    """The event of the parent that `event` was made of: no stage of a section joins events."""
    while not isinstance(event, _Sent):
        origin, outer = event.origin, event.outer
        while isinstance(origin, AckHook):
            origin, outer = origin.behind(outer)
        assert isinstance(origin, Family)
        event = origin.parent
    return event
