"""`penstock distinct`: the events whose key was not seen for some time."""

from __future__ import annotations

from argparse import Namespace

from penstock.command.inputs.events import Events
from penstock.command.pipelines.options import Options
from penstock.command.pipelines.run import execute, warnings_to_standard_error
from penstock.command.shell.results import results
from penstock.operators.distinct_within import distinct_within
from penstock.streams.keyed.key_faults import skipping

__all__ = ["call"]


def call(options: Namespace, words: list[str]) -> int:
    """Run it; returns the exit status as `penstock run` does. Raises BuildError."""
    warnings_to_standard_error()
    skipping.set("--on-error skip")
    operator = distinct_within(
        options.within, by=options.by, time=options.time, on_error=options.on_error
    )
    events = Events(options, {"--by": options.by, "--time": options.time})
    pipeline = events.stream.pipe(operator).to(results(options))
    pipeline.check_files()
    status = execute(
        pipeline,
        Options(drain_deadline=options.drain_deadline, report=options.report, alone=options.alone),
    )
    return events.end(status)
