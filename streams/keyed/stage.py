"""The running stage of `group_by` and `spread`: the demand around keyed queues."""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable, Iterable
from typing import Any

from penstock.streams.base.keys import Key
from penstock.streams.failures.policy import OverflowPolicy, check_share
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.keyed.overflow import Backlog, Overflow
from penstock.streams.keyed.queues import KeyedQueues
from penstock.streams.protocol.event import Count, Event, give_back_all
from penstock.streams.protocol.stage import (
    CLOSED,
    COMPLETING,
    State,
    Subscriber,
    Subscription,
    is_second,
    send_list,
)
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.demand_stage import BaseDemandStage

__all__ = ["HOTTEST", "STARVED", "KeyedStage"]

# Chosen: longer than the slice of a plain handler, which requests more than it works on.
STARVED = 0.02
"""Seconds without anything ready after which room is made."""

# The most events that are requested together while the pipeline runs. Chosen: longer lists save
# nothing, and a source that is asked more rarely may pause in between, as one of Kafka does.
_MOST_AT_ONCE = 256

# Keys whose numbers are among the statistics.
HOTTEST = 5


class KeyedStage(BaseDemandStage):
    """Subscriber to the stream of events, subscription of the stage that works on them.

    At most `buffer` events are requested and waiting in memory, in all queues together; `overflow`
    keeps events beyond a key's share of it. It completes when the stream above has and the queues
    are empty; on cancel and on errors it returns the waiting events.

    `Substreams` is the same stage with operators inside groups, from which events come into the
    queues. It replaces `_put`, and extends methods of `BaseDemandStage`.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        key: Key,
        buffer: int,
        faults: KeyFaults,
        overflow: Overflow,
        feeders: int | None,
        *,
        leaves: bool = False,
    ) -> None:
        super().__init__(downstream, run, info)
        self.queues = KeyedQueues(key, self._go_on, overflow, feeders, leaves=leaves)
        self.overflow = overflow
        self._put = self.queues.put
        self._key = key
        self._faults = faults
        self._buffer = buffer
        # Requesting a part of the buffer at a time keeps the source's lists long.
        self._batch = max(1, min(buffer // 4, _MOST_AT_ONCE))
        # Places that are vacated where nothing shows that the source has other keys.
        self._trial = max(1, buffer // 4)
        # Places in the buffer that are free and have not been requested.
        self._freed: int = 0
        self._peak = self._peak_groups = 0
        # Since when nothing has been ready although more was wanted and nothing came, and when it
        # is going to look for room.
        self._starves_since: float | None = None
        self._look: TimerHandle | None = None
        run.withdrawals.append(self.withdraw)
        run.starvations.append(self._is_starved)

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if is_second(self, subscription):
            return
        self.upstream = subscription
        self.downstream.on_subscribe(self)
        if not self.state:
            self.ask(self._buffer)

    def on_events(self, events: list[Event[Any]], /) -> None:
        self.asked -= len(events)
        if self.state and self.state >= CLOSED:
            give_back_all(events)
            return
        queues, overflow, put = self.queues, self.overflow, self._put
        draining, self._draining = self._draining, True
        current = self._current
        outer, current.stage = current.stage, self
        error: Exception | None = None
        try:
            if (refused := put(events)) is not None:
                skipped, error = self._faults.put_rest(events, refused, put, self._key)
                self._freed += skipped
        finally:
            current.stage = outer
        self._draining = draining
        if self.state and self.state >= CLOSED:
            # The function of the key has cancelled the pipeline, and more was put after that.
            self.release()
        if error is not None:
            self.fail(error)
            return
        if overflow.vacated or overflow.error is not None:
            self._take_vacated()
        if queues.waiting > self._peak:
            self._peak = max(self._peak, queues.waiting - overflow.on_disk)
        if len(queues.keys) > self._peak_groups:
            self._peak_groups = len(queues.keys)
        self._drain()
        if not draining and self._freed >= self._batch:
            self._ask()

    def _ask(self) -> None:
        """Request what is free, and again what is skipped of that."""
        while not self.state:
            freed, self._freed = self._freed, 0
            self.ask(freed)
            if self._freed < self._batch:
                break

    def set_share(self, share: int | None, policy: OverflowPolicy | None) -> None:
        """Replace the share of a key, or what becomes of more, for the events that come now."""
        if share is not None:
            check_share(share, self._buffer, "set_share")
        self.overflow.set(share, policy, self._backlogs())

    def withdraw(self, is_gone: Callable[[Event[Any]], bool]) -> None:
        """Return to their source the waiting events for which this is true."""
        events = self.queues.withdraw(is_gone)
        self._freed += len(events)
        self._take_vacated()
        give_back_all(events)
        if self._freed >= self._batch:
            self._ask()

    def request(self, n: Count, /) -> None:
        self.demand += n
        self._go_on()

    def _go_on(self) -> None:
        """More is wanted, or turns have ended or were opened."""
        queues = self.queues
        # Nothing to do for what comes: it is passed on, or counts as starving, when it has come.
        if self.demand and (queues.rotation or queues.opened or not self.asked):
            self._drain()

    def _proceed(self) -> None:
        queues, overflow = self.queues, self.overflow
        while self.demand and (queues.rotation or queues.opened):
            events = queues.take(self.demand)
            n = len(events)
            self.demand -= n
            self._freed += n
            if overflow.vacated or overflow.error is not None:
                self._take_vacated()
                if self.state >= CLOSED:
                    give_back_all(events)
                    return
            send_list(self.downstream, events)
            if self._freed >= self._batch:
                self._ask()
        if not self.demand or self.asked or self.state:
            self._starves_since = None
        elif self._look is None and self.run.has_loop:
            if self._starves_since is None:
                self._starves_since = self.run.now()
            self._look = self.run.call_later(STARVED, self.info, self._look_for_room)

    def _look_for_room(self) -> None:
        """If for a while nothing was ready although more was wanted, and nothing comes, request
        what is free, or make room for the keys that have none."""
        self._look = None
        since = self._starves_since
        if since is None or self.asked or self.run.now() < since + STARVED:
            # It was not so in between.
            self._drain()
            return
        if self._freed <= self._batch // 8:
            turnover = self.queues.turnover
            wait = turnover.until_room(self.run.now())
            if wait:
                self._look = self.run.call_later(wait, self.info, self._look_for_room)
            else:
                wanted = self._batch if turnover.come_and_go else self._trial
                self.overflow.make_room(self._backlogs(), wanted)
                self._take_vacated()
        if self._freed > 0:
            self._ask()

    def _is_starved(self) -> bool:
        return self.demand > 0 and not (self.queues.rotation or self.queues.opened)

    def _backlogs(self) -> Iterable[Backlog]:
        """All that waits in memory, by key."""
        return self.queues.all

    def _take_vacated(self) -> None:
        overflow = self.overflow
        self._freed += overflow.vacated
        overflow.vacated = 0
        error, overflow.error = overflow.error, None
        if error is not None:
            self.fail(error)

    def _end_if_idle(self) -> None:
        if self.state is COMPLETING and not self.queues.waiting:
            self.complete()

    def _close(self, state: State) -> None:
        super()._close(state)
        self.demand = 0

    def release(self) -> None:
        """Return all that waits to its source."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        give_back_all(self.queues.close())
        for events in self.overflow.close():
            give_back_all(events)

    # Numbers.

    def group_statistics(self) -> dict[str, Any]:
        """Events `waiting` now and at the `peak`, `groups` alive, and the fullest group.

        `closed_early`: by cause, groups whose operators were completed before their time.
        """
        queues = self.queues
        hottest = self._hottest_keys()
        numbers: dict[str, Any] = {
            "waiting": (in_memory := queues.waiting - self.overflow.on_disk),
            "peak": max(self._peak, in_memory),
            "bound": self._buffer,
            "groups": len(queues),
            "peak_groups": max(self._peak_groups, len(queues)),
            "hottest": hottest[0]["key"] if hottest else None,
            "hottest_waiting": hottest[0]["waiting"] if hottest else 0,
            "hottest_keys": hottest,
            "closed_early": {},
        }
        faults = self._faults.statistics()
        faults["routed"] += self.overflow.routed
        return numbers | self.overflow.statistics() | faults

    def _hottest_keys(self) -> list[dict[str, Any]]:
        now = self.run.now()
        return [
            {"key": queue.key, "waiting": queue.size, "age": now - queue.events[0].created}
            for queue in self.queues.fullest(HOTTEST)
            if queue.events
        ]

    def spread_statistics(self) -> dict[str, Any]:
        """Groups `ready` for their next event, and those `outside` the feeders."""
        return {"ready": self.queues.ready, "outside": self.queues.outside}
