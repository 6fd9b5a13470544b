"""The source and the sink of a command that reads and writes JSON lines, CSV or TSV."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from datetime import date, datetime
from functools import partial
from typing import Any

from penstock.sinks.jsonl import write_jsonl
from penstock.sources.jsonl import read_jsonl
from penstock.streams.base.errors import BuildError
from penstock.streams.io.inputs.patterns import files_of
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.stages.sink_stage import Sink

__all__ = ["events", "results"]

_DELIMITERS = {"csv": ",", "tsv": "\t"}
_COMPRESSED = (".gz", ".zst", ".bz2", ".xz")

_TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "date": date,
    "datetime": datetime,
}


def events(options: Namespace) -> Flowable[Any]:
    """The events of the `paths` of the command line, or of standard input, in their `format`.

    Raises BuildError for types that are not known, or that JSON lines are given.
    """
    paths: list[str] = options.paths or ["-"]
    path = paths[0] if len(paths) == 1 else paths
    form = _input_format(options)
    where: dict[str, Any] = {"position": options.position, "order": options.order}
    if form == "jsonl":
        if options.types is not None:
            raise BuildError("--types goes with CSV and TSV: values of JSON have types")
        return read_jsonl(path, **where)
    from penstock.sources.csv import read_csv

    return read_csv(path, delimiter=_DELIMITERS[form], types=_types(options.types), **where)


def results(options: Namespace) -> Sink[Any]:
    """The sink for `output`, or standard output, in the format `to`, or that of the events."""
    path = options.output or "-"
    form = options.to or _by_name(path) or _input_format(options)
    if form == "jsonl":
        return write_jsonl(path, append=options.append)
    from penstock.sinks.csv import write_csv

    return write_csv(path, delimiter=_DELIMITERS[form], append=options.append)


def _input_format(options: Namespace) -> str:
    # Of a pattern, the first file that it matches.
    first = files_of(options.paths[:1])[:1]
    by_name = _by_name(first[0]) if first else None
    return options.format or by_name or "jsonl"


def _by_name(path: str) -> str | None:
    """The format that a name says; None if it says none."""
    for suffix in _COMPRESSED:
        path = path.removesuffix(suffix)
    ending = path.rpartition(".")[2].lower()
    return ending if ending in _DELIMITERS else "jsonl" if ending == "jsonl" else None


def _types(text: str | None) -> dict[str, Callable[[str], Any]] | None:
    if text is None:
        return None
    from penstock.streams.io.inputs.csv_format import reading

    found: dict[str, Callable[[str], Any]] = {}
    for part in text.split(","):
        column, equals, name = part.strip().rpartition("=")
        kind = _TYPES.get(name.removesuffix("?"))
        if not equals or not column or kind is None:
            raise BuildError(
                f"--types {text}: {part.strip()!r} is not COLUMN=TYPE, with one of "
                f"{', '.join(_TYPES)}; with ? behind it an empty field is null"
            )
        if name.endswith("?"):
            found[column] = partial(_or_none, reading("--types", column, kind))
        else:
            found[column] = reading("--types", column, kind)
    return found


def _or_none(function: Callable[[str], Any], text: str) -> Any:
    return function(text) if text else None
