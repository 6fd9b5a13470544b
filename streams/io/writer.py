"""Non-blocking writes to files, pipes, sockets and terminals.

A pipe is written when the loop reports room, at most PIPE_BUF bytes each time, which then fit
(POSIX, write(2)); so a shared standard output need not be switched to
non-blocking, which would switch it for every process that has it. Regular files, and devices
that cannot be polled, are written directly. On a loop that cannot watch pipes (Windows), a
thread waits for room.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol

from penstock.streams.io.descriptor import BlockingCalls, watch
from penstock.streams.io.paths import Path, opening, output_name
from penstock.streams.io.standard import actual_output
from penstock.streams.runtime.context import Run

__all__ = ["Output", "open_output"]

# Windows has no PIPE_BUF, but its pipes are written by a thread, which may wait.
_PIECE: int = getattr(select, "PIPE_BUF", 512)


class Output(Protocol):
    """An open output."""

    def write(self, data: memoryview, /) -> int:
        """Write some of `data` and return how many bytes; 0 when `ready` will be called for more.

        After 0 the next call gives the same bytes again. Raises OSError.
        """
        ...

    def close(self) -> None:
        """Write no more. Raises OSError if the system could not keep what was written."""


def open_output(path: Path, run: Run, ready: Callable[[], None], *, append: bool) -> Output:
    """Open `path`, emptied unless `append`; `ready` is called when a full output has room.

    Raises CannotOpen.
    """
    path, name = actual_output(path), output_name(path)
    flags = os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
    with opening(path, name, flags, "write") as (descriptor, mode, own):
        if not stat.S_ISREG(mode):
            try:
                return _Polled(descriptor, own, run.loop, ready)
            except NotImplementedError:
                return _Threaded(descriptor, BlockingCalls("penstock output", run.loop, ready, own))
            except PermissionError:
                # The kernel refuses to poll what never makes a writer wait, such as /dev/null.
                pass
        return _Direct(descriptor, own)


class _Direct:
    """An output whose writes return at once."""

    def __init__(self, descriptor: int, own: ExitStack) -> None:
        self._descriptor = descriptor
        self.close = own.close

    def write(self, data: memoryview, /) -> int:
        return os.write(self._descriptor, data)


class _Polled:
    """An output that may have no room."""

    def __init__(
        self,
        descriptor: int,
        own: ExitStack,
        loop: asyncio.AbstractEventLoop,
        ready: Callable[[], None],
    ) -> None:
        self._descriptor = descriptor
        self._watch = watch(loop, descriptor, ready, writing=True)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        own.callback(self._watch.close)
        self.close = own.close

    def write(self, data: memoryview, /) -> int:
        try:
            if self._poll.poll(0):
                return os.write(self._descriptor, self._piece(data))
        except BlockingIOError:
            # Another process made it non-blocking, or took the room that was there.
            pass
        self._watch.arm()
        return 0

    @staticmethod
    def _piece(data: memoryview) -> memoryview:
        """As much as surely fits, whole lines if possible.

        Up to PIPE_BUF bytes are written in one go: with whole lines, several processes that
        write to one pipe do not cut each other's lines, and a cancel does not cut one.
        """
        piece = data[:_PIECE]
        if len(data) <= _PIECE:
            return piece
        whole = bytes(piece).rfind(b"\n") + 1
        return piece[:whole] if whole else piece


class _Threaded:
    """An output that a thread writes to, one piece at a time."""

    def __init__(self, descriptor: int, calls: BlockingCalls[int]) -> None:
        self._descriptor = descriptor
        self._calls = calls
        self.close = calls.close

    def write(self, data: memoryview, /) -> int:
        written = self._calls.outcome(os.write, self._descriptor, bytes(data))
        return min(written or 0, len(data))
