"""`penstock map`: the results of a function for each event."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from penstock.command.inputs.events import Events
from penstock.command.pipelines.load import load_module, path_and_name
from penstock.command.pipelines.options import Options
from penstock.command.pipelines.run import execute, warnings_to_standard_error
from penstock.command.shell.results import results
from penstock.operators.adaptive_flat_map import adaptive_flat_map
from penstock.streams.base.errors import BuildError
from penstock.streams.keyed.key_faults import skipping

__all__ = ["call"]


def call(options: Namespace, words: list[str]) -> int:
    """Run it; returns the exit status as `penstock run` does. Raises BuildError."""
    path, name = path_and_name(options.function)
    if name is None:
        raise BuildError(f"{options.function}: say which function, as in {path}:handle")
    module = load_module(path, words, "function", name, whole=options.traceback)
    # Any: whatever the file has under this name.
    function: Any = getattr(module, name, None)
    if not callable(function):
        raise BuildError(f"{path} has no function {name!r}")
    warnings_to_standard_error()
    skipping.set("--on-error skip")
    operator = adaptive_flat_map(function, key=options.by, on_error=options.on_error)
    events = Events(options, {"--by": options.by})
    pipeline = events.stream.pipe(operator).to(results(options))
    pipeline.check_files()
    status = execute(
        pipeline,
        Options(
            limit=None if options.limit == "auto" else options.limit,
            drain_deadline=options.drain_deadline,
            report=options.report,
            traceback=options.traceback,
            alone=options.alone,
        ),
    )
    return events.end(status)
