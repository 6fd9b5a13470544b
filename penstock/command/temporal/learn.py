"""`penstock learn`: finds formulas that hold on good traces and fail on bad ones."""

from __future__ import annotations

from argparse import Namespace
from array import array
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from penstock.command.inputs.events import Events, input_format
from penstock.command.output import counted, give
from penstock.command.pipelines.options import Options
from penstock.command.pipelines.run import execute, warnings_to_standard_error
from penstock.command.temporal.propositions import Propositions, as_text
from penstock.sinks.for_each import for_each
from penstock.streams.base.errors import BuildError, describe
from penstock.streams.io.body import NotAValue, json_value
from penstock.streams.temporal.formula.printer import quoted
from penstock.streams.temporal.learning.patterns import MOST_PROPOSITIONS
from penstock.streams.temporal.learning.search import Finding, Learned, learn

__all__ = ["call"]

_NONE, _BAD_LINES = 1, 3

# Of the traces that a formula gets wrong, so many are named.
_MOST_NAMED = 10

_Event = dict[str, Any]
_Traces = dict[Hashable, "array[int]"]


def call(options: Namespace, words: list[str]) -> int:
    """Print the formulas, each with a shortest trace that refutes it.

    Returns 0 if they separate the traces, 1 if none does, 3 if they do and lines were bad, and else
    as `penstock run`. Raises BuildError for propositions that are not valid or too many, and
    without good or bad traces.
    """
    warnings_to_standard_error()
    letters = _Letters(options)
    bad_lines = False
    read: list[_Traces] = []
    both = len(options.table) == 2
    for at, path in enumerate((options.good, options.bad)):
        tables = options.table[at : at + 1] if both else options.table
        traces, status = _read(path, letters, Namespace(**{**vars(options), "table": tables}))
        if status not in (0, _BAD_LINES):
            return status
        if not traces:
            raise BuildError(f"{path} has no traces")
        read.append(traces)
        bad_lines = bad_lines or status == _BAD_LINES
    letters.propositions.mention_unseen("event")
    if not letters.names:
        raise BuildError("there are no propositions: give --prop, --step or --fields")
    good, bad = read
    learned = learn(list(good.values()), list(bad.values()), letters.names)
    text = "".join(f"{line}\n" for line in _lines(learned, good, bad, letters.names))
    unwritten = give(text, options.output)
    if not learned.separates:
        return unwritten or _NONE
    return unwritten or (_BAD_LINES if bad_lines else 0)


class _Letters:
    """From events to letters; `names` are the propositions, more of which may come with events."""

    def __init__(self, options: Namespace) -> None:
        self.propositions = Propositions(options.prop)
        self._tests = self.propositions.tests
        self._step: str | None = options.step
        self._fields: bool = options.fields
        self._by: str | None = options.by
        self.names = list(self._tests)
        self._bits = {name: 1 << at for at, name in enumerate(self.names)}
        self._options = dict.fromkeys(self.names, "--prop")
        self._check()

    def of(self, event: _Event) -> int:
        """The propositions that hold of an event, as bits. Raises BuildError if they are too
        many, or if --step and --fields give one name two meanings."""
        letter = 0
        for name, test in self._tests.items():
            if test(event):
                letter |= self._bits[name]
        if self._step is not None and (value := event.get(self._step)) is not None:
            letter |= self._bit(as_text(value), "--step")
        if self._fields:
            for name, value in event.items():
                if isinstance(value, bool) and name != self._by:
                    bit = self._bit(name, "--fields")
                    letter |= bit if value else 0
        return letter

    def _bit(self, name: str, option: str) -> int:
        """The bit of a name; 0 for one that a --prop defines, which means that only."""
        if name not in self._bits:
            self._bits[name] = 1 << len(self.names)
            self._options[name] = option
            self.names.append(name)
            self._check()
        if self._options[name] == option:
            return self._bits[name]
        if name not in self._tests:
            raise BuildError(
                f"{name!r} is a step of {self._step!r} (--step) and a field (--fields): leave one "
                "of the options out, or say what it means by --prop"
            )
        return 0

    def _check(self) -> None:
        if len(self.names) > MOST_PROPOSITIONS:
            raise BuildError(
                f"more than {MOST_PROPOSITIONS} propositions: {', '.join(self.names)}. Choose some "
                "by --prop"
            )


def _read(path: str, letters: _Letters, options: Namespace) -> tuple[_Traces, int]:
    """The traces of a file by key, or by number from 1, with an exit status."""
    traces: _Traces = {}

    def add(one: tuple[Hashable, list[_Event]]) -> None:
        key, events = one
        if key is None:
            key = len(traces) + 1
        if key not in traces:
            traces[key] = array("I")
        traces[key].extend(map(letters.of, events))

    if options.by is not None:
        events = Events(options, {"--by": options.by}, paths=[path], make=_keyed(options.by))
    elif input_format(options, [path]) != "jsonl" or options.table:
        raise BuildError(f"{path} has no lists of events: say whose each event is by --by FIELD")
    else:
        events = Events(options, {}, paths=[path], make=_list, decode=json_value)
    return traces, events.end(
        execute(events.stream.to(for_each(add)), Options(report=options.report))
    )


def _list(value: Any) -> tuple[Hashable, list[_Event]]:
    events: list[Any] = value
    if type(events) is not list or not events or any(type(one) is not dict for one in events):
        raise NotAValue("is not a trace: a list of one or more events is needed, or --by FIELD")
    return None, events


def _keyed(by: str) -> Callable[[_Event], tuple[Hashable, list[_Event]]]:
    def read(event: _Event) -> tuple[Hashable, list[_Event]]:
        key = event[by]
        if not isinstance(key, str | int | float):
            raise NotAValue(f"has {describe(key)} as {by!r}: a key is needed (--by FIELD)")
        return key, [event]

    return read


def _lines(learned: Learned, good: _Traces, bad: _Traces, names: list[str]) -> Iterable[str]:
    yield (
        f"{len(good):,} good and {counted(len(bad), 'bad trace')}, "
        f"{counted(len(names), 'proposition')}, {counted(learned.tried, 'pattern')} tried"
    )
    if not learned.separates:
        yield "none separates them, and no two together; these get the fewest wrong:"
    for finding in learned.findings:
        yield finding.formula
        yield from _wrong(finding, list(good), list(bad))
        trace = " ".join(
            "{" + ", ".join(map(quoted, sorted(event))) + "}" for event in finding.refutation()
        )
        yield f"    refuted by: {trace}"


def _wrong(finding: Finding, good: list[Hashable], bad: list[Hashable]) -> Iterable[str]:
    for what, numbers, keys in (
        ("fails on good", finding.fails_on_good, good),
        ("holds on bad", finding.holds_on_bad, bad),
    ):
        if numbers:
            named = ", ".join(describe(keys[number]) for number in numbers[:_MOST_NAMED])
            more = len(numbers) - _MOST_NAMED
            yield f"    {what}: {named}" + (f" and {more:,} more" if more > 0 else "")
