"""The sink stage for lines of bytes whose file is renamed when it is full or its time is over.

Between the renaming and the next file there may be a kill: the next run makes that file. A file
that a killed run has left is mended and continued, as any file that is appended to.
"""

from __future__ import annotations

import os
from asyncio import TimerHandle
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from penstock.streams.base.errors import BuildError, CannotOpen
from penstock.streams.failures.policy import OnError
from penstock.streams.io.inputs.csv_rows import RowSplitter
from penstock.streams.io.line_writer import LineWriting
from penstock.streams.io.paths import Path, actual_output, output_name
from penstock.streams.io.rotation import FinalNames, Rotation
from penstock.streams.protocol.stage import CLOSED, Subscription
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import Closed

__all__ = ["RotatingWriting"]


class RotatingWriting(LineWriting):
    """Appends as `LineWriting`, to one file after another, each of them with a `header` first.

    A file has at most the size of the `rotation`, or one line.
    `_period` is the number of the period that the lines of the present file are of.
    """

    def __init__(
        self,
        run: Run,
        closed: Closed,
        path: Path,
        encode: Callable[[Iterable[Any]], bytes],
        on_error: OnError,
        rotation: Rotation,
        *,
        encoded: bool = False,
        delimiter: str = "",
        header: Callable[[], bytes] = bytes,
    ) -> None:
        actual = actual_output(path)
        if actual == "-" or isinstance(actual, int):
            raise BuildError(
                f"{output_name(path)} cannot be rotated, because it has no name: write to a file, "
                "as in write_jsonl(path, rotate=...) or by --output"
            )
        self._file = os.fspath(actual)
        self._rotation = rotation
        self._header = header
        self._rotated = 0
        self._timer: TimerHandle | None = None
        try:
            self._names = FinalNames(self._file)
        except OSError as error:
            raise CannotOpen(f"Cannot write {self._file}: {error.strerror}.") from error
        # Before it is opened, which may mend it.
        self._period = rotation.period(_changed(self._file))
        super().__init__(
            run,
            closed,
            path,
            encode,
            on_error,
            append=True,
            encoded=encoded,
            delimiter=delimiter,
            alone=True,
        )

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._wait_for_next_period()
        super().on_subscribe(subscription)

    def _wait_for_next_period(self) -> None:
        if self._rotation.seconds is not None:
            now = self._run.wall()
            end = (self._rotation.period(now) + 1) * self._rotation.seconds
            self._timer = self._run.call_later(end - now, self.info, self._period_ended)

    def _period_ended(self) -> None:
        if self.state >= CLOSED:
            return
        self._wait_for_next_period()
        # Otherwise the next batch does it.
        if not self._batch and self._is_over(self._size()):
            self._rotate()

    def _size(self) -> int:
        """The bytes of the present file, which another program may have emptied."""
        return self._output.sizes()[1] or 0

    def _is_over(self, size: int) -> bool:
        return size > 0 and self._period != self._rotation.period(self._run.wall())

    def _begin_batch(self) -> None:
        if not self._buffer:
            return
        size = self._size()
        if self._is_over(size):
            size = self._rotate()
        limit, most = self._rotation.size, len(self._buffer)
        while self.state < CLOSED:
            header = b"" if size else self._header()
            if limit is not None:
                most = min(most, limit - size - len(header))
            end, rows = self._rows_within(most)
            block = self._compressor.block(header + self._buffer[:end])
            if limit is None or size + len(block) <= limit or (not size and rows == 1):
                self._batch, self._sent, self._batched = block, 0, rows
                del self._buffer[:end]
                self._period = self._rotation.period(self._run.wall())
                return
            if size:
                size, most = self._rotate(), len(self._buffer)
            else:
                # Compressed, it is larger.
                most = end // 2

    def _rows_within(self, most: int) -> tuple[int, int]:
        """The size and the number of the first rows of the buffer that have so many bytes, at least
        one row."""
        buffer = self._buffer
        if len(buffer) <= most:
            return len(buffer), len(self._accepted)
        most = max(most, 0)
        if not self._delimiter:
            end = buffer.rfind(b"\n", 0, most) + 1 or buffer.find(b"\n") + 1
            return end, buffer.count(b"\n", 0, end)
        rows = RowSplitter(len(buffer), self._delimiter.encode())
        found = rows.feed(bytes(buffer[:most]))
        if not found:
            found = rows.feed(bytes(buffer[most:]))[:1]
        # Any row is one of ours, so it is not too long for its splitter.
        return sum(len(row) + 1 for row in found if isinstance(row, bytes | bytearray)), len(found)

    def _rotate(self) -> int:
        """End the present file and begin the next one; returns the size of that. An error ends the
        pipeline."""
        try:
            is_there = self._output.is_named(self._file)
            # First: not every system renames a file that is open.
            self._output.close()
            if is_there:
                os.rename(self._file, self._final_name())
                self._rotated += 1
            else:
                self._run.errors.warn(
                    f"{self._name} was renamed or removed by another program while it was "
                    "written: going on with a new file"
                )
            self._open()
        except OSError as error:
            error.filename = self._name
            self._cannot_go_on(error)
        except CannotOpen as error:
            self._cannot_go_on(error)
        else:
            return self._size()
        return 0

    def _final_name(self) -> str:
        name = self._names.next(self._run.wall())
        while os.path.lexists(name):
            name = self._names.next(self._run.wall())
        return name

    def _cannot_go_on(self, error: Exception) -> None:
        self._trailed = True
        self.break_off(error)

    async def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await super()._release()

    def statistics(self) -> dict[str, Any]:
        """As of a `LineWriting`, and the files that were `rotated`."""
        return {**super().statistics(), "rotated": self._rotated}


def _changed(path: str) -> float:
    with suppress(OSError):
        return os.stat(path).st_mtime
    return 0.0
