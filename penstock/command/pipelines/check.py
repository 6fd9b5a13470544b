"""`penstock check`: builds a pipeline and lists its stages."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from penstock.command.output import put
from penstock.command.pipelines.load import load
from penstock.streams.pipelines.pipeline import Pipeline
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.stages.forgetting import not_seen, unknown_again

__all__ = ["call", "check"]


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Run the sub-command; returns the exit status."""
    return check(options.file, load(options.file, for_the_file, whole=options.traceback))


def check(where: str, pipeline: Pipeline) -> int:
    """Report that all is well; returns the exit status. Errors have been raised before."""
    pipeline.check_files()
    stages = pipeline.describe()
    count = sum(1 for _ in all_stages(stages))
    notes = [f"not checked: {note}" for note in not_seen(stages)]
    notes += [
        f"note: {source} does not record in the store which of its events have changed the states "
        f"of {stage}: an event that the next run reads again changes them again, and one that was "
        "not done and cannot be read again is lost. read_jsonl, read_lines and "
        "read_table(from_id=) record it with position=store, read_kafka with offsets=store, and "
        "read_table of a queue always"
        for source, stage in unknown_again(stages)
    ]
    lines = [f"OK, {count} stages: {_names(stages)}", *notes]
    return put("".join(f"{where}: {line}\n" for line in lines))


def _names(stages: Iterable[StageInfo]) -> str:
    """The names of the stages, each with those of the other streams that it reads in brackets."""
    names: list[str] = []
    for stage in stages:
        others = ", ".join(map(_names, stage.inputs))
        names.append(f"{stage.name}({others})" if others else stage.name)
    return " > ".join(names)
