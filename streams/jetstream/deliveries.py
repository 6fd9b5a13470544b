"""The deliveries of all partitions that a worker owns, as the source of its pipeline."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any

from streams import clock
from streams.errors import BadLine
from streams.event import Event
from streams.flowable import Flowable
from streams.jetstream.body import text_of, value_of
from streams.jetstream.partition import Delivery, Partition
from streams.run import Run
from streams.source import Emission
from streams.stage import StageInfo, Subscriber

if TYPE_CHECKING:
    from streams.faults import DeadLetter
    from streams.sink import Sink

__all__ = ["Deliveries"]

_CHUNK = 256


class Deliveries:
    """What has arrived, for the running that is on now; runnings may follow one another.

    What was stored first comes first, whatever its partition, or the keys of some would wait while
    those of others fill the pipeline.

    Memory: the messages that are delivered and not finished, 128 a partition.
    """

    def __init__(self, stream: str, letters: Sink[DeadLetter]) -> None:
        self.flowable: Flowable[Any] = Flowable(
            self._attach, StageInfo("jetstream", stream, 0, "128 unfinished a partition")
        )
        # A heap of what has arrived of each partition, by the first of it.
        self.ready: list[tuple[int, deque[Delivery]]] = []
        self.letters = letters
        self._stage: _Stage | None = None

    def _attach(self, downstream: Subscriber[Any], run: Run) -> None:
        self._stage = _Stage(downstream, run, self.flowable.info, self)
        self._stage.start()

    def arrived(self, delivery: Delivery) -> None:
        queue = delivery.partition.queue
        if not queue:
            heappush(self.ready, (delivery.sequence, queue))
        queue.append(delivery)
        if self._stage is not None:
            self._stage.wake_soon()

    def withdraw(self, partition: Partition) -> None:
        if partition.queue:
            self.ready[:] = [one for one in self.ready if one[1] is not partition.queue]
            heapify(self.ready)
            partition.queue.clear()


class _Stage(Emission[Any]):
    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        deliveries: Deliveries,
    ) -> None:
        super().__init__(downstream, run, info)
        self.ack = self._done
        self.nack = self._returned
        self._deliveries = deliveries
        # From the servers' clock, which is that of the wall, to the loop's.
        self._offset = run.now() - clock.wall()

    def produce(self) -> None:
        ready = self._deliveries.ready
        while ready and self.demand:
            events: list[Event[Any]] = []
            while ready and len(events) < min(self.demand, _CHUNK):
                _, queue = ready[0]
                delivery = queue.popleft()
                if queue:
                    heapreplace(ready, (queue[0].sequence, queue))
                else:
                    heappop(ready)
                event = self._event(delivery) if delivery.partition.lease.held else None
                if event is not None:
                    events.append(event)
            self.send(events)
            if self._slice.is_over(self.run.now()):
                return

    def _event(self, delivery: Delivery) -> Event[Any] | None:
        created = min(delivery.stored + self._offset, self.run.now())
        delivery.partition.entered()
        try:
            return Event(value_of(delivery.data, delivery), created, self, delivery)
        except BadLine as error:
            bad = error
        self.run.count_bad_line(bad)
        self.received += 1
        letters = self.run.letters(self._deliveries.letters)
        letters.send(Event(text_of(delivery.data), created, self, delivery), bad, "jetstream", 1)
        return None

    def _done(self, event: Event[Any]) -> None:
        event.token.partition.done(event.token)

    def failed(self, event: Event[Any], error: BaseException, acknowledged: bool, /) -> None:
        self.counts["failed"] += 1
        if acknowledged:
            self._done(event)
        else:
            event.token.partition.reverted(event.token)

    def _returned(self, event: Event[Any]) -> None:
        event.token.partition.returned()
