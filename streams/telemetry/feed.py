"""The feed of a live page: the document once, then what has changed, once a second.

It is made once for all pages, and not at all while none is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from orjson import OPT_NON_STR_KEYS, dumps

from penstock.streams.recording.recorder import Recorder
from penstock.streams.runtime.tasks import new_task
from penstock.streams.telemetry.document import Document, difference

__all__ = ["Feed", "Fleet"]

Fleet = Callable[[], Awaitable[dict[str, Any]]]
"""Asks the servers of a pipeline about all of its workers."""

# Seconds between two questions.
_EVERY = 2.0


class Feed:
    """Lines of JSON for any number of readers.

    A reader that is late gets no line twice and misses none that matters: one that has missed a
    difference gets the whole document again. Where the pipeline runs on many machines, `fleet` is
    asked every two seconds while there are readers.
    """

    def __init__(self, document: Document, recorder: Recorder, fleet: Fleet | None = None) -> None:
        self._document = document
        self._recorder = recorder
        self._fleet = fleet
        self._asking: asyncio.Task[None] | None = None
        self._readers = 0
        self._now: dict[str, Any] = {}
        self._line = b""
        self._version = 0
        self._changed: asyncio.Event | None = None
        self._is_over = False
        recorder.on_sample.append(self._sampled)

    def _sampled(self) -> None:
        if not self._readers:
            return
        before, self._now = self._now, self._document.now()
        last = self._recorder.samples[-1]
        self._line = _line({"change": difference(before, self._now), "sample": list(last)})
        self._version += 1
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def _ask(self, fleet: Fleet) -> None:
        while True:
            try:
                self._document.fleet = await fleet()
            except Exception as error:
                # The servers are unavailable, or electing a leader; the worker reports that.
                known = self._document.fleet or {}
                self._document.fleet = {**known, "error": type(error).__name__}
            await asyncio.sleep(_EVERY)

    def _leave(self) -> None:
        self._readers -= 1
        if not self._readers and self._asking is not None:
            self._asking.cancel()
            self._asking = None
            # A page that is opened later shows nothing rather than what was true now.
            self._document.fleet = None

    def close(self) -> None:
        """End the lines of all readers after the one that they have."""
        self._is_over = True
        self._wake()

    async def lines(self) -> AsyncGenerator[bytes]:
        """The lines for one reader, until `close`."""
        if not self._readers:
            self._now = self._document.now()
        self._readers += 1
        if self._fleet is not None and self._asking is None:
            self._asking = new_task(self._ask(self._fleet), "penstock fleet")
        try:
            version = None
            while True:
                if version is not None and version == self._version - 1:
                    line = self._line
                else:
                    line = _line({"fixed": self._document.fixed(), "now": self._now})
                version = self._version
                yield line
                while version == self._version and not self._is_over:
                    if self._changed is None:
                        self._changed = asyncio.Event()
                    await self._changed.wait()
                if version == self._version:
                    return
        finally:
            self._leave()


def _line(document: dict[str, Any]) -> bytes:
    # Keys of a pipeline may be anything; those that JSON does not know are shown as text.
    return dumps(document, default=str, option=OPT_NON_STR_KEYS) + b"\n"
