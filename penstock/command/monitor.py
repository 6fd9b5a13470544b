"""`penstock monitor`: reports violations of a temporal formula in a stream of JSON lines."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from reactivex import operators as ops

from penstock.command.run import Options, execute, warnings_to_standard_error
from penstock.operators.violations import violations
from penstock.sinks.jsonl import write_jsonl
from penstock.sources.jsonl import read_jsonl
from penstock.streams.clock import clock_of, running_loop, wall
from penstock.streams.errors import BuildError
from penstock.streams.temporal.monitors.violation import Violation

__all__ = ["call", "proposition"]

_VIOLATED = 1
_FINE, _BAD_LINES = 0, 3

_Event = dict[str, Any]


def call(options: Namespace, words: list[str]) -> int:
    """Print a line of JSON for each violation.

    Returns 0 if there was none, 1 if there was one, else as `penstock run` does. Raises BuildError
    for an invalid formula or proposition.
    """
    if words:
        raise BuildError(f"monitor takes nothing after `--`: {' '.join(words)}")
    warnings_to_standard_error()
    found = 0

    def clock() -> float:
        """What to add to a time of the loop to have seconds since 1970."""
        return wall() - clock_of(running_loop())()

    def shown(violation: Violation[_Event]) -> dict[str, Any]:
        nonlocal found
        found += 1
        return _as_dict(violation, None if options.time else clock())

    pipeline = (
        read_jsonl()
        .pipe(
            violations(
                options.formula,
                options.by,
                mode=options.mode,
                evidence=options.evidence,
                restart=options.restart,
                strict=not options.fields,
                time=options.time,
                lateness=options.lateness,
                on_error="skip",
                where=dict(map(proposition, options.prop)),
            ),
            ops.map(shown),
        )
        .to(write_jsonl())
    )
    status = execute(pipeline, Options(options.input, options.output, report=options.report))
    return _VIOLATED if found and status in (_FINE, _BAD_LINES) else status


def proposition(text: str) -> tuple[str, Callable[[_Event], bool]]:
    """`NAME=FIELD:VALUE`, or `NAME=FIELD` for a field that is true."""
    name, equals, what = text.partition("=")
    field, colon, value = what.partition(":")
    if not name or not equals or not field:
        raise BuildError(f"--prop {text}: it should be NAME=FIELD:VALUE, or NAME=FIELD")
    if colon:
        return name, lambda event: field in event and _as_text(event[field]) == value
    return name, lambda event: bool(event.get(field))


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _as_dict(violation: Violation[_Event], since_1970: float | None) -> dict[str, Any]:
    """`since_1970` is what a deadline lacks to be in seconds since then, if it is no time of the
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
