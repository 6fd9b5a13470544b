"""`penstock check`: the pipeline was built, so it can be; here are its stages."""

from __future__ import annotations

from penstock.output import put
from streams.pipeline import Pipeline

__all__ = ["check"]


def check(where: str, pipeline: Pipeline) -> int:
    """Say that all is well; returns the exit status. What is wrong has been raised by then."""
    stages = pipeline.describe()
    names = " > ".join(stage.name for stage in stages)
    return put(f"{where}: OK, {len(stages)} stages: {names}\n")
