"""The main function of a worker process, however it was started."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from penstock.streams.runtime.process.os_signals import DRAINING, left_to_parent
from penstock.streams.workers.child import Child
from penstock.streams.workers.messages import Warn
from penstock.streams.workers.placement import Section
from penstock.streams.workers.processes.wire import Wire

__all__ = ["leave_the_terminal", "without_signals", "work"]


@contextmanager
def without_signals() -> Generator[None]:
    """A process that is started inside gets those that drain when it has said what they do."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, DRAINING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_the_terminal() -> None:
    """Signals to the whole group of processes, and the terminal's input, are for the parent.

    What is printed appears line by line.
    """
    left_to_parent(DRAINING)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, DRAINING)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What several processes print into one pipe must come in whole lines.
            stream.reconfigure(line_buffering=True, write_through=False)


def _keep_from_others(end: socket.socket) -> None:
    """Let no process that a handler forks, and no program that it starts, have this socket.

    While one lived, the parent could not notice that the worker has ended.
    """
    end.set_inheritable(False)

    def give_up() -> None:
        if end.fileno() >= 0:
            # Not closed: something else could get its number, which a copy of the loop would close.
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, end.fileno(), inheritable=False)
            os.close(null)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=give_up)


async def work(section: Section, end: socket.socket, window: int) -> None:
    """Work on what comes over a socket, until the parent has closed it.

    It does so when it has read the last message, or has gone.
    """
    _keep_from_others(end)
    closed = asyncio.Event()

    def failed(error: str) -> None:
        wire.send(Warn(f"a worker process cannot read what it was sent: {error}"))

    def over() -> None:
        wire.received = _ignore
        wire.close()

    wire = Wire(lambda message: child.received(message), closed.set, failed)
    child = Child(section, wire, window, over)
    wire.connect(end)
    await closed.wait()


def _ignore(message: Any) -> None:
    """A message that was sent before the parent had read that this worker has ended."""
