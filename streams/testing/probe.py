"""A subscriber that requests only when the test says so, and records every signal.

probe = Probe[int](request=2)
source.connect(probe)
assert probe.values == [1, 2]
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscription

__all__ = ["Probe", "Received"]

T = TypeVar("T")

Name = Literal["subscribe", "next", "error", "completed"]


@dataclass(frozen=True, slots=True)
class Received:
    """One signal: `value` is the value of a "next" and the exception of an "error".

    `time` is the running loop's, in seconds (0.0 without one). `depth` counts the nested calls of
    the probe, this one included: 1 unless a signal came inside another.
    """

    name: Name
    value: Any
    time: float
    depth: int


class Probe(Generic[T]):
    """A subscriber for tests; memory grows by one record for each signal.

    `request` is requested in `on_subscribe`. Each event is finished on receipt; with
    `hold=True` it stays in `events` until the test settles it by its own `finish`, `drop`,
    `fail` or `give_back`. `on_event(probe, event)` is called inside `on_next`, before the event
    is finished: to request, cancel, or raise from there.

    A second subscription while one is active is cancelled (rule 2.5 of Reactive Streams).
    """

    def __init__(
        self,
        request: int | None = None,
        *,
        hold: bool = False,
        on_event: Callable[[Probe[T], Event[T]], None] | None = None,
    ) -> None:
        self.signals: list[Received] = []
        self.values: list[T] = []
        self.events: list[Event[T]] = []
        self.requested = 0
        self.completed = False
        self.error: BaseException | None = None
        self.subscription: Subscription | None = None
        self._initial = request
        self._hold = hold
        self._on_event = on_event
        self._depth = 0

    def request(self, n: int) -> None:
        """Request `n` more; an invalid demand is passed on for the other side to refuse."""
        assert self.subscription is not None, "the probe is not connected yet"
        if type(n) is int and n > 0:
            self.requested += n
        self.subscription.request(n)

    def cancel(self) -> None:
        """Request no more. Signals that still come are recorded."""
        assert self.subscription is not None, "the probe is not connected yet"
        self.subscription.cancel()

    @property
    def ended(self) -> bool:
        """Whether a terminal signal has come."""
        return self.completed or self.error is not None

    @property
    def timed(self) -> list[tuple[float, T]]:
        """(time, value) of every event."""
        return [(one.time, one.value) for one in self.signals if one.name == "next"]

    @property
    def depth(self) -> int:
        """The deepest nesting of any signal."""
        return max((one.depth for one in self.signals), default=0)

    def names(self) -> list[Name]:
        """The names of all signals, in order."""
        return [one.name for one in self.signals]

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._record("subscribe", None)
        if self.subscription is not None:
            subscription.cancel()
            return
        self.subscription = subscription
        if self._initial is not None:
            self._nested(lambda: self.request(self._initial or 0))

    def on_events(self, events: list[Event[Any]], /) -> None:
        """The same for a probe in the place of a stage, by `attach`."""
        for event in events:
            self.on_next(event)

    def on_next(self, event: Event[Any], /) -> None:
        self._record("next", event.value)
        self.values.append(event.value)
        if self._hold:
            self.events.append(event)
        if self._on_event is not None:
            on_event = self._on_event
            self._nested(lambda: on_event(self, event))
        if not self._hold:
            self._nested(event.finish)

    def on_error(self, error: BaseException, /) -> None:
        self._record("error", error)
        self.error = error

    def on_completed(self) -> None:
        self._record("completed", None)
        self.completed = True

    def _record(self, name: Name, value: Any) -> None:
        self.signals.append(Received(name, value, _now(), self._depth + 1))

    def _nested(self, act: Callable[[], None]) -> None:
        self._depth += 1
        try:
            act()
        finally:
            self._depth -= 1


def _now() -> float:
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return 0.0
