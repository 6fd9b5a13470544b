"""The sink stage for lines of bytes: writes them in batches, as fast as the output takes them."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, cast

from penstock.streams.base.errors import (
    CALL_ERRORS,
    CannotOpen,
    OutputClosed,
    counted,
    own_error,
)
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.failures.policy import DeadLetter, OnError
from penstock.streams.io.compression import PLAIN, compressor
from penstock.streams.io.descriptor import non_blocking
from penstock.streams.io.encoding import Unencoded
from penstock.streams.io.file_end import mend_end
from penstock.streams.io.letter_line import letter_line
from penstock.streams.io.paths import Path, actual_output, opening, output_name
from penstock.streams.protocol.event import Event, finish_all, give_back_all
from penstock.streams.protocol.stage import CLOSED, COMPLETING
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed

__all__ = ["WINDOW", "LineWriting"]

WINDOW = 1024
"""The most events that a writer has accepted and not yet written."""

# A batch is written when it has so many bytes, or half the window, or at the end of the loop
# iteration. Chosen: what a pipe holds; larger batches are no faster (measured).
_BATCH = 64 * 1024

# Seconds that a reader has, after a cancel, to take the rest of a line that is partly written.
_GRACE = 1.0

_GONE = frozenset({errno.EPIPE, errno.ECONNRESET, errno.ESHUTDOWN})


class LineWriting(BaseSinkStage):
    r"""Writes `encode(values)`, which must be one line with its `\n` for each, of events.

    With `encoded`, values are such lines already, or `Unencoded`. With a `delimiter`, they are rows
    of CSV, which may have line breaks, and the first of them may have a header before it. With
    `alone` no other run may have the file open.

    `_accepted` are the events whose lines are not written, oldest first: of the `_batch` in
    progress, where `_sent` bytes are written, then of `_buffer`.
    """

    asks_first = WINDOW

    def __init__(
        self,
        run: Run,
        closed: Closed,
        path: Path,
        encode: Callable[[Iterable[Any]], bytes],
        on_error: OnError,
        *,
        append: bool,
        encoded: bool = False,
        delimiter: str = "",
        alone: bool = False,
    ) -> None:
        super().__init__(closed)
        self._run = run
        self._encode = encode
        self._encoded = encoded
        self._letter_line = letter_line(run.now)
        self._name = name = output_name(path)
        self._faults = ErrorPolicy(on_error, run, self)
        self._accepted: list[Event[Any]] = []
        self._buffer = bytearray()
        self._batch: bytes | bytearray = b""
        self._sent = self._batched = 0
        self._events = self._bytes = 0
        self._scheduled = self._writing = self._full = False
        self._trailed = False
        self._room: asyncio.Future[None] | None = None
        self._path = path
        self._delimiter = delimiter
        self._alone = alone
        # Other workers of the cluster may write to the same file, also while it is checked.
        self._append = append or run.overrides.is_on_cluster
        self._compressor = compressor(name, whole=self._append)
        # Whether each line break ends an event.
        self._is_plain = self._compressor is PLAIN and not delimiter
        self._open()
        run.on_close(self._release)

    def _open(self) -> None:
        """Open the output, emptied unless it is appended to. Raises CannotOpen."""
        # Always at the end: where others truncate the file, zeros would fill what they took away.
        flags = os.O_CREAT | os.O_APPEND | (0 if self._append else os.O_TRUNC)
        run, path = self._run, actual_output(self._path)
        with opening(path, self._name, flags, "write") as (descriptor, own):
            mend_end(
                path,
                descriptor,
                own,
                run.errors.warn,
                delimiter=self._delimiter,
                # Other workers of a cluster may be in the middle of a line.
                alone=self._alone or not run.overrides.is_on_cluster,
                sole=self._alone,
            )
            self._output = non_blocking(descriptor, own, run, self._ready, writing=True)
            if self._alone and not self._output.lasting:
                raise CannotOpen(f"Cannot rotate {self._name}: it is not a regular file.")

    def on_events(self, events: list[Event[Any]], /) -> None:
        if self.state:
            give_back_all(events)
            return
        outer, self._current.stage = self._current.stage, self
        try:
            # Suppressed, so that an error is not reported as raised in handling another.
            with suppress(Exception):
                values = [event.value for event in events]
                self._buffer += b"".join(values) if self._encoded else self._encode(values)
                self._accepted += events
                events = []
            if events:
                self._take_in(events)
        finally:
            self._current.stage = outer
        if self._full or not self._accepted:
            return
        if len(self._buffer) >= _BATCH or len(self._accepted) >= WINDOW // 2:
            self._write()
        else:
            self._schedule()

    def _take_in(self, events: list[Event[Any]]) -> None:
        """Encode the events one by one: some of them cannot be encoded."""
        refused: list[tuple[Event[Any], Exception]] = []
        for event in events:
            try:
                self._buffer += self._line_of(event)
            except CALL_ERRORS as raised:
                refused.append((event, own_error(raised)))
            else:
                self._accepted.append(event)
        # Afterwards: the error policy may cause calls of this stage.
        for event, reason in refused:
            self._cannot_encode(event, reason)

    def _line_of(self, event: Event[Any]) -> bytes:
        if self._encoded:
            line: bytes | Unencoded = event.value
            if type(line) is bytes:
                return line
            event.value = cast(Unencoded, line).value
        if type(event.value) is DeadLetter:
            return self._letter_line(event.value)
        return self._encode((event.value,))

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._run.call_soon(self.info, self._idle)

    def _idle(self) -> None:
        """The loop iteration has ended."""
        self._scheduled = False
        if not self._full:
            self._write()

    def _ready(self) -> None:
        self._run.call(self.info, self._has_room)

    def _has_room(self) -> None:
        self._full = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._write()

    def _write(self) -> None:
        """Write the current batch, or else the next one, as far as the output has room."""
        if self._writing or self.state >= CLOSED:
            return
        if not self._batch:
            self._begin_batch()
            if self.state >= CLOSED:
                return
        self._writing = True
        try:
            finished = self._push()
        finally:
            self._writing = False
        if self.state >= CLOSED:
            return
        # Not while `_writing`: the events that this brings may be written at once.
        if finished and not self.state:
            self.upstream.request(finished)
        if self._batch:
            return
        if self._buffer:
            # In the next loop iteration: a fast source and a fast disk would block the loop.
            self._schedule()
        elif self.state:
            self._end_output()

    def _begin_batch(self) -> None:
        """Take the next batch from the buffer."""
        data, self._buffer = self._buffer, bytearray()
        self._batch = self._compressor.block(data) if data else data
        self._sent = 0
        self._batched = len(self._accepted)

    def _push(self) -> int:
        """Write as much of the batch as possible; returns how many events that finished."""
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
        if whole:
            finished = self._batched
        else:
            # Every event is one line, so the lines written show which events have finished; but a
            # compressed block that is cut cannot be read.
            finished = batch.count(b"\n", start, self._sent) if self._is_plain else 0
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
        """The output takes no more: end the pipeline, and return what is not written."""
        self._remove_cut_off()
        self._batch = b""
        self._trailed = True
        if error.errno in _GONE:
            lines = counted(self._events, "line")
            self.break_off(OutputClosed(f"The reader of {self._name} went away after {lines}."))
        else:
            error.filename = self._name
            self.break_off(error)

    def _remove_cut_off(self) -> None:
        """Cut the output back to its last whole line, or compressed block, if it is a file."""
        whole = self._batch.rfind(b"\n", 0, self._sent) + 1 if self._is_plain else 0
        rest = self._sent - whole
        if rest and self._output.take_back(rest):
            self._bytes -= rest
            self._run.errors.warn(
                f"{self._name} could not take a whole line: the {rest:,} bytes of it that were "
                "written were removed again."
            )

    def give_back(self) -> None:
        self._buffer = bytearray()
        accepted, self._accepted = self._accepted, []
        give_back_all(accepted)

    def _cannot_encode(self, event: Event[Any], error: Exception) -> None:
        survives = self._faults.survives(event, error)
        if not self.state:
            if survives:
                self.upstream.request(1)
            else:
                self.upstream.cancel()
                self.end(error)

    # The end.

    def end_if_idle(self) -> None:
        """Write what was accepted, then close."""
        if not self._full:
            self._write()

    def _end_output(self) -> None:
        if self._begin_trailer():
            self._write()
            return
        try:
            self._output.close()
        except OSError as error:
            error.filename = self._name
            self.close(self.error or error)
        else:
            self.close(self.error)

    def _begin_trailer(self) -> bool:
        """Begin a batch of what must follow compressed blocks. Returns False if there is none."""
        if self._trailed or self._is_plain:
            return False
        self._trailed = True
        self._batch, self._sent = self._compressor.end(), 0
        return bool(self._batch)

    def cancel(self) -> None:
        if self.state >= CLOSED:
            return
        self.state = COMPLETING
        if self._is_plain:
            # Of the batch, only the rest of a line that is partly written. (A compressed block
            # must be written: the one after it continues it.)
            end = self._batch.find(b"\n", self._sent - 1) + 1 if self._sent else 0
            self._batch = self._batch[:end]
            self._batched = self._batch.count(b"\n", self._sent)
        self._push()
        self._batched = 0
        super().cancel()

    async def _release(self) -> None:
        """End a line that is partly written, if its reader takes it soon; close the output."""
        self.cancel()
        try:
            async with asyncio.timeout(_GRACE):
                await self._drained()
                if self._begin_trailer():
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
        """Events `waiting` to be written, the `lines` and `bytes` that were written."""
        return {
            "waiting": len(self._accepted),
            "bound": WINDOW,
            "lines": self._events,
            "bytes": self._bytes,
            **self._faults.statistics(),
        }
