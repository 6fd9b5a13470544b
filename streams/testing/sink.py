"""The in-memory twin of a sink."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any

from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import CLOSED
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

__all__ = ["MemorySink"]


class MemorySink(Sink[Any]):
    """The twin of a sink: records what it accepted, and when; may be slow, stuck or broken.

    By default it accepts at once. `seconds` is the loop time that each value takes, one after
    the other, the next requested when the previous one is accepted. With `hold=True` a value is
    accepted when the test calls `accept()`. `fail(error)` fails the sink at the next value.

    `accepted` has (time, value) of each value, over all runnings; memory grows with it.
    """

    info = StageInfo("memory")

    def __init__(self, *, seconds: float = 0.0, hold: bool = False) -> None:
        if seconds < 0 or (seconds and hold):
            raise ValueError(
                f"MemorySink(seconds={seconds}, hold={hold}): either the clock accepts, "
                "after 0 seconds or more, or the test does"
            )
        self.accepted: list[tuple[float, Any]] = []
        self.closed = 0
        """Runnings that have ended in this sink."""
        self._seconds = seconds
        self._hold = hold
        self._error: BaseException | None = None
        self._stages: list[_MemoryStage] = []

    @property
    def values(self) -> list[Any]:
        """The accepted values, in order."""
        return [value for _, value in self.accepted]

    @property
    def waiting(self) -> list[Any]:
        """The values that have arrived and are not accepted yet."""
        return list(chain.from_iterable(stage.waiting for stage in self._stages))

    def accept(self, n: int = 1) -> None:
        """Accept the next `n` values: those that wait now, and then those that come."""
        assert self._hold, "this sink accepts by itself: MemorySink(hold=True) waits"
        for stage in self._stages:
            stage.let(n)

    def fail(self, error: BaseException) -> None:
        """Fail with this error instead of accepting the next value."""
        self._error = error

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        def ended(error: BaseException | None) -> None:
            self.closed += 1
            closed(error)

        stage = _MemoryStage(self, run, ended, None if self._hold else self._seconds)
        self._stages.append(stage)
        return stage

    def take(self, now: float, value: Any) -> None:
        """Record a value, or raise the error that was set."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        self.accepted.append((now, value))


class _MemoryStage(BaseSinkStage):
    """Holds one event at a time, unless it accepts at once."""

    def __init__(self, sink: MemorySink, run: Run, closed: Closed, seconds: float | None) -> None:
        super().__init__(closed)
        self._sink = sink
        self._run = run
        self._seconds = seconds
        if seconds != 0:
            self.asks_first = 1
        self._held: Event[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._allowed = 0

    @property
    def waiting(self) -> list[Any]:
        return [] if self._held is None else [self._held.value]

    def accept(self, event: Event[Any]) -> None:
        self._sink.take(self._run.now(), event.value)

    def on_events(self, events: list[Event[Any]], /) -> None:
        if self._seconds == 0 or self.state >= CLOSED:
            super().on_events(events)
            return
        (self._held,) = events
        if self._seconds is not None:
            self._timer = self._run.call_later(self._seconds, self.info, self._accept_held)
        elif self._allowed:
            self._allowed -= 1
            self._accept_held()

    def let(self, n: int) -> None:
        self._allowed += n
        while self._allowed and self._held is not None:
            self._allowed -= 1
            # An error of a function that is called now ends the run, not who lets it go on.
            self._run.call(self.info, self._accept_held)

    def _accept_held(self) -> None:
        held, self._held, self._timer = self._held, None, None
        assert held is not None
        super().on_events([held])
        if self.state:
            self.end_if_idle()
        else:
            self.upstream.request(1)

    @property
    def is_idle(self) -> bool:
        return self._held is None

    def on_error(self, error: BaseException, /) -> None:
        self.give_back()
        super().on_error(error)

    def give_back(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, None
        if held is not None:
            held.give_back()

    def statistics(self) -> dict[str, Any]:
        """Values that wait to be accepted."""
        return {"waiting": len(self.waiting)}
