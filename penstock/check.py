"""`penstock check`: the pipeline was built, so it can be; here are its stages."""

from __future__ import annotations

import argparse

from penstock.load import load
from penstock.output import put
from streams.pipeline import Pipeline

__all__ = ["call", "check"]


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Run the sub-command; returns the exit status."""
    return check(options.file, load(options.file, for_the_file, whole=options.traceback))


def check(where: str, pipeline: Pipeline) -> int:
    """Say that all is well; returns the exit status. What is wrong has been raised by then."""
    stages = pipeline.describe()
    names = " > ".join(stage.name for stage in stages)
    return put(f"{where}: OK, {len(stages)} stages: {names}\n")
