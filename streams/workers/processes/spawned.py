"""Worker processes of a program that has a loop, and perhaps threads: each begins with nothing.

Such a program cannot be forked safely. So each worker is a fresh interpreter, which imports the
module of the pipeline. It ends with its parent, whose end of its standard input it watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from penstock.streams.base.errors import BuildError
from penstock.streams.failures.sent_error import SentError
from penstock.streams.runtime.process.lifeline import end_with_pipe, ending_of
from penstock.streams.runtime.tasks import new_task
from penstock.streams.workers.messages import Ready, Stopping
from penstock.streams.workers.placement import Section, section_of
from penstock.streams.workers.processes.finding import Place, Stages, place_of
from penstock.streams.workers.processes.wire import Wire, framed
from penstock.streams.workers.processes.worker import leave_the_terminal, without_signals, work

__all__ = ["Spawned"]

# The path comes first, by which all else is imported. By `-c` the working directory is in it, which
# may not be in the program's path.
_PROGRAM = (
    "import gc, sys; gc.disable(); sys.path = [path for path in sys.path if path]; import pickle; "
    f"sys.path[:] = pickle.load(sys.stdin.buffer); from {__name__} import main; main()"
)

# Seconds that workers have to end after the last message.
_PATIENCE = 5.0

# The longest pause, in seconds, between two looks whether a process has ended.
_PAUSE = 0.05


class _Task(NamedTuple):
    """The first message to a worker."""

    arguments: list[str]
    place: Place
    end: int
    window: int
    loop: Callable[[], asyncio.AbstractEventLoop]


class Spawned:
    """A crew of fresh processes.

    Raises BuildError if they cannot find the pipeline; it says `where` this process runs.
    """

    def __init__(
        self,
        pipeline: Stages,
        workers: int,
        loop: Callable[[], asyncio.AbstractEventLoop],
        where: str,
    ) -> None:
        self.workers = workers
        self._place = place_of(pipeline, where)
        self._new_loop = loop
        self._alive: dict[int, _Worker] = {}
        self._has_failed = False

    def open(
        self,
        worker: int,
        section: Section,
        window: int,
        received: Callable[[Any], None],
        lost: Callable[[str], None],
    ) -> Wire:
        """Start a process, which begins when it has imported the pipeline.

        Raises OSError if the system cannot start one.
        """
        ours, theirs = socket.socketpair()
        task = _Task(sys.argv, self._place, theirs.fileno(), window, self._new_loop)
        with theirs:
            try:
                process = _started(theirs)
            except OSError:
                ours.close()
                raise
        assert process.stdin is not None
        # The worker notices by the end of it that this process has ended.
        with contextlib.suppress(BrokenPipeError):
            pickle.dump([path or os.getcwd() for path in sys.path], process.stdin)
            pickle.dump(task, process.stdin)
            process.stdin.flush()
        self._alive[worker] = started = _Worker(process, received, lost, self._failed)
        started.wire.connect(ours)
        return started.wire

    def _failed(self, received: Callable[[Any], None], error: BaseException) -> None:
        # All of them fail in the same way.
        if not self._has_failed:
            self._has_failed = True
            received(Stopping(SentError(error)))

    async def close(self) -> None:
        """Wait until the workers have ended; those that have not begun are killed."""
        workers = list(self._alive.values())
        for worker in workers:
            if not worker.is_ready:
                worker.process.kill()
        if workers:
            await asyncio.wait([worker.ended for worker in workers], timeout=_PATIENCE)
        for worker in workers:
            if not worker.ended.done():
                worker.process.kill()
            await worker.ended


class _Worker:
    """One process, until it has ended."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        received: Callable[[Any], None],
        lost: Callable[[str], None],
        failed: Callable[[Callable[[Any], None], BaseException], None],
    ) -> None:
        self.process = process
        self.is_ready = False
        self.wire = Wire(self._first, self._cut)
        self.wire.pid = process.pid
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._received = received
        self._lost = lost
        self._failed = failed

    def _first(self, message: Any) -> None:
        match message:
            case Ready():
                self.is_ready = True
                self.wire.received = self._received
            case Stopping():
                self._failed(self._received, message.sent.error)
            case _:
                raise TypeError(f"unknown message: {message!r}")

    def _cut(self) -> None:
        # Kept here, because a loop does not keep its tasks.
        self._ending = new_task(self._end(), "penstock end of a worker")

    async def _end(self) -> None:
        pause = 0.001
        # A process whose socket has ended lasts some milliseconds. To be told of its end would need
        # a thread on some systems.
        while (status := self.process.poll()) is None:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.ended.set_result(None)
        how = ending_of(status)
        if not self.is_ready and status >= 0:
            error = BuildError(f"a worker process has ended while it imported the pipeline, {how}")
            self._failed(self._received, error)
        self._lost(self.wire.failure or how)


def _started(end: socket.socket) -> subprocess.Popen[bytes]:
    """A process that has this end of a socket."""
    # Without a public name; the same options give the same encodings and warnings.
    options: list[str] = cast(Any, subprocess)._args_from_interpreter_flags()
    command = [sys.executable, *options, "-c", _PROGRAM]
    if sys.platform == "win32":
        end.set_inheritable(True)
        handles = subprocess.STARTUPINFO(lpAttributeList={"handle_list": [end.fileno()]})
        return subprocess.Popen(command, stdin=subprocess.PIPE, startupinfo=handles)
    with without_signals():
        return subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[end.fileno()])


def main() -> None:
    """A worker, until its parent ends it."""
    task: _Task = pickle.load(sys.stdin.buffer)
    end_with_pipe(0)
    leave_the_terminal()
    sys.argv[:] = task.arguments
    with socket.socket(fileno=task.end) as end:
        try:
            pipeline = task.place.find()
            section = section_of(pipeline.flowable.chain(), pipeline.sinks)
        except BuildError as error:
            end.sendall(framed(Stopping(SentError(error))))
            sys.exit(1)
        # What was imported stays: collecting garbage among it meanwhile takes a tenth of the start.
        gc.freeze()
        gc.enable()
        end.sendall(framed(Ready()))
        with asyncio.Runner(loop_factory=task.loop) as runner:
            runner.run(work(section, end, task.window))
