"""`penstock turning-point FILE --input PATH`: at which rate a pipeline's response time turns up."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from copy import deepcopy
from itertools import chain, repeat
from typing import Any, cast

from penstock.command.output import counted, mention, put, write
from penstock.command.pipelines.load import load
from penstock.command.pipelines.options import Options
from penstock.command.pipelines.printed import kept_back
from penstock.command.pipelines.run import end_of, redirect, tell, warnings_to_standard_error
from penstock.command.turning_point.climb import Climb, Held, Step
from penstock.command.turning_point.text import as_picture, as_row, end_as_text, heading
from penstock.sinks.collect import collect
from penstock.sources.jsonl import read_jsonl
from penstock.sources.lines import read_lines
from penstock.streams.base.errors import BuildError
from penstock.streams.io.paths import input_path
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.pipelines.pipeline import Pipeline, new_event_loop
from penstock.streams.pipelines.running import Report
from penstock.streams.runtime.process.os_signals import drain_on_signals
from penstock.streams.runtime.process.standard_streams import taken

__all__ = ["call"]

_UNUSABLE, _BAD_LINES = 2, 3


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Print a line for each rate, and where the response time turns up; returns the exit status.

    Raises BuildError for a wrong use.
    """
    if options.plot is not None and not options.plot.endswith(".svg"):
        raise BuildError(f"--plot {options.plot}: the name must end in .svg")
    with kept_back() as write_out:
        pipeline = load(options.file, for_the_file, whole=options.traceback)
        write_out(True)
    warnings_to_standard_error()
    settings = Options(
        output=options.output,
        drain_deadline=options.drain_deadline,
        report=options.report,
        traceback=options.traceback,
    )
    _check_output(pipeline, options)
    redirect(pipeline, settings)
    what = f"runs the handlers and sinks of {options.file}, with the events of {options.input}"
    if sys.stdin is not None and sys.stdin.isatty() and not options.yes:  # pyright: ignore[reportUnnecessaryComparison]
        raise BuildError(f"turning-point {what}: give --yes to confirm")
    mention(f"turning-point {what}")
    with (
        # What the handlers print, and what they read, is not for the table and the confirmation.
        taken((0, 1)),
        asyncio.Runner(loop_factory=new_event_loop) as runner,
    ):
        values, bad = runner.run(_values(pipeline, options.input))
        if not values:
            mention(f"{options.input} has no events")
            return _BAD_LINES if bad else _UNUSABLE
        events = _again(values) if options.repeat else iter(values)
        climb = Climb(pipeline, events, seconds=options.seconds, first=options.rate)
        report, held, status = runner.run(_run(climb, options.drain_deadline))
    if held is not None:
        mention(str(held))
        return _UNUSABLE
    if climb.steps:
        status = status or put(end_as_text(climb))
        if options.plot is not None:
            write(as_picture(options.file, climb), options.plot)
    elif report.outcome == "completed":
        mention(
            f"{options.input} has {counted(len(values), 'event')}, too few to measure a rate: give "
            "more, or --repeat"
        )
    return tell(report, settings) or status or (_BAD_LINES if bad else 0)


def _check_output(pipeline: Pipeline, options: argparse.Namespace) -> None:
    """The table and the results would be mixed up."""
    writer = any(
        stage.name == "write_jsonl" and stage.detail.startswith("standard output")
        for stage in pipeline.describe()
    )
    if writer and options.output is None:
        raise BuildError(
            "this pipeline writes to standard output, where the table goes: give --output PATH"
        )


async def _values(pipeline: Pipeline, path: str) -> tuple[list[Any], bool]:
    """The events of the file, and whether there were bad lines among them.

    They are decoded by the pipeline's own source, if that reads lines of standard input.
    """
    own = pipeline.flowable.chain()[0]
    source = cast("Flowable[Any]", own)
    if own.info.name not in ("read_jsonl", "read_lines") or own.info.files.path != "-":
        source = read_lines(path) if own.info.name == "read_lines" else read_jsonl(path)
    input_path.set(path)
    values: list[Any] = []
    report = await source.to(collect(values)).run()
    return values, bool(report.statistics["bad_lines"])


def _again(values: list[Any]) -> Iterator[Any]:
    """The values over and over: a copy each, because handlers may change what they get."""
    return map(deepcopy, chain.from_iterable(repeat(values)))


async def _run(climb: Climb, deadline: float) -> tuple[Report, Held | None, int]:
    """How the pipeline ended, why there was nothing to measure, and the status of the output."""
    status = 0

    def on_light(seconds: float) -> None:
        nonlocal status
        status = status or put(heading(seconds))

    def on_step(step: Step) -> None:
        nonlocal status
        status = status or put(as_row(step))

    held: Held | None = None
    running = climb.start(deadline)
    with drain_on_signals(running, deadline, mention):
        try:
            await climb.climb(running, on_light, on_step)
        except Held as error:
            held = error
            running.cancel()
        await end_of(running)
    return running.report(), held, status
