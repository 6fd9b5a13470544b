"""Combine the newest values of several streams, whenever one of them has a new one.

Items:   tuples with the newest value of each stream, in the order of the streams; the first when
         every stream has one, then one for each event.
Time:    a tuple leaves with the event that makes it, if it is requested. Events are taken in the
         order of their coming, so a slow reader gets every combination, only later.
Memory:  the newest event of each stream, and up to `prefetch` that wait. A plain Observable has a
         buffer of 1,024 besides.
Demand:  requests from every stream what is requested of it, up to `prefetch` each.
Ends:    when all streams have ended, or one has without a value and the others can make no tuple.
         An event is finished when a newer one has replaced it, or all have ended, and every tuple
         with its value is finished; one that was in no tuple is dropped as "combine_latest". Cancel
         returns the newest events too: tuples that they owe were not made.
Errors:  the first error of a stream passes on after the events that came before it and are
         requested; the other streams are cancelled, and what waits is returned.

    source                 --1-----------2--------|
    combine_latest(other)  -----(1,a)----(2,a)--(2,b)--|
    other                  -----a---------------b------|
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from reactivex import Observable
from reactivex import operators as stock

from penstock.streams.base.recorded import recorded
from penstock.streams.keyed.queues import joined
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.inputs import as_stream
from penstock.streams.rx.combining.several import PREFETCH, Latest, Several, Waiting, several
from penstock.streams.rx.lift import WithStock

__all__ = ["combine_latest"]

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


@overload
def combine_latest(
    a: Observable[A], /, *, prefetch: int = ...
) -> Callable[[Flowable[T]], Flowable[tuple[T, A]]]: ...


@overload
def combine_latest(
    a: Observable[A], b: Observable[B], /, *, prefetch: int = ...
) -> Callable[[Flowable[T]], Flowable[tuple[T, A, B]]]: ...


@overload
def combine_latest(
    a: Observable[A], b: Observable[B], c: Observable[C], /, *, prefetch: int = ...
) -> Callable[[Flowable[T]], Flowable[tuple[T, A, B, C]]]: ...


@overload
def combine_latest(
    *others: Observable[Any], prefetch: int = ...
) -> Callable[[Flowable[Any]], Flowable[tuple[Any, ...]]]: ...


@recorded
def combine_latest(
    *others: Observable[Any], prefetch: int = PREFETCH
) -> Callable[[Flowable[Any]], Flowable[tuple[Any, ...]]]:
    """Tuples of the newest values of the stream and of `others`, one for each new value.

    Up to `prefetch` events of each stream wait for demand. Raises BuildError for a `prefetch` below
    1, and between `spread` and a working stage.
    """
    streams = [as_stream("combine_latest", other) for other in others]

    def operator(source: Flowable[Any]) -> Flowable[tuple[Any, ...]]:
        n = len(streams) + 1
        info = StageInfo(
            "combine_latest", f"of {n}", n, gathers=n, delivery=Delivery(until_more=True)
        )
        return several(source, streams, _Combining, info, holds=True, prefetch=prefetch)

    return WithStock(operator, stock.combine_latest(*others))


class _Combining(Several):
    """`_order` has a stream once for each of its events that wait, in the order of their coming."""

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        streams: Sequence[Flowable[Any]],
        prefetch: int,
    ) -> None:
        super().__init__(downstream, run, info, streams, prefetch)
        self._latest = {each: Latest(info.name) for each in self.inputs}
        self._missing = len(self.inputs)
        self._order: deque[Waiting] = deque()

    def arrived(self, source: Waiting, events: list[Event[Any]]) -> None:
        source.events += events
        self._order += [source] * len(events)

    def combine(self) -> bool:
        if not self._order:
            if all(each.is_over for each in self.inputs):
                self.finish()
            return False
        source = self._order[0]
        latest = self._latest[source]
        missing = self._missing - (not latest.is_there)
        if not missing and not self.demand:
            return False
        self._order.popleft()
        latest.replace(source.events.popleft())
        self._missing = missing
        if not missing:
            children = [each.child() for each in self._latest.values()]
            self.send(joined(tuple(child.value for child in children), children))
        elif all(each.has_ended for each in self.inputs if each is not source):
            self.finish()
        return True

    def complete(self) -> None:
        for latest in self._latest.values():
            latest.close()
        super().complete()

    def release(self) -> None:
        self._order.clear()
        for latest in self._latest.values():
            latest.give_back()
        super().release()

    def statistics(self) -> dict[str, Any]:
        """The events that wait, and the newest of each stream."""
        kept = sum(latest.is_there for latest in self._latest.values())
        return {"waiting": len(self._order) + kept}
