"""Every source of the library, as a case."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import reactivex
from reactivex import Observable
from reactivex import operators as ops
from reactivex.abc import DisposableBase, ObserverBase, SchedulerBase
from reactivex.disposable import Disposable

import penstock
from penstock import (
    Backoff,
    Flowable,
    Inbox,
    from_async_iterable,
    from_iterable,
    inbox,
    queue_stats,
    read_csv,
    read_jetstream,
    read_jsonl,
    read_lines,
)
from penstock.streams.base.errors import InboxClosed
from penstock.streams.boundary.from_observable import Overflow
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.sql_queue import ClaimTerms
from penstock.streams.sql_queue.reader import ReaderOptions, TableReader
from penstock.streams.testing import CountedSource, MemorySource
from tests.helpers.memory_store import MemoryStore
from tests.helpers.reactive_streams.between import anew, source_of, unpacked
from tests.helpers.reactive_streams.case import Case, numbers_up_to

__all__ = ["SOURCES", "rows_of"]

# Seconds between two values of a plain Observable.
PACE = 0.01


async def _async_numbers(numbers: Iterable[int]) -> AsyncIterator[int]:
    iterator = iter(numbers)
    try:
        for number in iterator:
            yield number
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def _observable(numbers: Iterable[int]) -> Observable[int]:
    """A plain Observable: a value every PACE seconds, requested or not."""

    def subscribe(
        observer: ObserverBase[int], scheduler: SchedulerBase | None = None
    ) -> DisposableBase:
        loop = asyncio.get_running_loop()
        iterator = iter(numbers)
        disposed = False
        timer = loop.call_later(PACE, lambda: emit())

        def emit() -> None:
            nonlocal timer
            try:
                number = next(iterator)
            except StopIteration:
                observer.on_completed()
            except Exception as error:
                observer.on_error(error)
            else:
                observer.on_next(number)
                if not disposed:
                    timer = loop.call_later(PACE, emit)

        def dispose() -> None:
            nonlocal disposed
            disposed = True
            timer.cancel()
            close = getattr(iterator, "close", None)
            if close is not None and not getattr(iterator, "gi_running", False):
                close()

        return Disposable(dispose)

    return reactivex.create(subscribe)


def _lines(numbers: Iterable[int]) -> Flowable[int]:
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as file:
        file.writelines(json.dumps({"n": number}) + "\n" for number in numbers)
    return unpacked(read_jsonl(file.name))


def _rows_of_csv(numbers: Iterable[int]) -> Flowable[int]:
    with tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False) as file:
        file.write("n\n")
        file.writelines(f'"{number}"\n' for number in numbers)
    return unpacked(read_csv(file.name, types={"n": int}))


def _decoded_lines(numbers: Iterable[int]) -> Flowable[int]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
        file.writelines(f"{number}\n" for number in numbers)
    return read_lines(file.name, decode=int)


def rows_of(store: MemoryStore) -> Flowable[Any]:
    """`read_table` of the rows in a store."""
    info = StageInfo("read_table")
    manner = ReaderOptions(Backoff(), batch=3, follow=False, poll=1.0, patience=0.0)
    return source_of(
        lambda subscriber, run: TableReader(subscriber, run, info, store, ClaimTerms("me"), manner),
        "read_table",
    )


def _rows(numbers: Iterable[int]) -> Flowable[int]:
    payloads = [json.dumps({"n": number}) for number in numbers]
    return unpacked(anew(lambda _: rows_of(MemoryStore(payloads)), "read_table"))


def _messages(numbers: Iterable[int]) -> Flowable[int]:
    return unpacked(read_jetstream(f"first_{len(list(numbers))}", follow=False))


def _puts(numbers: Iterable[int]) -> Flowable[int]:
    """An inbox with some values; it would never end by itself."""

    def make(run: Run) -> Inbox[int]:
        values: Inbox[int] = inbox(16)

        async def put() -> None:
            reader = values._entrance.reader
            if reader is None:
                # It has been cancelled.
                return
            with suppress(InboxClosed):
                for number in numbers:
                    await values.put(number)
            reader.stop()

        run.spawn(put(), "puts")
        return values

    return anew(make, "inbox")


def _looks(numbers: Iterable[int]) -> Flowable[Any]:
    """The stream of `queue_stats`; it would never end by itself."""
    return queue_stats("sqlite:///queue.db", every=0.01).pipe(ops.take(len(list(numbers))))


def _of(
    overflow: Overflow,
) -> Callable[[Iterable[int]], Flowable[int]]:
    return lambda numbers: Flowable.of(_observable(numbers), overflow)


def _source(name: str, over: Callable[[Iterable[int]], Flowable[Any]], **facts: Any) -> Case:
    return Case(name, over, numbers_up_to, **facts)


_plain = partial(_source, synchronous=False)

SOURCES = [
    _source("from_iterable", from_iterable),
    _plain(
        "from_async_iterable",
        lambda numbers: from_async_iterable(lambda: _async_numbers(numbers)),
        sees_end=False,
    ),
    _plain("of buffer", _of(penstock.buffer(1_000_000))),
    _plain("of drop_oldest", _of(penstock.drop_oldest(3)), lossless=False),
    _plain("of drop_newest", _of(penstock.drop_newest(3)), lossless=False),
    _plain("of latest", _of(penstock.latest()), lossless=False),
    _plain("of error", _of(penstock.error()), lossless=False),
    _source("CountedSource", CountedSource, sees_end=False),
    _source("MemorySource", MemorySource, pulls=False, sees_end=False),
    _source("read_jsonl", _lines, pulls=False, sees_end=False),
    _source("read_csv", _rows_of_csv, pulls=False, sees_end=False),
    _source("read_lines, decoded", _decoded_lines, pulls=False, sees_end=False),
    _plain("read_table", _rows, pulls=False, sees_end=False),
    _plain("read_jetstream", _messages, pulls=False, sees_end=False),
    _source("inbox", _puts, pulls=False),
    _plain("queue_stats, take", _looks, pulls=False),
]
