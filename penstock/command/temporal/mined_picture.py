"""Draws the steps of many cases over the workflow that they should have followed."""

from __future__ import annotations

from penstock.command.output import counted
from penstock.streams.pictures.workflow import Arc, Picture
from penstock.streams.temporal.workflow.mining import Miner

__all__ = ["picture_of"]


def picture_of(miner: Miner) -> Picture:
    """Arcs with how often they were taken, wider the more often.

    Those that the workflow lacks, or whose conditions did not always hold, are marked; those of its
    arcs by `goto` that were never taken are dashed.

    Without a workflow nothing is marked or dashed.
    """
    never = list(miner.never_taken())
    drawn = [] if miner.workflow is None else list(miner.workflow.nodes)
    most = max((traffic.count for traffic in miner.arcs.values()), default=1)
    arcs = [
        Arc(
            a,
            b,
            f"{traffic.count:,}",
            on=bool(traffic.forbidden),
            share=traffic.count / most,
        )
        for (a, b), traffic in miner.arcs.items()
    ]
    nodes = list(dict.fromkeys([*drawn, *miner.steps]))
    wrong = sum(arc.on for arc in arcs)
    title = f"{counted(miner.events, 'event')} of {counted(miner.cases, 'case')}"
    if miner.workflow is not None:
        title += f": {counted(wrong, 'arc')} forbidden, {len(never):,} never taken"
    return Picture(
        title=title,
        nodes=nodes,
        arcs=[*arcs, *(Arc(a, b, dashed=True) for a, b in never)],
        lead=[*never, *miner.arcs],
        on=frozenset(miner.unknown()),
        first=tuple(step for step, _ in miner.first.most_common()),
        texts={name: f"{name} ({miner.steps[name]:,})" for name in nodes},
    )
