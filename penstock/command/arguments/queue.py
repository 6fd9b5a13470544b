"""The arguments of `penstock queue`, one function per action."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from penstock.command.arguments.parsers import (
    AddParser,
    add_input,
    add_report,
    number,
    plain,
    positive,
    seconds,
)
from penstock.streams.base.clock import wall
from penstock.streams.base.validation import moment_of

__all__ = ["add_queue"]

# Of both databases.
_LARGEST = 2**31 - 1
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# Chosen: far from what the times of a database, and those of Python, can have.
_OLDEST_DAYS = 36_500


def add_queue(add_parser: AddParser) -> None:
    """The sub-command with its actions."""
    queue = plain(add_parser, "queue", "inspect and maintain a queue in a database table")
    actions = queue.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, add in _ACTIONS.items():
        add(actions.add_parser, name)


def _add_stats(add_parser: AddParser, name: str) -> None:
    stats = _action(add_parser, name, "show rows by state, rates, times and pollers")
    stats.add_argument(
        "--window",
        type=_span,
        metavar="AGE",
        help="the time over which rates and durations are measured: seconds, or as in 15m, 12h, 7d "
        "(default: 60; with --by: 24h)",
    )
    stats.add_argument(
        "--by",
        choices=("hour", "kind"),
        help="hour: a line per hour, with the trend and the time until the queue is empty; kind: a "
        "line per kind of work",
    )
    stats.add_argument(
        "--kind",
        metavar="FIELD",
        help="with --by kind: the field of the payload, or the column, with the kind",
    )
    stats.add_argument("--plot", metavar="PATH.svg", help="with --by hour: also draw the hours")
    stats.add_argument("--json", action="store_true", help="print one line of JSON")
    stats.add_argument(
        "--watch",
        type=positive,
        nargs="?",
        const=1.0,
        metavar="SECONDS",
        help="update it every second, or every SECONDS",
    )


def _add_peek(add_parser: AddParser, name: str) -> None:
    peek = _action(add_parser, name, "print the first rows in line as JSON lines")
    peek.add_argument(
        "--count", type=number, default=10, metavar="N", help="at most N rows (default: 10)"
    )
    peek.add_argument(
        "--state",
        choices=("waiting", "failed", "in-work", "finished", "dead"),
        default="waiting",
        help="rows in this state: waiting (the default), tried before or not; failed, only those "
        "that failed and will be tried again; in-work; finished; dead, those that failed for good",
    )


def _add_put(add_parser: AddParser, name: str) -> None:
    put = _action(add_parser, name, "enqueue JSON lines: one row for each")
    add_input(put)
    put.add_argument(
        "--at",
        type=_moment,
        metavar="TIME",
        help="no row is due before: in ISO 8601, in local time unless it has a zone; or from now, "
        "as in 15m, 12h, 7d",
    )
    put.add_argument(
        "--priority",
        type=_whole,
        metavar="N",
        help="the priority of the rows: lower numbers are claimed first (default: 0)",
    )
    put.add_argument(
        "--dead-letters",
        metavar="PATH",
        help="append lines that are not JSON, and those that the database refuses, to this file as "
        "dead letters (default: they are counted, and the first ten are shown)",
    )
    add_report(put)


def _add_pause(add_parser: AddParser, name: str) -> None:
    _action(add_parser, name, "let no reader claim anything until 'queue resume'")


def _add_resume(add_parser: AddParser, name: str) -> None:
    _action(add_parser, name, "let the readers of a paused queue go on")


def _add_upgrade(add_parser: AddParser, name: str) -> None:
    _action(add_parser, name, "add what a table lacks that an older version has made")


def _add_replay(add_parser: AddParser, name: str) -> None:
    replay = _action(add_parser, name, "replay the history of a queue with other pollers")
    for option, what in (
        ("pollers", "pollers"),
        ("batch", "rows that a poller claims at once"),
        ("limit", "rows, or calls with all rows of a claim, that a poller works on at once"),
    ):
        replay.add_argument(
            f"--{option}", type=number, metavar="N", help=f"{what} (default: as it was)"
        )
    replay.add_argument(
        "--window",
        type=_span,
        default=86_400.0,
        metavar="AGE",
        help="replay rows that ended this recently: seconds, or as in 15m, 12h, 7d (default: 24h)",
    )
    replay.add_argument("--json", action="store_true", help="print one line of JSON")


def _add_retry(add_parser: AddParser, name: str) -> None:
    retry = _action(add_parser, name, "give rows that failed for good new attempts")
    retry.add_argument(
        "--id",
        nargs="+",
        action="extend",
        metavar="ID",
        help="only these rows, which may also be waiting for their next attempt (default: all that "
        "failed for good)",
    )


def _add_cancel(add_parser: AddParser, name: str) -> None:
    cancel = _action(
        add_parser, name, "cancel rows that wait or are in work, which have then failed for good"
    )
    cancel.add_argument(
        "--id", nargs="+", action="extend", metavar="ID", required=True, help="the ids of the rows"
    )


def _add_purge(add_parser: AddParser, name: str) -> None:
    purge = _action(add_parser, name, "delete rows that finished long ago")
    purge.add_argument(
        "--older-than",
        type=_age,
        required=True,
        metavar="AGE",
        help="only rows that ended at least this long ago: seconds, or as in 15m, 12h, 7d",
    )
    purge.add_argument(
        "--dead", action="store_true", help="rows that failed for good, instead of finished ones"
    )


def _action(add_parser: AddParser, name: str, what: str) -> argparse.ArgumentParser:
    parser = plain(add_parser, name, what)
    parser.add_argument(
        "url", metavar="URL", help="the database: sqlite:///work.db or postgresql://host/name"
    )
    parser.add_argument("--table", default="queue", help="its table (default: queue)")
    parser.add_argument(
        "--column",
        type=_column,
        action="append",
        metavar="OURS=THEIRS",
        help="the name of a queue's column in your own table; may be repeated",
    )
    parser.add_argument(
        "--beside",
        action="store_true",
        help="for a table of your own that has only an id, a payload and a status: the other "
        "columns of the queue are in a table beside it",
    )
    return parser


def _column(text: str) -> tuple[str, str]:
    ours, equals, theirs = text.partition("=")
    if not (ours and equals and theirs):
        raise argparse.ArgumentTypeError(f"{text!r} is not OURS=THEIRS")
    return ours, theirs


def _age(text: str) -> float:
    unit = _UNITS.get(text[-1:])
    try:
        found = seconds(text if unit is None else text[:-1]) * (unit or 1.0)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an age such as 90, 15m, 12h or 7d"
        ) from None
    if found > _OLDEST_DAYS * _UNITS["d"]:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {_OLDEST_DAYS}d")
    return found


def _moment(text: str) -> float:
    """Seconds since 1970."""
    if text[-1:] in _UNITS and "T" not in text and text[0] != "-":
        return wall() + _age(text)
    try:
        # Without a zone it is local time.
        return moment_of(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as 2030-01-31T08:00, nor one from now such as 15m or 12h"
        ) from None


def _whole(text: str) -> int:
    try:
        found = int(text)
    except ValueError:
        found = None
    if found is None or abs(found) > _LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number up to {_LARGEST}")
    return found


def _span(text: str) -> float:
    found = _age(text)
    if not found:
        raise argparse.ArgumentTypeError("more than 0 seconds are needed")
    return found


_ACTIONS: dict[str, Callable[[AddParser, str], None]] = {
    "stats": _add_stats,
    "peek": _add_peek,
    "put": _add_put,
    "replay": _add_replay,
    "retry": _add_retry,
    "cancel": _add_cancel,
    "purge": _add_purge,
    "pause": _add_pause,
    "resume": _add_resume,
    "upgrade": _add_upgrade,
}
