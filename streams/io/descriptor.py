"""One-shot readiness of descriptors, without changing their blocking mode; and calls that block.

`loop.add_reader` is not enough for a standard stream: uvloop switches what it watches to
non-blocking, which switches it for every process that shares it and outlives this one; and a
loop has one reader per descriptor, which may be the embedding application's. So the loop watches
a private epoll object, which watches the descriptor (epoll objects nest, see epoll(7)).
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["BlockingCalls", "Watch", "watch"]

R = TypeVar("R")


class Watch(Protocol):
    """A watch on a descriptor; `arm` it for each call that is wanted."""

    def arm(self) -> None:
        """Have `ready` called once, when the descriptor is or becomes ready."""

    def close(self) -> None:
        """Call nothing more. To be called before the descriptor is closed."""


def watch(
    loop: asyncio.AbstractEventLoop, descriptor: int, ready: Callable[[], None], *, writing: bool
) -> Watch:
    """Watch `descriptor` until it can be read, or with `writing` written.

    Raises OSError if the kernel has nothing to watch about it (a regular file, /dev/null), and
    NotImplementedError if the loop cannot watch descriptors (Windows).
    """
    if sys.platform == "linux":
        return _Nested(loop, descriptor, ready, writing)
    return _Plain(loop, descriptor, ready, writing)


if sys.platform == "linux":

    class _Nested:
        def __init__(
            self,
            loop: asyncio.AbstractEventLoop,
            descriptor: int,
            ready: Callable[[], None],
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
            if not self._armed:
                self._armed = True
                self._poller.modify(self._descriptor, self._mask)

        def close(self) -> None:
            if not self._poller.closed:
                self._loop.remove_reader(self._poller.fileno())
                self._poller.close()


class _Plain:
    """By the loop's own watching, for kernels without epoll."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: int,
        ready: Callable[[], None],
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


class BlockingCalls(Generic[R]):
    """Reads or writes that may block, each in a thread, one at a time, for loops that cannot poll.

    The thread is not part of the loop's executor: that one waits for its threads when the loop is
    closed, and nobody can wake a thread that waits for input or for a reader. An abandoned one ends
    with its call or with the process, and closes the descriptor itself.
    """

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        ready: Callable[[], None],
        own: ExitStack,
    ) -> None:
        self._name = name
        self._loop = loop
        self._ready = ready
        self._own = own
        self._calling = self._closed = False
        self._outcome: R | OSError | None = None

    def outcome(self, function: Callable[..., R], *args: Any) -> R | None:
        """The outcome of the last call. Without one a call begins, and `ready` is called later."""
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, OSError):
            raise outcome
        if outcome is None and not self._calling:
            self._calling = True
            threading.Thread(None, self._call, self._name, (function, *args), daemon=True).start()
        return outcome

    def _call(self, function: Callable[..., R], *args: Any) -> None:
        outcome: R | OSError
        try:
            outcome = function(*args)
        except OSError as error:
            outcome = error
        try:
            self._loop.call_soon_threadsafe(self._returned, outcome)
        except RuntimeError:
            # The loop was closed meanwhile; nobody is left who could close the descriptor.
            self._calling = False
            self.close()

    def _returned(self, outcome: R | OSError) -> None:
        self._calling = False
        if self._closed:
            self.close()
        else:
            self._outcome = outcome
            self._ready()

    def close(self) -> None:
        """Begin no more calls; the descriptor is closed when the one under way has returned."""
        self._closed = True
        if not self._calling:
            self._own.close()
