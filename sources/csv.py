r"""Read CSV: one event for each row, a dict by the names of the columns, or an object.

Items:   a dict for each row, in order, whose values are texts, or of the `types` of the columns;
         with a dataclass or a function as `types`, an object. The first row has the names of the
         columns, unless `columns` are given. Rows are those of RFC 4180: a field in quotation
         marks may have line breaks, delimiters and doubled quotation marks. Blank lines are
         ignored, and so is a UTF-8 byte-order mark.
Time:    as for `read_jsonl`.
Memory:  the rows of one read of at most 256 KiB, an unfinished row of at most `max_line`; with
         `position`, a number for each unfinished row.
Demand:  the input is opened at the first request and read only when there is demand and every
         row already read is out. Bad rows cost no demand.
Ends:    with the input; a followed file never ends. Cancel closes the input. Drain reads no more;
         rows that were read and cannot be read again (a pipe's) still go out. With `position`, the
         next run begins with the first row that was not finished, and knows the names of the
         columns.
Errors:  a row with another number of fields than the header, or with a text that is not of its
         type, and a line whose quotation mark is not closed, is a bad line: it is reported with the
         number of its row and counted (`on_bad_line="report"`), ends the stream with BadLine
         ("stop"), or goes to a sink of dead letters (`route(sink)`). A header that names a column
         twice, or lacks one that has a type, is CannotOpen; so is an input that cannot be opened,
         or does not match the position. One that breaks while it is read is InputCorrupt or the
         system's OSError.

    bytes      --id,n\n7,x\n--|
    read_csv   ---------a-----|     {"id": "7", "n": "x"}
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.streams.base.keys import By
from penstock.streams.base.recorded import recorded
from penstock.streams.failures.policy import OnBadInput
from penstock.streams.io.inputs.csv_format import Types, csv_format
from penstock.streams.io.inputs.patterns import Order
from penstock.streams.io.line_source import LineOptions, read_lines_as
from penstock.streams.io.paths import Paths
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.stages.source_stage import source

if TYPE_CHECKING:
    from penstock.streams.state.store import Store

__all__ = ["read_csv"]

T = TypeVar("T")


@overload
def read_csv(
    path: Paths = "-",
    follow: bool = False,
    created: By[dict[str, Any]] | None = None,
    on_bad_line: OnBadInput = "report",
    max_line: int = 16 * 1024 * 1024,
    *,
    delimiter: str = ",",
    columns: Sequence[str] | None = None,
    types: Mapping[str, Any] | None = None,
    position: str | os.PathLike[str] | Store | None = None,
    order: Order | None = None,
) -> Flowable[dict[str, Any]]: ...


@overload
def read_csv(
    path: Paths = "-",
    follow: bool = False,
    created: By[T] | None = None,
    on_bad_line: OnBadInput = "report",
    max_line: int = 16 * 1024 * 1024,
    *,
    delimiter: str = ",",
    columns: Sequence[str] | None = None,
    types: type[T] | Callable[[dict[str, str]], T],
    position: str | os.PathLike[str] | Store | None = None,
    order: Order | None = None,
) -> Flowable[T]: ...


@recorded
@source
def read_csv(
    path: Paths = "-",
    follow: bool = False,
    created: By[Any] | None = None,
    on_bad_line: OnBadInput = "report",
    max_line: int = 16 * 1024 * 1024,
    *,
    delimiter: str = ",",
    columns: Sequence[str] | None = None,
    types: Types = None,
    position: str | os.PathLike[str] | Store | None = None,
    order: Order | None = None,
) -> Flowable[Any]:
    r"""Read rows of CSV from files, a pipe or standard input.

    `delimiter` is one character: `"\t"` for TSV. `columns` are the names of the columns of a file
    whose first row has none. `types` are the types of columns by name, where they are not texts:
    int, float, bool, Decimal, date or datetime, one of these `| None` (an empty text is None), or a
    function of the text; or it is a dataclass, whose fields are the columns, others being left out;
    or a function that makes a value of a dict of texts. All other arguments are those of
    `read_jsonl`; `max_line` is that of a whole row.

    Raises BuildError for options that cannot be combined, MissingExtra for `.zst` without the extra
    `zstd` and for a URL without `objects`.

    >>> import os
    >>> from penstock import for_each, read_csv, run
    >>> reading, writing = os.pipe()
    >>> os.write(writing, b"id,price\n7,1.5\n"), os.close(writing)
    (15, None)
    >>> report = run(read_csv(reading, types={"price": float}).to(for_each(print)))
    {'id': '7', 'price': 1.5}
    >>> os.close(reading)
    """
    row_format = csv_format("read_csv", delimiter, columns, types)
    options = LineOptions(path, follow, created, on_bad_line, max_line, position, order)
    return Flowable.like(read_lines_as("read_csv", row_format, options))
