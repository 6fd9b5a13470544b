"""The arguments about the events that a command reads: the same for all that read some."""

from __future__ import annotations

from penstock.command.arguments.parsers import Options, Parser

__all__ = ["FORMATS", "add_event_options", "add_events"]

FORMATS = ("jsonl", "csv", "tsv")


def add_events(parser: Parser) -> None:
    """The paths, which may stand between the options, and the options about what is in them."""
    parser.gathers = True
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="files, patterns and URLs, read one after another; or databases, as in "
        "sqlite:///work.db or postgresql://host/name (default: standard input)",
    )
    add_event_options(parser)


def add_event_options(parser: Options) -> None:
    """The options, of a command whose paths are arguments of their own."""
    parser.add_argument(
        "--order",
        choices=("name", "time"),
        help="read the files by name or by time (default: as they are given)",
    )
    parser.add_argument(
        "--input-format",
        choices=FORMATS,
        help="the format of the events (default: as the first file's name says, or jsonl)",
    )
    parser.add_argument(
        "--types",
        metavar="COLUMN=TYPE[,...]",
        help="of CSV and TSV: int, float, bool, date or datetime; with ? an empty field is null "
        "(default: texts)",
    )
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="NAME",
        help="the tables or views of a database; of several databases, one for all or one for each",
    )
