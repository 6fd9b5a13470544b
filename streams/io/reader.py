"""Non-blocking reads from files, pipes, sockets and terminals. Only a disk can block the loop.

Inputs that can be polled are read when the loop reports that they are ready; a shared standard
input is not switched to non-blocking, which would switch it for every process that has it. Regular
files, and devices that cannot be polled, answer at once and are read directly; so a network file
system that hangs does block the loop. On a loop that cannot poll pipes (Windows), a thread waits
for the bytes.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from contextlib import ExitStack

from penstock.streams.errors import CannotOpen
from penstock.streams.io.compression import Input, Unpacked
from penstock.streams.io.descriptor import BlockingCalls, watch
from penstock.streams.io.paths import Path, input_name, opening
from penstock.streams.io.standard import actual_input
from penstock.streams.runtime.context import Run

__all__ = ["CHUNK", "OPEN_FLAGS", "open_input"]

# Bytes of one read. Chosen: four times what a pipe holds; larger chunks parse no faster.
CHUNK = 256 * 1024

OPEN_FLAGS: int = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def open_input(
    path: Path,
    run: Run,
    ready: Callable[[], None],
    opened: Callable[[int], object] | None = None,
) -> Unpacked:
    """Open `path`; `ready` is called when an input that had nothing to read has something.

    What is compressed by gzip or zstd is decompressed. `opened` is called with the descriptor
    before anything is read, and may place it elsewhere than at the start. Raises CannotOpen, and
    what `opened` raises.
    """
    path, name = actual_input(path), input_name(path)
    with opening(path, name, 0, "read") as (descriptor, mode, own):
        if opened is not None:
            opened(descriptor)
        if stat.S_ISDIR(mode):
            raise CannotOpen(f"Cannot read {name}: it is a directory. Name a file in it.")
        raw = _input(descriptor, run, ready, own, lasting=stat.S_ISREG(mode))
    return Unpacked(raw, name, CHUNK, from_start=opened is None)


def _input(
    descriptor: int, run: Run, ready: Callable[[], None], own: ExitStack, *, lasting: bool
) -> Input:
    def read() -> bytes | None:
        try:
            return os.read(descriptor, CHUNK)
        except BlockingIOError:
            return None

    if not lasting:
        try:
            return _Polled(descriptor, read, own, run.loop, ready)
        except NotImplementedError:
            calls: BlockingCalls[bytes | None]
            calls = BlockingCalls("penstock input", run.loop, ready, own)
            return _Direct(lambda: calls.outcome(read), calls.close)
        except OSError:
            # The kernel refuses to poll what never makes a reader wait, such as /dev/null.
            pass
    return _Direct(read, own.close, lasting)


class _Direct:
    """An input whose reads return at once."""

    def __init__(
        self, read: Callable[[], bytes | None], close: Callable[[], None], lasting: bool = False
    ) -> None:
        self.lasting = lasting
        self.read = read
        self.close = close


class _Polled:
    """An input that is read when the loop says that there is something to read."""

    lasting = False

    def __init__(
        self,
        descriptor: int,
        read: Callable[[], bytes | None],
        own: ExitStack,
        loop: asyncio.AbstractEventLoop,
        ready: Callable[[], None],
    ) -> None:
        self._read = read
        self._ready = ready
        self._readable = False
        self._watch = watch(loop, descriptor, self._on_readable, writing=False)
        own.callback(self._watch.close)
        self.close = own.close

    def _on_readable(self) -> None:
        self._readable = True
        self._ready()
        # If nobody wants it now, it may be gone later: another process may share the input.
        self._readable = False

    def read(self) -> bytes | None:
        if self._readable:
            self._readable = False
            return self._read()
        self._watch.arm()
        return None
