"""The events that a command reads, as its options say."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reactivex import operators as ops

from penstock.command.inputs.field_option import FieldOption
from penstock.command.inputs.formats import DELIMITERS, format_of, types_of
from penstock.sources.jsonl import json_lines_as
from penstock.streams.base.database_url import redacted
from penstock.streams.base.errors import BuildError, describe
from penstock.streams.io.body import json_object, text_of
from penstock.streams.io.inputs.patterns import files_of, listed
from penstock.streams.io.line_source import MAX_LINE, LineOptions, read_lines_as
from penstock.streams.pipelines.flowable import Flowable

__all__ = ["Events", "input_format", "input_name", "inputs_of"]

# Two names or more, as in a header of CSV.
_NAMES = r'"?[A-Za-z_][\w .-]*"?(,"?[A-Za-z_][\w .-]*"?)+'

_DATABASES = ("sqlite:", "postgresql:", "postgres:")


class Events:
    """The events of `paths`, by default those of the command line or of standard input.

    `stream` has those with all of the `fields` that options name, by the option; `end` reports the
    others. `make` makes a value of each, or raises NotAValue for a bad one; of a line of JSON it
    gets what `decode` returns. With `columns`, a table is read with only these, and the values are
    those of the database, otherwise as JSON has them. Files of CSV and tables must have all fields
    and columns.

    Raises BuildError for options that do not go together, and MissingExtra.
    """

    def __init__(
        self,
        options: Namespace,
        fields: Mapping[str, str | None],
        *,
        paths: Sequence[str] | None = None,
        make: Callable[[Any], Any] | None = None,
        decode: Callable[[bytes], Any] = json_object,
        columns: Sequence[str] | None = None,
    ) -> None:
        self._fields = [FieldOption(option, name) for option, name in fields.items() if name]
        needed = [*(name for name in fields.values() if name), *(columns or ())]
        given = _paths(options) if paths is None else list(paths)
        made = None if make is None else self._making(make)
        self.stream: Flowable[Any]
        if any(map(_is_database, given)):
            from penstock.command.inputs.tables import read_tables

            _check_tables(options, given)
            self.stream = read_tables(
                *(given, options.table, needed, made),
                order=getattr(options, "time", None),
                only=columns is not None,
            )
        else:
            self.stream = _of_files(options, given, needed, made, decode)
        if self._fields:
            has_all = self._has_all if make is None else _is_there
            self.stream = self.stream.pipe(ops.filter(has_all))

    def end(self, status: int) -> int:
        """Report how many events lacked a field; the exit status, 3 in place of 0 if any did."""
        for field in self._fields:
            status = field.end(status)
        return status

    def _has_all(self, event: Any) -> bool:
        # Each counts the events that lack it.
        return not [field for field in self._fields if not field.is_in(event)]

    def _making(self, make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        if not self._fields:
            return make
        return lambda event: make(event) if self._has_all(event) else None


def _is_there(value: object) -> bool:
    return value is not None


def _of_files(
    options: Namespace,
    paths: list[str],
    needed: list[str],
    make: Callable[[Any], Any] | None,
    decode: Callable[[bytes], Any],
) -> Flowable[Any]:
    if options.table:
        raise BuildError("--table needs the URL of a database, such as sqlite:///work.db")
    path = paths[0] if len(paths) == 1 else paths
    form = input_format(options, paths)
    if form in DELIMITERS:
        from penstock.command.inputs.csv_lines import csv_lines

        name = "read_csv"
        types: dict[str, Any] = dict.fromkeys(needed, str)
        lines = csv_lines(DELIMITERS[form], {**types, **types_of(options.types)}, make)
    elif options.types is not None:
        raise BuildError("--types goes with CSV and TSV: values of JSON have types")
    else:
        name = "read_jsonl"
        lines = json_lines_as(None if make is None else lambda line: make(decode(line)))
        if options.input_format is None and path == "-":
            lines = lines._replace(foreign=_columns)
    position = getattr(options, "position", None)
    about = LineOptions(path, False, None, "report", MAX_LINE, position, options.order)
    return Flowable.like(read_lines_as(name, lines, about))


def _columns(line: bytes) -> str:
    """What is wrong with a first line that has the names of columns; "" for any other."""
    for form, delimiter in DELIMITERS.items():
        if re.fullmatch(_NAMES.replace(",", delimiter).encode(), line.strip()):
            return (
                f"does not begin with a line of JSON, but with {describe(text_of(line.strip()))}: "
                f"give --input-format {form} if these are the names of its columns"
            )
    return ""


def _check_tables(options: Namespace, urls: list[str]) -> None:
    """Refuse what is of files, and would be ignored."""
    if files := [url for url in urls if not _is_database(url)]:
        raise BuildError(f"{redacted(urls[0])} is a database, and {files[0]} is not: read one only")
    for option in ("input_format", "types", "order", "position"):
        if (given := getattr(options, option, None)) is not None:
            name = f"--{option.replace('_', '-')}"
            raise BuildError(f"{name} {given} is of files; {redacted(urls[0])} is a database")
    if len(options.table) not in (1, len(urls)):
        raise BuildError(
            f"{redacted(urls[0])}: say which table by --table NAME; of several databases, one for "
            "all or one for each"
        )


def _paths(options: Namespace) -> list[str]:
    paths = options.paths or ["-"]
    # Tables of one database.
    return paths * max(1, len(options.table)) if len(paths) == 1 else paths


def _is_database(path: str) -> bool:
    return path.lower().startswith(_DATABASES)


def input_format(options: Namespace, paths: Sequence[str] | None = None) -> str:
    """The format of the events: `jsonl`, also that of a table, or one with columns."""
    given = _paths(options) if paths is None else paths
    if any(map(_is_database, given)):
        return "jsonl"
    # Of a pattern, the first file that it matches.
    first = files_of(given[:1])[:1]
    by_name = format_of(first[0]) if first else None
    return options.input_format or by_name or "jsonl"


def inputs_of(options: Namespace) -> dict[str, Namespace]:
    """Each path of the command line by a name, with options that have this path alone.

    A file is named without its folder and ending, a table as such; where two would have one name,
    each is named in full.
    """
    paths = _paths(options)
    if any(map(_is_database, paths)):
        _check_tables(options, paths)
    tables = options.table * (len(paths) if len(options.table) == 1 else 1)
    names = tables or [os.path.basename(path).partition(".")[0] or path for path in paths]
    if len(set(names)) < len(names):
        pairs = zip(tables, map(redacted, paths), strict=True) if tables else ()
        names = [" in ".join(pair) for pair in pairs] or paths
    if len(set(names)) < len(names):
        raise BuildError(f"an input is given twice: {', '.join(names)}")
    whole = vars(options)
    return {
        name: Namespace(**{**whole, "paths": [path], "table": tables[at : at + 1]})
        for at, (name, path) in enumerate(zip(names, paths, strict=True))
    }


def input_name(options: Namespace) -> str:
    """What the events of the command line are read from, for messages."""
    paths = _paths(options)
    if options.table:
        return ", ".join(options.table)
    return "standard input" if paths == ["-"] else listed(paths)
