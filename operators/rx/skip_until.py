"""Skip the events of a stream until another one emits.

Items:   the events of the source that come after the first event of the other stream, unchanged.
Time:    as soon as they come, or as they are requested. The other stream is read from the beginning
         on, before the source.
Memory:  none of its own. A plain Observable in place of the other stream has a buffer of 1,024.
Demand:  requests from the source what is requested of it, up to 64; an event that is skipped is
         requested again. One event of the other stream, which is then cancelled.
Ends:    with the source. As in Rx, if the other stream has not emitted before, it does not
         complete: `other.pipe(ops.default_if_empty())` emits at the end of `other` at the latest.
         A skipped event, and that of the other stream, is dropped as "skip_until"; the others are
         finished as if they had come alone. Cancel returns what waits.
Errors:  the first error of the source or of the other stream passes on at once.

    source             --1--2--3--4--|
    skip_until(other)  --------3--4--|
    other              ------x
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from reactivex import Observable
from reactivex import operators as stock

from penstock.streams.base.recorded import recorded
from penstock.streams.boundary.inner_stream import Input
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.event import Event, drop_all
from penstock.streams.rx.combining.signalled import Signalled, signalled

__all__ = ["skip_until"]

T = TypeVar("T")


@recorded
def skip_until(other: Observable[Any]) -> Callable[[Flowable[T]], Flowable[T]]:
    """The events of the stream after `other`, a stream, an Observable or a future, has emitted."""
    return signalled("skip_until", other, _Skipping, stock.skip_until(other))


class _Skipping(Signalled):
    """`_completes`: the source has ended, after a signal."""

    _passes = _completes = False

    def signal(self) -> None:
        self._passes = True
        self.signals.cancel()

    def received(self, events: list[Event[Any]]) -> None:
        if self._passes:
            super().received(events)
        else:
            drop_all(events, self.info.name)

    def _begin(self) -> None:
        super()._begin()
        if self.source.is_over:
            # It had ended when the first signal came.
            self._completes = self._passes

    def over(self, source: Input, error: BaseException | None, /) -> None:
        if source is self.source:
            self._completes = self._passes
        super().over(source, error)

    def combine(self) -> bool:
        if self.pass_on():
            return True
        if self._completes or (self.source.is_over and self.run.drains):
            self.finish()
        return False
