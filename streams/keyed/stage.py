"""The running stage of `group_by` and `spread`: the demand around keyed queues."""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import TYPE_CHECKING, Any

from penstock.streams.keyed.key import Key, KeyFaults
from penstock.streams.keyed.queues import KeyedQueues, KeyQueue
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import Subscriber, Subscription, is_second

if TYPE_CHECKING:
    from penstock.streams.keyed.substreams import Substreams

__all__ = ["KeyedStage"]


class KeyedStage:
    """Subscriber to the stream of events, subscription of the stage that works on them.

    `buffer` bounds the events that wait in all queues together. Operators inside groups run before
    it (`substreams`): they read the keys, keep the bound, and put the outputs of a group into the
    `queues`. It completes when the stream above has and the queues are empty; on cancel and on
    errors it returns what waits.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        key: Key,
        buffer: int,
        faults: KeyFaults,
        feeders: int | None,
        substreams: Substreams | None = None,
    ) -> None:
        self.downstream = downstream
        leaves = substreams is not None
        self.queues = KeyedQueues(key, self.go_on, feeders, leaves=leaves)
        self._key = key
        self._faults = faults
        self._buffer = buffer
        self._substreams = substreams
        # Requesting a quarter of the buffer at a time keeps the source's lists long.
        self._batch: float = inf if substreams is not None else max(1, buffer // 4)
        self._freed = 0
        self._peak = self._peak_groups = 0
        self._demand = 0
        self._passing = self._taking_in = False
        self._source_ended = self._nothing_to_come = self._done = False
        if substreams is not None:
            substreams.below = self

    # Events from above.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if is_second(self, subscription):
            return
        self.upstream = subscription
        self.downstream.on_subscribe(self)
        if not (self._source_ended or self._substreams is not None):
            self.upstream.request(self._buffer)

    def on_events(self, events: list[Event[Any]], /) -> None:
        if self._done:
            give_back_all(events)
            return
        queues = self.queues
        inside, self._taking_in = self._taking_in, True
        skipped, error = self._faults.put_all(events, queues.put, self._key)
        self._freed += skipped
        if error is not None:
            self._broke(error)
            return
        self._taking_in = inside
        if queues.waiting > self._peak:
            self._peak = queues.waiting
        if len(queues) > self._peak_groups:
            self._peak_groups = len(queues)
        self.go_on()
        if self._freed >= self._batch:
            self._ask()

    def _ask(self) -> None:
        # The events being put in come before any that are requested now.
        if not (self._source_ended or self._taking_in):
            freed, self._freed = self._freed, 0
            self.upstream.request(freed)

    # Demand from below.

    def request(self, n: int, /) -> None:
        self._demand += n
        self.go_on()

    @property
    def is_hungry(self) -> bool:
        """Whether more is requested than can be given."""
        return bool(self._demand) and not (self.queues.has_next or self._passing)

    def go_on(self, also: Collection[KeyQueue] = ()) -> None:
        """Send on what may go; the turns of `also` are open from now on."""
        queues = self.queues
        if self._passing:
            if also:
                queues.take(0, also)
            return
        self._passing = True
        try:
            while (self._demand or also) and (events := queues.take(self._demand, also)):
                also = ()
                self._demand -= len(events)
                self._freed += len(events)
                self.downstream.on_events(events)
                if self._freed >= self._batch:
                    self._ask()
                elif self._substreams is not None:
                    self._substreams.after_taking()
        finally:
            self._passing = False
        if self._nothing_to_come:
            self._complete_if_empty()
        if self._substreams is not None:
            self._substreams.look_for_room()

    def cancel(self) -> None:
        if not self._source_ended:
            self._source_ended = True
            self.upstream.cancel()
        self._close()

    # The end.

    def on_completed(self) -> None:
        """No more events will come into the queues."""
        self._source_ended = self._nothing_to_come = True
        if not self._passing:
            self._complete_if_empty()

    def _complete_if_empty(self) -> None:
        if not self.queues.waiting and not self._done:
            self._done = True
            self.downstream.on_completed()

    def on_error(self, error: BaseException, /) -> None:
        self._source_ended = True
        self._broke(error)

    def _broke(self, error: BaseException) -> None:
        """The stream has failed here or above: return what waits, and pass the error on."""
        if not self._done:
            self.cancel()
            self.downstream.on_error(error)

    def _close(self) -> None:
        self._done = True
        self._demand = 0
        give_back_all(self.queues.close())

    # Numbers.

    def group_statistics(self) -> dict[str, Any]:
        """Events `waiting` now and at the `peak`, `groups` alive, and the fullest group.

        `closed_early`: by cause, groups whose operators were completed before their time.
        """
        queues = self.queues
        hottest, waiting = queues.hottest()
        numbers: dict[str, Any] = {
            "waiting": queues.waiting,
            "peak": max(self._peak, queues.waiting),
            "bound": self._buffer,
            "groups": len(queues),
            "peak_groups": max(self._peak_groups, len(queues)),
            "hottest": hottest,
            "hottest_waiting": waiting,
            "closed_early": {},
        }
        if self._substreams is not None:
            numbers |= self._substreams.numbers()
        return numbers | self._faults.statistics()

    def spread_statistics(self) -> dict[str, Any]:
        """Groups `ready` for their next event, and those `outside` the feeders."""
        return {"ready": self.queues.ready, "outside": self.queues.outside}
