"""Combine each event with the newest values of other streams.

Items:   tuples of the source's value and the newest of each other stream, one for each event of the
         source; an event that comes before every other stream has a value is dropped.
Time:    a tuple leaves with its event of the source.
Memory:  the newest event of each other stream. A plain Observable has a buffer of 1,024 besides.
Demand:  requests from the source what is requested of it, and from the others always the next
         event: newer ones replace it however slow the reader is.
Ends:    with the source; the others are cancelled. An event of another stream is finished when a
         newer one has replaced it, or the source has ended, and every tuple with its value is
         finished; one that was in no tuple is dropped as "with_latest_from". Cancel returns it.
Errors:  the first error of a stream passes on at once, and the others are cancelled.

    source                   -----1--------2-----3------|
    with_latest_from(other)  -----(1,a)----(2,b)-(3,b)--|
    other                    --a--------b------------c--|
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from reactivex import Observable
from reactivex import operators as stock

from penstock.streams.base.recorded import recorded
from penstock.streams.keyed.queues import joined
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.event import Event, drop_all
from penstock.streams.protocol.stage import UNBOUNDED, Subscriber, send_list
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.inputs import as_stream
from penstock.streams.rx.combining.several import Latest, Several, Waiting, several
from penstock.streams.rx.lift import WithStock

__all__ = ["with_latest_from"]

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")

# Of the other streams: each event replaces the one before as it comes.
_AHEAD = 1


@overload
def with_latest_from(a: Observable[A], /) -> Callable[[Flowable[T]], Flowable[tuple[T, A]]]: ...


@overload
def with_latest_from(
    a: Observable[A], b: Observable[B], /
) -> Callable[[Flowable[T]], Flowable[tuple[T, A, B]]]: ...


@overload
def with_latest_from(
    a: Observable[A], b: Observable[B], c: Observable[C], /
) -> Callable[[Flowable[T]], Flowable[tuple[T, A, B, C]]]: ...


@overload
def with_latest_from(
    *sources: Observable[Any],
) -> Callable[[Flowable[Any]], Flowable[tuple[Any, ...]]]: ...


@recorded
def with_latest_from(
    *sources: Observable[Any],
) -> Callable[[Flowable[Any]], Flowable[tuple[Any, ...]]]:
    """Tuples of each value of the stream and the newest values of `sources`.

    Raises BuildError between `spread` and a working stage.
    """
    others = [as_stream("with_latest_from", other) for other in sources]

    def operator(source: Flowable[Any]) -> Flowable[tuple[Any, ...]]:
        n = len(others) + 1
        info = StageInfo(
            "with_latest_from", f"of {n}", n, gathers=n, delivery=Delivery(until_more=True)
        )
        return several(source, others, _Following, info, holds=True, prefetch=_AHEAD)

    return WithStock(operator, stock.with_latest_from(*sources))


class _Following(Several):
    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        streams: Sequence[Flowable[Any]],
        prefetch: int,
    ) -> None:
        super().__init__(downstream, run, info, streams, prefetch)
        self._source, *self._others = self.inputs
        # Its events are sent on as they come: none of them waits here.
        self._source.prefetch = UNBOUNDED
        self._latest = {each: Latest(info.name) for each in self._others}
        self._reads = False

    def arrived(self, source: Waiting, events: list[Event[Any]]) -> None:
        latest = self._latest.get(source)
        if latest is None:
            self.within(self._send_all, events)
        else:
            for event in events:
                latest.replace(event)

    def _send_all(self, events: list[Event[Any]]) -> None:
        latest = self._latest.values()
        if not all(each.is_there for each in latest):
            drop_all(events, self.info.name)
            return
        tuples: list[Event[Any]] = []
        for event in events:
            children = [each.child() for each in latest]
            value = (event.value, *[child.value for child in children])
            tuples.append(joined(value, [event, *children]))
        self.demand -= len(tuples)
        send_list(self.downstream, tuples)

    def combine(self) -> bool:
        if self._source.has_ended:
            self.finish()
        return False

    def fill(self) -> bool:
        # The others first, so that what they have at the beginning counts for the first event.
        if self.demand:
            self._reads = True
        asked = [each.fill(_AHEAD) for each in self._others if self._reads]
        return any(asked) or self._source.fill(self.demand)

    def complete(self) -> None:
        for latest in self._latest.values():
            latest.close()
        super().complete()

    def release(self) -> None:
        for latest in self._latest.values():
            latest.give_back()
        super().release()

    def statistics(self) -> dict[str, Any]:
        """The newest events of the other streams, and the source's that waits."""
        kept = sum(latest.is_there for latest in self._latest.values())
        return {"waiting": len(self._source.events) + kept}
