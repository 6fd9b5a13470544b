"""`penstock run FILE --workers N --data FOLDER`: a server and N workers on this machine."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any

from penstock.command.explain import explain
from penstock.command.nats.publish import publishing
from penstock.command.nats.run import Cluster, name_of
from penstock.command.nats.workers_page import Whole, page, path_of
from penstock.command.output import counted, mention
from penstock.command.pipelines.run import (
    Options,
    ReportPage,
    end_of,
    loaded,
)
from penstock.streams import clock
from penstock.streams.errors import BuildError, CannotConnect, PenstockError
from penstock.streams.nats.client.connection import connect
from penstock.streams.nats.client.server import Servers, server_binary
from penstock.streams.nats.cluster.publisher import Publisher
from penstock.streams.nats.cluster.view import lag_of, look
from penstock.streams.pipeline import Pipeline, cores, new_event_loop
from penstock.streams.runtime.process.lifeline import Lifeline, bound, ending_of
from penstock.streams.runtime.process.os_signals import drain_on_signals
from penstock.streams.runtime.process.standard_streams import standing_for, taken
from penstock.streams.runtime.running import Report, Running
from penstock.streams.telemetry.report.writing import check_path, write_page

__all__ = ["run_workers"]

# Seconds to wait for the servers and workers, which are all on this machine.
_LEASE = 3.0
_LOOK = 0.1
# Partitions for each worker: enough for an even share.
_SHARE = 8
# A worker that is killed so often in succession before it has joined will not get better.
_FALSE_STARTS = 3

_SKIPPED, _DRAINED, _UNFINISHED = 3, 4, 5
# The exit statuses of a worker that was asked to end, perhaps before it had begun.
_WELL = (0, _DRAINED, 128 + signal.SIGTERM, -signal.SIGTERM)


def run_workers(options: argparse.Namespace, said: Options) -> int:
    """Start a server and workers, feed them the pipeline's own source, and stop all at its end.

    What is unfinished stays in the folder for the next run.
    Returns the exit status: the worst of the feeding and of the workers. Results that workers write
    to their standard output are passed on to our own, line by line.
    """
    if options.on is not None:
        raise BuildError(
            "--data is the folder of a server that is started, --on names servers that are there: "
            "give one of them"
        )
    if options.workers == "auto":
        options.workers = cores()
    pipeline = loaded(options.file, said)
    if said.report_page is not None:
        check_path(said.report_page.path, pipeline.describe())
    server_binary()
    with (
        taken(pipeline.standard_streams()),
        Lifeline() as lifeline,
        Servers(Path(options.data), started=lifeline.tie, ended=lifeline.untie) as servers,
        asyncio.Runner(loop_factory=new_event_loop) as runner,
    ):
        cluster = Cluster(
            tuple(servers.urls),
            name_of(options.file, options.name),
            options.partitions or _SHARE * options.workers,
            1,
            room=options.room,
        )
        return runner.run(_run(pipeline, options, said, cluster, lifeline))


async def _run(
    pipeline: Pipeline,
    options: argparse.Namespace,
    said: Options,
    cluster: Cluster,
    lifeline: Lifeline,
) -> int:
    layout = cluster.layout_of(pipeline)
    client = await connect(cluster.urls)
    try:
        layout = await layout.prepare(client)
        before = await look(client, layout)
        old_pages = _pages(said.report_page, options.workers)
        began = clock.monotonic()
        output = _Output()

        async def members() -> dict[str, dict[str, Any]]:
            return (await look(client, layout)).workers

        try:
            async with (
                _workers(options, said, cluster, lifeline, output, members) as workers,
                Publisher(client, layout) as publisher,
            ):
                source = pipeline.flowable.chain()[0]
                running = publishing(source, publisher, layout).start(
                    drain_deadline=said.drain_deadline
                )
                ending = _Ending(running, workers)
                with drain_on_signals(ending, said.drain_deadline, mention):
                    report = await _unless_a_worker_ends(running, workers)
                    if report.error is not None:
                        mention(explain(report.error, whole=said.traceback), "error")
                    while report.outcome in ("completed", "drained") and not ending.is_over():
                        if not sum((await lag_of(client, layout, layout.numbers)).values()):
                            break
                        await asyncio.sleep(_LOOK)
                    await ending.end_workers()
            view = await look(client, layout)
        except CannotConnect as error:
            # Which at the start is an error of usage.
            raise PenstockError(
                f"the server of this run answers no more: see {options.data}/server0.log. What is "
                "unfinished stays in the folder for the next run"
            ) from error
        seconds = clock.monotonic() - began
        # Those of earlier runs are in the folder until they are replayed.
        letters = max(view.letters - before.letters, 0)
        status = output.status()
        if status is None:
            status = ending.status(report, letters, view.unfinished)
        whole = Whole(
            options.file if said.report_page is None else said.report_page.title,
            seconds,
            status,
            before.unfinished,
            publisher.published,
            publisher.duplicates,
            letters,
            view.unfinished,
            [
                _how_it_ended(worker, has_page=page is not None and page != old)
                for worker, page, old in zip(
                    workers,
                    _pages(said.report_page, options.workers),
                    old_pages,
                    strict=True,
                )
            ],
        )
        left = f"{whole.left:,} left before, " if whole.left else ""
        dropped = f"{whole.duplicates:,} dropped (duplicate)"
        if layout.in_batches and layout.identity is not None:
            dropped = "of which workers drop the duplicates"
        mention(
            f"{counted(options.workers, 'worker')}, {seconds:.1f} s, "
            f"{whole.done / seconds:,.0f} events/s\n"
            f"  events: {left}{whole.stored:,} stored, {dropped}, "
            f"{counted(whole.letters, 'dead letter')}, {whole.unfinished:,} unfinished"
        )
        if said.report_page is not None:
            _write_page(said.report_page, whole)
        return status
    finally:
        await client.close()


def _pages(options: ReportPage | None, workers: int) -> list[tuple[int, int] | None]:
    """What tells the pages of the workers from others at the same paths; None where none is."""
    return [
        None if options is None else _stamp(path_of(options.path, number))
        for number in range(1, workers + 1)
    ]


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        there = os.stat(path)
    except OSError:
        return None
    return there.st_ino, there.st_mtime_ns


def _how_it_ended(worker: _Worker, *, has_page: bool) -> str:
    """How a worker ended, if it has written no page; else an empty text."""
    if has_page:
        return ""
    status = worker.returncode or 0
    if status in _WELL:
        return "none: it was ended before it had begun"
    return f"none: it ended by {ending_of(status)}"


def _write_page(options: ReportPage, whole: Whole) -> None:
    try:
        write_page(page(whole, options.path), options.path)
    except OSError as error:
        mention(f"the report page was not written: {error.strerror}", "warning")


class _Ending:
    """Manages the shutdown: a signal drains, and the stored events are finished until the deadline;
    a second signal ends the workers at once."""

    def __init__(self, feeding: Running, workers: Sequence[_Worker]) -> None:
        self._feeding = feeding
        self._workers = workers
        self._until = inf
        self._signalled = self._cancelled = False
        # Workers that have ended before they were asked to.
        self._early: list[_Worker] = []

    def begin_drain(self, deadline: float | None = None, *, by_signal: bool = False) -> None:
        self._signalled = True
        self._until = clock.monotonic() + (inf if deadline is None else deadline)
        self._feeding.begin_drain(deadline, by_signal=by_signal)

    def cancel(self) -> None:
        self._cancelled = True
        self._feeding.cancel()
        for worker in self._workers:
            if worker.returncode is None:
                worker.kill()

    def is_over(self) -> bool:
        """Whether there is nothing more to wait for."""
        if self._cancelled or clock.monotonic() > self._until:
            return True
        return any(worker.returncode is not None for worker in self._workers)

    async def end_workers(self) -> None:
        """Drain each worker, and wait for it."""
        self._early = [worker for worker in self._workers if worker.returncode is not None]
        await _end(self._workers)

    def _has_skipped(self, worker: _Worker) -> bool:
        """Whether a worker drained, and reports bad or skipped events by its exit status."""
        return worker.returncode == _SKIPPED and worker not in self._early

    def status(self, report: Report, letters: int, unfinished: int) -> int:
        """The exit status; what is unfinished is kept for the next run."""
        if not self._cancelled:
            broken: list[int] = []
            for number, worker in enumerate(self._workers, 1):
                if worker.returncode not in _WELL and not self._has_skipped(worker):
                    broken.append(worker.returncode or 0)
                    mention(f"worker-{number} ended by {ending_of(broken[-1])}", "error")
            if broken:
                return next((status for status in broken if status > 0), 1)
        if self._cancelled:
            return _UNFINISHED
        if report.exit_status:
            return report.exit_status
        if any(map(self._has_skipped, self._workers)):
            return _SKIPPED
        if unfinished or self._signalled:
            return _DRAINED
        return _SKIPPED if letters else 0


class _Output:
    """Our standard output, to which the results of all workers are passed on."""

    def __init__(self) -> None:
        self._error: OSError | None = None

    @property
    def is_broken(self) -> bool:
        """Whether results could not be written."""
        return self._error is not None

    async def forward(self, worker: asyncio.subprocess.Process) -> None:
        """Pass a worker's results on, in whole lines, as fast as our own reader takes them.

        If they cannot be written the worker is killed: what it does not finish stays in the folder.
        Returns when the worker has ended. A line that a killed one has not finished is left out:
        its event is worked on again.
        """
        assert worker.stdout is not None
        loop = asyncio.get_running_loop()
        rest = b""
        try:
            while data := await worker.stdout.read(1 << 18):
                lines, newline, rest = (rest + data).rpartition(b"\n")
                if newline:
                    # One after the other, in a separate thread: a full pipe blocks nothing else.
                    await loop.run_in_executor(None, _write, lines + newline)
            if rest and await worker.wait() >= 0:
                await loop.run_in_executor(None, _write, rest)
        except OSError as error:
            self._error = self._error or error
            if worker.returncode is None:
                worker.kill()
        await worker.wait()

    def status(self) -> int | None:
        """Report why results could not be written, and return the exit status; else None."""
        if self._error is None:
            return None
        lost = "results that workers had already written into it are lost"
        if isinstance(self._error, BrokenPipeError):
            mention(f"the reader of standard output went away; {lost}", "warning")
            return 0
        mention(f"standard output cannot be written: {self._error.strerror}; {lost}", "error")
        return 1


class _Worker:
    """A worker: a process, and when that is killed another one in its place.

    Not if it was asked to end, or if one after the other is killed before it has joined.
    `members` gives the workers that the servers know.
    """

    returncode: int | None = None
    """How its last process has ended."""

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        lifeline: Lifeline,
        output: _Output,
        members: Callable[[], Awaitable[dict[str, dict[str, Any]]]],
    ) -> None:
        self._name = name
        self._words = words
        self._lifeline = lifeline
        self._output = output
        self._members = members
        self._is_asked = False
        self._process: asyncio.subprocess.Process | None = None
        self._keeping = asyncio.create_task(self._keep())
        self._keeping.add_done_callback(self._ended)

    async def wait(self) -> None:
        """Wait for its end."""
        await asyncio.shield(self._keeping)

    def drain(self) -> None:
        """Let it finish what it has."""
        self._is_asked = True
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._is_asked = True
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def _ended(self, keeping: asyncio.Task[int]) -> None:
        failed = keeping.cancelled() or keeping.exception() is not None
        self.returncode = 1 if failed else keeping.result()

    async def _keep(self) -> int:
        """Returns the exit status of the last process."""
        known: set[str] = set()
        false_starts, status = 0, 0
        while not self._is_asked:
            status = await self._run()
            was_killed = status < 0 and status != -signal.SIGTERM
            if self._is_asked or self._output.is_broken or not was_killed:
                break
            members = await self._members()
            joined = {id for id, one in members.items() if one["name"] == self._name} - known
            known |= joined
            false_starts = 0 if joined else false_starts + 1
            if false_starts >= _FALSE_STARTS:
                break
            mention(
                f"{self._name} ended by {ending_of(status)}; another one is started, which works "
                "on its events again",
                "warning",
            )
        return status

    async def _run(self) -> int:
        """One process, until it has ended; returns its exit status."""
        self._process = process = await asyncio.create_subprocess_exec(
            *bound(self._words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            # A signal from the terminal is for this process, which notifies the workers.
            start_new_session=True,
        )
        self._lifeline.tie(process.pid)
        if self._is_asked:
            process.send_signal(signal.SIGTERM)
        await self._output.forward(process)
        self._lifeline.untie(process.pid)
        return await process.wait()


async def _unless_a_worker_ends(running: Running, workers: Sequence[_Worker]) -> Report:
    """Feed to the end of the input; a worker that ends by itself ends the feeding too."""
    ending = [asyncio.ensure_future(worker.wait()) for worker in workers]
    feeding = asyncio.ensure_future(end_of(running))
    try:
        await asyncio.wait([feeding, *ending], return_when=asyncio.FIRST_COMPLETED)
        if not feeding.done():
            running.cancel()
        await feeding
        return running.report()
    finally:
        for one in ending:
            one.cancel()


@asynccontextmanager
async def _workers(
    options: argparse.Namespace,
    said: Options,
    cluster: Cluster,
    lifeline: Lifeline,
    output: _Output,
    members: Callable[[], Awaitable[dict[str, dict[str, Any]]]],
) -> AsyncGenerator[list[_Worker]]:
    """Worker processes; at the end each gets a signal to drain, and is waited for."""
    words = [sys.executable, "-m", "penstock", "run", options.file]
    words += ["--on", ",".join(cluster.urls), "--name", cluster.name]
    words += ["--lease", f"{_LEASE:g}", "--drain-deadline", f"{said.drain_deadline:g}"]
    # Their work is reported here, in total.
    words += ["--report", "none"]
    if said.limit is not None:
        words += ["--limit", f"{said.limit[0]}:{said.limit[1]}"]
    if options.attempts is not None:
        words += ["--attempts", str(options.attempts)]
    words += _about_the_log(said)
    if said.traceback:
        words.append("--traceback")
    if said.output is not None:
        words += ["--output", said.output]
    workers: list[_Worker] = []
    try:
        for number in range(1, options.workers + 1):
            # The live page of one shows them all.
            more = said.page.words() if said.page is not None and number == 1 else []
            if said.report_page is not None:
                more += ["--report-page", path_of(said.report_page.path, number)]
            if said.show_values and (more or said.trace is not None):
                more.append("--show-values")
            name = f"worker-{number}"
            more += ["--worker", name, "--", *said.arguments]
            workers.append(_Worker(name, [*words, *more], lifeline, output, members))
        yield workers
    finally:
        await _end(workers)


def _about_the_log(said: Options) -> list[str]:
    """The options of the log and of traces, as words of the command line."""
    words = [] if said.log_format is None else ["--log-format", said.log_format]
    words += [] if said.log_level is None else ["--log-level", said.log_level]
    return words + ([] if said.trace is None else ["--trace", f"{said.trace:g}"])


async def _end(workers: Sequence[_Worker]) -> None:
    """Drain each worker, and wait for it."""
    for worker in workers:
        if worker.returncode is None:
            worker.drain()
    for worker in workers:
        await worker.wait()


def _write(data: bytes) -> None:
    with memoryview(data) as left:
        while left:
            left = left[os.write(standing_for(1), left) :]
