"""Read a stream until another one emits.

Items:   the events of the source that come before the first event of the other stream, unchanged.
Time:    as soon as they come, or as they are requested. The other stream is read from the beginning
         on, before the source.
Memory:  none of its own. A plain Observable in place of the other stream has a buffer of 1,024.
Demand:  requests from the source what is requested of it, up to 64, and one event of the other
         stream.
Ends:    with the source, or at the first event of the other stream, which is dropped as
         "take_until": then the source is cancelled, and what waits is returned, as it is by a
         cancel. The end of the other stream has no effect. Each event is finished as if it had come
         alone.
Errors:  the first error of the source or of the other stream passes on at once.

    source             --1--2--3--4--|
    take_until(other)  --1--2--|
    other              --------x
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from reactivex import Observable
from reactivex import operators as stock

from penstock.streams.base.recorded import recorded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.rx.combining.signalled import Signalled, signalled

__all__ = ["take_until"]

T = TypeVar("T")


@recorded
def take_until(other: Observable[Any]) -> Callable[[Flowable[T]], Flowable[T]]:
    """The events of the stream until `other`, a stream, an Observable or a future, emits."""
    return signalled("take_until", other, _Taking, stock.take_until(other))


class _Taking(Signalled):
    _is_over = False

    def signal(self) -> None:
        self._is_over = True

    def received(self, events: list[Event[Any]]) -> None:
        if self._is_over:
            give_back_all(events)
        else:
            super().received(events)

    def combine(self) -> bool:
        if self.pass_on():
            return True
        if self._is_over or self.source.is_over:
            self.finish()
        return False
