"""Plain-value consumers: Rx observers and `async for`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from reactivex.abc import DisposableBase, ObserverBase
from reactivex.disposable import Disposable

from penstock.streams.base.errors import as_raised
from penstock.streams.boundary.strict_subscriber import connect
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import UNBOUNDED, Subscription
from penstock.streams.runtime.context import Run
from penstock.streams.stages.stream import Stream

__all__ = ["iterate", "subscribe_observer", "values_of"]

T = TypeVar("T")


def subscribe_observer(source: Stream[T], observer: ObserverBase[T]) -> DisposableBase:
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


async def iterate(source: Stream[T]) -> AsyncIterator[T]:
    """The values of `source`, each requested when the one before has been processed."""
    run = Run()
    reader = _Iterating()
    subscription = connect(source, reader, run)
    try:
        while reader.ending is None:
            subscription.request(1)
            if reader.event is None and reader.ending is None:
                await reader.signal()
            if reader.event is not None:
                yield reader.event.value
                reader.event.finish()
                reader.event = None
        if reader.ending[0] is not None:
            raise as_raised(reader.ending[0])
    finally:
        if reader.event is not None:
            reader.event.give_back()
        subscription.cancel()
        await run.close()


class _Iterating:
    """Keeps the event that is not finished, and the end of the stream."""

    event: Event[Any] | None = None
    ending: tuple[BaseException | None] | None = None
    _signalled: asyncio.Future[None] | None = None

    async def signal(self) -> None:
        """Wait for the requested event, or the end."""
        self._signalled = asyncio.get_running_loop().create_future()
        await self._signalled

    def on_subscribe(self, subscription: Subscription, /) -> None:
        pass

    def on_next(self, event: Event[Any], /) -> None:
        self.event = event
        self._wake()

    def on_error(self, error: BaseException, /) -> None:
        self.ending = (error,)
        self._wake()

    def on_completed(self) -> None:
        self.ending = (None,)
        self._wake()

    def _wake(self) -> None:
        if self._signalled is not None and not self._signalled.done():
            self._signalled.set_result(None)


async def values_of(source: Stream[T], limit: int | None) -> list[T]:
    """All values of `source`, or the first `limit`, after which it is cancelled."""
    run = Run()
    reader = _Gathering(limit)
    subscription = connect(source, reader, run)
    try:
        error = await reader.ended
    finally:
        subscription.cancel()
        await run.close()
    if error is not None:
        raise as_raised(error)
    return reader.values


class _Gathering:
    """Keeps the values; `ended` has the error of the stream, or None."""

    def __init__(self, limit: int | None) -> None:
        self._missing = UNBOUNDED if limit is None else limit
        self.values: list[Any] = []
        self.ended: asyncio.Future[BaseException | None]
        self.ended = asyncio.get_running_loop().create_future()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        subscription.request(self._missing)

    def on_next(self, event: Event[Any], /) -> None:
        self.values.append(event.value)
        event.finish()
        self._missing -= 1
        if not self._missing:
            self._end(None)

    def on_error(self, error: BaseException, /) -> None:
        self._end(error)

    def on_completed(self) -> None:
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        # A stream may end with the last value, or after the wait was cancelled.
        if not self.ended.done():
            self.ended.set_result(error)
