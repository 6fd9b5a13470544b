"""Puts the `pipe` of a test of RxPY on a stream with demand, by public names only."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any

from reactivex import Observable
from reactivex.abc import DisposableBase, SchedulerBase
from reactivex.scheduler import VirtualTimeScheduler

from penstock import Flowable, buffer, from_iterable, ops
from penstock.streams.testing import SchedulerLoop, on_scheduler

# The tests push as they like, and say nothing about demand: no value may overflow.
_ROOM = 10**9

# "one": a value is requested when the one before has been received; otherwise without a bound.
_REQUEST = 1 if os.environ.get("RXPY_DEMAND") == "one" else None

_STREAM_TO_CONNECT = type(from_iterable([0]).pipe(ops.publish()))


def through(source: Observable[Any], operators: Sequence[Callable[[Any], Any]]) -> Any:
    """What `source.pipe(*operators)` is, read through a stream with demand."""
    if isinstance(source, _Connectable):
        return _plain(source.stream.pipe(*operators))
    return _plain(Flowable.of(_Scheduled(source), on_overflow=buffer(_ROOM)).pipe(*operators))


class _Scheduled(Observable[Any]):
    """`source`, which is subscribed to with the test's scheduler: a stream gives that of its loop,
    on which some tests miss what only their own has."""

    def __init__(self, source: Observable[Any]) -> None:
        super().__init__()
        self._source = source

    def subscribe(self, *observer: Any, scheduler: SchedulerBase | None = None) -> DisposableBase:
        # Outside of any loop, and inside callbacks of the scheduler itself, there is none.
        loop = asyncio._get_running_loop()
        if isinstance(loop, SchedulerLoop) and isinstance(loop.scheduler, VirtualTimeScheduler):
            scheduler = loop.scheduler
        return self._source.subscribe(*observer, scheduler=scheduler)


def _plain(result: Any) -> Any:
    if isinstance(result, list):
        return [_plain(stream) for stream in result]
    if isinstance(result, _STREAM_TO_CONNECT):
        return _Connectable(result)
    if isinstance(result, Flowable):
        return on_scheduler(result, request=_REQUEST)
    return result


class _Connectable(Observable[Any]):
    """A connectable stream, which is connected and read on a scheduler."""

    def __init__(self, stream: Any) -> None:
        plain = on_scheduler(stream, request=_REQUEST)
        super().__init__(lambda observer, scheduler: plain.subscribe(observer, scheduler=scheduler))
        self.stream = stream

    def connect(self, scheduler: SchedulerBase | None = None) -> DisposableBase:
        if scheduler is None:
            return self.stream.connect()
        with SchedulerLoop.of(scheduler).entered():
            return self.stream.connect()
