"""The report at the end of a run as one JSON object for programs; `str(report)` is for people."""

from __future__ import annotations

import dataclasses
import json
import sys
from math import isfinite
from typing import Any, cast

from penstock.streams.base.compiled import library
from penstock.streams.base.errors import describe, message_of, notes_of
from penstock.streams.pipelines.running import Report

__all__ = ["as_json"]


def as_json(report: Report, exit_status: int) -> str:
    """One line: `outcome`, `exit_status`, `error` or null, all `statistics`, and the `library`.

    Latencies are in seconds. Values that JSON cannot express, such as a group's key or NaN, are
    written as their `repr`.
    """
    error = report.error
    return json.dumps(
        {
            "outcome": report.outcome,
            "exit_status": exit_status,
            "error": None
            if error is None
            else {
                "type": type(error).__name__,
                "message": message_of(error),
                "notes": notes_of(error),
            },
            "statistics": _finite(report.statistics),
            "library": library(),
        },
        default=_plain,
    )


# Any: whatever is in the statistics.
def _finite(value: Any) -> Any:
    """The value with text for each NaN and infinity, which are not JSON."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in cast("list[Any]", value)]
    return repr(value) if isinstance(value, float) and not isfinite(value) else value


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _finite(dataclasses.asdict(value))
    return describe(value, sys.maxsize)
