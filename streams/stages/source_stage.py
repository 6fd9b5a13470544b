"""The base class of source stages: demand, time stamps, counts, pause and stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NoReturn, TypeVar

from penstock.streams.base.errors import (
    CALL_ERRORS,
    BufferFull,
    BuildError,
    counted,
    own_error,
    refuse_async,
)
from penstock.streams.protocol.acknowledgement import NOBODY, roots
from penstock.streams.protocol.blame import ends_nothing, note_stage
from penstock.streams.protocol.event import (
    DROPPED,
    FINISHED,
    FORGIVEN,
    RETURNED,
    Count,
    Ending,
    Event,
    Seconds,
    give_back_all,
    new_events,
)
from penstock.streams.protocol.identity import Identity
from penstock.streams.protocol.stage import CLOSED, COMPLETING, Subscriber, send_list
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.demand_stage import BaseDemandStage
from penstock.streams.stages.time_slice import TimeSlice, fitting

__all__ = ["BaseSourceStage", "needs_end", "source"]

F = TypeVar("F", bound=Callable[..., Any])


def source(make: F) -> F:
    """Mark a function that returns a stream: if used without a call, the error says to call it."""

    def refuse(name: str) -> Callable[..., NoReturn]:
        def not_called(*_: object) -> NoReturn:
            what = make.__name__
            raise BuildError(f"{what} was not called: write {what}(...).{name}(...)")

        return not_called

    for name in ("pipe", "to"):
        setattr(make, name, refuse(name))
    return make


class BaseSourceStage(BaseDemandStage):
    """One run of a source: the subscription of the first stage, the origin of the events.

    A source implements `produce`, which the drain loop calls while there is demand, and calls
    `emit` for each value; `release` frees what it holds and is called once, however the stream
    ends. A source that can acknowledge sets `ack`, and one that takes events back sets `nack`; both
    get lists of events, and `nack` the error if they failed.
    """

    ack: Callable[[list[Event[Any]]], None] | None = None
    nack: Callable[[list[Event[Any]], BaseException | None], None] | None = None

    # Whether it reads only what the code around the running puts in.
    is_pushed = False

    # Whether it gives plain values, as an iterable or an Observable does. Inside another stream
    # these count as made of the event for which they are read, as the values of a list do.
    is_of_values = False

    # The file whose lines the tokens of its events number, for errors about them.
    file = ""

    @property
    def is_connected(self) -> bool:
        """Whether it reaches what it reads, such as a server, as far as is known."""
        return True

    @property
    def gives_again(self) -> bool:
        """Whether a failed event that was not acknowledged is redelivered."""
        return self.nack is not None

    @property
    def has_ended(self) -> bool:
        """Whether it emits nothing more. One that has not noticed its end yet has not."""
        return bool(self.state)

    @property
    def unfinished(self) -> int:
        """How many of its events have not ended."""
        ended = self._finished + sum(self.counts.values()) + sum(self.drops.values())
        return self.received - ended

    @property
    def needs_ends(self) -> bool:
        """Whether it does something when an event has ended, as forgetting it."""
        return self.ack is not None or self.gives_again

    @property
    def only_counts(self) -> bool:
        """Whether it only counts its events by `count_ends`, and needs no other notice of ends."""
        settle: Any = BaseSourceStage.settle
        return type(self).settle is settle and not self.needs_ends

    def __init__(self, downstream: Subscriber[Any], run: Run, info: StageInfo) -> None:
        # The stage that is being attached, in whose place an engine may put another source.
        info = info.first()
        info = info if run.attaching is None else info.at(run.attaching.number)
        super().__init__(downstream, run, info)
        # Those that failed are counted as returned if they will come again.
        self.counts: dict[str, int] = {"in": 0, "finished": 0, "failed": 0, "returned": 0}
        self.drops: dict[str, int] = {}
        self._finished: int = 0
        self._returned_tokens: list[Any] = []
        self.received: int = 0
        self._withheld: int | None = None
        self._waking = False
        self._chunk = 1
        self._slice = TimeSlice(run, self.wake)
        run.add_source(info, self)

    def start(self) -> None:
        """Call `on_subscribe` of the first stage."""
        for name, end in (("ack", self.ack), ("nack", self.nack)):
            if end is not None:
                refuse_async(end, f"{type(self).__name__}.{name}")
        self.downstream.on_subscribe(self)

    def produce(self) -> None:
        """Emit while `self.demand` lasts; call `wake` when more has arrived."""
        raise NotImplementedError

    def _proceed(self) -> None:
        if self.demand:
            try:
                self.produce()
            except CALL_ERRORS as raised:
                error = own_error(raised)
                if self.state >= CLOSED:
                    # Such as what was raised when the source was cancelled.
                    self.run.late_error(error)
                else:
                    self.fail_as_users(error)

    def identity(self, token: Any, /) -> Identity | None:
        """The identity of the event with this `token`, the same in each run that the source gives
        it to; None if it does not give events again. See `Identity`. It is asked for while the
        event has not ended, and only where it is shown or stored: events do not carry it."""
        return None

    def leave(self, token: Any, key: Any, /) -> Callable[[], None] | None:
        """Read no more events of a key, if that is possible here: leave them where they are, while
        those of other keys go on.

        The event with this `token`, which has this `key`, is one of them. Returns the function
        that ends this, or None if the events cannot be left, as when the source does not know
        that key. What was read before may still come. Neither call sends events, and what the
        source left counts as not read, at the end of the stream too: it completes only behind it.
        """
        return None

    def request(self, n: Count, /) -> None:
        if self.state:
            return
        if self._withheld is None:
            self.demand += n
            self._drain()
        else:
            self._withheld += n

    def wake(self) -> None:
        """Produce, if there is demand."""
        if self.demand:
            self._drain()

    def wake_soon(self) -> None:
        """Wake in the next loop iteration: events of one iteration go on together."""
        if not self._waking:
            self._waking = True
            self.run.call_soon(self.info, self._wake)

    def _wake(self) -> None:
        self._waking = False
        self.wake()

    def produce_from(self, iterator: Iterator[Any]) -> None:
        """Emit the items of `iterator` while demand lasts; its end completes.

        The clock is read once a chunk. Chunks grow while they are quick, and the source yields to
        the loop between them, so that a slow inline handler does not block it.
        """
        run = self.run
        created = run.now()
        while self.demand and not self._slice.is_over(created):
            wanted = min(self._chunk, self.demand)
            values: list[Any] = []
            error: Exception | None = None
            try:
                # Items before an error are in the list: extend appends one by one.
                values.extend(islice(iterator, wanted))
            except CALL_ERRORS as raised:
                error = own_error(raised)
            self.emit_all(values, created)
            if error is not None:
                self.fail_as_users(error)
            elif len(values) < wanted:
                self.complete()
            before, created = created, run.now()
            self._chunk = fitting(self._chunk, created - before)

    def emit(self, value: Any, created: Seconds, token: Any = None) -> None:
        """Emit one value that there is demand for."""
        self.send_all([Event(value, created, self, token)])

    def emit_all(self, values: Sequence[Any], created: Seconds) -> None:
        """Emit several values that there is demand for."""
        self.send_all(new_events(values, created, self))

    def send_all(self, events: list[Event[Any]]) -> None:
        """Emit events that the source has made and that there is demand for."""
        n = len(events)
        if self._withheld is not None:
            # Paused while it was making them, as by a bad line among them.
            self._withheld -= n
        elif n <= self.demand:
            self.demand -= n
        elif not self.state:
            raise self._excess(n)
        else:
            # It was ended while it was making them.
            self.demand = 0
        self.received += n
        if not n:
            return
        if self.state and self.state >= CLOSED:
            give_back_all(events)
            return
        draining, self._draining = self._draining, True
        try:
            send_list(self.downstream, events)
        finally:
            self._draining = draining
        if draining:
            return
        # Not for earlier demand: a source that emits by itself reports when it has more.
        if self._noted:
            self._drain()
        elif self.state:
            self._end_if_idle()

    def _excess(self, count: int) -> BufferFull:
        were = counted(count, "event was", "events were")
        return BufferFull(
            f"{were} sent, and {self.demand:,} were requested: a source sends while its `demand` "
            "is above 0, and no more than that"
        )

    def complete(self) -> None:
        """Complete the stream, after what is being sent: the source has ended."""
        if not self.state:
            self.state = COMPLETING
            self.demand = 0
            if not self._draining:
                self._end_if_idle()

    def fail(self, error: BaseException) -> None:
        """Fail the stream, after what is being sent: the source failed."""
        if self.state < CLOSED and self.error is None:
            self.error = error
            self.complete()

    def fail_as_users(self, error: BaseException) -> None:
        """Fail the stream with an error of the user's own code, which gets a note of the stage."""
        note_stage(error, self.info)
        self.fail(error)

    def _end_if_idle(self) -> None:
        if self.state is COMPLETING:
            super().complete()

    def cancel(self) -> None:
        self.demand = 0
        super().cancel()

    def pause(self) -> None:
        """Emit nothing until `resume`, whatever is requested."""
        if self._withheld is None:
            self._withheld, self.demand = self.demand, 0

    def resume(self) -> None:
        """Go on where `pause` stopped, without waiting for a new event."""
        if self._withheld is not None:
            withheld, self._withheld = self._withheld, None
            if withheld:
                # An error of a function that is called now ends the run, not who resumes it.
                self.run.call(self.info, self.request, withheld)

    @property
    def demand_withheld(self) -> bool:
        """Whether the source is paused."""
        return self._withheld is not None

    def stop(self) -> None:
        """Read nothing more and complete: the first step of a drain."""
        self.complete()

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        tokens: list[Any] = []
        if ending is RETURNED:
            tokens = [event.token for event in events if event.token is not None]
        self.count_ends(len(events), tokens, ending, why)
        # Whatever they raise ends the run, and not the loop of the stage that ends its events.
        if ending < RETURNED:
            if self.ack is not None:
                self.run.call(self.info, self.ack, events)
        elif self.nack is not None:
            self.run.call(self.info, self.nack, events, why)

    def count_ends(self, n: Count, tokens: Sequence[Any], ending: Ending, why: Any, /) -> None:
        """Count `n` events that have ended like this. If they are returned, `tokens` are the tokens
        of those that had one."""
        if ending is FINISHED:
            self._finished += n
        elif ending is DROPPED:
            self.drops[why] = self.drops.get(why, 0) + n
        elif ending is RETURNED:
            self.counts["returned"] += n
            if self.run.drains:
                self.run.nesting.leave_to_others(n)
            # Nobody need give those again that come again, and they may do so any number of times.
            if not self.gives_again:
                self._returned_tokens += tokens
        else:
            self.count_failures(n, ending is FORGIVEN, why)
        if self.state and self.state >= CLOSED:
            self.run.nesting.settled()

    def count_failures(self, count: int, for_good: bool, why: object = None) -> None:
        """Count events that failed, for the error `why`, as returned if they will come again."""
        again = self.gives_again and not for_good
        self.counts["returned" if again else "failed"] += count
        if again and self.state:
            self.run.nesting.leave_to_others(count)
        elif not (for_good or again or ends_nothing(why)) and self.run.nesting.counts(self):
            self.run.nesting.failed_for_good(count)
        if self.state >= CLOSED:
            self.run.nesting.settled()

    def leave_to_others(self, waiting: int) -> None:
        """The stream has ended, and so many failed events have not been emitted again.

        A drain leaves them as it leaves what was not read.
        """
        if not self.run.drains:
            self.run.nesting.leave_to_others(waiting)

    def statistics(self) -> dict[str, Any]:
        """Events by how they ended; what is missing from `in` is still unfinished.

        `returned_tokens` are the tokens of those that were given back and do not come again. That
        happens only at the end of a run, so there are no more than a pipeline holds.
        """
        return {
            **self.counts,
            "in": self.received,
            "finished": self._finished,
            "dropped": dict(self.drops),
            "returned_tokens": list(self._returned_tokens),
        }


def needs_end(event: Event[Any]) -> bool:
    """Whether the end of `event` does anything at a source besides being counted."""
    for origin, _ in roots(event):
        if isinstance(origin, BaseSourceStage):
            if origin.needs_ends:
                return True
        elif origin is not NOBODY:
            return True
    return False
