r"""Write each value as a row of CSV.

Items:   one row for each event, in order, ended by `\n`, after a row with the names of the columns:
         those given, or those of the first value. Values are dicts, dataclasses, msgspec Structs or
         pydantic models. A field with a delimiter, a quotation mark or a line break is written in
         quotation marks (RFC 4180); None is empty, dates and UUIDs are text, lists and dicts JSON.
Time:    a batch is written when it has 64 KiB or 512 events, or at the end of the loop iteration. A
         full pipe or socket never blocks the loop; a regular file is written on the loop.
Memory:  at most 1,024 events and their rows.
Demand:  1,024 at first, then one for each event whose row is written; so a slow reader slows the
         pipeline.
Ends:    events are finished when the system has taken the whole batch that has their rows, because
         a row may have line breaks. At the end of the stream, also by an error, accepted events are
         still written. On cancel the rest of a partly written batch is written if there is room for
         it within a second; events not written are returned. A file is closed, standard output and
         descriptors stay open.
Errors:  a value that cannot be encoded, or has names that are not columns, fails its event: the
         pipeline stops, or `on_error="skip"` or `route(sink)` go on. A file to append to whose
         header has other columns than those given is CannotOpen, and so is an output
         that cannot be opened. A full disk is the system's OSError, and the rows that it cut off
         are removed again; a reader that has closed the pipe ends the pipeline as OutputClosed,
         which is not a failure.

    source      --a-----------b----|
    write_csv   --id,n\n7,x\n-8,y\n|     a is {"id": 7, "n": "x"}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.streams.base.errors import BuildError, CannotOpen
from penstock.streams.base.recorded import recorded
from penstock.streams.failures.policy import OnError, check_policy
from penstock.streams.io.compression import check_suffix
from penstock.streams.io.csv_encoding import RowEncoder
from penstock.streams.io.csv_end import first_row
from penstock.streams.io.inputs.csv_format import check_delimiter
from penstock.streams.io.line_sinks import described, writing
from penstock.streams.io.paths import (
    Path,
    actual_output,
    check_rotation,
    output_name,
    rotation_for,
)
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

__all__ = ["write_csv"]


@recorded
def write_csv(
    path: Path = "-",
    *,
    delimiter: str = ",",
    columns: Sequence[str] | None = None,
    append: bool = False,
    rotate: str | None = None,
    on_error: OnError = "stop",
) -> Sink[Any]:
    r"""Write rows of CSV to a file, a pipe or standard output.

    `delimiter` is one character: `"\t"` for TSV. `columns` are the names of the columns, in order
    (default: those of the first value, or of the file to append to). A value that lacks a column
    has an empty field there. With `append` the header is written only if the file is empty; with
    `rotate` each file has it. All other arguments are those of `write_jsonl`.

    Raises BuildError for wrong options, MissingExtra for `.zst` without the extra `zstd`.

    >>> from penstock import from_iterable, write_csv
    >>> print(from_iterable([{"id": 1}]).to(write_csv("orders.csv")))
    <Pipeline from_iterable > write_csv>
    """
    check_policy(on_error, "write_csv")
    check_suffix(output_name(path))
    check_rotation("write_csv", path, rotate)
    check_delimiter("write_csv", delimiter)
    if columns is not None:
        # Any: what a user may give.
        given: Any = columns
        named = isinstance(given, Sequence) and not isinstance(given, str | bytes)
        if not named or not columns or not all(type(one) is str for one in columns):
            raise BuildError(f"write_csv(columns={columns!r}): the names of columns are needed")
    return _Rows(path, delimiter, columns, append, rotate, on_error)


class _Rows(Sink[Any]):
    def __init__(
        self,
        path: Path,
        delimiter: str,
        columns: Sequence[str] | None,
        append: bool,
        rotate: str | None,
        on_error: OnError,
    ) -> None:
        self.info = described("write_csv", path, append, rotate, on_error)
        self._path = path
        self._delimiter = delimiter
        self._columns = columns
        self._append = append
        self._rotate = rotate
        self._on_error: OnError = on_error

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        path, encode = self._path, RowEncoder(self._columns, self._delimiter)
        rotation = rotation_for(path, self._rotate)
        # The stage writes that of each file.
        encode.has_header = rotation is not None
        stage = writing(
            run,
            closed,
            path,
            encode,
            self._on_error,
            rotation,
            append=self._append,
            delimiter=self._delimiter,
            header=encode.header,
        )
        appends = self._append or rotation is not None
        found = first_row(actual_output(path), self._delimiter) if appends else None
        if found is not None:
            if encode.columns is not None and encode.columns != found:
                raise CannotOpen(
                    f"Cannot append to {output_name(path)}: its columns are "
                    f"{', '.join(found)}, and not {', '.join(encode.columns)}."
                )
            encode.columns, encode.has_header = found, True
        return stage
