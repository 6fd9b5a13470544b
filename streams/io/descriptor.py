"""Descriptors that are read and written without blocking the loop, and left in their blocking mode.

What can be polled is read or written when the loop reports that it is ready. Regular files, and
devices that cannot be polled, return at once and are called directly, so a network file system that
hangs does block the loop. On a loop that cannot poll pipes (Windows), a thread makes each call.

`loop.add_reader` is not enough for a standard stream: uvloop switches what it watches to
non-blocking, which switches it for every process that shares it and outlives this one; and a
loop has one reader per descriptor, which may be the embedding application's. So the loop watches
a private epoll object, which watches the descriptor (epoll objects nest, see epoll(7)).
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from penstock.streams.runtime.context import Run

__all__ = ["Descriptor", "Threaded", "Watch", "non_blocking"]

R = TypeVar("R")

# Windows has no PIPE_BUF, but its pipes are written by a thread, which may wait.
_PIECE: int = getattr(select, "PIPE_BUF", 512)


class _LoopWatch:
    """A watch by the loop's own means, for kernels without epoll."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: int,
        ready: Callable[[], None],
        *,
        writing: bool,
    ) -> None:
        self._descriptor = descriptor
        self._ready = ready
        self._add = loop.add_writer if writing else loop.add_reader
        self._remove = loop.remove_writer if writing else loop.remove_reader
        self._armed = False
        self.arm()

    def _on_ready(self) -> None:
        self.close()
        self._ready()

    def arm(self) -> None:
        if not self._armed:
            blocking = os.get_blocking(self._descriptor)
            self._add(self._descriptor, self._on_ready)
            os.set_blocking(self._descriptor, blocking)
            self._armed = True

    def close(self) -> None:
        if self._armed:
            self._armed = False
            self._remove(self._descriptor)


if sys.platform == "linux":

    class Watch:
        """A watch on a descriptor until it can be read, or with `writing` written.

        `arm` requests one call of `ready`; a new watch is armed. Raises
        OSError if the kernel has nothing to watch about the descriptor (a regular file, /dev/null),
        and NotImplementedError if the loop cannot watch descriptors (Windows).
        """

        def __init__(
            self,
            loop: asyncio.AbstractEventLoop,
            descriptor: int,
            ready: Callable[[], None],
            *,
            writing: bool,
        ) -> None:
            self._loop = loop
            self._descriptor = descriptor
            self._ready = ready
            self._mask = select.EPOLLONESHOT | (select.EPOLLOUT if writing else select.EPOLLIN)
            self._poller = select.epoll()
            try:
                self._poller.register(descriptor, self._mask)
                loop.add_reader(self._poller.fileno(), self._on_ready)
            except BaseException:
                self._poller.close()
                raise
            self._armed = True

        def _on_ready(self) -> None:
            if self._poller.poll(0):
                self._armed = False
                self._ready()

        def arm(self) -> None:
            """Have `ready` called once, when the descriptor is or becomes ready."""
            if not self._armed:
                self._armed = True
                self._poller.modify(self._descriptor, self._mask)

        def close(self) -> None:
            """Call nothing more. To be called before the descriptor is closed."""
            if not self._poller.closed:
                self._loop.remove_reader(self._poller.fileno())
                self._poller.close()

else:
    Watch = _LoopWatch


class Descriptor:
    """A descriptor whose calls return at once, and the base class of those that may have to wait.

    `lasting`: what was read can be read again, as the lines of a file can. `own` closes what has to
    be closed at the end.
    """

    def __init__(self, number: int, own: ExitStack, *, lasting: bool = False) -> None:
        self._number = number
        self._own = own
        self.lasting = lasting
        # From the start of a file, also where it is read from elsewhere.
        self._read = os.lseek(number, 0, os.SEEK_CUR) if lasting else 0

    def read(self, size: int) -> bytes | None:
        """At most `size` bytes, b"" at the end, None when `ready` will be called for more.

        Raises OSError.
        """
        data = self._call(os.read, self._number, size)
        if data:
            self._read += len(data)
        return data

    def sizes(self) -> tuple[int, int | None]:
        """The bytes read, and for a file those in all, now. Not to be called when it is closed."""
        return self._read, os.fstat(self._number).st_size if self.lasting else None

    def is_named(self, path: str) -> bool:
        """Whether `path` is the name of the file, and of no other one. Raises OSError."""
        try:
            return os.path.samestat(os.fstat(self._number), os.stat(path))
        except FileNotFoundError:
            return False

    def write(self, data: memoryview) -> int:
        """Write some of `data` and return how many bytes; 0 when `ready` will be called for more.

        After 0 the next call passes the same bytes again. Raises OSError.
        """
        return self._call(os.write, self._number, data) or 0

    def take_back(self, count: int) -> bool:
        """Remove the last bytes that were written to a file, if nothing has followed them."""
        if not self.lasting:
            return False
        try:
            end = os.lseek(self._number, 0, os.SEEK_CUR)
            if os.fstat(self._number).st_size != end:
                return False
            os.ftruncate(self._number, end - count)
            os.lseek(self._number, end - count, os.SEEK_SET)
        except OSError:
            return False
        return True

    def _call(self, function: Callable[..., R], *args: Any) -> R | None:
        return function(*args)

    def close(self) -> None:
        """Make no more calls. Raises OSError if the system could not keep what was written."""
        self._own.close()


class _Watched(Descriptor):
    """A descriptor that is read and written when it is ready."""

    def __init__(
        self,
        number: int,
        own: ExitStack,
        run: Run,
        ready: Callable[[], None],
        *,
        writing: bool,
    ) -> None:
        super().__init__(number, own)
        self._ready = ready
        self._readable = False
        self._watch = Watch(run.loop, number, self._on_ready, writing=writing)
        own.callback(self._watch.close)
        self._poll: select.poll | None = None
        if writing:
            self._poll = select.poll()
            self._poll.register(number, select.POLLOUT)

    def _on_ready(self) -> None:
        self._readable = True
        self._ready()
        # What is not read now may be gone later: another process may share the input.
        self._readable = False

    def write(self, data: memoryview) -> int:
        """Write as much as surely fits, whole lines if possible.

        Up to PIPE_BUF bytes are written in one go (POSIX, write(2)): with whole lines, several
        processes that write to one pipe do not cut each other's lines, and a cancel does not cut
        one.
        """
        if len(data) > _PIECE:
            data = data[:_PIECE]
            data = data[: bytes(data).rfind(b"\n") + 1] or data
        return super().write(data)

    def _call(self, function: Callable[..., R], *args: Any) -> R | None:
        try:
            if self._is_ready():
                return function(*args)
        except BlockingIOError:
            # Another process made it non-blocking, or took what was there.
            pass
        self._watch.arm()
        return None

    def _is_ready(self) -> bool:
        if self._poll is not None:
            return bool(self._poll.poll(0))
        readable, self._readable = self._readable, False
        return readable


class Threaded(Descriptor):
    """A descriptor that a thread reads or writes, one call at a time, for loops that cannot poll,
    and for what only blocks.

    The thread is not part of the loop's executor: that one waits for its threads when the loop is
    closed, and nothing can wake a thread that waits for input or for a reader. An abandoned one
    ends with its call or with the process, and closes the descriptor itself.
    """

    def __init__(
        self,
        number: int,
        own: ExitStack,
        run: Run,
        ready: Callable[[], None],
    ) -> None:
        super().__init__(number, own)
        self._loop = run.loop
        self._ready = ready
        self._calling = self._closed = False
        # The outcome of the last call, if it was not taken yet.
        self._outcome: Any = None

    def write(self, data: memoryview) -> int:
        return min(super().write(memoryview(bytes(data))), len(data))

    def _call(self, function: Callable[..., R], *args: Any) -> R | None:
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None and not self._calling:
            self._calling = True
            thread = threading.Thread(target=self._run, args=(function, *args), daemon=True)
            thread.name = f"penstock {function.__name__}"
            thread.start()
        found: R | None = outcome
        return found

    def _run(self, function: Callable[..., object], *args: Any) -> None:
        try:
            outcome: object = function(*args)
        except Exception as error:
            outcome = error
        try:
            self._loop.call_soon_threadsafe(self._returned, outcome)
        except RuntimeError:
            # The loop was closed meanwhile: nothing else is left to close the descriptor.
            self._calling = False
            self.close()

    def _returned(self, outcome: object) -> None:
        self._calling = False
        if self._closed:
            self.close()
        else:
            self._outcome = outcome
            self._ready()

    def close(self) -> None:
        """Begin no more calls; the descriptor is closed when the one in progress has returned."""
        self._closed = True
        if not self._calling:
            super().close()


def non_blocking(
    number: int,
    own: ExitStack,
    run: Run,
    ready: Callable[[], None],
    *,
    writing: bool,
) -> Descriptor:
    """The descriptor of this number; `ready` is called when one that had to wait can go on."""
    if stat.S_ISREG(os.fstat(number).st_mode):
        return Descriptor(number, own, lasting=True)
    try:
        return _Watched(number, own, run, ready, writing=writing)
    except NotImplementedError:
        return Threaded(number, own, run, ready)
    except OSError:
        # The kernel refuses to poll what never makes its user wait, such as /dev/null.
        return Descriptor(number, own)
