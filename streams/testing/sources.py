"""In-memory twins of sources."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.event import Ending, Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.source_stage import BaseSourceStage
from penstock.streams.testing.ledger import Ledger

__all__ = ["CountedSource", "MemorySource"]

T = TypeVar("T")


class CountedSource(Flowable[T]):
    """A stream of items that counts how many of them were emitted.

    Each connection iterates anew, one item for each unit of demand; `emitted` and `ledger` are
    about all connections together.
    """

    def __init__(self, items: Iterable[T]) -> None:
        super().__init__(self._start, StageInfo("counted"))
        self.emitted = 0
        self.ledger = Ledger()
        self._items = items

    def _start(self, downstream: Subscriber[T], run: Run) -> None:
        _Emitting(downstream, run, self.info, self._count(), self.ledger).start()

    def _count(self) -> Iterator[T]:
        iterator = iter(self._items)
        try:
            for item in iterator:
                self.emitted += 1
                yield item
        finally:
            close: Callable[[], None] | None = getattr(iterator, "close", None)
            if close is not None:
                close()


class MemorySource(Flowable[T]):
    """The twin of a source that acknowledges, such as a queue: it records the outcome of each item.

    An item that finished, or was dropped, skipped or routed, is acknowledged and gone. One that
    failed or was returned stays, and `redeliver` offers it again. Connections share the items,
    as the consumers of a queue do, and complete when none is left to offer.
    """

    def __init__(self, items: Iterable[T] = ()) -> None:
        super().__init__(self._start, StageInfo("memory", delivery=Delivery(acknowledges=True)))
        self.ledger = Ledger()
        self._ready: deque[T] = deque()
        self._rest = iter(items)
        self._kept: list[T] = []

    @property
    def acked(self) -> list[T]:
        """The items that may be forgotten, in the order of the acknowledgements."""
        return self.ledger.ended(Ending.FINISHED, Ending.DROPPED, Ending.FORGIVEN)

    @property
    def failed(self) -> list[T]:
        """The items that failed and were not acknowledged; once more for each attempt."""
        return self.ledger.ended(Ending.FAILED)

    @property
    def returned(self) -> list[T]:
        """The items that were returned unfinished; once more for each time."""
        return self.ledger.ended(Ending.RETURNED)

    @property
    def unsettled(self) -> list[T]:
        """The items in the pipeline."""
        return self.ledger.unsettled

    def redeliver(self) -> int:
        """Offer items that failed or were returned again, ahead of the rest; return how many."""
        kept, self._kept = self._kept, []
        self._ready.extendleft(reversed(kept))
        return len(kept)

    def _start(self, downstream: Subscriber[T], run: Run) -> None:
        emission = _Emitting(downstream, run, self.info, self._offer(), self.ledger)
        emission.keep = self._keep_back
        emission.start()

    def _keep_back(self, items: list[T]) -> None:
        self._kept += items

    def _offer(self) -> Iterator[T]:
        while True:
            while self._ready:
                yield self._ready.popleft()
            try:
                item = next(self._rest)
            except StopIteration:
                return
            yield item


class _Emitting(BaseSourceStage):
    """Emits an iterator's items, and records each event in a ledger."""

    keep: Callable[[list[Any]], None] | None = None

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        items: Iterator[Any],
        ledger: Ledger,
    ) -> None:
        super().__init__(downstream, run, info)
        self._items = items
        self._ledger = ledger

    @property
    def gives_again(self) -> bool:
        return self.keep is not None

    def produce(self) -> None:
        while self.demand:
            try:
                item = next(self._items)
            except StopIteration:
                self.complete()
            except Exception as error:
                self.fail(error)
            else:
                self.send_all([self._ledger.enter(Event(item, self.run.now(), self))])

    def release(self) -> None:
        close: Callable[[], None] | None = getattr(self._items, "close", None)
        if close is not None and not getattr(self._items, "gi_running", False):
            try:
                close()
            except Exception as error:
                self.run.failed(error)

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        items = self._ledger.end(events, ending)
        if self.keep is not None and ending >= Ending.RETURNED:
            self.keep(items)
        super().settle(events, ending, why)
