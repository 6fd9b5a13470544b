"""The sink stage for lines of bytes: writes batches, and waits for its reader."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.streams.errors import OutputClosed
from penstock.streams.failures.policy import ErrorPolicy, OnError
from penstock.streams.io.compression import compressor
from penstock.streams.io.encoding import without_hook
from penstock.streams.io.paths import Path, output_name
from penstock.streams.io.writer import open_output
from penstock.streams.protocol.event import Event, finish_all, give_back_all
from penstock.streams.protocol.sink_stage import Closed, SinkStage
from penstock.streams.protocol.stage import StageInfo
from penstock.streams.runtime.context import Run

__all__ = ["WINDOW", "LineWriting"]

WINDOW = 1024
"""The most events that a writer has accepted and not yet written."""

# A batch is written when it has so many bytes, or half the window, or at the end of the loop
# iteration. Chosen: what a pipe holds; larger batches are no faster (measured).
_BATCH = 64 * 1024

# Seconds that a reader gets, after a cancel, to take the rest of a line that it has begun.
_GRACE = 1.0

_GONE = frozenset({errno.EPIPE, errno.ECONNRESET, errno.ESHUTDOWN})


class LineWriting(SinkStage[Any]):
    r"""Writes `encode(value)`, which must be one line with its `\n`, for every event.

    `_accepted` are the events whose lines are not out, oldest first: those of the `_batch`
    in progress, of which `_sent` bytes are written, then those of `_buffer`.
    """

    asks_first = WINDOW

    def __init__(
        self,
        run: Run,
        closed: Closed,
        info: StageInfo,
        path: Path,
        encode: Callable[[Any], bytes],
        on_error: OnError,
        *,
        append: bool,
    ) -> None:
        super().__init__(closed)
        self._run = run
        self._encode = encode
        self._name = name = output_name(path)
        self._compressor = compressor(name)
        self._faults = ErrorPolicy(on_error, run, self)
        self._accepted: list[Event[Any]] = []
        self._buffer = bytearray()
        self._batch: bytes | bytearray = b""
        self._sent = self._batched = 0
        self._events = self._bytes = 0
        self._scheduled = self._writing = self._full = False
        self._ending = self._trailed = False
        self._error: BaseException | None = None
        self._room: asyncio.Future[None] | None = None
        # Other workers of the cluster may write to the same file.
        append = append or run.overrides.engine is not None
        if append and self._compressor is None:
            _end_line(path)
        self._output = open_output(path, run, self._has_room_again, append=append)
        run.on_close(self._release)

    def on_events(self, events: list[Event[Any]], /) -> None:
        if self._ending or self._closed is None:
            give_back_all(events)
            return
        # An error is reported by itself, not as one that came while another was handled.
        with suppress(Exception):
            self._buffer += b"".join(map(self._encode, [event.value for event in events]))
            self._accepted += events
            events = []
        if events:
            self._take_in(events)
        if self._full or not self._accepted:
            return
        if len(self._buffer) >= _BATCH or len(self._accepted) >= WINDOW // 2:
            self._write()
        elif not self._scheduled:
            self._schedule()

    def _take_in(self, events: list[Event[Any]]) -> None:
        """One by one, for some cannot be encoded."""
        refused: list[tuple[Event[Any], Exception]] = []
        for event in events:
            try:
                self._buffer += self._encode(event.value)
            except Exception as error:
                without_hook(error)
                refused.append((event, error))
            else:
                self._accepted.append(event)
        # Afterwards: what they bring about may come back here.
        for event, reason in refused:
            self._cannot_encode(event, reason)

    def _schedule(self) -> None:
        self._scheduled = True
        self._run.call_soon(self.info, self._idle)

    def _idle(self) -> None:
        """The loop iteration has ended."""
        self._scheduled = False
        if not self._full:
            self._write()

    def _has_room_again(self) -> None:
        self._run.call(self.info, self._has_room)

    def _has_room(self) -> None:
        self._full = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._write()

    def _write(self) -> None:
        """Write the current batch, or else the next one, as far as the output takes it."""
        if self._writing or self._closed is None:
            return
        if not self._batch:
            self._next_batch()
        self._writing = True
        try:
            finished = self._push()
        finally:
            self._writing = False
        if self._closed is None:
            return
        # Outside of `_writing`: what this brings may be written at once.
        if finished and not self._ending:
            self.upstream.request(finished)
        if self._batch:
            return
        if self._buffer:
            # Through the loop, or a fast source and a fast disk would keep it for ever.
            if not self._scheduled:
                self._schedule()
        elif self._ending:
            self._end()

    def _next_batch(self) -> None:
        self._batch, self._buffer = self._buffer, bytearray()
        self._sent = 0
        self._batched = len(self._accepted)
        if self._compressor is not None and self._batch:
            self._batch = self._compressor.block(self._batch)

    def _push(self) -> int:
        """Write what can be written of the batch; how many events that finished."""
        batch, start = self._batch, self._sent
        broken: OSError | None = None
        try:
            with memoryview(batch) as data:
                while self._sent < len(batch):
                    written = self._output.write(data[self._sent :])
                    if not written:
                        self._full = True
                        break
                    self._sent += written
        except OSError as error:
            broken = error
        self._bytes += self._sent - start
        whole = self._sent == len(batch)
        if self._compressor is None:
            # Every event is one line, so the lines that are out show which events are.
            finished = self._batched if whole else batch.count(b"\n", start, self._sent)
        else:
            # A block that is cut cannot be read.
            finished = self._batched if whole else 0
        self._batched -= finished
        if whole:
            self._batch = b""
        self._events += finished
        done = self._accepted[:finished]
        del self._accepted[:finished]
        finish_all(done)
        if broken is not None:
            self._broken(broken)
        return finished

    def _broken(self, error: OSError) -> None:
        """The output takes no more: end the pipeline, and return what is not out."""
        self._batch = b""
        self._trailed = True
        closed, self._closed = self._closed, None
        if closed is None:
            return
        if not self._ending:
            self.upstream.cancel()
        self._give_back()
        if error.errno in _GONE:
            lines = "1 line" if self._events == 1 else f"{self._events:,} lines"
            closed(OutputClosed(f"The reader of {self._name} went away after {lines}."))
        else:
            error.filename = self._name
            closed(error)

    def _give_back(self) -> None:
        self._buffer = bytearray()
        accepted, self._accepted = self._accepted, []
        give_back_all(accepted)

    def _cannot_encode(self, event: Event[Any], error: Exception) -> None:
        if self._faults.survives(event, error):
            if not self._ending:
                self.upstream.request(1)
        elif not self._ending:
            self.upstream.cancel()
            self._end_with(error)

    # The end.

    def on_completed(self) -> None:
        self._end_with(None)

    def on_error(self, error: BaseException, /) -> None:
        self._end_with(error)

    def _end_with(self, error: BaseException | None) -> None:
        """Write what was accepted, then close."""
        if not self._ending:
            self._ending = True
            self._error = error
            if not self._full:
                self._write()

    def _end(self) -> None:
        if not self._trailed and self._compressor is not None:
            self._trailed = True
            self._batch = self._compressor.end()
            self._sent = 0
            self._write()
            return
        try:
            self._output.close()
        except OSError as error:
            error.filename = self._name
            self.close(self._error or error)
        else:
            self.close(self._error)

    def cancel(self) -> None:
        if self._closed is None:
            return
        self._ending = True
        if self._compressor is None:
            # Of the batch, nothing but the rest of a line that is partly out. (A block that
            # was compressed must be written: what comes after it continues it.)
            end = self._batch.find(b"\n", self._sent - 1) + 1 if self._sent else 0
            self._batch = self._batch[:end]
            self._batched = self._batch.count(b"\n", self._sent)
        self._push()
        self._batched = 0
        self._give_back()
        self.close()

    async def _release(self) -> None:
        """Let a line that is partly out be ended, if its reader takes it soon; close."""
        self.cancel()
        try:
            async with asyncio.timeout(_GRACE):
                await self._drained()
                if self._compressor is not None and not self._trailed:
                    self._trailed = True
                    self._batch = self._compressor.end()
                    self._sent = 0
                    self._push()
                    await self._drained()
        except TimeoutError:
            pass
        self._output.close()

    async def _drained(self) -> None:
        while self._batch:
            self._room = self._run.loop.create_future()
            await self._room
            self._push()

    def statistics(self) -> dict[str, Any]:
        """Events `waiting` to be written, the `lines` and `bytes` that are out."""
        return {
            "waiting": len(self._accepted),
            "bound": WINDOW,
            "lines": self._events,
            "bytes": self._bytes,
            **self._faults.statistics(),
        }


def _end_line(path: Path) -> None:
    """End a line that a full disk, or a kill, has cut off: what is appended would continue it."""
    if isinstance(path, int) or not os.path.isfile(path):
        return
    # A file that cannot be opened so may still be one that can be appended to.
    with suppress(OSError), open(path, "r+b") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
