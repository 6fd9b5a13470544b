"""`penstock run`: run the pipeline of a file until its input ends or a signal comes."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.command.explain import explain
from penstock.command.output import flush, is_json, mention, say
from penstock.command.pipelines.load import load
from penstock.command.pipelines.logs import kept
from penstock.command.pipelines.options import Options, Page, options_of
from penstock.command.pipelines.printed import kept_back
from penstock.command.pipelines.report import as_json
from penstock.command.pipelines.status_line import on_a_terminal, status
from penstock.streams.base.errors import BuildError
from penstock.streams.io.inputs.patterns import listed
from penstock.streams.io.paths import input_path, output_path, output_rotation, rotation_for
from penstock.streams.pipelines.pipeline import Pipeline, in_processes_of, new_event_loop
from penstock.streams.pipelines.running import Report, Running
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.process.os_signals import drain_on_signals, keep_exit_status
from penstock.streams.runtime.process.standard_streams import keep

if TYPE_CHECKING:
    from penstock.streams.telemetry.feed import Fleet
    from penstock.streams.telemetry.serving import Serving

__all__ = [
    "call",
    "end_of",
    "execute",
    "loaded",
    "nothing_beside",
    "recorded",
    "redirect",
    "run",
    "served",
    "tell",
    "warnings_to_standard_error",
]

# The stages that read and write the standard streams: a name, and how the detail begins.
_READER = (("read_jsonl", "read_lines", "read_csv"), "standard input")
_WRITER = (("write_jsonl", "write_csv"), "standard output")

Beside = Callable[[Running], AbstractContextManager[None]]


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Run the sub-command; returns the exit status."""
    return run(options.file, options_of(options, for_the_file))


def run(where: str, options: Options) -> int:
    """Load, run, report on standard error; returns the exit status."""
    pipeline = loaded(where, options)
    if options.alone:
        # Loaded modules stay to the end. No garbage collection need search them again, least of all
        # the one at exit, which takes a fifth of the time of a short run.
        gc.freeze()
    return execute(pipeline, options)


def loaded(where: str, options: Options) -> Pipeline:
    """The pipeline of a file, ready to be run with these options.

    What the file prints while it is loaded comes before the first result, or, if the pipeline
    writes to standard output, on standard error. Raises BuildError.
    """
    with kept_back() as write_out:
        with kept():
            if options.code is not None or where == "-":
                from penstock.command.pipelines.text import from_text

                pipeline = from_text(options)
            else:
                pipeline = load(where, options.arguments, whole=options.traceback)
        redirect(pipeline, options)
        if options.code is None and where == "-" and 0 in pipeline.standard_streams():
            raise BuildError(
                "standard input has the pipeline, and its source reads standard input too: give "
                "the events by --input PATH, or the pipeline by -c or in a file"
            )
        write_out(1 in pipeline.standard_streams())
    warnings_to_standard_error()
    return pipeline


def nothing_beside(running: Running) -> AbstractContextManager[None]:
    """The companion of a run beside which nothing is done."""
    return nullcontext()


def execute(pipeline: Pipeline, options: Options, beside: Beside = nothing_beside) -> int:
    """Run a pipeline as the command does, with `beside` entered while it runs.

    Returns the exit status. Raises BuildError.
    """
    redirect(pipeline, options)
    if options.limit is not None:
        from penstock.command.pipelines.draw import check_limit

        check_limit(pipeline)
    watching: Beside = nothing_beside
    if on_a_terminal() and not _writes_to_the_terminal(pipeline, options):
        pipeline, watching = _measured(pipeline), status
    started: list[Running] = []

    async def main() -> None:
        running = pipeline.start(
            drain_deadline=options.drain_deadline, limit=options.limit, workers=crew
        )
        await recorded(running, options)
        page = options.page
        async with nullcontext() if page is None else await served(running, page):
            started.append(running)
            if options.alone:
                keep_exit_status(lambda: running.report().exit_status)
            deadline = options.drain_deadline
            with drain_on_signals(running, deadline, mention), watching(running), beside(running):
                await end_of(running)

    if options.alone:
        # What a library in C has printed is written out at the end of the process.
        keep(pipeline.standard_streams())
    error: BaseException | None = None
    with (
        in_processes_of(pipeline, options.workers) as crew,
        asyncio.Runner(loop_factory=new_event_loop) as runner,
    ):
        try:
            runner.run(main())
        except BaseException as raised:
            if not started:
                raise
            error = raised
            if not isinstance(raised, Exception):
                # SystemExit and the like leave the loop at once, wherever it was.
                started[0].cancel()
                runner.run(end_of(started[0]))
        # Reported before the loop is closed, which waits for tasks that do not end.
        report = _naming_files(started[0].report(), options)
        if error is not None and report.error is None:
            report = report._replace(outcome="stopped", error=error)
        code = tell(report, options)
        if report.outcome in ("cancelled", "overrun") and _something_is_stuck(runner.get_loop()):
            flush()
            os._exit(code)
    return code


async def recorded(running: Running, options: Options, *, again: bool = False) -> None:
    """Have a run that has just been started write its page and its traces, if it has any.

    `again`: it is not the first one of this process.
    """
    page = options.report_page
    try:
        if page is not None:
            running.report_page(page.path, title=page.title, show_values=page.show_values)
        if options.trace is not None:
            running.trace(sample=options.trace, show_values=options.show_values)
            if not again:
                _look_for_sdk()
    except BaseException:
        running.cancel()
        await end_of(running)
        raise


def _look_for_sdk() -> None:
    """Warn if the spans would go nowhere."""
    from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

    if isinstance(get_tracer_provider(), ProxyTracerProvider):
        mention(
            "--trace: no SDK of OpenTelemetry is set up, so the traces go nowhere: set one up in "
            "the pipeline's file, or run `opentelemetry-instrument penstock run ...`",
            "warning",
        )


async def served(
    running: Running, page: Page, fleet: Fleet | None = None, *, again: bool = False
) -> Serving:
    """The server of the live page of a run that has just been started.

    `again`: its address is known already.
    """
    from penstock.streams.telemetry.serving import Serving

    host, port, hosts, allow_control, show_values, title, token = page
    try:
        serving = Serving(
            running, port, host, token, allow_control, hosts, title, show_values, fleet
        )
    except BaseException:
        running.cancel()
        await end_of(running)
        raise
    if not again:
        # The user asked for a page and needs its address: the port and the token may be new.
        mention(f"live page: {serving.url}", always=True)
    return serving


def _something_is_stuck(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a cancelled call is still running: a coroutine that refuses to end, or a thread."""
    here = threading.current_thread()
    threads = (one for one in threading.enumerate() if one is not here and not one.daemon)
    return bool(asyncio.all_tasks(loop)) or any(threads)


def redirect(pipeline: Pipeline, options: Options) -> None:
    for option, path, names, stream in (
        ("--input", options.input, *_READER),
        ("--output", options.output, *_WRITER),
    ):
        if path is None:
            continue
        stages = list(all_stages(pipeline.describe()))
        if not any(_is(stage, names, stream) for stage in stages):
            own = next((stage for stage in stages if stage.name in names), None)
            name = names[0] if own is None else own.name
            named = "" if own is None else f", for {own} has its own path, {own.detail}"
            raise BuildError(
                f"{option} {listed(path)}: this pipeline has no {name}() of {stream} that could be "
                f"redirected{named}; leave the option out"
            )
    if options.input is not None:
        input_path.set(options.input)
    if options.output is not None:
        output_path.set(options.output)
    if options.rotate is not None:
        output_rotation.set(options.rotate)
        rotation_for("-", None)


def _naming_files(report: Report, options: Options) -> Report:
    """The report with the names of the files that replaced the standard streams."""
    stages = [dict(stage) for stage in report.statistics["stages"]]
    for path, (names, stream) in ((options.input, _READER), (options.output, _WRITER)):
        for stage in stages:
            if path is not None and stage["name"] in names:
                stage["detail"] = stage["detail"].replace(stream, listed(path), 1)
    return report._replace(statistics={**report.statistics, "stages": stages})


def _measured(pipeline: Pipeline) -> Pipeline:
    """The same pipeline with a latency sink for the status line, if it has none."""
    from penstock.sinks.latency import latency_histogram

    if any(isinstance(one, latency_histogram) and one.stage is None for one in pipeline.sinks):
        return pipeline
    # Last, so that the sinks of the user keep their numbers.
    return replace(pipeline, sinks=(*pipeline.sinks, latency_histogram(None, report=None)))


def _writes_to_the_terminal(pipeline: Pipeline, options: Options) -> bool:
    # Results and a status line on one terminal would overwrite each other.
    return (
        options.output is None
        and any(_is(stage, *_WRITER) for stage in pipeline.describe())
        and os.isatty(1)
    )


def _is(stage: StageInfo, names: tuple[str, ...], detail: str) -> bool:
    return stage.name in names and stage.detail.startswith(detail)


async def end_of(running: Running) -> None:
    """Wait for the end, whether or not an error stopped it."""
    try:
        await running.wait()
    except BaseException as error:
        # The report has the error, unless it concerns this task and not the pipeline.
        if error is not running.report().error:
            raise


def tell(report: Report, options: Options) -> int:
    """Report how it ended, in the requested form; returns the exit status."""
    status = report.exit_status
    if options.report == "json" or (options.report == "text" and is_json()):
        say(as_json(report, status))
        return status
    if report.error is not None:
        mention(explain(report.error, whole=options.traceback), "error")
    if options.report == "text":
        say(str(report))
    return status


class _ToStandardError(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        mention(record.getMessage())


def warnings_to_standard_error() -> None:
    log = logging.getLogger("penstock")
    # If the pipeline file has set up logging, that decides where warnings go.
    if not log.hasHandlers():
        log.addHandler(_ToStandardError())
        log.propagate = False
