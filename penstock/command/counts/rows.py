"""The rows to count, and what the texts of a file without types mean."""

from __future__ import annotations

from argparse import Namespace
from decimal import Decimal, InvalidOperation
from typing import Any

from penstock.command.inputs.events import Events, input_format
from penstock.command.pipelines.options import Options
from penstock.command.pipelines.run import execute, warnings_to_standard_error
from penstock.sinks.collect import collect
from penstock.streams.base.validation import moment_of

__all__ = ["Row", "as_number", "read_rows"]

Row = dict[str, Any]

# As PostgreSQL, MySQL and pandas export the end of a row that has none.
_OPEN = ("", "NULL", "null", "\\N", "NaT")


def read_rows(options: Namespace) -> tuple[list[Row], int]:
    """All rows, with the exit status of reading them. Raises BuildError."""
    warnings_to_standard_error()
    names = (options.begin, options.end, options.by, options.of)
    wanted = list(dict.fromkeys(name for name in names if name is not None))
    rows: list[Row] = []
    stream = Events(options, {}, columns=wanted).stream
    status = execute(stream.to(collect(rows)), Options(report=options.report))
    if input_format(options) != "jsonl":
        _read_texts(rows, options)
    return rows, status


def as_number(text: str) -> Any:
    """An int or a Decimal; the text itself if it is neither."""
    for kind in (int, Decimal):
        try:
            return kind(text)
        except (ValueError, InvalidOperation):
            continue
    return text


def _read_texts(rows: list[Row], options: Namespace) -> None:
    """Give texts the values that they mean, where no type was given by `--types`."""
    if options.of is not None:
        for row in rows:
            if isinstance(text := row[options.of], str):
                row[options.of] = as_number(text)
    begin, end = options.begin, options.end
    texts = {row[end] for row in rows}.difference(_OPEN).union(row[begin] for row in rows)
    meant = {text: as_number(text) for text in texts if text and isinstance(text, str)}
    # A date without hyphens could be a number, too: the columns are all one or all the other, and
    # bad rows do not decide which.
    dates = sum(_is_date(text) for text, number in meant.items() if isinstance(number, str))
    if dates and dates >= sum(
        not isinstance(number, str) and not _is_date(text) for text, number in meant.items()
    ):
        meant = {}
    begins, ends = {**meant, "": None}, {**meant, **dict.fromkeys(_OPEN)}
    for row in rows:
        row[begin] = begins.get(row[begin], row[begin])
        row[end] = ends.get(row[end], row[end])


def _is_date(text: str) -> bool:
    try:
        moment_of(text)
    except ValueError:
        return False
    return True
