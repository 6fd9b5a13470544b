"""Protocols of observers of a run's stages: their signals, their statistics, their calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.slot import Slot

__all__ = ["CallLimits", "Observer", "Statistics", "TracedCalls", "Tracing"]

Statistics = Callable[[], dict[str, Any]]
"""Plain numbers by documented names; `waiting` and `in_flight` count events."""


class Observer(Protocol):
    """Sees the signals that the stages of a run send to each other.

    `counts`: its `counted_statistics` say how much stages have sent, so workers count it too.
    """

    counts: bool

    def arrow(
        self, info: StageInfo, below: Subscriber[Any], reader: StageInfo | None, /, *, is_own: bool
    ) -> Subscriber[Any]:
        """The subscriber that gets the signals of `info` in place of `below` and passes them on.

        `reader` describes the stage below, if that is known; `is_own`: `info` is a stage that was
        known before the pipeline ran, so that its number is its own.
        """
        ...

    def counted_statistics(
        self, info: StageInfo, statistics: Statistics, /, *, is_own: bool
    ) -> Statistics:
        """The statistics of the stage `info`, with the observer's counts."""
        ...


class CallLimits(Protocol):
    """Sees the calls of a stage: limits them in time, or observes them."""

    @property
    def stuck(self) -> int: ...
    def begin(self, slot: Slot, now: float, /) -> None: ...
    def end(self, slot: Slot, /) -> None: ...
    def error(self, slot: Slot, error: BaseException, /) -> BaseException: ...
    def suspend(self, slot: Slot, /) -> float: ...
    def resume(self, slot: Slot, left: float, /) -> None: ...
    def close(self) -> None: ...


class TracedCalls(CallLimits, Protocol):
    """Begins the span of each call of a stage, in the task that makes the call."""

    def call(self, function: Callable[..., Any], event: Event[Any], /, *more: Any) -> Any:
        """Call a function with the value of an event, and `more`."""

    def later(self, function: Callable[[Any], Any], event: Event[Any], /) -> Callable[[Any], Any]:
        """The function, to be called with the value of an event that has gone on by then."""
        ...

    def plain(
        self, handler: Callable[[Any], Any], events: list[Event[Any]], /
    ) -> Callable[[Any], Any]:
        """The plain handler, to be called for these events in their order."""
        ...

    def batch(
        self, handler: Callable[[list[Any]], Awaitable[Sequence[Any]]], events: list[Event[Any]], /
    ) -> Callable[[list[Any]], Awaitable[Sequence[Any]]]:
        """The handler of a batch, to be called for these events in the first one's span."""
        ...


class Tracing(Protocol):
    """Traces the events of a run."""

    @property
    def options(self) -> tuple[int, str | None, bool]:
        """The options for a tracer of the same running in another process."""
        ...

    def calls(self, info: StageInfo, name: str, limits: CallLimits | None, /) -> TracedCalls:
        """The tracer of the calls of the function `name` in a stage."""
        ...

    def within(self, event: Event[Any], /) -> Observer | None:
        """The observer of a stream that is read for this event, if that is traced."""
        ...

    def headers_of(self, event: Event[Any], /) -> dict[str, str]:
        """The context of an event's trace, as headers."""
        ...

    def join(self, events: list[Event[Any]], contexts: list[dict[str, str]], /) -> None:
        """Continue the traces of events that another process has sent, with these headers."""
