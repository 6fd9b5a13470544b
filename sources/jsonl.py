r"""Read JSON lines: one event for each line that is a JSON object, or whatever `decode` returns.

Items:   the object of each line, in order, as a dict; an integer beyond 64 bits is a float. With
         `decode`, what it returns. Lines end with `\n` or `\r\n`, the last one may lack it; a
         UTF-8 byte-order mark before a line, and blank lines, are ignored. Lists and objects may
         be nested 254 levels deep, as deep as the sinks write them.
Time:    as the bytes come; an event is stamped with the time its bytes were read, or with its own
         time (`created`). A followed file is polled every quarter of a second while it has nothing
         new. Between lines the source yields to the loop every few milliseconds. Pipes, sockets and
         terminals are read when they are ready, and never block the loop. A regular file is read on
         the loop, at most 256 KiB at a time, for as long as its disk takes: a hanging network file
         system blocks the loop (`cat file |` does not). An object is read by a thread.
Memory:  the lines of one read of at most 256 KiB, an unfinished line of at most `max_line`; with
         `position`, a number for each unfinished line; with `follow`, a descriptor for each file
         that had the name and is not read yet.
Demand:  the input is opened at the first request and read only when there is demand and every
         line already read is out. Bad lines cost no demand.
Ends:    with the input; a followed file never ends. Cancel closes the input. Drain reads no more;
         lines that were read and cannot be read again (a pipe's) still go out. With `position`, the
         next run begins with the first line that was not finished.
Errors:  a line that is not a JSON object, that `decode` refuses, or that is too long, is not an
         event: it is reported with its number and counted (`on_bad_line="report"`), ends the stream
         with BadLine ("stop"), or goes to a sink of dead letters (`route(sink)`). An input that
         cannot be opened, or does not match the position, is CannotOpen; one that breaks while it
         is read is InputCorrupt or the system's OSError.

    bytes        --{}\n{--}\n---x\n---|
    read_jsonl   --a-------b----------|     "x" is reported
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from orjson import JSONDecodeError, loads

from penstock.streams.base.keys import By
from penstock.streams.base.recorded import recorded
from penstock.streams.failures.policy import OnBadInput
from penstock.streams.io.body import SHALLOW, NotAValue, is_too_deep, json_value
from penstock.streams.io.inputs.patterns import Order
from penstock.streams.io.line_format import Format, decoding
from penstock.streams.io.line_source import LineOptions, read_lines_as
from penstock.streams.io.lines import Line
from penstock.streams.io.paths import Paths
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.stages.source_stage import source

if TYPE_CHECKING:
    from penstock.streams.state.store import Store

__all__ = ["json_lines_as", "read_jsonl"]

T = TypeVar("T")


@overload
def read_jsonl(
    path: Paths = "-",
    follow: bool = False,
    created: By[dict[str, Any]] | None = None,
    on_bad_line: OnBadInput = "report",
    max_line: int = 16 * 1024 * 1024,
    *,
    position: str | os.PathLike[str] | Store | None = None,
    order: Order | None = None,
) -> Flowable[dict[str, Any]]: ...


@overload
def read_jsonl(
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
def read_jsonl(
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
    """Read events from a file, a pipe or standard input.

    `path` is a file's name, "-" for standard input, or an open descriptor, which stays open; or a
    pattern such as `logs/*.gz`, or a list of paths; or the URL of an object (`s3://...`,
    `https://...`), which is read through fsspec. Several files are read one after another: those
    of a list in its order, of a pattern by name, digits as numbers; with `order="name"` or
    `order="time"` (of the last change) all in that order. A name that ends in `.gz`, `.zst`,
    `.bz2` or `.xz`, or content that begins as these do, is decompressed.

    `follow` keeps reading as a file grows. After it was replaced, as by log rotation, it is read on
    until it has not grown for 5 seconds, and then the new file; one that was emptied or written
    anew is read from its start. `created` is the field or function that gives an event's time of
    creation: seconds since 1970 or ISO 8601, UTC if it names no zone; an event without one, or with
    one in the future, counts as created when it was received. `max_line` is in bytes.

    `decode` converts the bytes of a line to a value: a function, a msgspec Struct, a pydantic
    model, or a decoder of either; a line for which it raises is a bad line. `position` is the path
    of a small file that records how far everything is finished, where the next run continues: after
    a kill at any moment nothing is lost, and only unfinished lines are repeated. With several files
    it is a folder, and the next file is begun when the one before is finished. In a compressed file
    all before the position is decompressed again. It is refused for pipes, for a file that has
    become shorter or has other content than was read, for an object that was replaced (of several
    it is read from its start), with `follow` for a copy that no rotation has made, and while
    another run uses it (except on Windows).

    Raises BuildError for options that cannot be combined, such as `follow` with a URL, MissingExtra
    for `.zst` without the extra `zstd` and for a URL without `objects` or the driver of its
    store.

    >>> import os
    >>> from penstock import for_each, read_jsonl, run
    >>> reading, writing = os.pipe()
    >>> os.write(writing, b'{"id": 1}'), os.close(writing)
    (9, None)
    >>> report = run(read_jsonl(reading).to(for_each(print)))
    {'id': 1}
    >>> os.close(reading)
    """
    options = LineOptions(path, follow, created, on_bad_line, max_line, position, order)
    return Flowable.like(read_lines_as("read_jsonl", json_lines_as(decode), options))


def json_lines_as(decode: Callable[[bytes], Any] | None) -> Format[Any]:
    """The format of `read_jsonl`. Raises BuildError for what cannot decode a line."""
    if decode is None:
        return Format(_object, _objects, skips_blank=True, values=Mapping, repeatable=True)
    return decoding("read_jsonl", decode, skips_blank=True)


def _objects(lines: list[Line]) -> list[Any] | None:
    try:
        values: list[Any] = list(map(loads, lines))  # type: ignore[arg-type]  # refuses TooLong
    except JSONDecodeError:
        return None
    if max(map(len, lines)) > SHALLOW and any(map(is_too_deep, lines, values)):  # type: ignore[arg-type]
        return None
    return values if set(map(type, values)) == {dict} else None


def _object(line: bytes) -> Any:
    value = json_value(line)
    if value.__class__ is not dict:
        raise NotAValue(f"is {_kind(value)}, not an object")
    return value


def _kind(value: Any) -> str:
    """The JSON name of a value's type."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "a truth value"
    if isinstance(value, list):
        return "an array"
    return "a string" if isinstance(value, str) else "a number"
