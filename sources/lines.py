r"""Read lines of plain text: one event for each line, or whatever `decode` returns.

Items:   each line as a str, without its end, in order; empty ones too. With `decode`, what it
         returns. Lines end with `\n` or `\r\n`, the last one may lack it; a UTF-8 byte-order mark
         is ignored.
Time:    as for `read_jsonl`.
Memory:  the lines of one read of at most 256 KiB, an unfinished line of at most `max_line`; with
         `position`, a number for each unfinished line; with `follow`, a descriptor for each file
         that had the name and is not read yet.
Demand:  the input is opened at the first request and read only when there is demand and every
         line already read is out. Bad lines cost no demand.
Ends:    with the input; a followed file never ends. Cancel closes the input. Drain reads no more;
         lines that were read and cannot be read again (a pipe's) still go out. With `position`, the
         next run begins with the first line that was not finished.
Errors:  a line that is not UTF-8, that `decode` refuses, or that is too long, is not an event: it
         is reported with its number and counted (`on_bad_line="report"`), ends the stream with
         BadLine ("stop"), or goes to a sink of dead letters (`route(sink)`). An input that cannot
         be opened, or does not match the position, is CannotOpen; one that breaks while it is read
         is InputCorrupt or the system's OSError.

    bytes        --a\nb--c\n---|
    read_lines   --a----(bc)---|     "a", "bc"
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.streams.base.keys import By
from penstock.streams.base.recorded import recorded
from penstock.streams.failures.policy import OnBadInput
from penstock.streams.io.body import NotAValue
from penstock.streams.io.inputs.patterns import Order
from penstock.streams.io.line_format import Format, decoding
from penstock.streams.io.line_source import LineOptions, read_lines_as
from penstock.streams.io.lines import Line, TooLong
from penstock.streams.io.paths import Paths
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.stages.source_stage import source

if TYPE_CHECKING:
    from penstock.streams.state.store import Store

__all__ = ["read_lines"]

T = TypeVar("T")


@overload
def read_lines(
    path: Paths = "-",
    follow: bool = False,
    created: By[str] | None = None,
    on_bad_line: OnBadInput = "report",
    max_line: int = 16 * 1024 * 1024,
    *,
    position: str | os.PathLike[str] | Store | None = None,
    order: Order | None = None,
) -> Flowable[str]: ...


@overload
def read_lines(
    path: Paths = "-",
    follow: bool = False,
    created: By[T] | None = None,
    on_bad_line: OnBadInput = "report",
    max_line: int = 16 * 1024 * 1024,
    *,
    decode: type[T] | Callable[[bytes], T],
    position: str | os.PathLike[str] | Store | None = None,
    order: Order | None = None,
) -> Flowable[T]: ...


@recorded
@source
def read_lines(
    path: Paths = "-",
    follow: bool = False,
    created: By[Any] | None = None,
    on_bad_line: OnBadInput = "report",
    max_line: int = 16 * 1024 * 1024,
    *,
    decode: Callable[[bytes], Any] | None = None,
    position: str | os.PathLike[str] | Store | None = None,
    order: Order | None = None,
) -> Flowable[Any]:
    """Read lines of text from a file, a pipe or standard input.

    All arguments are those of `read_jsonl`. Another encoding is a `decode`: `read_lines(path,
    decode=lambda line: line.decode("latin-1"))`. Raises BuildError for options that cannot be
    combined, MissingExtra for `.zst` without the extra `zstd` and for a URL without `objects`.

    >>> import os
    >>> from penstock import for_each, read_lines, run
    >>> reading, writing = os.pipe()
    >>> os.write(writing, b"a line"), os.close(writing)
    (6, None)
    >>> report = run(read_lines(reading).to(for_each(print)))
    a line
    >>> os.close(reading)
    """
    line_format = (
        Format(_text, _texts, skips_blank=False)
        if decode is None
        else decoding("read_lines", decode, skips_blank=False)
    )
    options = LineOptions(path, follow, created, on_bad_line, max_line, position, order)
    return Flowable.like(read_lines_as("read_lines", line_format, options))


def _texts(lines: list[Line]) -> list[str] | None:
    texts: list[str] = []
    try:
        for line in lines:
            if isinstance(line, TooLong):
                return None
            texts.append(line.removesuffix(b"\r").decode())
    except UnicodeDecodeError:
        return None
    return texts


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise NotAValue(f"is not valid UTF-8 ({error.reason} at byte {error.start + 1})") from error
