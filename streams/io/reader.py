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
import threading
from collections.abc import Callable

from penstock.streams.errors import CannotOpen
from penstock.streams.io.compression import Input, Unpacked
from penstock.streams.io.descriptor import watch
from penstock.streams.io.paths import Path, input_mode, input_name
from penstock.streams.io.standard import actual_input
from penstock.streams.runtime.context import Run

__all__ = ["CHUNK", "OPEN_FLAGS", "open_input"]

# Bytes of one read. Chosen: four times what a pipe holds; larger chunks parse no faster.
CHUNK = 256 * 1024

STANDARD_INPUT = 0
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
    raw = _open(actual_input(path), run, ready, opened)
    return Unpacked(raw, input_name(path), CHUNK, from_start=opened is None)


def _open(
    path: Path, run: Run, ready: Callable[[], None], opened: Callable[[int], object] | None
) -> Input:
    if path == "-" or isinstance(path, int):
        descriptor = path if isinstance(path, int) else STANDARD_INPUT
        if opened is not None:
            opened(descriptor)
        return _of_descriptor(descriptor, path, run, ready, None)
    name = input_name(path)
    try:
        descriptor = os.open(name, OPEN_FLAGS)
    except OSError as error:
        raise CannotOpen(f"Cannot read {name}: {error.strerror}.") from error
    try:
        if opened is not None:
            opened(descriptor)
        return _of_descriptor(descriptor, path, run, ready, descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def _of_descriptor(
    descriptor: int, path: Path, run: Run, ready: Callable[[], None], own: int | None
) -> Input:
    name = input_name(path)
    mode = input_mode(descriptor, name)
    if stat.S_ISDIR(mode):
        raise CannotOpen(f"Cannot read {name}: it is a directory. Name a file in it.")
    regular = stat.S_ISREG(mode)

    def read_some() -> bytes | None:
        try:
            return os.read(descriptor, CHUNK)
        except BlockingIOError:
            return None

    if regular:
        return _Direct(read_some, own, lasting=True)
    try:
        return _Polled(descriptor, read_some, own, run.loop, ready)
    except NotImplementedError:
        return _Threaded(read_some, own, run, ready)
    except OSError:
        # The kernel refuses to poll what never makes a reader wait, such as /dev/null.
        return _Direct(read_some, own, lasting=False)


class _Direct:
    """An input whose reads return at once."""

    def __init__(self, read: Callable[[], bytes | None], own: int | None, *, lasting: bool) -> None:
        self.lasting = lasting
        self.read = read
        self._own = own

    def close(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            os.close(own)


class _Polled:
    """An input that is read when the loop says that there is something to read."""

    lasting = False

    def __init__(
        self,
        descriptor: int,
        read: Callable[[], bytes | None],
        own: int | None,
        loop: asyncio.AbstractEventLoop,
        ready: Callable[[], None],
    ) -> None:
        self._read = read
        self._own = own
        self._ready = ready
        self._readable = False
        self._watch = watch(loop, descriptor, self._on_readable, writing=False)

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

    def close(self) -> None:
        self._watch.close()
        own, self._own = self._own, None
        if own is not None:
            os.close(own)


class _Threaded:
    """An input that a thread waits for, one read at a time.

    The thread is no part of the loop's executor: that one waits for its threads when the loop
    is closed, and nobody can wake a thread that waits for input. An abandoned one ends with
    the input or with the process, and closes the descriptor itself.
    """

    lasting = False

    def __init__(
        self,
        read: Callable[[], bytes | None],
        own: int | None,
        run: Run,
        ready: Callable[[], None],
    ) -> None:
        self._read = read
        self._own = own
        self._loop = run.loop
        self._ready = ready
        self._reading = self._closed = False
        self._chunk: bytes | OSError | None = None

    def read(self) -> bytes | None:
        chunk, self._chunk = self._chunk, None
        if isinstance(chunk, Exception):
            raise chunk
        if chunk is None and not self._reading:
            self._reading = True
            threading.Thread(target=self._wait, name="penstock input", daemon=True).start()
        return chunk

    def _wait(self) -> None:
        chunk: bytes | OSError | None
        try:
            chunk = self._read()
        except OSError as error:
            chunk = error
        try:
            self._loop.call_soon_threadsafe(self._arrived, chunk)
        except RuntimeError:
            # The loop was closed meanwhile; nobody is left who could close the descriptor.
            self._reading = False
            self.close()

    def _arrived(self, chunk: bytes | OSError | None) -> None:
        self._reading = False
        if self._closed:
            self.close()
        else:
            self._chunk = chunk
            self._ready()

    def close(self) -> None:
        self._closed = True
        own = self._own
        if own is not None and not self._reading:
            self._own = None
            os.close(own)
