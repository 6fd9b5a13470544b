"""Worker processes, forked from one that has loaded the pipeline and has no thread and no loop.

A process with threads or a loop cannot be forked safely, and a handler that is a closure cannot be
sent to another process. So one process, the nursery, is forked before the loop of the parent
begins; it does nothing but fork workers, also in place of those that have ended. All end with the
parent: a worker reads the end of its socket, or is killed by the nursery, which does too.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from penstock.streams.runtime.process.lifeline import end_with_this_process, ending_of
from penstock.streams.runtime.process.os_signals import nothing
from penstock.streams.runtime.process.standard_streams import write_out_of_c
from penstock.streams.workers.placement import Section
from penstock.streams.workers.processes.wire import Wire
from penstock.streams.workers.processes.worker import leave_the_terminal, without_signals, work

__all__ = ["Processes", "unforkable"]

# Seconds that workers have to end after the last message, and then the process that forks them.
_PATIENCE = 5.0


def unforkable() -> str | None:
    """Why this process cannot be forked, in words that follow "workers="; None if it can.

    A copy of a process with threads may wait for ever for what one of them had locked.
    """
    if not hasattr(os, "fork"):
        return "on a system without fork"
    threads = [
        thread.name
        for thread in threading.enumerate()
        # Our own hold nothing that a worker needs.
        if thread is not threading.current_thread() and not thread.name.startswith("penstock")
    ]
    return f"in a process with threads ({', '.join(threads)})" if threads else None


def _write_out() -> None:
    """Write out what was printed, which a fork would write again."""
    for stream in (sys.stdout, sys.stderr):
        # It may be None, closed, or an object of the program that has nothing to write out.
        with contextlib.suppress(AttributeError, ValueError):
            stream.flush()
    write_out_of_c()


def _show(error: BaseException) -> None:
    """Write an error that ends a process as Python would, or as the program does instead."""
    sys.excepthook(type(error), error, error.__traceback__)


class Processes:
    """A crew of worker processes, used as a context around the loop of the parent.

    Forks the nursery when it is entered, which must be before this process has a loop or a thread.
    """

    def __init__(self, section: Section, workers: int, loop: Callable[[], Any]) -> None:
        self.workers = workers
        self._section = section
        self._new_loop = loop
        self._alive: dict[int, asyncio.Future[str]] = {}
        self._wires: dict[int, Wire] = {}
        self._gone: dict[int, asyncio.Future[None]] = {}
        self._pending = b""
        # How the nursery has ended.
        self._ended: str | None = None

    def __enter__(self) -> Processes:
        ours, theirs = socket.socketpair()
        _write_out()
        with without_signals():
            self._pid = os.fork()
            if not self._pid:
                ours.close()
                _Nursery(theirs, self._section, self._new_loop).run()
        theirs.close()
        self._nursery = ours
        return self

    def __exit__(self, *_: object) -> None:
        # Not only closed: a process that a sink has forked may have the socket too.
        with self._nursery, contextlib.suppress(OSError):
            self._nursery.shutdown(socket.SHUT_WR)
            self._nursery.settimeout(_PATIENCE)
            try:
                # Until its end of the socket is closed, which is when it has ended.
                while self._nursery.recv(1 << 16):
                    pass
            except TimeoutError:
                # It is stopped, or waits for a worker that the system does not end.
                os.kill(self._pid, signal.SIGKILL)
        self._end_of_nursery()

    def _end_of_nursery(self) -> str:
        """Wait for its end, which is due, and return how it ended."""
        if self._ended is None:
            self._ended = "somehow"
            # Otherwise somebody else has waited for it.
            with contextlib.suppress(ChildProcessError):
                _, status = os.waitpid(self._pid, 0)
                self._ended = ending_of(os.waitstatus_to_exitcode(status))
        return self._ended

    def open(
        self,
        worker: int,
        section: Section,
        window: int,
        received: Callable[[Any], None],
        lost: Callable[[str], None],
    ) -> Wire:
        """Have a worker forked, which answers on a socket of its own.

        Raises OSError if the nursery has ended, or no socket can be made.
        """
        loop = asyncio.get_running_loop()
        if not self._alive:
            loop.add_reader(self._nursery, self._read_nursery)
        ours, theirs = socket.socketpair()
        request = json.dumps([worker, window]).encode() + b"\n"
        with theirs:
            try:
                socket.send_fds(self._nursery, [request], [theirs.fileno()])
            except (BrokenPipeError, ConnectionResetError):
                ours.close()
                how = self._end_of_nursery()
                raise OSError(f"the process that starts them has ended by {how}") from None
        ending: asyncio.Future[str] = loop.create_future()
        gone: asyncio.Future[None] = loop.create_future()
        self._alive[worker], self._gone[worker] = ending, gone
        wire = Wire(received, lambda: ending.add_done_callback(ended))
        self._wires[worker] = wire

        def ended(ending: asyncio.Future[str]) -> None:
            gone.set_result(None)
            lost(wire.failure or ending.result())

        wire.connect(ours)
        return wire

    def _read_nursery(self) -> None:
        try:
            data = self._nursery.recv(1 << 16)
        except ConnectionResetError:
            # It has ended without having read all requests.
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._nursery)
            for ending in self._alive.values():
                if not ending.done():
                    ending.set_result("the end of the process that starts workers")
            return
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            worker, answer = json.loads(line)
            if isinstance(answer, int):
                self._wires[worker].pid = answer
            elif not self._alive[worker].done():
                self._alive[worker].set_result(answer)

    async def close(self) -> None:
        """Wait until the workers have ended, and what they said last was read.

        Those that have not ended are killed with the nursery.
        """
        loop = asyncio.get_running_loop()
        left = [gone for gone in self._gone.values() if not gone.done()]
        if left:
            await asyncio.wait(left, timeout=_PATIENCE)
        loop.remove_reader(self._nursery)


class _Nursery:
    """The process that forks workers. It reads requests, and writes the process ids of
    workers, and how they have ended."""

    def __init__(self, parent: socket.socket, section: Section, loop: Callable[[], Any]) -> None:
        self._parent = parent
        self._section = section
        self._new_loop = loop
        self._workers: dict[int, int] = {}
        self._pending = b""
        # The sockets of workers that are not forked yet.
        self._ends: list[int] = []

    def run(self) -> NoReturn:
        """Fork until the parent has gone; never returns."""
        status = 1
        try:
            self._serve()
            status = 0
        except BaseException as error:
            _show(error)
        finally:
            for pid in self._workers:
                os.kill(pid, signal.SIGKILL)
            for pid in self._workers:
                os.waitpid(pid, 0)
            os._exit(status)

    def _serve(self) -> None:
        end_with_this_process()
        leave_the_terminal()
        gc.freeze()
        ready, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGCHLD, nothing)
        # Not `select.select`, which takes no descriptors above 1,023: the program may have many.
        poll = select.poll()
        poll.register(ready, select.POLLIN)
        poll.register(self._parent, select.POLLIN)
        while True:
            readable = dict(poll.poll())
            if ready in readable:
                os.read(ready, 4096)
                self._reap()
            if self._parent.fileno() in readable:
                data, ends, _, _ = socket.recv_fds(self._parent, 4096, 16)
                if not data:
                    return
                self._ends += ends
                *lines, self._pending = (self._pending + data).split(b"\n")
                for line in lines:
                    self._obey(line, [ready, woken])

    def _obey(self, line: bytes, descriptors: list[int]) -> None:
        worker, window = json.loads(line)
        end = self._ends.pop(0)
        try:
            self._fork(worker, window, end, descriptors)
        except OSError as error:
            self._report(worker, f"an error of the system: {error}")
        finally:
            os.close(end)

    def _fork(self, worker: int, window: int, end: int, descriptors: list[int]) -> None:
        pid = os.fork()
        if pid:
            self._workers[pid] = worker
            self._report(worker, pid)
            return
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            end_with_this_process()
            self._parent.close()
            # A socket that another process has too does not end with its worker.
            for other in [*descriptors, *self._ends]:
                os.close(other)
            with asyncio.Runner(loop_factory=self._new_loop) as runner:
                runner.run(work(self._section, socket.socket(fileno=end), window))
            status = 0
        except BaseException as error:
            _show(error)
        finally:
            with contextlib.suppress(Exception):
                _write_out()
            os._exit(status)

    def _reap(self) -> None:
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self._report(self._workers.pop(pid), ending_of(os.waitstatus_to_exitcode(status)))

    def _report(self, worker: int, what: int | str) -> None:
        """Report to the parent the process id of a worker, or how it has ended."""
        line = json.dumps([worker, what]).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):
            self._parent.sendall(line)
