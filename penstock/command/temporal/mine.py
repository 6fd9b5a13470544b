"""`penstock mine`: counts the steps of cases, and compares them with a workflow."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import NamedTuple

from penstock.command.explain import explain, users_line
from penstock.command.inputs.events import Events, input_name
from penstock.command.output import counted, give, mention
from penstock.command.pipelines.options import Options
from penstock.command.pipelines.run import execute, warnings_to_standard_error
from penstock.command.temporal.check_workflow import check_picture, save
from penstock.command.temporal.mined_rules import OnGraph, on_graph
from penstock.command.temporal.mined_text import as_text
from penstock.command.temporal.rules import read_rules
from penstock.sinks.for_each import for_each
from penstock.streams.base.errors import BuildError, describe
from penstock.streams.base.validation import seconds_of
from penstock.streams.io.body import NotAValue
from penstock.streams.temporal.workflow.mining import Miner
from penstock.streams.temporal.workflow.rule import Rule
from penstock.streams.temporal.workflow.workflow import read_workflow

__all__ = ["call"]

_FOUND, _BAD_LINES = 1, 3

# Of a run that could not begin, or broke off: what it read is not what was there.
_FAILED = (1, 2)


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
    # Of one case there is one path.
    paths = options.by is not None and options.format != "graph"
    miner = Miner(workflow, rules, max_keys=options.max_keys, paths=paths)
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
    checked = on_graph(miner, options)
    unwritten = give(_shown(miner, checked, options), options.output)
    if options.draw:
        from penstock.command.temporal.mined_picture import picture_of

        save(picture_of(miner), options.draw)
    broken = any(one.found for one in checked)
    if status in (0, _BAD_LINES) and (broken or miner.found):
        status = _FOUND
    return unwritten or status


def _shown(miner: Miner, checked: list[OnGraph], options: Namespace) -> str:
    if options.format == "text":
        return as_text(miner, checked, options.graph, whole=options.all)
    from penstock.command.temporal.mined_json import as_graph, as_json

    if options.format == "json":
        return as_json(miner, checked)
    if miner.forgotten:
        mention(
            f"{counted(miner.forgotten, 'case')} forgotten before the end: if they went on, the "
            "graph lacks a step of theirs; raise --max-keys",
            "warning",
        )
    return as_graph(miner, input_name(options))


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
