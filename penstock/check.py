"""`penstock check`: the pipeline was built, so it can be; here are its stages."""

from __future__ import annotations

import argparse

from penstock.load import load
from penstock.output import put
from streams.errors import BuildError
from streams.pipeline import Pipeline
from streams.stage import StageInfo
from streams.temporal.workflow import Node, Workflow
from streams.temporal.workflow_paths import counter_example
from streams.temporal.workflow_rule import CounterExample, Rule

__all__ = ["call", "check", "lost_path"]

# An event is acknowledged when every sink has accepted it: one that comes to none never is.
_REACHES_A_SINK = Rule(
    "every path from the source reaches a sink",
    initial="source",
    final=lambda node: not node.goto,
    formula="F sink",
)


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Run the sub-command; returns the exit status."""
    return check(options.file, load(options.file, for_the_file, whole=options.traceback))


def check(where: str, pipeline: Pipeline) -> int:
    """Say that all is well; returns the exit status. What is wrong has been raised by then."""
    stages = pipeline.describe()
    lost = lost_path(stages, len(pipeline.sinks))
    if lost is not None:
        raise BuildError(f"{where}: events that go {lost} reach no sink, and never finish")
    names = " > ".join(stage.name for stage in stages)
    return put(f"{where}: OK, {len(stages)} stages: {names}\n")


def lost_path(stages: list[StageInfo], sinks: int) -> CounterExample | None:
    """A way of an event through the stages, of which the last ones are sinks, that ends in none.

    The stages are checked as any other workflow is.
    """
    names = [f"{stage.number} {stage.name}" for stage in stages]
    first_sink = len(names) - sinks
    nodes: list[Node] = []
    for at, name in enumerate(names):
        after = names[at + 1 : at + 2] if at + 1 < first_sink else names[first_sink:]
        labels = ("sink",) if at >= first_sink else ("source",) if at == 0 else ()
        nodes.append(Node(name, goto=tuple(after) if at < first_sink else (), labels=labels))
    # So that there is a word for it where there is none.
    nodes.append(Node("sink"))
    return counter_example(Workflow(nodes), _REACHES_A_SINK)
