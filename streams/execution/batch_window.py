"""Gathers events into batches: demand, the open batch, and the workers that call the handler.

The events that wait to begin are the open batch, one of each group at first. As soon as a call is
free its groups may give it more of their events, until it is closed: from then on its groups wait
for the call to end.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from penstock.streams.execution.batch_settings import BatchSettings
from penstock.streams.execution.batch_turns import BatchTurns
from penstock.streams.execution.in_flight import InFlight
from penstock.streams.execution.linger import Linger
from penstock.streams.execution.results import Results
from penstock.streams.execution.waiting import Waiting
from penstock.streams.keyed.queues import close_turns, open_turns
from penstock.streams.limits.batch_size import BatchSize
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import StageInfo, Subscriber, is_second
from penstock.streams.runtime.context import Run

__all__ = ["Gathering"]


class Gathering(InFlight, ABC):
    """Has up to `parallel` workers, each of them a task that takes a batch and works on it."""

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, settings: BatchSettings
    ) -> None:
        waiting = Waiting(settings.on_error, run, settings.max_size, self._again)
        results = Results(downstream, settings.max_size)
        super().__init__(downstream, run, info, settings.handler, settings.name, waiting, results)
        self._settings = settings
        self._now = run.now
        self._turns = BatchTurns(waiting.siblings)
        self._parking = waiting.parking
        self._size = BatchSize(settings.max_size, settings.latency)
        self._company = Linger(settings.max_wait)
        self._asked = 0
        # When the first event of the open batch came.
        self._opened = 0.0
        self._calling: int = 0
        # Whether a call is free, and the groups of the open batch may give more.
        self._gathering = False
        # Results are delivered: whatever is asked for meanwhile is seen to afterwards.
        self._settling = False
        self._sleepers: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None

    # Demand.

    def on_subscribe(self, subscription: Any, /) -> None:
        if is_second(self, subscription):
            return
        self.upstream = subscription
        self.downstream.on_subscribe(self)
        self._ask()

    def request(self, n: int, /) -> None:
        if self._cancelled:
            return
        self._results.request(n)
        if not self._settling:
            self._go_on()

    def _go_on(self) -> None:
        self._dispatch()
        self._ask()

    def _ask(self) -> None:
        """Ask for what is missing in the open batch."""
        if self._closing or self._cancelled:
            self._end_if_idle()
            return
        waiting = self._waiting
        room = self._size.size - self._asked - (len(waiting) - waiting.retrying)
        room += min(0, self._settings.max_size - self._results.waiting)
        if room > 0 and waiting.has_room(self._settings.limit):
            self._asked += room
            self.upstream.request(room)

    # Events.

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._asked -= len(events)
        now = self._now()
        for event in events:
            if self._closing or self._cancelled:
                event.give_back()
                continue
            self._company.on_arrive(now)
            if not self._inbox:
                self._opened = now
            if not self._turns.must_wait(event):
                self._enter(event)
                self._dispatch()

    def _enter(self, event: Event[Any]) -> None:
        if self._waiting.put(event, self._settings.limit) and self._gathering:
            open_turns((event.turn,))

    def on_completed(self) -> None:
        super().on_completed()
        self._dispatch()

    # Batches.

    def _dispatch(self) -> None:
        """Wake or start a worker, if it has something to do."""
        if not self._is_ready():
            return
        while self._sleepers:
            sleeper = self._sleepers.pop()
            if not sleeper.done():
                sleeper.set_result(None)
                return
        if len(self._tasks) < self._settings.parallel:
            self._spawn(self._work())

    def _is_ready(self) -> bool:
        """Whether a call may begin, and need not wait for more events."""
        if (
            not self._inbox
            or self._cancelled
            or self._calling >= self._settings.parallel
            or self._results.waiting > self._settings.max_size
        ):
            return False
        self._gather()
        waiting = len(self._inbox)
        if waiting >= self._size.size or self._closing:
            return True
        left = self._opened + self._company.patience(waiting) - self._now()
        if left <= 0:
            return True
        if self._timer is None:
            self._timer = self._run.call_later(left, self._info, self._waited)
        return False

    def _gather(self) -> None:
        """Let the groups in the open batch give more of their events.

        Not before a call is free, or a group that is in no call would fill the batch alone.
        """
        if not self._gathering:
            self._gathering = True
            open_turns([event.turn for event in self._inbox])

    def _waited(self) -> None:
        self._timer = None
        self._dispatch()

    @abstractmethod
    async def _work_on(self, batch: list[Event[Any]], free: float) -> None:
        """Call the handler with a batch, and settle every event of it.

        `free` is when a call became free for it, or it for a call.
        """

    async def _work(self) -> None:
        free: float | None = None
        while not self._cancelled:
            # Events of the same loop iteration go into the same batch.
            await asyncio.sleep(0)
            if self._is_ready():
                await self._work_on(self._close_batch(), self._now() if free is None else free)
                free = self._now()
            else:
                free = None
                sleeper = self._run.loop.create_future()
                self._sleepers.append(sleeper)
                await sleeper

    def _close_batch(self) -> list[Event[Any]]:
        inbox, size = self._inbox, self._size.size
        self._gathering = False
        close_turns(event.turn for event in inbox)
        # What has failed before stays among itself, or it would fail others again and again.
        again = self._tried(inbox[0])
        batch: list[Event[Any]] = []
        while inbox and len(batch) < size and self._tried(inbox[0]) == again:
            event = inbox.popleft()
            batch.append(event)
            if not again:
                self._turns.begin(event)
        left = list(inbox)
        inbox.clear()
        inbox.extend(e for e in left if self._tried(e) or not self._turns.must_wait(e))
        return batch

    def _tried(self, event: Event[Any]) -> bool:
        return self._parking is not None and self._parking.count(event) > 1

    def _again(self, event: Event[Any], in_slot: bool) -> None:
        if in_slot:
            self.in_flight -= 1
        if not self._inbox:
            self._opened = self._now()
        self._waiting.unpark(event, self._settings.limit)
        self._dispatch()
        self._ask()

    # The end.

    def _end_work(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super()._end_work()
