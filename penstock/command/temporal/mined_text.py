"""What was mined, as a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from penstock.command.output import counted
from penstock.command.temporal.check_workflow import held, nothing, said_of
from penstock.command.temporal.mined_rules import OnGraph, never_happened
from penstock.streams.base.errors import describe
from penstock.streams.temporal.workflow.mining import Miner, Traffic

__all__ = ["as_text"]

_MOST_ROWS = 50

# Of paths, which make long lines, and of the steps of one.
_MOST_PATHS = 10
_MOST_STEPS = 20


def as_text(miner: Miner, checked: Iterable[OnGraph], graph: str | None, *, whole: bool) -> str:
    """The report: the most frequent of each, and all that is forbidden; `whole`: all."""
    lines = [*_lines(miner, whole=whole), *_rules(miner, checked, graph)]
    return "".join(f"{line}\n" for line in lines)


def _lines(miner: Miner, *, whole: bool) -> Iterator[str]:
    yield f"{counted(miner.events, 'event')} of {counted(miner.cases, 'case')}"
    if miner.forgotten:
        yield f"{counted(miner.forgotten, 'case')} forgotten before the end: more than --max-keys"
    unknown = frozenset(miner.unknown())
    steps = miner.steps.most_common()
    arcs = sorted(miner.arcs.items(), key=lambda item: -item[1].count)
    yield from _table(
        "steps",
        [(step, n, "NOT IN THE GRAPH" if step in unknown else "") for step, n in steps],
        whole=whole,
    )
    if miner.other_steps:
        yield f"    further steps, of more than 1,000 different ones: {miner.other_steps:,}"
    yield from _table(
        "arcs",
        [(" -> ".join(arc), traffic.count, _forbidden(traffic)) for arc, traffic in arcs],
        whole=whole,
    )
    if miner.other_arcs:
        yield f"    further arcs, of more than 10,000 different ones: {miner.other_arcs:,}"
    never = [(" -> ".join(arc), 0, "") for arc in miner.never_taken()]
    yield from _table("never taken", never, whole=whole)
    first = [(step, n, "") for step, n in miner.first.most_common()]
    yield from _table("first steps", first, whole=whole)
    yield from _table(
        "last steps",
        [
            (step, n, "" if miner.is_final(step) else "not a final step")
            for step, n in miner.last.most_common()
        ],
        whole=whole,
    )
    yield from _paths(miner, whole=whole)


def _table(heading: str, rows: list[tuple[str, int, str]], *, whole: bool) -> Iterator[str]:
    """Lines of a name, a number and a remark; unless they are `whole`, beyond 50 rows those with a
    remark, and the number of the others."""
    if not rows:
        return
    yield f"{heading}:"
    shown = [
        (_on_one_line(name), n, remark)
        for at, (name, n, remark) in enumerate(rows)
        if whole or at < _MOST_ROWS or remark
    ]
    wide = max(len(name) for name, *_ in shown)
    digits = max(len(f"{n:,}") for _, n, _ in shown)
    for name, n, remark in shown:
        yield f"    {name:<{wide}}  {n:>{digits},}  {remark}".rstrip()
    if len(shown) < len(rows):
        yield f"    and {len(rows) - len(shown):,} more (--all)"


def _paths(miner: Miner, *, whole: bool) -> Iterator[str]:
    """Lines of a number, the steps from the first to the last, and whether they are forbidden."""
    paths = miner.path_counts()
    shown = list(paths if whole else islice(paths, _MOST_PATHS))
    if shown or miner.other_paths:
        yield "paths:"
    digits = max((len(f"{n:,}") for _, n in shown), default=0)
    for steps, n in shown:
        remark = "" if miner.allows(steps) else "  NOT ALLOWED"
        yield f"    {n:>{digits},}  {_path(steps, whole=whole)}{remark}"
    if rest := [n for _, n in paths]:
        yield f"    and {len(rest):,} more, of {counted(sum(rest), 'case')} (--all)"
    if miner.other_paths:
        many = counted(miner.other_paths, "case")
        yield f"    further paths, with more than 100,000 different beginnings: of {many}"


def _path(steps: Sequence[str], *, whole: bool) -> str:
    if whole or len(steps) <= _MOST_STEPS:
        return _on_one_line(" -> ".join(steps))
    first = _on_one_line(" -> ".join(steps[:_MOST_STEPS]))
    return f"{first} -> ... ({len(steps):,} steps)"


def _on_one_line(text: str) -> str:
    """The text, quoted if it has characters that would end the line, or control a terminal."""
    return text if text.isprintable() else repr(text)


def _forbidden(traffic: Traffic) -> str:
    if not traffic.forbidden:
        return ""
    by = "" if traffic.first is None else f", first{_by(traffic.first)}"
    if not traffic.drawn:
        return f"NOT IN THE GRAPH{by}"
    return f"{traffic.forbidden:,} AGAINST ITS CONDITIONS{by}"


def _rules(miner: Miner, checked: Iterable[OnGraph], graph: str | None) -> Iterator[str]:
    if miner.rules and graph is not None:
        yield f"rules on {graph}:"
    for rule, lacks, found, vacuous in checked:
        if lacks:
            yield f"    {rule.name}: not applicable, there is {nothing(lacks)}"
        else:
            yield from (f"    {line}" for line in said_of(rule, found, vacuous).splitlines())
    if miner.rules:
        yield "rules on the events:"
    yield from (f"    {_on_events(miner, at)}" for at in range(len(miner.rules)))


def _on_events(miner: Miner, at: int) -> str:
    rule, breach = miner.rules[at], miner.breaches[at]
    never = never_happened(miner, rule)
    note = f" ({', '.join(map(repr, never))} never happened)" if never else ""
    if breach is None:
        if not miner.began(at):
            return f"{rule.name}: says nothing, no case came to an initial step{note}"
        return f"{rule.name}: {held(rule)}{note}"
    when = f"at the end, after {counted(breach.index, 'step')}"
    if not breach.at_end:
        when = f"at step {breach.index:,}"
    more = "... -> " if breach.index > len(breach.steps) else ""
    many = f"{miner.broken[at]:,} of {counted(miner.cases, 'case')}"
    path = _on_one_line(more + " -> ".join(breach.steps))
    return f"{rule.name}: BROKEN by {many}{note}, first{_by(breach.key)} {when}: {path}"


def _by(key: object) -> str:
    return "" if key is None else f" by case {describe(key)}"
