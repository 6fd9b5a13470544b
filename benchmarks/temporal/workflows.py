"""A workflow of 10,000 steps and 50,000 arcs, against formulas of six operators that it keeps.

A formula that holds takes longest: the whole graph must be searched.
"""

from __future__ import annotations

import random
from time import process_time

from penstock.streams.temporal import Node, Rule, Workflow, counter_example

__all__ = ["check_a_large_workflow"]

STEPS, ARCS = 10_000, 5


def check_a_large_workflow() -> list[tuple[str, float]]:
    """The task, and the seconds it took; at most 10 each."""
    workflow = _workflow()
    arcs = sum(1 for _ in workflow.arcs())
    told: list[tuple[str, float]] = []
    for formula in (
        "G(p -> X(!q W (r & F q)))",
        "G(p -> q) | F G (p & !q) | G F r",
        "G(p -> (q & !(r & X (p & !q))))",
    ):
        for final in (None, "s0"):
            before = process_time()
            found = counter_example(workflow, Rule("r", "s0", final, formula))
            took = process_time() - before
            kind = "for ever" if final is None else "to an end"
            result = "broken" if found else "holds"
            told.append((f"{STEPS:,} steps, {arcs:,} arcs, {kind}: {formula} {result}", took))
    return told


def _workflow() -> Workflow:
    dice = random.Random(1)
    nodes: list[Node] = []
    for step in range(STEPS):
        targets = {f"s{dice.randrange(STEPS)}" for _ in range(ARCS)}
        # Where p is, q is too, so that two of the formulas hold.
        labels = ("p", "q") if dice.random() < 0.3 else ("r",) if dice.random() < 0.2 else ()
        nodes.append(Node(f"s{step}", goto=tuple(sorted(targets)), labels=labels))
    return Workflow(nodes)
