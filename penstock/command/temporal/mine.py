"""`penstock mine`: counts the steps of cases, and compares them with a workflow."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Hashable, Iterator
from operator import attrgetter
from typing import NamedTuple

from penstock.command.explain import explain, users_line
from penstock.command.inputs.events import Events, input_name
from penstock.command.output import counted, give, mention
from penstock.command.pipelines.options import Options
from penstock.command.pipelines.run import execute, warnings_to_standard_error
from penstock.command.temporal.check_workflow import (
    broken_by,
    check_picture,
    held,
    nothing,
    said_of,
    save,
)
from penstock.command.temporal.rules import read_rules
from penstock.sinks.for_each import for_each
from penstock.streams.base.errors import BuildError, describe
from penstock.streams.base.validation import seconds_of
from penstock.streams.io.body import NotAValue
from penstock.streams.temporal.workflow.mining import Miner, Traffic
from penstock.streams.temporal.workflow.rule import Rule
from penstock.streams.temporal.workflow.workflow import near, read_workflow

__all__ = ["call"]

_FOUND, _BAD_LINES = 1, 3

# Of a run that could not begin, or broke off: what it read is not what was there.
_FAILED = (1, 2)
_MOST_ROWS = 50


def call(options: Namespace, words: list[str]) -> int:
    """Print what happened, and what of it the workflow and the rules forbid.

    Returns 0, or 1 if something is forbidden or a rule is broken, else as `penstock run` does.
    Raises BuildError for a workflow, rules or a picture that cannot be read or written, and for a
    rule about steps that neither the workflow nor the events have.
    """
    if words and options.rules is None:
        raise BuildError(f"mine takes words after `--` only for --rules: {' '.join(words)}")
    check_picture(options.draw)
    workflow = None if options.graph is None else read_workflow(options.graph)
    rules: list[Rule] = []
    if options.rules is not None:
        rules = read_rules(options.rules, words, whole=options.traceback)
    miner = Miner(workflow, rules, max_keys=options.max_keys)
    warnings_to_standard_error()

    # With --time: what was read, to be counted in the order of the times.
    timed: list[_Read] = []

    def add(one: _Read) -> None:
        if options.time is not None:
            timed.append(one)
        else:
            count(one)

    def count(one: _Read) -> None:
        try:
            miner.add(one.case, one.step)
        except Exception as error:
            # Only a function in a rule raises.
            line = users_line(error) or options.rules
            told = explain(error, whole=options.traceback)
            raise BuildError(f"{line}: a rule raised an error\n{told}") from error

    needed = {"--step": options.step, "--by": options.by, "--time": options.time}
    read = _reader(options.by, options.step, options.time)
    events = Events(options, needed, make=read)
    # The output is the report's.
    status = events.end(execute(events.stream.to(for_each(add)), Options(report=options.report)))
    if status in _FAILED:
        return status
    for one in sorted(timed, key=attrgetter("at")):
        count(one)
    if status == 0 and not miner.events:
        mention(f"{input_name(options)} has no events")
    miner.end()
    _check_applies(miner, options)
    of_rules, broken = _rules(miner, options)
    text = "".join(f"{line}\n" for line in (*_lines(miner), *of_rules))
    unwritten = give(text, options.output)
    if options.draw:
        from penstock.command.temporal.mined_picture import picture_of

        save(picture_of(miner), options.draw)
    if status in (0, _BAD_LINES) and (broken or miner.found):
        status = _FOUND
    return unwritten or status


class _Read(NamedTuple):
    """The case and the step of an event, and its time in seconds, 0 where none is read."""

    case: Hashable
    step: str
    at: float


def _reader(by: str | None, field: str, time: str | None) -> Callable[[dict[str, object]], _Read]:
    """The function that reads an event. It raises NotAValue for a bad one."""

    def read(event: dict[str, object]) -> _Read:
        step = event[field]
        if type(step) is int:
            step = str(step)
        if type(step) is not str or not step:
            raise NotAValue(
                f"has {describe(step)} as {field!r}: the name of a step is needed (--step FIELD)"
            )
        try:
            at = 0.0 if time is None else seconds_of(event[time])
        except ValueError as error:
            raise NotAValue(f"has a bad {time!r} (--time FIELD): {error}") from error
        if by is None:
            return _Read(None, step, at)
        key = event[by]
        if not isinstance(key, str | int | float):
            raise NotAValue(f"has {describe(key)} as {by!r}: a key is needed (--by FIELD)")
        return _Read(key, step, at)

    return read


def _lines(miner: Miner) -> Iterator[str]:
    cases = f" of {counted(miner.cases, 'case')}"
    yield f"{counted(miner.events, 'event')}{cases}"
    if miner.forgotten:
        yield f"{counted(miner.forgotten, 'case')} forgotten before the end: more than --max-keys"
    unknown = frozenset(miner.unknown())
    yield from _table(
        "steps",
        [
            (step, n, "NOT IN THE GRAPH" if step in unknown else "")
            for step, n in miner.steps.most_common()
        ],
    )
    if miner.other_steps:
        yield f"    further steps, of more than 1,000 different ones: {miner.other_steps:,}"
    arcs = sorted(miner.arcs.items(), key=lambda item: -item[1].count)
    rows = [(" -> ".join(arc), traffic.count, _forbidden(traffic)) for arc, traffic in arcs]
    yield from _table("arcs", rows)
    if miner.other_arcs:
        yield f"    further arcs, of more than 10,000 different ones: {miner.other_arcs:,}"
    yield from _table("never taken", [(" -> ".join(arc), 0, "") for arc in miner.never_taken()])
    yield from _table("first steps", [(step, n, "") for step, n in miner.first.most_common()])
    yield from _table(
        "last steps",
        [
            (step, n, "" if miner.is_final(step) else "not a final step")
            for step, n in miner.last.most_common()
        ],
    )


def _table(heading: str, rows: list[tuple[str, int, str]]) -> Iterator[str]:
    """Lines of a name, a number and a remark; beyond 50 rows those with a remark, and the number of
    the others."""
    if not rows:
        return
    yield f"{heading}:"
    shown = [
        (_on_one_line(name), n, remark)
        for at, (name, n, remark) in enumerate(rows)
        if at < _MOST_ROWS or remark
    ]
    wide = max(len(name) for name, *_ in shown)
    digits = max(len(f"{n:,}") for _, n, _ in shown)
    for name, n, remark in shown:
        yield f"    {name:<{wide}}  {n:>{digits},}  {remark}".rstrip()
    if len(shown) < len(rows):
        yield f"    and {len(rows) - len(shown):,} more"


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


def _rules(miner: Miner, options: Namespace) -> tuple[list[str], bool]:
    """The text about the rules on the graph and on the events, and whether the graph breaks
    one."""
    lines: list[str] = []
    broken = False
    if miner.workflow is not None and miner.rules:
        lines.append(f"rules on {options.graph}:")
        for rule in miner.rules:
            if lacks := rule.lacking(miner.workflow):
                lines.append(f"    {rule.name}: not applicable, there is {nothing(lacks)}")
                continue
            found, vacuous = broken_by(rule, miner.workflow, options.rules, whole=options.traceback)
            broken = broken or bool(found)
            lines += [f"    {line}" for line in said_of(rule, found, vacuous).splitlines()]
    if miner.rules:
        lines.append("rules on the events:")
        lines += [f"    {_on_events(miner, at)}" for at in range(len(miner.rules))]
    return lines, broken


def _on_events(miner: Miner, at: int) -> str:
    rule, breach = miner.rules[at], miner.breaches[at]
    lacks = rule.names() if miner.workflow is None else rule.lacking(miner.workflow)
    never = [name for name in lacks if name not in miner.steps]
    # A misspelt name is never true.
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


def _check_applies(miner: Miner, options: Namespace) -> None:
    """Raise BuildError for a rule about steps that neither the workflow nor the events have."""
    if miner.workflow is None:
        return
    for rule in miner.rules:
        if lacks := [name for name in rule.lacking(miner.workflow) if name not in miner.steps]:
            guess = near(lacks[0], miner.workflow.facts)
            raise BuildError(
                f"{options.rules}: rule {rule.name!r} applies to nothing: neither {options.graph} "
                f"nor the events have a step or label {', '.join(map(repr, lacks))}{guess}"
            )
