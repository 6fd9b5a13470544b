"""Reads of a backend, in threads if they may block: the loop waits for none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.streams.runtime.wait import Wait
from penstock.streams.state.backend import Backend

if TYPE_CHECKING:
    from penstock.streams.protocol.stage_info import StageInfo
    from penstock.streams.runtime.context import Run

__all__ = ["Reads"]

T = TypeVar("T")


class Reads:
    """The reads of one run that are under way. One that takes long is reported, with the `name` of
    the store."""

    def __init__(self, run: Run, backend: Backend, name: str) -> None:
        self._run = run
        self._in_thread = backend.reads_in_thread
        self._pending: set[asyncio.Future[Any]] = set()
        self._slow = Wait(
            run, None, lambda: f"{name} has not answered a read for 5 s: events wait for it"
        )

    def begin(self, info: StageInfo, call: Callable[[], T], then: Callable[[T], None]) -> None:
        """Call a function that reads, and another one with its result: now, or when a thread has
        read it. An error of either is one of the stage that `info` names."""
        if not self._in_thread:
            then(call())
            return
        reading = self._begun(call)
        reading.add_done_callback(partial(self._read, info, then))

    def _read(self, info: StageInfo, then: Callable[[T], None], reading: asyncio.Future[T]) -> None:
        if not reading.cancelled():
            self._run.call(info, lambda: then(reading.result()))

    async def wait(self, call: Callable[[], T]) -> T:
        """The result of a function that reads."""
        # A read uses the backend until it ends, also if nothing waits for it any more.
        return await asyncio.shield(self._begun(call)) if self._in_thread else call()

    def _begun(self, call: Callable[[], T]) -> asyncio.Future[T]:
        reading = self._run.loop.run_in_executor(None, call)
        self._pending.add(reading)
        self._slow.begin()
        reading.add_done_callback(self._ended)
        return reading

    def _ended(self, reading: asyncio.Future[Any]) -> None:
        self._pending.discard(reading)
        if not self._pending:
            self._slow.end()

    async def ended(self) -> None:
        """Wait until no read is under way."""
        while self._pending:
            await asyncio.wait(self._pending)
