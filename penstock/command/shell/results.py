"""The sink of a command that writes JSON lines, CSV or TSV."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from penstock.command.inputs.events import input_format
from penstock.command.inputs.formats import DELIMITERS, format_of
from penstock.sinks.jsonl import write_jsonl
from penstock.streams.base.errors import BuildError
from penstock.streams.stages.sink_stage import Sink

__all__ = ["results"]


def results(options: Namespace) -> Sink[Any]:
    """The sink for `output`, or standard output, in the format `to`, or that of the events."""
    if options.rotate is not None and options.output is None:
        raise BuildError("--rotate goes with --output")
    path = options.output or "-"
    form = options.to or format_of(path) or input_format(options)
    if form == "jsonl":
        return write_jsonl(path, append=options.append, rotate=options.rotate)
    from penstock.sinks.csv import write_csv

    return write_csv(path, delimiter=DELIMITERS[form], append=options.append, rotate=options.rotate)
