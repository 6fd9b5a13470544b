"""A source that offers events at a given rate, however many the pipeline requests.

Events arrive at random, as customers do: a Poisson process with a fixed seed. One that finds no
demand waits in line, and that wait counts, because an event is created when it arrives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any

from penstock.streams.protocol.event import DROPPED, RETURNED, Ending, Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.source_stage import BaseSourceStage

__all__ = ["Load"]

# Events sent in one go, between which the loop goes on.
_TOGETHER = 64


class Load(BaseSourceStage):
    """A running source of `values`, which completes when they end.

    `waiting` are the times at which events arrived that there was no demand for yet, `open` those
    of the events under way by their names. `ended` are the times of arrival and end of events that
    were processed, until the reader clears it, and `dropped` counts those that a stage dropped.
    Memory: a time for each event that has not ended, and for each in `ended`.
    """

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, values: Iterator[Any]
    ) -> None:
        super().__init__(downstream, run, info)
        self.waiting: deque[float] = deque()
        self.open: dict[str, float] = {}
        self.ended: list[tuple[float, float]] = []
        self.dropped = 0
        # Set whenever events have ended, and when the stream has.
        self.stirred = asyncio.Event()
        self._values = values
        self._rate = 0.0
        self._next = 0.0
        self._rng = Random(0)
        self._timer: asyncio.TimerHandle | None = None

    def at_rate(self, rate: float) -> None:
        """From now on, so many events per second."""
        self._rate = rate
        self._schedule(self.run.now() + self._rng.expovariate(rate))

    def one_at(self, when: float) -> None:
        """One event at this time, and no others."""
        self._rate = 0.0
        self._schedule(when)

    def _schedule(self, when: float) -> None:
        self._next = when
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.run.call_at(when, self.info, self._arrive)

    def _arrive(self) -> None:
        if self.state:
            return
        now = self.run.now()
        self._timer = None
        while self._next <= now:
            self.waiting.append(self._next)
            if not self._rate:
                break
            self._next += self._rng.expovariate(self._rate)
        if self._rate:
            self._schedule(self._next)
        elif not self.waiting:
            # The timer was early, by the resolution of the clock.
            self._schedule(self._next)
        self.wake()

    def produce(self) -> None:
        wanted = min(self.demand, len(self.waiting), _TOGETHER)
        if not wanted:
            return
        values = list(islice(self._values, wanted))
        # Texts: a bare number would be that of a line, and --repeat begins the file anew.
        events = [
            Event(value, self.waiting.popleft(), self, f"event {number}")
            for number, value in enumerate(values, self.received + 1)
        ]
        self.open.update((event.token, event.created) for event in events)
        self.send_all(events)
        if len(values) < wanted:
            self.complete()
        elif self.demand and self.waiting:
            self.wake_soon()

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        super().settle(events, ending, why)
        now = self.run.now()
        arrived = [self.open.pop(event.token) for event in events]
        if ending is DROPPED:
            self.dropped += len(events)
        elif ending < RETURNED:
            self.ended += [(at, now) for at in arrived]
        self.stirred.set()

    def release(self) -> None:
        self.waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        self.stirred.set()
