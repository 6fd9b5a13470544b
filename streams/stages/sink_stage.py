"""Sinks: the description of a pipeline's end, and the base class of its last stage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.streams.base.errors import CALL_ERRORS, own_error
from penstock.streams.diagnostics.current import Current, current
from penstock.streams.protocol.blame import fail_event
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import (
    CLOSED,
    COMPLETING,
    OPEN,
    UNBOUNDED,
    UNCONNECTED,
    Subscription,
    is_second,
)
from penstock.streams.protocol.stage_info import StageInfo

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["BaseSinkStage", "Closed", "Sink"]

T_contra = TypeVar("T_contra", contravariant=True)

Closed = Callable[[BaseException | None], None]


class Sink(ABC, Generic[T_contra]):
    """The description of a sink, which is opened for each run.

    `info` describes it. Its `bound` is the most events that it has taken and not finished: it
    requests no more than these. 0 means that it finishes each at once, None that there is no bound.
    `open` returns the stage that takes the events; that stage calls `closed(error or None)` exactly
    once: when the stream has ended and all it accepted is safely out, or when it cannot go on.
    """

    info: StageInfo

    encode: Callable[[Any], bytes] | None = None
    """Makes the bytes that the sink writes of a value, if it is all that it does with values.

    Another process may then encode them: the sink gets bytes, or `Unencoded` where that failed, if
    `run.overrides` says so when it is opened.
    """

    reads_values = True
    """Whether it does anything with the values of events."""

    observes = False
    """Whether it only measures events, and writes nothing."""

    in_workers = False
    """Whether each worker process opens it for itself, in a run with `workers`.

    It then gets the results of that process, in the order of each key; an event is finished when
    it has accepted them, and only this is sent to the parent. If it collects events, it must write
    them after some time, and at the end of the stream, even if no others come: each process gets a
    part of them, and after the death of a worker they come one at a time. Events that a worker has
    written when it dies, and whose end its parent does not know yet, are written again. A sink that
    routes events to dead letters has its `on_error` as the `policy` of its `info`.
    """

    def check_in_workers(self, run: Run) -> None:
        """Raise BuildError if workers cannot open this sink in `run`, whose sources are known."""

    def check_beside(self, others: Sequence[Sink[Any]]) -> None:
        """Raise BuildError if a pipeline cannot have these sinks beside this one."""

    def check_above(self, stages: Sequence[StageInfo]) -> None:
        """Raise BuildError if a stream of these stages, its source first, cannot end here."""

    @abstractmethod
    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        """Make the stage for one run."""


class BaseSinkStage:
    """The last stage of a pipeline: it requests, and finishes each event it has accepted.

    The base class accepts every event by `accept`, and closes at the end. `asks_first` is how many
    events it requests when it is connected; by default all. A sink that writes later implements
    `on_events`, `is_idle` and `give_back`, finishes events when they are written, and calls
    `end_if_idle` then. It sends no events, so it needs no drain loop.

    A sink that `observes` accepts every event at once. Beside other sinks its `finishes` is False:
    those finish the events. A sink that `is_alone`, except for those that observe, may drop one.
    """

    asks_first = UNBOUNDED
    observes = False
    finishes = True
    is_alone = True
    # Its number and name in the pipeline, for messages; set by the runner.
    info = StageInfo("sink")

    def __init__(self, closed: Closed) -> None:
        self.upstream = UNCONNECTED
        self.state = OPEN
        # The error with which the stream has ended.
        self.error: BaseException | None = None
        self._closed = closed
        self._current: Current = current()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if is_second(self, subscription):
            return
        self.upstream = subscription
        if self.state:
            # A stage that has requested events ahead was cancelled by a function of the user's.
            subscription.cancel()
        else:
            subscription.request(self.asks_first)

    def prepare(self, events: list[Event[Any]], /) -> None:
        """The next events, before any sink gets them: one beside this sink may end them."""

    def accept(self, event: Event[Any]) -> None:
        """Accept the value. An exception fails the event and ends the pipeline."""
        raise NotImplementedError

    def on_events(self, events: list[Event[Any]], /) -> None:
        noted = self._current
        outer, noted.stage = noted.stage, self
        try:
            for place, event in enumerate(events):
                if self.state >= CLOSED:
                    give_back_all(events[place:])
                    return
                try:
                    self.accept(event)
                except CALL_ERRORS as raised:
                    self.break_off(fail_event(event, raised, self.info))
                else:
                    event.finish()
        finally:
            noted.stage = outer

    def on_completed(self) -> None:
        self.end(None)

    def on_error(self, error: BaseException, /) -> None:
        self.end(error)

    def end(self, error: BaseException | None) -> None:
        """No more events come: the stream has ended, with `error` if it failed."""
        if not self.state:
            self.state = COMPLETING
            self.error = error
            self.end_if_idle()
        elif error is not None and self.state is COMPLETING:
            # It was raised by the sink itself, when it was told that the stream has ended.
            self.break_off(error)

    @property
    def is_idle(self) -> bool:
        """Whether everything accepted is safe."""
        return True

    def end_if_idle(self) -> None:
        """Close, if the stream has ended and everything accepted is safe."""
        if self.state is COMPLETING and self.is_idle:
            self.close(self.error)

    def give_back(self) -> None:
        """Return the events that are not accepted yet."""

    def cancel(self) -> None:
        """The run was cancelled: return events that are not accepted yet, and close."""
        self.give_back()
        self.close(self.error)

    def statistics(self) -> dict[str, Any]:
        """Numbers by documented names."""
        return {}

    def break_off(self, error: BaseException) -> None:
        """The sink cannot go on: stop the pipeline above it with `error`."""
        if self.state >= CLOSED:
            return
        state, self.state = self.state, CLOSED
        errors = [error]
        # Whatever parts of the user's own raise, the run must learn of the end.
        try:
            if state is OPEN:
                self.upstream.cancel()
        except CALL_ERRORS as raised:
            errors.append(own_error(raised))
        finally:
            try:
                self.give_back()
            finally:
                for each in errors:
                    self._closed(each)

    def close(self, error: BaseException | None = None) -> None:
        """Report that everything accepted is safe; `error` is the one the stream ended with."""
        if self.state < CLOSED:
            self.state = CLOSED
            self._closed(error)
