"""`penstock monitor`: reports violations of a temporal formula in a stream of events."""

from __future__ import annotations

import json
import logging
from argparse import Namespace
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from reactivex import operators as ops

from penstock.command.inputs.events import Events
from penstock.command.output import mention
from penstock.command.pipelines.options import Options
from penstock.command.pipelines.run import execute, nothing_beside, warnings_to_standard_error
from penstock.command.temporal.monitor_picture import MonitorPicture
from penstock.command.temporal.propositions import Propositions
from penstock.operators.violations import violations_of
from penstock.sinks.jsonl import write_jsonl
from penstock.streams.base.ahead import MAX_AHEAD
from penstock.streams.base.clock import clock_of, running_loop, wall
from penstock.streams.base.errors import BuildError
from penstock.streams.monitoring.watching import Rule, Watched
from penstock.streams.temporal.monitors.violation import Violation

__all__ = ["call"]

_VIOLATED = 1
_FINE, _BAD_LINES = 0, 3

_Event = dict[str, Any]


def call(options: Namespace, words: list[str]) -> int:
    """Print a line of JSON for each violation.

    Returns 0 if there was none, 1 if there was one, else as `penstock run` does. Raises BuildError
    for an invalid formula or proposition.
    """
    warnings_to_standard_error()
    # How a weak `next` is read.
    logging.getLogger("penstock").setLevel(logging.INFO)
    found = 0

    def clock() -> float:
        """The seconds to add to a time of the loop to have seconds since 1970."""
        return wall() - clock_of(running_loop())()

    def shown(violation: Violation[_Event]) -> dict[str, Any]:
        nonlocal found
        found += 1
        return _as_dict(violation, None if options.time else clock())

    def begun(watch: Watched) -> None:
        if picture is not None:
            picture.begin(watch)

    propositions = Propositions(options.prop)
    rule = _rule(options, propositions, begun)
    beside = nothing_beside
    picture: MonitorPicture | None = None
    if options.draw is not None:
        picture = MonitorPicture(options.draw, rule.monitor, rule.text)
        beside = picture.kept
    events = Events(options, {"--by": options.by, "--time": options.time})
    pipeline = events.stream.pipe(violations_of(rule, "skip"), ops.map(shown)).to(write_jsonl())
    where = Options(output=options.output, report=options.report)
    status = events.end(execute(pipeline, where, beside))
    # The events of a key that come after its violation are not tested.
    propositions.mention_unseen("event that was judged")
    if picture is not None:
        for text in options.key:
            if not picture.has_seen(_keys(text)):
                mention(f"--key {text}: no event had this key")
    return _VIOLATED if found and status in (_FINE, _BAD_LINES) else status


def _rule(options: Namespace, propositions: Propositions, begun: Callable[[Watched], None]) -> Rule:
    if options.draw is not None and not options.draw.endswith(".svg"):
        raise BuildError(f"--draw {options.draw}: the picture is SVG, so give a name in .svg")
    if options.key and (options.draw is None or options.by is None):
        raise BuildError("--key marks a key in the picture: it goes with --draw and --by")
    if options.time is None and (options.lateness or "max_ahead" in options):
        raise BuildError("--lateness and --max-ahead are about the times of --time, so give that")
    return Rule(
        stage="violations",
        formula=options.formula,
        by=options.by,
        mode=options.mode,
        evidence=options.evidence,
        idle=None,
        max_keys=None,
        restart=options.restart,
        strict=not options.fields,
        tests=propositions.tests,
        time=options.time,
        lateness=options.lateness,
        max_ahead=getattr(options, "max_ahead", MAX_AHEAD),
        follow=frozenset(key for text in options.key for key in _keys(text)),
        begun=begun,
    )


def _keys(text: str) -> Iterator[Any]:
    """The keys that a text may stand for: `17` for the number and the text."""
    yield text
    try:
        value = json.loads(text)
    except ValueError:
        return
    if isinstance(value, Hashable):
        yield value


def _as_dict(violation: Violation[_Event], since_1970: float | None) -> dict[str, Any]:
    """`since_1970` is what a deadline lacks to be in seconds since then, if it is not a time of the
    events' own."""
    evidence = [sorted(one) if isinstance(one, frozenset) else one for one in violation.evidence]
    shown = {
        "formula": violation.formula,
        "key": violation.key,
        "index": violation.index,
        "verdict": violation.verdict.value,
        "at_end": violation.at_end,
        "evidence": evidence,
        "truncated": violation.truncated,
    }
    if violation.deadline is not None:
        deadline = violation.deadline
        shown["deadline"] = deadline if since_1970 is None else round(deadline + since_1970, 3)
        shown["opened"] = violation.opened
        if violation.left is not None:
            shown["left"] = violation.left
    return shown
