"""Streams of iterables and async iterables; both do nothing before the first request."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from functools import partial
from operator import length_hint
from typing import Any, TypeVar

from penstock.streams.base.errors import (
    CALL_ERRORS,
    WrongType,
    cancelled_inside,
    describe,
    own_error,
)
from penstock.streams.base.validation import is_async_iterable, is_iterable, require_parameters
from penstock.streams.boundary.once import Reading, is_iterator, once_of, used_up
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.tasks import is_cancelled_by_owner
from penstock.streams.stages.source_stage import BaseSourceStage
from penstock.streams.stages.stream import Stream

__all__ = ["Pulling", "iterated", "iterated_async"]

# These report without a pull whether anything is left; others would have to be pulled ahead of the
# demand. For a list that grows while it is read, this is its present end.
_KNOW_THEIR_END: frozenset[type] = frozenset(
    {type(iter([])), type(iter(())), type(iter(range(0))), type(iter(range(2**70)))}
)

# The types of what they iterate over.
_SIZED: frozenset[type] = frozenset({list, tuple, range})

# Why a stream of a bare iterator cannot begin again.
_ONCE = "it was given an iterator, which is read once; give the function that makes it"

T = TypeVar("T")


def iterated(iterable: Callable[[], Iterable[T]] | Iterable[T]) -> Stream[T]:
    """See `from_iterable`."""
    if isinstance(iterable, Stream):
        raise WrongType("from_iterable() takes an iterable, and this is a stream already")
    if not is_iterable(iterable):
        if is_async_iterable(iterable) or inspect.isasyncgenfunction(iterable):
            raise WrongType(
                f"from_iterable() cannot read {describe(iterable)}, which `async for` reads: use "
                "from_async_iterable(...)"
            )
        _require_function("from_iterable", "an iterable", iterable)
    given = _Given(iterable, is_made=is_iterable(iterable))
    # Numbered here, because a copy costs much where many streams are inside one.
    info = StageInfo("from_iterable", number=1, is_source=True, delivery=_read(given))

    def attach(downstream: Subscriber[T], run: Run) -> None:
        _Iteration(downstream, run, info, given).start()

    return Stream(attach, info)


_AGAIN = Delivery(ends=True)


def _read(given: _Given) -> Delivery:
    return Delivery(once=given.once, ends=True) if given.once else _AGAIN


class _Given:
    """What a source was given: a function, an iterable, or an iterator, which can be read once."""

    __slots__ = ("_last", "is_made", "items", "once")

    def __init__(self, items: Any, *, is_made: bool) -> None:
        self.items = items
        self.is_made = is_made
        self.once = _ONCE if is_iterator(items) else ""
        # The last iterator of it that was read: a function may return the same one again.
        self._last = once_of(items) if self.once else None

    def read(self, iterate: Callable[[Any], Any]) -> Reading:
        """Begin to read it, or what the function makes."""
        reading = Reading(self.items if self.is_made else self.items(), iterate)
        self._last = reading.once
        return reading


class _Iteration(BaseSourceStage):
    is_of_values = True

    _reading: Reading | None = None
    # Whether the end of the iterator has come.
    _is_over = False
    # How many items it has in all, where its iterator reports that.
    _total: int | None = None

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        given: _Given,
    ) -> None:
        super().__init__(downstream, run, info)
        self._given = given

    def start(self) -> None:
        super().start()
        if type(self._given.items) in _SIZED and not self._given.items:
            # Nothing is left, so the end needs no request.
            self.complete()

    def produce(self) -> None:
        if self._reading is None:
            try:
                self._reading = self._given.read(iter)
                length = length_hint(self._reading.iterator, -1)
                self._total = None if length < 0 else length
            except CALL_ERRORS as raised:
                self.fail_as_users(own_error(raised))
                return
        reading = self._reading
        self.produce_from(reading.iterator)
        if self._is_over and reading.goes_on and not self.received and self.error is None:
            self.fail_as_users(used_up(reading.iterator))
        if not (self.state or self.demand or self.demand_withheld) and self._at_its_end():
            self.complete()

    def complete(self) -> None:
        self._is_over = self.error is None
        super().complete()

    def stop(self) -> None:
        # Items may be left.
        super().complete()

    def _at_its_end(self) -> bool:
        iterator = None if self._reading is None else self._reading.iterator
        return type(iterator) in _KNOW_THEIR_END and not length_hint(iterator, 1)

    def statistics(self) -> dict[str, Any]:
        """The numbers of every source, its `events_total` and the part of them that is `emitted`;
        both are None where the iterable has no length."""
        total = self._total
        emitted = None if total is None else min(1.0, self.received / total if total else 1.0)
        return {**super().statistics(), "events_total": total, "emitted": emitted}

    def release(self) -> None:
        if self._reading is None:
            return
        iterator = self._reading.iterator
        close = getattr(iterator, "close", None)
        self._reading.leave(is_over=self._is_over or close is not None)
        self._reading = None
        # A generator that cancels its own stream is running: it cannot be closed from inside.
        if close is None or getattr(iterator, "gi_running", False):
            return
        try:
            close()
        except CALL_ERRORS as raised:
            self.run.failed(own_error(raised))


def iterated_async(
    factory: Callable[[], AsyncIterable[T]] | AsyncIterable[T],
) -> Stream[T]:
    """See `from_async_iterable`."""
    if not is_async_iterable(factory):
        if is_iterable(factory) or inspect.isgeneratorfunction(factory):
            raise WrongType(
                f"from_async_iterable() cannot read {describe(factory)}, which a plain `for` "
                "reads: use from_iterable(...)"
            )
        _require_function("from_async_iterable", "an async iterable", factory)
    given = _Given(factory, is_made=is_async_iterable(factory))
    info = StageInfo("from_async_iterable", number=1, is_source=True, delivery=_read(given))

    def attach(downstream: Subscriber[T], run: Run) -> None:
        Pulling(downstream, run, info, partial(given.read, aiter)).start()

    return Stream(attach, info)


def _require_function(source: str, kind: str, given: object) -> None:
    """Raise WrongType unless this is a function that may make what `source` reads."""
    if inspect.iscoroutinefunction(given):
        raise WrongType(
            f"{source}() cannot read what {describe(given)} returns, a coroutine: use "
            "from_async_iterable(function), where the function is an async generator (`async def` "
            "with `yield`)"
        )
    if not callable(given):
        raise WrongType(
            f"{source}() takes {kind} or a function that makes one, not {type(given).__name__}"
        )
    require_parameters(given, f"{source}(...)", 0, "no arguments")


class Pulling(BaseSourceStage):
    """The running source of an async iterable.

    `_pulled` is an item that arrived while the source was paused, and the time of its arrival.
    """

    is_of_values = True

    _task: asyncio.Task[None] | None = None
    _pulled: tuple[Any, float] | None = None
    _stopped = False

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        begin: Callable[[], Reading],
    ) -> None:
        super().__init__(downstream, run, info)
        self._begin = begin
        self._wanted = asyncio.Event()

    def produce(self) -> None:
        if self._pulled is not None:
            pulled, self._pulled = self._pulled, None
            self.emit(*pulled)
            if self._stopped:
                self.complete()
        if self.state:
            return
        self._wanted.set()
        if self._task is None:
            self._task = self.run.spawn(self._pull(), self.info.name, stage=self)

    async def _pull(self) -> None:
        reading: Reading | None = None
        is_over = False
        try:
            reading = self._begin()
            iterator: AsyncIterator[Any] = reading.iterator
            clock, slice_ = self.run.now, self._slice
            now = clock()
            while True:
                # A task that was cancelled in its own call, by `release`, ends here or in the
                # clean-up of the iterator.
                if self.state or (now >= slice_.end and slice_.is_over(now)):
                    await asyncio.sleep(0)
                if self.demand:
                    value = await anext(iterator)
                    now = clock()
                    if self.demand:
                        self.send_all([Event(value, now, self)])
                    else:
                        self._pulled = (value, now)
                        if self.state:
                            self._return_pulled()
                else:
                    self._wanted.clear()
                    await self._wanted.wait()
        except StopAsyncIteration:
            self._task = None
            is_over = True
            if reading is not None and reading.goes_on and not self.received:
                self.fail_as_users(used_up(reading.iterator))
            else:
                self.complete()
        except asyncio.CancelledError as error:
            if is_cancelled_by_owner():
                raise
            self._task = None
            self.fail(cancelled_inside(f"an async iterable of {self.info}", error))
        except Exception as error:
            self._task = None
            self.fail_as_users(error)
        finally:
            if reading is not None:
                close: Any = getattr(reading.iterator, "aclose", None)
                reading.leave(is_over=is_over or close is not None)
                if close is not None:
                    await close()

    def stop(self) -> None:
        """Pull no more; an item that came during a pause is still emitted."""
        self._stopped = True
        if self._pulled is None:
            self.complete()

    def release(self) -> None:
        self._return_pulled()
        if self._task is not None:
            self.run.tasks.cancel(self._task)

    def _return_pulled(self) -> None:
        if self._pulled is not None:
            self._pulled = None
            self.received += 1
            self.counts["returned"] += 1

    def statistics(self) -> dict[str, Any]:
        return {**super().statistics(), "buffered": int(self._pulled is not None)}
