"""The stage of `chunk` and `buffer_with_count`: lists of a number of events, without Rx between."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.streams.keyed.queues import joined
from penstock.streams.protocol.acknowledgement import NOBODY
from penstock.streams.protocol.event import Event, drop_all, give_back_all
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer
from penstock.streams.stages.demand_stage import BaseDemandStage

__all__ = ["Lists"]


class Lists(BaseDemandStage):
    """Sends lists of `count` events, of which one begins every `skip` events.

    With `wait`, for lists that do not overlap, one with fewer leaves so many seconds after its
    first event. Requests what is missing in the list that is full next. A list takes over all
    events that came since the one before.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        count: int,
        skip: int,
        wait: float | None = None,
    ) -> None:
        super().__init__(downstream, run, info)
        self._count = count
        self._skip = skip
        self._wait = wait if count > 1 else None
        self._timer = Timer(run, info, self._wait_is_over)
        # Whether the first list has waited long enough.
        self._is_due = False
        # The lists that have begun and were not sent, the oldest first; no other is full.
        self._open: deque[list[Any]] = deque()
        # How many events come before the next list begins.
        self._until_next = 0
        # The events that no list has taken over yet.
        self._held: list[Event[Any]] = []

    def take(self, events: list[Event[Any]], /) -> None:
        self._held += events
        values = [event.value for event in events]
        while values:
            if not self._until_next:
                self._open.append([])
                self._until_next = self._skip
                if self._wait is not None:
                    self._timer.set(self._wait)
            together, values = values[: self._until_next], values[self._until_next :]
            self._until_next -= len(together)
            # What lies between two lists is in none.
            for one in self._open:
                one += together

    def _wait_is_over(self) -> None:
        self._is_due = True
        self._drain()

    def step(self) -> bool:
        missing = self._missing()
        if self._open and (not missing or self._is_due or self.state):
            if not self.demand:
                return False
            self._send_list()
        elif self.state:
            drop_all(self._held, self.info.name)
            self._held = []
            self.complete()
        elif self.demand and missing > self.asked:
            self.ask(missing - self.asked)
        else:
            return False
        return True

    def _missing(self) -> int:
        """How many events come until the next list is full."""
        if self._open:
            return self._count - len(self._open[0])
        return self._until_next + self._count

    def _send_list(self) -> None:
        value, held = self._open.popleft(), self._held
        self._held = []
        if self._wait is not None:
            # The next event begins another list.
            self._until_next, self._is_due = 0, False
            self._timer.cancel()
        # At the end of the stream, all events may have gone with the list before.
        self.send(joined(value, held) if held else Event(value, self.run.now(), NOBODY))

    def release(self) -> None:
        self._timer.cancel()
        held, self._held = self._held, []
        self._open.clear()
        give_back_all(held)

    def statistics(self) -> dict[str, Any]:
        """The events that no list has taken over yet, and how many there may be."""
        return {"waiting": len(self._held), "bound": max(self._count, self._skip)}
