"""The arguments of the sub-commands that need no pipeline file."""

from __future__ import annotations

import argparse
import re
from typing import Literal

from penstock.command.arguments.inputs import FORMATS, add_events
from penstock.command.arguments.parsers import (
    AddParser,
    Parser,
    add_drain_deadline,
    add_output,
    add_report,
    add_rotate,
    add_traceback,
    limit,
    plain,
)

__all__ = ["add_distinct", "add_map"]

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def add_distinct(add_parser: AddParser) -> None:
    distinct = plain(
        add_parser, "distinct", "drop events whose key was seen less than some time before"
    )
    distinct.add_argument("--by", metavar="FIELD", required=True, help="the field with the key")
    distinct.add_argument(
        "--within",
        type=duration,
        metavar="TIME",
        required=True,
        help="how long a key is remembered: seconds, or as in 500ms, 10s, 5m, 1h, 7d",
    )
    distinct.add_argument(
        "--time",
        metavar="FIELD",
        help="the field with the time of an event (default: when it was read)",
    )
    _add_on_error(distinct)
    _add_files(distinct)


def add_map(add_parser: AddParser) -> None:
    mapped = plain(add_parser, "map", "call a function with each event, and write its results")
    mapped.add_argument(
        "function", metavar="FILE:FUNCTION", help="a plain or async function in a Python file"
    )
    mapped.add_argument("--by", metavar="FIELD", help="one event of each key at a time, in order")
    mapped.add_argument(
        "--limit",
        type=_limit,
        default="auto",
        metavar="auto|N|FLOOR:CEILING",
        help="how many calls at once (default: auto, the best number)",
    )
    _add_on_error(mapped)
    add_traceback(mapped)
    _add_files(mapped)


def _add_on_error(parser: Parser) -> None:
    parser.add_argument(
        "--on-error",
        choices=("stop", "skip"),
        default="stop",
        help="end at the first error, or leave such events out (default: stop)",
    )


def _add_files(parser: Parser) -> None:
    add_events(parser)
    parser.add_argument(
        "--position",
        metavar="PATH",
        help="go on where the last run ended: a small file, or with several files a folder",
    )
    add_output(parser)
    parser.add_argument(
        "--to",
        choices=FORMATS,
        help="the format of the results (default: as the output's name, or the events)",
    )
    parser.add_argument("--append", action="store_true", help="append to the output")
    add_rotate(parser)
    add_drain_deadline(parser, "how long work in flight may take after a signal or an error")
    add_report(parser)


def duration(text: str) -> float:
    """Seconds, of a number with or without a unit."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text)
    if found is None or found[2] not in _UNITS or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 500ms, 10s, 5m, 1h or 7d")
    return float(found[1]) * _UNITS[found[2]]


def _limit(text: str) -> tuple[int, int] | Literal["auto"]:
    return "auto" if text == "auto" else limit(text)
