"""`penstock check`: builds a pipeline and lists its stages."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from penstock.command.output import put
from penstock.command.pipelines.load import load
from penstock.streams.errors import BuildError
from penstock.streams.picture import drawn
from penstock.streams.pipeline import Pipeline
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.protocol.stage import StageInfo
from penstock.streams.temporal.workflow.paths import counter_example
from penstock.streams.temporal.workflow.rule import CounterExample, Rule
from penstock.streams.temporal.workflow.workflow import Node, Workflow

__all__ = ["call", "check", "lost_path"]

# Events may be acknowledged once a sink has accepted them; events acknowledged earlier are lost if
# the process dies.
_REACHES_A_SINK = Rule(
    "every path from an acknowledging source reaches a sink",
    initial="acknowledging source",
    final=lambda node: not node.goto,
    formula="F sink",
)


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Run the sub-command; returns the exit status."""
    return check(options.file, load(options.file, for_the_file, whole=options.traceback))


def check(where: str, pipeline: Pipeline) -> int:
    """Report that all is well; returns the exit status. Errors have been raised before."""
    pipeline.check_files()
    stages = pipeline.describe()
    lost = lost_path(stages, len(pipeline.sinks))
    if lost is not None:
        raise BuildError(
            f"{where}: events go {lost}, and no further: they are acknowledged before their "
            "results are in a sink, and lost if the process dies. Use a source that can be read "
            "again, such as read_jsonl(path)"
        )
    count = sum(1 for _ in all_stages(stages))
    return put(f"{where}: OK, {count} stages: {_names(stages)}\n")


def _names(stages: Iterable[StageInfo]) -> str:
    """The names of the stages, each with those of the other streams that it reads in brackets."""
    names: list[str] = []
    for stage in stages:
        others = ", ".join(map(_names, stage.inputs))
        names.append(f"{stage.name}({others})" if others else stage.name)
    return " > ".join(names)


def lost_path(stages: list[StageInfo], sinks: int) -> CounterExample | None:
    """A path of an event from an acknowledging source through the stages that ends in no sink.

    The last stages are sinks. The stages are checked like any other workflow, those inside groups
    and those of other streams included.
    """
    found = list(drawn(stages, sinks))
    if not any(stage.acknowledges for stage, _ in found):
        return None
    readers: dict[int, list[str]] = {stage.number: [] for stage, _ in found}
    for stage, above in found:
        for one in above:
            readers[one].append(f"{stage.number} {stage.name}")
    ends = {stage.number for stage in stages[len(stages) - sinks :]}
    nodes: list[Node] = []
    for stage, _ in found:
        parts = _with_inside(stage)
        for at, (name, absorbs) in enumerate(parts):
            after = [parts[at + 1][0]] if at + 1 < len(parts) else readers[stage.number]
            labels = ["sink"] if stage.number in ends else []
            if stage.acknowledges and not at:
                labels.append("acknowledging source")
            nodes.append(Node(name, goto=() if absorbs else tuple(after), labels=tuple(labels)))
    # So that there is a word for it where there is none.
    nodes.append(Node("sink"))
    return counter_example(Workflow(nodes), _REACHES_A_SINK)


def _with_inside(stage: StageInfo) -> list[tuple[str, bool]]:
    """The stage, then those inside its groups: their names, and whether they absorb events."""
    inside = [] if stage.inside is None else stage.inside()
    names = [(f"{stage.number} {stage.name}", stage.absorbs)]
    return names + [
        (f"{stage.number}.{i} {inner.name}", inner.absorbs) for i, inner in enumerate(inside, 1)
    ]
