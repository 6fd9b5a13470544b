"""The base class of stages for which the events of another stream are signals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reactivex import Observable

from penstock.streams.protocol.event import Event, drop_all
from penstock.streams.protocol.stage import Subscriber, send_list
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.inputs import as_stream
from penstock.streams.rx.combining.several import Several, Waiting, several
from penstock.streams.rx.lift import Operator, WithStock
from penstock.streams.stages.stream import Stream

__all__ = ["Signalled", "signalled"]


def signalled(
    name: str,
    other: Observable[Any],
    stage: Callable[..., Signalled],
    stock: Operator,
    info: StageInfo | None = None,
) -> Operator:
    """The operator `name`: its `stage` reads the source and `other`; `stock`, inside windows."""
    signals = as_stream(name, other)
    made = info or StageInfo(name)
    return WithStock(lambda source: several(source, [signals], stage, made), stock)


class Signalled(Several):
    """Reads `source` as far as is requested, and `signals` from the beginning on: the next one is
    requested when one has come, however slow the reader is. A signal is dropped as it comes.

    A subclass implements `signal` too. The end of the signals is none, unless it overrides `over`.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        streams: Sequence[Stream[Any]],
        prefetch: int,
    ) -> None:
        super().__init__(downstream, run, info, streams, prefetch)
        self.source, self.signals = self.inputs

    def _begin(self) -> None:
        try:
            self.source.attach()
            # Before the first event, so that a signal that is there already counts for it.
            self.signals.attach()
            self.signals.fill(1)
        except BaseException:
            self._cancel_inputs()
            raise
        self.downstream.on_subscribe(self)

    def signal(self) -> None:
        """Note that a signal has come."""
        raise NotImplementedError

    def arrived(self, source: Waiting, events: list[Event[Any]]) -> None:
        if source is self.signals:
            drop_all(events, self.info.name)
            self.signal()
        else:
            self.received(events)

    def received(self, events: list[Event[Any]]) -> None:
        """Note events of the source; by default they are sent on."""
        self.source.events += events

    def pass_on(self) -> bool:
        """Send the events that have come. Returns whether there were any."""
        events = list(self.source.events)
        self.source.events.clear()
        if events:
            # Never more than are requested.
            self.demand -= len(events)
            send_list(self.downstream, events)
        return bool(events)

    def fill(self) -> bool:
        return self.signals.fill(1) or self.source.fill(self.wanted())

    def wanted(self) -> int:
        """How many events of the source may come; by default, as many as are requested."""
        return self.demand
