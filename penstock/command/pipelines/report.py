"""The report at the end of a run as one JSON object for programs; `str(report)` is for people."""

from __future__ import annotations

import dataclasses
import json

from penstock.streams.runtime.running import Report

__all__ = ["as_json"]


def as_json(report: Report, exit_status: int) -> str:
    """One line: `outcome`, `exit_status`, `error` or null, and all `statistics`.

    Latencies are in seconds. Values that JSON cannot express, such as a group's key, are written as
    their `repr`.
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
                "message": str(error),
                "notes": getattr(error, "__notes__", []),
            },
            "statistics": report.statistics,
        },
        default=_plain,
    )


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return repr(value)
