"""A worker: runs the section of a pipeline on the events that its parent sends."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from penstock.streams.base.errors import BuildError, NotPicklable, Returned
from penstock.streams.diagnostics.loop_lag import Blocks
from penstock.streams.failures.policy import sink_of, survives
from penstock.streams.failures.sent_error import SentError, sendable
from penstock.streams.limits import Completion, Fixed, Limiter, Outcome
from penstock.streams.protocol.event import (
    FINISHED,
    Ending,
    Event,
)
from penstock.streams.protocol.stage import CLOSED, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.running.open_sinks import Opening, OpenSinks
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.overrides import Overrides
from penstock.streams.runtime.tasks import new_task
from penstock.streams.stages.sink_stage import Closed
from penstock.streams.stages.stream import Stream
from penstock.streams.workers import messages
from penstock.streams.workers.inlet_outlet import Inlet, Outlet, Sent, root_of
from penstock.streams.workers.messages import Link
from penstock.streams.workers.numbers import with_keys_in_words
from penstock.streams.workers.placement import Section

__all__ = ["Child"]

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


class _Letters:
    """The dead letters of a section, which the parent writes."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def open(self, sink: Any, _: object) -> _Channel:
        """The channel of the stage that routes to `sink`."""
        return _Channel(self._child, sink)

    def hurry(self) -> None:
        """Nothing waits here."""


class _Channel:
    def __init__(self, child: Child, sink: Any) -> None:
        self._child = child
        infos = child.section.infos_with_sinks
        stage = next((info.number for info in infos if sink_of(info.policy) is sink), None)
        if stage is None:
            raise BuildError(
                f"a sink that workers open routes events to {sink.info.name}, and does not say so: "
                "give its `info` its on_error as `policy`"
            )
        self._stage = stage

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
        number = root_of(event).number
        letter = messages.Letter(number, event.value, sendable(error), self._stage, attempts)
        try:
            self._child.send(letter)
        except NotPicklable:
            self._child.send(letter._replace(value=None, has_value=False))
        accepted()
        event.fail(error, acknowledged=True)


class _Blocks(Blocks):
    """A plain handler may block the loop of a worker, which has nothing else to do."""

    def called(self, who: str, seconds: float, *, is_own: bool) -> None:
        """Report nothing."""


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
        self._unfinished: list[messages.Over] = []
        # The numbers of events that have ended well without a result, by ending and cause.
        self._over_events: dict[tuple[int, Any], list[int]] = {}
        self._is_stopped = self._is_closing = False
        # The error that has stopped it, if that is its own.
        self._error: BaseException | None = None
        # Whether the parent waits until no more calls than the limit are in flight.
        self._confirms = False
        self._inlet: Inlet | None = None
        self._outlet: Outlet | None = None
        self._working: Callable[[], dict[str, Any]] | None = None
        self._run: Run | None = None
        self._traced: messages.Traced | None = None
        self._counts = False

    def _begin(self) -> Run:
        section = self.section
        inlet: Stream[Any] = Stream(self._attach_inlet, section.above.info)
        self._overrides = Overrides(section.above, inlet)
        self._overrides.parallel = self._limit
        self._overrides.is_bounded = True
        self._overrides.lent = self._limiter()
        self._run = run = Run(overrides=self._overrides)
        run.letters = _Letters(self)  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
        run.on_failed = self._failed
        # The parent must learn of it, to stop: that this process ends would not stop it.
        run.is_left_by_exits = False
        run.errors.on_stopping = self._stopping
        run.errors.on_warning = self._warned
        run.blocks = _Blocks(run.loop, self._blocked)
        if self._counts:
            from penstock.streams.recording.arrows import Arrows

            run.observers.append(Arrows())
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
        self._sinks = OpenSinks(run, self._sink_failed, self._close_if_over)
        run.call(None, self._open, run)
        self._report_later(run)
        return run

    def _open(self, run: Run) -> None:
        section = self.section
        plan: list[tuple[StageInfo, Opening]] = [(info, sink.open) for info, sink in section.sinks]
        # What counts in the parent counts the results there.
        if section.returns or self._counts:
            # First, so that a result is sent before anything that another sink says of its event.
            plan.insert(0, (StageInfo("results"), self._open_outlet))
        section.last.attach(self._sinks.open(plan), run)
        self._working = next(
            numbers for info, numbers in run.nesting.stages if info.number == section.working.number
        )

    def _open_outlet(self, run: Run, closed: Closed) -> Outlet:
        section = self.section
        self._outlet = Outlet(
            *(self._room, run, self._send_results, self._unsendable, closed, section.encode),
            beside=bool(section.sinks),
        )
        return self._outlet

    def _attach_inlet(self, downstream: Subscriber[Any], run: Run) -> None:
        section = self.section
        self._inlet = Inlet(downstream, run, section.above.info, self._settled, section.decode)
        self._inlet.file = section.file
        self._inlet.start()

    # Messages.

    def received(self, message: Any) -> None:
        """A message of the parent."""
        if self._run is None:
            self._handle(message)
        else:
            self._run.call(None, self._handle, message)

    def _handle(self, message: Any) -> None:
        match message:
            case messages.Events():
                if message.room:
                    self._give_room(message.room)
                if self._inlet is not None:
                    self._inlet.came(message)
            case messages.Room():
                self._give_room(message.n)
            case messages.Grant():
                self._granted(message)
            case messages.Traced():
                self._traced = message
            case messages.Counted():
                self._counts = True
            case messages.Withdraw():
                if self._inlet is not None and self._run is not None:
                    self._inlet.withdraw()
                    self._run.withdraw()
                    self._send_unfinished()
                self.send(messages.Withdrawn())
            case messages.Stop():
                self._is_stopped = True
                if self._run is None:
                    self._cancel()
                elif self._inlet is not None:
                    if self._inlet.state < CLOSED:
                        self._inlet.fail(Returned("the pipeline has stopped"))
                    else:
                        self._run.withdraw()
            case messages.Complete():
                if self._run is None:
                    self._cancel()
                elif self._inlet is not None:
                    self._inlet.last_came()
            case messages.Cancel():
                self._cancel()
            case _:
                raise TypeError(f"unknown message: {message!r}")

    def _give_room(self, n: int) -> None:
        self._room += n
        if self._outlet is not None and not self._is_closing:
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

    def _send_results(self, message: Any) -> None:
        """Send results to the parent, before the endings that wait: some may be of their events."""
        self._send_completions()
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
        if self._outlet is not None:
            self._outlet.flush()
        self._send_completions()
        if self._over_events:
            over, self._over_events = self._over_events, {}
            for (ending, why), numbers in over.items():
                self._link.send(messages.Over(numbers, ending, why))

    def _send_completions(self) -> None:
        if self._completions:
            ends, self._completions = self._completions, []
            self._link.send(messages.Completions(ends))

    # The limit.

    def _limiter(self) -> Limiter:
        return Lent(self._limit, self._completed) if self._learns else Fixed(self._limit)

    def _granted(self, grant: messages.Grant) -> None:
        self._grant, self._limit, self._learns = grant
        run = self._run or self._begin()
        self._overrides.lent = limiter = self._limiter()
        retune = run.tunable.stages.get(self.section.working.number)
        if retune is not None:
            retune(limiter)
        self._confirms = True
        self._confirm()

    def _confirm(self) -> None:
        """Report when no more calls are in flight than were granted last."""
        if self._working is not None and self._working()["in_flight"] <= self._limit:
            self._confirms = False
            self._link.send(messages.Confirmed(self._grant))

    def _completed(self, ends: list[Completion]) -> None:
        if not self._completions and self._run is not None:
            self._run.call_soon(None, self._send_together)
        self._completions += ends

    # Outcomes.

    def _settled(self, events: list[Event[Any]], ending: Ending, why: Any) -> None:
        numbers = [cast(Sent, event).number for event in events]
        if ending <= FINISHED and self._run is not None:
            # In one message, because a stage that drops events may do so one by one.
            if not self._over_events:
                self._run.call_soon(None, self._send_together)
            self._over_events.setdefault((int(ending), why), []).extend(numbers)
            return
        message = messages.Over(numbers, int(ending), why)
        if not self._is_stopped and self._run is not None:
            # The parent completes when no event is left, so it must know first whether a stage
            # stops because of an event that is reported now.
            self._unfinished.append(message)
            self._run.call_soon(None, self._send_unfinished)
        else:
            self._send_over(message)

    def _send_unfinished(self) -> None:
        waiting, self._unfinished = self._unfinished, []
        for message in waiting:
            self._send_over(message)

    def _send_over(self, message: messages.Over) -> None:
        if isinstance(message.why, BaseException):
            message = message._replace(why=sendable(message.why))
        self.send(message)

    def _warned(self, text: str, fields: dict[str, Any], event: Event[Any] | None = None) -> None:
        number = None if event is None else root_of(event).number
        self.send(messages.Warn(text, fields, number))

    def _blocked(self, text: str) -> None:
        self._warned(f"in worker process {os.getpid()} {text}", {})

    def _unsendable(self, event: Event[Any], error: NotPicklable) -> None:
        if self._is_stopped:
            event.give_back()
            return
        working = self.section.working
        told = NotPicklable(f"the result of {working} {error}")
        self.send(messages.Unsendable(root_of(event).number, told))
        # The parent, which has its value from before the handler, applies the policy to it.
        event.finish()
        self._is_stopped = not survives(working.policy)

    def _stopping(self, error: BaseException) -> None:
        if not self._is_stopped:
            self._is_stopped, self._error = True, error
            failed = [over for over in self._unfinished if over.why is error]
            self._send_stopping(error, [number for over in failed for number in over.numbers])
            self._send_unfinished()

    def _send_stopping(self, error: BaseException, numbers: Sequence[int] = ()) -> None:
        self.send(messages.Stopping(SentError.of(error), numbers))

    def _sink_failed(self, error: BaseException) -> None:
        self._stopping(error)
        if error is not self._error and not isinstance(error, Returned):
            # The parent reports it, after the one that has stopped this worker.
            self._send_stopping(error)

    def _failed(self, error: BaseException) -> None:
        self._sink_failed(error)
        self._cancel()

    def _cancel(self) -> None:
        if self._run is None:
            self.send(messages.Completed())
            self._over()
        elif not self._is_closing:
            self._sinks.cancel()
            self._close_if_over()

    def _close_if_over(self) -> None:
        if not (self._is_closing or self._sinks.are_open):
            self._is_closing = True
            assert self._run is not None
            # Kept here, because a loop does not keep its tasks.
            self._closing = new_task(self._close(self._run), "penstock close", self._run.loop)

    async def _close(self, run: Run) -> None:
        try:
            await run.close()
        except Exception as error:
            self._send_stopping(error)
        self._send_unfinished()
        self._send_numbers()
        self.send(messages.Completed())
        self._over()

    # Numbers.

    def _numbers(self) -> dict[int, dict[str, Any]]:
        if self._run is None:
            return {}
        sinks = [(sink.info, sink.statistics) for sink in self._sinks.stages]
        return {
            info.number: numbers()
            for info, numbers in [*self._run.nesting.stages, *sinks]
            if info.number > self.section.above.info.number
        }

    def _send_numbers(self) -> None:
        stages = self._numbers()
        try:
            self.send(messages.Numbers(stages))
        except NotPicklable:
            # Keys may be of any type.
            self.send(messages.Numbers(with_keys_in_words(stages)))

    def _report_later(self, run: Run) -> None:
        run.call_later(_REPORT, None, partial(self._report, run))

    def _report(self, run: Run) -> None:
        if run is self._run and not self._is_closing:
            self._send_numbers()
            self._report_later(run)
