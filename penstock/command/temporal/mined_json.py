"""What was mined, as JSON, and the graph of it that `penstock check-workflow` reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from json import dumps
from typing import Any

from penstock.command.output import counted
from penstock.command.temporal.mined_rules import OnGraph, never_happened
from penstock.streams.base.errors import BuildError
from penstock.streams.temporal.workflow.mining import Miner

__all__ = ["as_graph", "as_json"]


def as_json(miner: Miner, checked: Iterable[OnGraph]) -> str:
    """One object on a line, with all that the report can have. `forbidden` and the like are only
    there with a graph, `paths` only with cases that have keys."""
    has_graph = miner.workflow is not None
    unknown = frozenset(miner.unknown())
    found: dict[str, Any] = {
        "events": miner.events,
        "cases": miner.cases,
        "forgotten": miner.forgotten,
        "steps": [
            {"step": step, "count": n, **({"in_graph": step not in unknown} if has_graph else {})}
            for step, n in miner.steps.most_common()
        ],
        "arcs": [
            {
                **{"from": arc[0], "to": arc[1], "count": traffic.count},
                **({"in_graph": traffic.drawn} if has_graph else {}),
                **({"forbidden": traffic.forbidden} if has_graph else {}),
                **({"first": traffic.first} if traffic.forbidden else {}),
            }
            for arc, traffic in sorted(miner.arcs.items(), key=lambda item: -item[1].count)
        ],
        "never_taken": [{"from": a, "to": b} for a, b in miner.never_taken()],
        "first_steps": [{"step": step, "count": n} for step, n in miner.first.most_common()],
        "last_steps": [
            {"step": step, "count": n, **({"final": miner.is_final(step)} if has_graph else {})}
            for step, n in miner.last.most_common()
        ],
        "paths": [
            {
                **{"steps": steps, "count": n},
                **({"allowed": miner.allows(steps)} if has_graph else {}),
            }
            for steps, n in miner.path_counts()
        ],
        "other_steps": miner.other_steps,
        "other_arcs": miner.other_arcs,
        "other_paths": miner.other_paths,
        "rules": [*_on_graph(checked), *_on_events(miner)],
    }
    return f"{dumps(found, ensure_ascii=False)}\n"


def _on_graph(checked: Iterable[OnGraph]) -> Iterator[dict[str, Any]]:
    for rule, lacks, found, vacuous in checked:
        told: dict[str, Any] = {"rule": rule.name, "on": "graph"}
        if lacks:
            yield {**told, "result": "not applicable", "lacks": lacks}
        elif vacuous:
            yield {**told, "result": "says nothing", "why": vacuous}
        elif not found:
            yield {**told, "result": "holds"}
        else:
            yield {**told, "result": "broken", "path": found[0].path, "loop": found[0].loop}


def _on_events(miner: Miner) -> Iterator[dict[str, Any]]:
    for at, (rule, breach) in enumerate(zip(miner.rules, miner.breaches, strict=True)):
        told: dict[str, Any] = {"rule": rule.name, "on": "events"}
        if never := never_happened(miner, rule):
            told["never_happened"] = never
        if breach is None:
            yield {**told, "result": "holds" if miner.began(at) else "says nothing"}
            continue
        first = {
            **{"case": breach.key, "index": breach.index, "at_end": breach.at_end},
            # The last ones.
            "steps": breach.steps,
        }
        yield {**told, "result": "broken", "cases": miner.broken[at], "first": first}


def as_graph(miner: Miner, source: str) -> str:
    """The workflow of which all cases are paths: a step, with the steps that followed it and the
    label `first` or `last` where a case began or ended with it.

    Raises BuildError where there is none: without events, and where not all was counted by name.
    """
    if not miner.steps:
        raise BuildError(f"{source} has no events, and a graph needs a step")
    if miner.other_steps or miner.other_arcs:
        raise BuildError(
            f"there are more than {counted(len(miner.steps), 'different step')} and "
            f"{counted(len(miner.arcs), 'arc')}, and a graph of these would lack some: name the "
            "field with the step by --step"
        )
    goto: dict[str, list[str]] = {}
    for a, b in miner.arcs:
        goto.setdefault(a, []).append(b)
    nodes: dict[str, dict[str, list[str]]] = {}
    for step in miner.steps:
        ends = (("first", miner.first), ("last", miner.last))
        labels = [label for label, steps in ends if step in steps]
        facts = {"goto": goto.get(step, []), "labels": labels}
        nodes[step] = {fact: names for fact, names in facts.items() if names}
    lines = (f"  {_json(step)}: {_json(facts)}" for step, facts in nodes.items())
    return '{"nodes": {\n' + ",\n".join(lines) + "\n}}\n"


def _json(value: Any) -> str:
    return dumps(value, ensure_ascii=False)
