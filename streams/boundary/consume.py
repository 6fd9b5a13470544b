"""Plain-value consumers: Rx observers and `async for`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from reactivex.abc import DisposableBase, ObserverBase
from reactivex.disposable import Disposable

from penstock.streams.boundary.strict_subscriber import connect
from penstock.streams.errors import as_raised
from penstock.streams.flowable import Flowable
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import UNBOUNDED, Subscription
from penstock.streams.runtime.context import Run

__all__ = ["iterate", "subscribe_observer"]

T = TypeVar("T")


def subscribe_observer(source: Flowable[T], observer: ObserverBase[T]) -> DisposableBase:
    """Subscribe a plain Rx observer: unbounded demand; an event finishes when it is passed on."""
    return Disposable(connect(source, _Observing(observer)).cancel)


class _Observing:
    def __init__(self, observer: ObserverBase[Any]) -> None:
        self._observer = observer

    def on_subscribe(self, subscription: Subscription, /) -> None:
        subscription.request(UNBOUNDED)

    def on_next(self, event: Event[Any], /) -> None:
        self._observer.on_next(event.value)
        event.finish()

    def on_error(self, error: BaseException, /) -> None:
        if isinstance(error, Exception):
            self._observer.on_error(error)
        else:
            raise error

    def on_completed(self) -> None:
        self._observer.on_completed()


async def iterate(source: Flowable[T]) -> AsyncIterator[T]:
    """The values of `source`, each requested when the one before has been processed."""
    run = Run()
    reader = _Iterating()
    subscription = connect(source, reader, run)
    event: Event[T] | None = None
    try:
        while (event := await reader.next_event()) is not None:
            yield event.value
            event.finish()
    finally:
        if event is not None:
            event.give_back()
        subscription.cancel()
        await run.close()


class _Iterating:
    """Turns signals into one awaited event at a time."""

    _subscription: Subscription

    def __init__(self) -> None:
        self._next: asyncio.Future[Event[Any] | None] | None = None
        self._ending: tuple[BaseException | None] | None = None

    async def next_event(self) -> Event[Any] | None:
        if self._ending is None:
            self._next = asyncio.get_running_loop().create_future()
            self._subscription.request(1)
            try:
                event = await self._next
            except asyncio.CancelledError:
                if self._next.done() and not self._next.cancelled():
                    late = self._next.result()
                    if late is not None:
                        late.give_back()
                raise
            if event is not None:
                return event
        assert self._ending is not None
        (error,) = self._ending
        if error is not None:
            raise as_raised(error)
        return None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._subscription = subscription

    def on_next(self, event: Event[Any], /) -> None:
        if self._next is None or self._next.done():
            event.give_back()
        else:
            self._next.set_result(event)

    def on_error(self, error: BaseException, /) -> None:
        self._end(error)

    def on_completed(self) -> None:
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._ending = (error,)
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
