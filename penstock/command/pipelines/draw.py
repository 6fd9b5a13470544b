"""`penstock draw`: the stages of a pipeline, what each may hold, and where order ends."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Literal

from penstock.command.output import counted, put, write
from penstock.command.pipelines.load import load
from penstock.streams.base.errors import BuildError
from penstock.streams.pictures.pipeline import (
    as_svg,
    bound_text,
    drawn,
    feeders_drawn,
    reads_text,
    total_text,
)
from penstock.streams.pipelines.pipeline import Pipeline, cores
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.stages.forgetting import unknown_again
from penstock.streams.workers.placement import section_of

__all__ = [
    "as_json",
    "as_mermaid",
    "as_text",
    "call",
    "check_limit",
    "draw",
    "parts_of",
]

Format = Literal["text", "mermaid", "svg", "json"]


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Run the sub-command; returns the exit status."""
    pipeline = load(options.file, for_the_file, whole=options.traceback)
    if options.limit is not None:
        check_limit(pipeline)
    return draw(
        pipeline,
        options.format,
        options.output,
        options.limit,
        options.workers,
        recorded=options.recorded,
    )


def draw(
    pipeline: Pipeline,
    form: Format,
    output: str | None,
    limit: tuple[int, int] | None = None,
    workers: int | Literal["auto"] | None = None,
    *,
    recorded: bool = False,
) -> int:
    """Write the picture to `output`, or print it; returns the exit status.

    `limit` and `workers` are those of the running that it is about, and `recorded` whether it has a
    live page or a report page. Raises CannotOpen where the picture cannot be written, and
    BuildError where workers would have nothing to do, or cannot open a sink that is to be theirs.
    """
    stages, sinks = pipeline.describe(limit), len(pipeline.sinks)
    if workers is not None:
        stages = _placed(pipeline, stages, cores() if workers == "auto" else workers)
    unknown = {source.number for source, _ in unknown_again(stages)}
    if unknown:
        stages = _noted(stages, unknown)
    note = ""
    if recorded:
        from penstock.streams.recording.recorder import kept_text

        note = kept_text(stages, sinks)
    if form == "json":
        picture = as_json(pipeline, stages)
    elif form == "svg":
        picture = as_svg(stages[:-sinks], stages[-sinks:], repr(pipeline), note=note)
    else:
        picture = (as_mermaid if form == "mermaid" else as_text)(stages, sinks, note)
    if output is None:
        return put(picture)
    write(picture, output)
    return 0


def as_json(pipeline: Pipeline, stages: list[StageInfo]) -> str:
    """The definition, with these stages, as JSON."""
    from json import dumps

    from penstock.streams.definitions.definition import stages_of

    definition = {**pipeline.definition(), "stages": stages_of(stages)}
    return dumps(definition, indent=2, ensure_ascii=False) + "\n"


def check_limit(pipeline: Pipeline) -> None:
    """Raise BuildError if there is nothing that the option --limit could limit."""
    if all(stage.picture.under is None for stage in all_stages(pipeline.describe())):
        raise BuildError(
            "--limit: this pipeline has no adaptive_flat_map() to limit; leave the option out"
        )


def _placed(pipeline: Pipeline, stages: list[StageInfo], workers: int) -> list[StageInfo]:
    """The stages, with a note on each that runs in the workers; the others run in the parent."""
    section = section_of(pipeline.flowable.chain(), pipeline.sinks)
    where = "in 1 worker" if workers == 1 else f"in {workers} workers"
    notes = {info.number: where for info in section.infos_with_sinks}
    if section.decode is not None:
        notes[section.above.chain()[0].info.number] = "lines are decoded in the workers, too"
    return [
        stage._replace(note="; ".join(filter(None, (notes.get(stage.number), stage.note))))
        for stage in stages
    ]


def _noted(stages: Iterable[StageInfo], unknown: set[int]) -> list[StageInfo]:
    """The stages, with a note on each source that does not know what it has given to states."""
    note = "does not record in the store what is done"
    return [
        stage._replace(
            note="; ".join(filter(None, (note * (stage.number in unknown), stage.note))),
            inputs=tuple(tuple(_noted(column, unknown)) for column in stage.inputs),
        )
        for stage in stages
    ]


def as_text(stages: list[StageInfo], sinks: int, note: str = "") -> str:
    """A line per stage, the `sinks` last, in columns; the sum of what may be held; the `note`."""
    rows = [("", "stage", "", "holds", "")]
    before = 0
    for stage, above in drawn(stages, sinks):
        # Sinks stand side by side below the last stage.
        reads = reads_text(above, before) if stage.number <= stages[-sinks - 1].number else ""
        note_of = "; ".join(filter(None, (reads, stage.note)))
        rows.append((str(stage.number), stage.name, stage.detail, bound_text(stage), note_of))
        before = stage.number
        rows += [("", f"  {name}", "", "", does) for name, does in parts_of(stage)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        f"{number:>{widths[0]}}  {name:<{widths[1]}}  {detail:<{widths[2]}}  "
        f"{bound:>{widths[3]}}  {note}".rstrip()
        for number, name, detail, bound, note in rows
    ]
    return "\n".join([*lines, "", *filter(None, (total_text(stages), note)), ""])


def as_mermaid(stages: list[StageInfo], sinks: int, note: str = "") -> str:
    """A Mermaid flowchart; the `sinks` side by side below the stage they read from."""
    lines = ["flowchart TD"]
    arrows: list[str] = []
    noted = {stage.number: stage.note for stage in all_stages(stages)}
    for stage, above in drawn(stages, sinks):
        parts = [f"{stage.number} {stage.name}", stage.detail, bound_text(stage)]
        label = "<br>".join(_escaped(part) for part in parts if part)
        if stage.picture.feeders is None:
            lines.append(f'    s{stage.number}["{label}"]')
        else:
            lines += _mermaid_parts(stage.number, label, stage.picture.feeders)
        for other in above:
            on_arrow = f"|{_escaped(noted[other])}|" if noted[other] else ""
            arrows.append(f"    s{other} -->{on_arrow} s{stage.number}")
    lines += arrows
    totals = "<br>".join(_escaped(line) for line in (total_text(stages), note) if line)
    lines.append(f'    total["{totals}"]')
    lines.append("    style total fill:none,stroke:none")
    return "\n".join([*lines, ""])


def parts_of(stage: StageInfo) -> list[tuple[str, str]]:
    """The parts of a stage that has several, and what each of them does."""
    if stage.picture.feeders is None:
        return []
    return [
        ("dispatcher", "gives each free feeder the next group"),
        (counted(stage.picture.feeders, "feeder"), "each has one group, until that is empty"),
        ("spreader", "takes one event of each feeder in rotation"),
    ]


def _mermaid_parts(number: int, label: str, feeders: int) -> list[str]:
    """The dispatcher, the feeders and the spreader, in a box with this label."""
    names = [(f"s{number}f{at}", name) for at, name in enumerate(feeders_drawn(feeders), 1)]
    return [
        f'    subgraph s{number}["{label}"]',
        f'        s{number}d["dispatcher"]',
        *(f'        {node}["{"feeder " * (name != "…")}{name}"]' for node, name in names),
        f'        s{number}s["spreader"]',
        *(f"        s{number}d --> {node} --> s{number}s" for node, _ in names),
        "    end",
    ]


def _escaped(text: str) -> str:
    # Mermaid takes entities with # instead of &.
    marks = {'"': "#quot;", "<": "#lt;", ">": "#gt;", "|": "#124;", "#": "#35;"}
    return "".join(marks.get(character, character) for character in text)
