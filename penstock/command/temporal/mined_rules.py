"""The rules of `penstock mine` on the graph."""

from __future__ import annotations

from argparse import Namespace
from typing import NamedTuple

from penstock.command.temporal.check_workflow import broken_by
from penstock.streams.base.errors import BuildError
from penstock.streams.temporal.workflow.mining import Miner
from penstock.streams.temporal.workflow.rule import CounterExample, Rule
from penstock.streams.temporal.workflow.workflow import near

__all__ = ["OnGraph", "never_happened", "on_graph"]


class OnGraph(NamedTuple):
    """What the graph says of a rule: the steps that it lacks, or a path that breaks the rule, or
    why the rule says nothing; none of these if it holds."""

    rule: Rule
    lacks: list[str]
    found: list[CounterExample]
    vacuous: str | None


def on_graph(miner: Miner, options: Namespace) -> list[OnGraph]:
    """The rules on the graph, if there is one. Raises BuildError for a rule about steps that
    neither the graph nor the events have, and for one that raises."""
    if miner.workflow is None:
        return []
    checked: list[OnGraph] = []
    for rule in miner.rules:
        lacks = rule.lacking(miner.workflow)
        if unknown := [name for name in lacks if name not in miner.steps]:
            guess = near(unknown[0], miner.workflow.facts)
            raise BuildError(
                f"{options.rules}: rule {rule.name!r} applies to nothing: neither {options.graph} "
                f"nor the events have a step or label {', '.join(map(repr, unknown))}{guess}"
            )
        if lacks:
            checked.append(OnGraph(rule, lacks, [], None))
            continue
        found, vacuous = broken_by(rule, miner.workflow, options.rules, whole=options.traceback)
        checked.append(OnGraph(rule, [], found, vacuous))
    return checked


def never_happened(miner: Miner, rule: Rule) -> list[str]:
    """The steps of a rule that the events and the graph lack: they may be misspelt, and a misspelt
    name is never true."""
    lacks = rule.names() if miner.workflow is None else rule.lacking(miner.workflow)
    return [name for name in lacks if name not in miner.steps]
